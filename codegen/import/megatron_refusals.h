// Flags of Megatron-LM's command lines that end in a refusal, by Megatron itself or here.
#pragma once
#include "codegen/import/megatron_flags.h"
#include "ir/plan/plan.h"

namespace trireme::codegen {

// Flags of earlier versions and of Megatron-DeepSpeed, and of models and memory that no ModelSpec
// or Plan says.
void refuseOtherFlags(Flags& flags);

// What validate_args() of megatron/training/arguments.py refuses together. `plan` has degrees,
// virtual stages and sequence parallelism.
void refuseCombinations(Flags& flags, const plan::Plan& plan);

}  // namespace trireme::codegen
