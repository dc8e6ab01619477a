// How much of what ir/program/gpu_memory.h states a rank takes.
#pragma once
#include <cstdint>

#include "ir/program/bundle.h"
#include "runtime/executor/rank_program.h"

namespace trireme::runtime::cuda {

// Launches in the graphs that a rank captures: at most so many. Every body counts once per slot (a
// last backward too, which shares the graphs of the others there); a generated kernel is a launch,
// another op up to two.
int64_t numGraphNodes(const program::Bundle& bundle, const RankProgram& rank);

}  // namespace trireme::runtime::cuda
