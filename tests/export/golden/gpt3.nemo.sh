#!/bin/bash
# Megatron-Bridge for gpt3-175b on 1024 ranks: tp 4, pp 8, cp 2, dp 16; batch 1536, sequence 2048, bf16.
# Written by trireme export.
# Note: data, tokenizer and checkpoints are yours: dataset.data_path, tokenizer.*, checkpoint.*.
# Note: the plan has no number of steps: give --steps or train.train_iters.
# Run it on every node, with NODE_RANK, MASTER_ADDR (the first node) and MASTER_PORT set.
export CUDA_DEVICE_MAX_CONNECTIONS=1
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
ARGUMENTS=(
  model.num_layers=96
  model.hidden_size=12288
  model.ffn_hidden_size=49152
  model.num_attention_heads=96
  model.position_embedding_type=learned_absolute
  model.normalization=LayerNorm
  model.layernorm_epsilon=1e-05
  model.init_method_std=0.02
  tokenizer.vocab_size=51200
  model.make_vocab_size_divisible_by=128
  model.seq_length=2048
  ++dataset.seq_length=2048
  train.micro_batch_size=3
  train.global_batch_size=1536
  rng.seed=1234
  model.attention_dropout=0
  model.hidden_dropout=0
  optimizer.lr=0.0003
  optimizer.min_lr=0
  scheduler.lr_decay_style=constant
  scheduler.lr_warmup_iters=0
  optimizer.weight_decay=0.1
  scheduler.start_weight_decay=0.1
  scheduler.end_weight_decay=0.1
  optimizer.adam_beta1=0.9
  optimizer.adam_beta2=0.95
  optimizer.adam_eps=1e-08
  optimizer.clip_grad=1
  model.tensor_model_parallel_size=4
  model.pipeline_model_parallel_size=8
  model.context_parallel_size=2
  model.virtual_pipeline_model_parallel_size=6
  model.sequence_parallel=true
  ddp.use_distributed_optimizer=true
  optimizer.use_distributed_optimizer=true
  ddp.overlap_grad_reduce=true
  ddp.overlap_param_gather=true
  model.bias_activation_fusion=true
  model.bias_dropout_fusion=true
  mixed_precision=bf16_mixed
  'comm_overlap={_target_:megatron.bridge.training.comm_overlap.CommOverlapConfig,tp_comm_overlap:false,overlap_p2p_comm:true,batch_p2p_comm:false,align_param_gather:true}'
)
torchrun --nnodes 128 --nproc-per-node 8 --node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT" scripts/training/run_recipe.py --recipe vanilla_gpt_pretrain_config "${ARGUMENTS[@]}"
