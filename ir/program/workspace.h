// Scratch bytes that library kernels may use: part of the arena, so that planner, compiler and
// runtime agree. Depends only on the op and its local shapes.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "ir/program/op.h"

namespace trireme::program {

// Upper bound of what the library kernel of `op` uses of its rank's workspace, on hosts with any
// number of threads and on GPUs. `operands` are all operands of the segment.
int64_t kernelWorkspaceBytes(const SegmentOp& op, const std::vector<OperandType>& operands);

// Below: how the kernels divide that scratch. Kernels use no more than kMaxKernelThreads threads
// for a call that needs scratch.
inline constexpr int kMaxKernelThreads = 8;

// What kernels of `threads` threads leave untouched of a workspace, at its end: its parts for the
// other threads. The arena has room for all of them, so that it does not depend on --threads.
constexpr int64_t idleWorkspaceBytes(int64_t workspaceBytes, int threads) {
  return workspaceBytes / kMaxKernelThreads *
         (kMaxKernelThreads - std::min(threads, kMaxKernelThreads));
}

constexpr int64_t roundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

struct GemmShape {
  int64_t m, n, k;
  int64_t elementBytes;  // of the factors
  bool staged;           // the product is rounded to fewer bits than it is summed in
};

// Blocks of the matrix product (runtime/kernels/gemm.h). The packed block of one factor is about
// 1.2 MB, which leaves room for the rest in a second-level cache of 2 MiB. All bounds hold for
// every kind of tile.
struct GemmBlocking {
  static constexpr int64_t kVectorDepth = 384;    // of a slice
  static constexpr int64_t kAmxDepth = 768;       // no larger in bytes than a slice for vectors
  static constexpr int64_t kDotDepth = 768;       // of vectors that multiply pairs; the same
  static constexpr int64_t kPad = 32;             // elements between the rows of a panel of a
  static constexpr int64_t kMaxTile = 64;         // rows and columns
  static constexpr int64_t kBlockCols = 768;      // of a block of b, which only AMX has
  static constexpr int64_t kPanelBytes = 106496;  // one panel of the factor that has no block
  static constexpr int64_t kEdgeBytes = 8192;     // one tile of c
  static constexpr int64_t kStagedRows = 512;     // of c, kept in f32 until rounded
  static constexpr int64_t kStagedCols = 384;

  static constexpr int64_t blockRows(int64_t elementBytes) { return elementBytes == 8 ? 384 : 768; }

  static constexpr int64_t blockBytes(const GemmShape& shape) {
    const int64_t height = blockRows(shape.elementBytes);
    const int64_t slices = roundUp(shape.k, kVectorDepth) / kVectorDepth;
    const int64_t rows =
        std::min(height, (std::min(height, shape.m) + kMaxTile) * slices) + kMaxTile;
    const int64_t ofA =
        rows * (kVectorDepth + kPad) * std::max<int64_t>(shape.elementBytes, sizeof(float));
    const int64_t ofB = std::min(kBlockCols, roundUp(shape.n, kMaxTile)) *
                        std::min(kAmxDepth, roundUp(shape.k, kMaxTile)) * 2;
    return roundUp(shape.elementBytes == 2 ? std::max(ofA, ofB) : ofA, 64);
  }
};

// Scratch of a product on one thread, and of one that is divided over threads.
constexpr int64_t gemmScratchBytes(const GemmShape& shape) {
  const int64_t staged = std::min(GemmBlocking::kStagedRows, shape.m) *
                         std::min(GemmBlocking::kStagedCols, shape.n) * 4;
  return GemmBlocking::blockBytes(shape) + GemmBlocking::kPanelBytes + GemmBlocking::kEdgeBytes +
         (shape.staged ? roundUp(staged, 64) : 0) + 64;
}
constexpr int64_t parallelGemmScratchBytes(const GemmShape& shape) {
  return kMaxKernelThreads * gemmScratchBytes(shape);
}

// Blocks of attention (runtime/kernels/attention.h): this many queries by as many keys.
struct AttentionBlocking {
  static constexpr int64_t kRows = 128;
};

struct AttentionScratchShape {
  int64_t sequence, headSize;
  int64_t elementBytes;  // of the activations
  bool backward;
};

// Scratch of attention on one thread.
int64_t attentionScratchBytes(const AttentionScratchShape& shape);

// Of the backward pass on a GPU's tensor cores: a number per query, f32 [b, local heads, s].
int64_t attentionDeltaBytes(const OperandType& logSums);

}  // namespace trireme::program
