#!/bin/bash
# Hugging Face Accelerate for llama2-7b on 64 ranks: tp 1, pp 1, cp 1, dp 64; batch 256, sequence 4096, bf16.
# Written by trireme export.
# Note: train.py stands for your script: a batch of 4 per device, sequence length 4096, learning rate and clipping are set there.
# Note: the plan reduces gradients in float32; with mixed_precision: bf16 alone Accelerate reduces them in bf16, half the bytes: to run what is priced give Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(mixed_precision_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.bfloat16))); to price what runs without, set reduced_gradient_bytes: 2 in a copy of the stack.
# Note: seed and dropout are your script's: the plan has seed 1234, dropout 0 of embeddings, 0 of attention, 0 of the residual stream.
# Run it on the first node; OpenMPI takes the others from --hostfile hosts.
set -euo pipefail
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
export MASTER_ADDR=$(hostname) MASTER_PORT=29500
cat > accelerate.yaml <<'END'
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
num_machines: 8
num_processes: 64
machine_rank: 0
main_training_function: main
mixed_precision: bf16
rdzv_backend: static
same_network: true
use_cpu: false
fsdp_config:
  fsdp_version: 2
  fsdp_reshard_after_forward: true
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_activation_checkpointing: false
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_offload_params: false
END
mpirun -np 8 --map-by ppr:1:node --bind-to none --hostfile hosts -x MASTER_ADDR -x MASTER_PORT -x PYTORCH_CUDA_ALLOC_CONF bash -c 'accelerate launch --machine_rank "$OMPI_COMM_WORLD_RANK" --main_process_ip "$MASTER_ADDR" --main_process_port "$MASTER_PORT" --config_file accelerate.yaml train.py'
