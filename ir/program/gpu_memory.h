// What a run takes of a GPU's memory beside the arenas of its ranks: for plans that are to fit, and
// for the check before a run, so that a run which begins does not end with its first step. All are
// estimates, as the sources say; none has been measured with this runtime.
#pragma once
#include <cstdint>

#include "ir/base/units.h"
#include "ir/program/cliques.h"

namespace trireme::program {

// A launch in a CUDA graph. Graphs of 500, 1000 and 2000 empty kernels took 362, 395 and 458 MB of
// a GPU with driver 470 and CUDA 11.2, as nvidia-smi showed: 63 to 66 KB each
// (forums.developer.nvidia.com/t/increasing-memory-footprint-with-large-task-graphs/244901, seen
// 2026-11-22).
inline constexpr int64_t kGraphNodeBytes = int64_t{64} << 10;

// The driver's context: what is left there without the graphs' launches.
inline constexpr int64_t kContextBytes = 330'000'000;

// Kernels of cuBLASLt, which the driver loads when they are called first, and small blocks: tables
// of the norm, factors of the optimizer. Per GPU. Without a source.
inline constexpr int64_t kLazyBytes = int64_t{256} << 20;

// NCCL's buffers for what a channel sends to one peer and receives from it: eight H100s that opened
// 32 channels to each of seven peers took 3.28 GB more (github.com/NVIDIA/nccl/issues/1685, seen
// 2026-11-23).
inline constexpr int64_t kConnectionBytes = int64_t{15} << 20;

// Channels that a communicator of the lane may have. What overlaps has to find room on the GPU at
// once: kernels of NCCL that wait for different ranks must not keep each other out. Four lanes of
// messages, two of reductions and the collectives are 96 blocks; an A100 has 108 multiprocessors,
// an H100 132. Whether fewer are slower has not been measured.
int64_t mostChannels(Lane lane);

// Channels that NCCL opens over links of that bandwidth, one direction, unless it may have fewer:
// one for 12.5 GB/s, two at least and 32 at most. It said 16 for the 200 GB/s of an H800
// (github.com/NVIDIA/nccl/issues/892), and had rings 0 and 1 on PCIe 4.0
// (github.com/NVIDIA/nccl-tests/issues/307; both seen 2026-11-23).
int64_t channelsOver(BytesPerSecond bandwidth);

// Connections of a member of a communicator with so many channels, each of kConnectionBytes:
// collectives go around a ring and up and down a tree, three per channel; a message goes one way,
// which is half of one.
double ncclConnections(Lane lane, int64_t channels);

}  // namespace trireme::program
