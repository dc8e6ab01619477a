#!/bin/bash
#SBATCH --job-name=llama3-70b
#SBATCH --nodes=32
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
# torchtitan for llama3-70b on 256 ranks: tp 8, pp 1, cp 1, dp 32; batch 512, sequence 8192, bf16.
# Written by trireme export.
# Note: for torchtitan v0.2.2, the last release that reads TOML: since pull request 2386 (commit 9810191b, February 2026) it takes --module and --config, and these values belong into such a config.
# Note: data, tokenizer and checkpoints are yours: training.dataset, model.hf_assets_path, [checkpoint].
# Note: torchtitan scales the rotary positions of every Llama 3 as Llama 3.1 does; the plan's model has no rope_scaling.
# Note: the plan has no number of steps: give --steps or training.steps.
set -euo pipefail
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=29500
cat > plan.toml <<'END'
[model]
name = "llama3"
flavor = "70B"

[optimizer]
name = "AdamW"
lr = 0.0003
beta1 = 0.9
beta2 = 0.95
eps = 1e-08
weight_decay = 0.1

[lr_scheduler]
warmup_steps = 0
decay_type = "cosine"
decay_ratio = 0.0
min_lr_factor = 0.0

[training]
local_batch_size = 2
global_batch_size = 512
seq_len = 8192
max_norm = 1.0
mixed_precision_param = "bfloat16"
mixed_precision_reduce = "float32"

[compile]
enable = false

[debug]
seed = 1234

[parallelism]
data_parallel_replicate_degree = 4
data_parallel_shard_degree = 8
fsdp_reshard_after_forward = "always"
tensor_parallel_degree = 8
pipeline_parallel_degree = 1
context_parallel_degree = 1

[activation_checkpoint]
mode = "none"
END
srun --cpus-per-task="$SLURM_CPUS_ON_NODE" bash -c 'torchrun --nnodes 32 --nproc-per-node 8 --node-rank "$SLURM_NODEID" --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT" -m torchtitan.train --job.config_file plan.toml'
