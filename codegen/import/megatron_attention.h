// Which attention a script of Megatron-LM asks for, by flags and by variables of its environment.
#pragma once
#include <string>
#include <vector>

#include "codegen/import/megatron_flags.h"

namespace trireme::codegen {

// Fails in `flags` where attention is in parts, which no profile of Megatron's has. What is priced
// otherwise is a note: FlashAttention 2 instead of cuDNN, and exchanges among cp ranks.
void readAttention(Flags& flags, const std::vector<ShellText>& kernelVariables,
                   std::vector<std::string>& notes);

}  // namespace trireme::codegen
