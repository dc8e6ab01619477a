#!/bin/bash
# Megatron-LM for gpt2-124m on 5 ranks: tp 1, pp 5, cp 1, dp 1; batch 40, sequence 1024, bf16.
# Written by trireme export.
# Note: data, tokenizer and checkpoints are yours: --data-path, --tokenizer-type, --save, --load.
# Note: the plan has no number of steps: give --steps or --train-iters.
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
ARGUMENTS=(
  --num-layers 12
  --hidden-size 768
  --ffn-hidden-size 3072
  --num-attention-heads 12
  --max-position-embeddings 1024
  --position-embedding-type learned_absolute
  --normalization LayerNorm
  --norm-epsilon 1e-05
  --init-method-std 0.02
  --vocab-size 50257
  --make-vocab-size-divisible-by 128
  --seq-length 1024
  --micro-batch-size 2
  --global-batch-size 40
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
  --tensor-model-parallel-size 1
  --pipeline-model-parallel-size 5
  --context-parallel-size 1
  --pipeline-model-parallel-layout 'E|t*4|t*4|t*4|L'
)
torchrun --standalone --nproc-per-node 5 pretrain_gpt.py "${ARGUMENTS[@]}"
