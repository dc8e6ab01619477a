#!/bin/bash
# Megatron-LM for llama3-70b on 256 ranks: tp 4, pp 4, cp 2, dp 8; batch 512, sequence 8192, bf16.
# Written by trireme export.
# Note: data, tokenizer and checkpoints are yours: --data-path, --tokenizer-type, --save, --load.
# Note: the plan has no number of steps: give --steps or --train-iters.
# Run it on every node, with NODE_RANK, MASTER_ADDR (the first node) and MASTER_PORT set.
export CUDA_DEVICE_MAX_CONNECTIONS=1
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
ARGUMENTS=(
  --num-layers 80
  --hidden-size 8192
  --ffn-hidden-size 28672
  --num-attention-heads 64
  --group-query-attention
  --num-query-groups 8
  --max-position-embeddings 8192
  --position-embedding-type rope
  --rotary-base 500000
  --normalization RMSNorm
  --norm-epsilon 1e-05
  --swiglu
  --disable-bias-linear
  --untie-embeddings-and-output-weights
  --init-method-std 0.02
  --vocab-size 128256
  --make-vocab-size-divisible-by 128
  --seq-length 8192
  --micro-batch-size 1
  --global-batch-size 512
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
  --pipeline-model-parallel-size 4
  --context-parallel-size 2
  --pipeline-model-parallel-layout 'Et*6|t*7|t*7|t*7|t*7|t*7|t*7|t*6|t*7|t*7|t*6|t*6L'
  --sequence-parallel
  --use-distributed-optimizer
  --overlap-grad-reduce
  --overlap-param-gather
)
torchrun --nnodes 32 --nproc-per-node 8 --node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT" pretrain_gpt.py "${ARGUMENTS[@]}"
