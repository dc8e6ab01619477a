#!/bin/bash
# Megatron-Bridge for llama3-70b on 256 ranks: tp 4, pp 4, cp 2, dp 8; batch 512, sequence 8192, bf16.
# Written by trireme export.
# Note: data, tokenizer and checkpoints are yours: dataset.data_path, tokenizer.*, checkpoint.*.
# Note: the plan has no number of steps: give --steps or train.train_iters.
# Run it on every node, with NODE_RANK, MASTER_ADDR (the first node) and MASTER_PORT set.
export CUDA_DEVICE_MAX_CONNECTIONS=1
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
ARGUMENTS=(
  model.num_layers=80
  model.hidden_size=8192
  model.ffn_hidden_size=28672
  model.num_attention_heads=64
  model.num_query_groups=8
  model.position_embedding_type=rope
  model.rotary_base=500000
  model.normalization=RMSNorm
  model.layernorm_epsilon=1e-05
  model.gated_linear_unit=true
  model.activation_func=silu
  model.add_bias_linear=false
  model.share_embeddings_and_output_weights=false
  model.init_method_std=0.02
  tokenizer.vocab_size=128256
  model.make_vocab_size_divisible_by=128
  model.seq_length=8192
  ++dataset.seq_length=8192
  train.micro_batch_size=1
  train.global_batch_size=512
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
  model.pipeline_model_parallel_size=4
  model.context_parallel_size=2
  'model.pipeline_model_parallel_layout=Et*6|t*7|t*7|t*7|t*7|t*7|t*7|t*6|t*7|t*7|t*6|t*6L'
  model.sequence_parallel=true
  ddp.use_distributed_optimizer=true
  optimizer.use_distributed_optimizer=true
  ddp.overlap_grad_reduce=true
  ddp.overlap_param_gather=true
  model.bias_activation_fusion=true
  model.bias_dropout_fusion=true
  model.apply_rope_fusion=true
  mixed_precision=bf16_mixed
  'comm_overlap={_target_:megatron.bridge.training.comm_overlap.CommOverlapConfig,tp_comm_overlap:false,overlap_p2p_comm:true,batch_p2p_comm:false,align_param_gather:true}'
)
torchrun --nnodes 32 --nproc-per-node 8 --node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT" scripts/training/run_recipe.py --recipe vanilla_gpt_pretrain_config "${ARGUMENTS[@]}"
