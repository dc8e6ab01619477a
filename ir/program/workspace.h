// Scratch bytes that host library kernels may use: part of the arena, so that planner, compiler and
// runtime agree. Depends only on the op and its local shapes.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "ir/program/op.h"

namespace trireme::program {

// Upper bound of what the library kernel of `op` uses of KernelCallArgs::workspace, for any number
// of threads. `operands` are all operands of the segment.
int64_t hostWorkspaceBytes(const SegmentOp& op, const std::vector<OperandType>& operands);

// Below: how the kernels divide that scratch. Kernels use no more than kMaxKernelThreads threads
// for a call that needs scratch.
inline constexpr int kMaxKernelThreads = 8;

// Blocks of the matrix product (runtime/kernels/gemm.h). The block of b is about 1 MiB: half of a
// second-level cache.
struct GemmBlocking {
  static constexpr int64_t kDepth = 384;
  static constexpr int64_t kPanelPad = 16;
  static constexpr int64_t kMaxTileRows = 14;
  static constexpr int64_t kMaxTileBytes = 192;  // width of a tile

  static constexpr int64_t columns(int64_t elementBytes) { return 3072 / elementBytes; }

  // Elements, for a product of n columns and depth k.
  static constexpr int64_t blockElements(int64_t n, int64_t k, int64_t elementBytes) {
    const int64_t tile = kMaxTileBytes / elementBytes;
    const int64_t cols = std::min(columns(elementBytes), (n + tile - 1) / tile * tile);
    return cols * std::min(kDepth, k);
  }
  static constexpr int64_t panelElements() { return kMaxTileRows * (kDepth + kPanelPad); }
  static constexpr int64_t edgeBytes() { return kMaxTileRows * kMaxTileBytes; }
};

// Scratch of a product on one thread, and of one that is divided over threads.
constexpr int64_t gemmScratchBytes(int64_t n, int64_t k, int64_t elementBytes) {
  const int64_t elements = GemmBlocking::blockElements(n, k, elementBytes) +
                           GemmBlocking::panelElements();
  return (elements * elementBytes + GemmBlocking::edgeBytes() + 127) / 64 * 64;
}
constexpr int64_t parallelGemmScratchBytes(int64_t n, int64_t k, int64_t elementBytes) {
  return kMaxKernelThreads * gemmScratchBytes(n, k, elementBytes);
}

}  // namespace trireme::program
