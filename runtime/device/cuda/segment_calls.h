// With which addresses a rank calls a segment.
#pragma once
#include <vector>

#include "runtime/executor/rank_program.h"

namespace trireme::runtime::cuda {

// Of each call of a step, for every layer and slot, one address per operand. Calls that repeat the
// addresses of another (a slot of a later microbatch) are listed once.
std::vector<std::vector<void*>> callsOf(const RankProgram& rank, int32_t segment);

}  // namespace trireme::runtime::cuda
