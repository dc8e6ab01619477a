#!/bin/bash
# Megatron-LM for gpt3-175b on 1024 ranks: tp 4, pp 8, cp 2, dp 16; batch 1536, sequence 2048, bf16.
# Written by trireme export.
# Note: data, tokenizer and checkpoints are yours: --data-path, --tokenizer-type, --save, --load.
# Note: the plan has no number of steps: give --steps or --train-iters.
# Run it on every node, with NODE_RANK, MASTER_ADDR (the first node) and MASTER_PORT set.
export CUDA_DEVICE_MAX_CONNECTIONS=1
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
ARGUMENTS=(
  --num-layers 96
  --hidden-size 12288
  --ffn-hidden-size 49152
  --num-attention-heads 96
  --max-position-embeddings 2048
  --position-embedding-type learned_absolute
  --normalization LayerNorm
  --norm-epsilon 1e-05
  --init-method-std 0.02
  --vocab-size 51200
  --make-vocab-size-divisible-by 128
  --seq-length 2048
  --micro-batch-size 3
  --global-batch-size 1536
  --bf16
  --accumulate-allreduce-grads-in-fp32
  --no-create-attention-mask-in-dataloader
  --seed 1234
  --attention-dropout 0
  --hidden-dropout 0
  --lr 0.0003
  --min-lr 0
  --lr-decay-style constant
  --lr-warmup-iters 0
  --weight-decay 0.1
  --adam-beta1 0.9
  --adam-beta2 0.95
  --adam-eps 1e-08
  --clip-grad 1
  --tensor-model-parallel-size 4
  --pipeline-model-parallel-size 8
  --context-parallel-size 2
  --num-virtual-stages-per-pipeline-rank 6
  --sequence-parallel
  --use-distributed-optimizer
  --overlap-grad-reduce
  --overlap-param-gather
)
torchrun --nnodes 128 --nproc-per-node 8 --node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT" pretrain_gpt.py "${ARGUMENTS[@]}"
