// What a run takes of a GPU's memory beside its arenas and what NCCL takes: what the driver loads
// and keeps when work comes to it. For the check before a run, so that a run which begins does not
// end with its first graphs.
//
// The context and our own kernels are not in it: they are there when the check asks what is free.
#pragma once
#include <cstdint>

#include "ir/program/bundle.h"
#include "runtime/executor/rank_program.h"

namespace trireme::runtime::cuda {

// Kernels of cuBLASLt, which the driver loads when they are called first, and small blocks: tables
// of the norm, factors of the optimizer. Per GPU. An estimate, without a source: to be measured.
inline constexpr int64_t kLazyBytes = int64_t{256} << 20;

// A launch in a CUDA graph. Graphs of 500, 1000 and 2000 empty kernels took 362, 395 and 458 MB of
// a GPU with driver 470 and CUDA 11.2, as nvidia-smi showed: 63 to 66 KB each
// (forums.developer.nvidia.com/t/increasing-memory-footprint-with-large-task-graphs/244901, seen
// 2026-11-22). An estimate for later drivers: to be measured.
inline constexpr int64_t kGraphNodeBytes = int64_t{64} << 10;

// Launches in the graphs that a rank captures: at most so many. Every body counts once per slot (a
// last backward too, which shares the graphs of the others there); a generated kernel is a launch,
// another op up to two.
int64_t numGraphNodes(const program::Bundle& bundle, const RankProgram& rank);

}  // namespace trireme::runtime::cuda
