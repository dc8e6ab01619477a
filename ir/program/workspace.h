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
// 1.2 MB, so that it stays in a second-level cache of 2 MiB while panels of the other and sums pass
// through the rest. All bounds hold for every kind of tile.
struct GemmBlocking {
  static constexpr int64_t kVectorDepth = 384;  // of a slice
  static constexpr int64_t kDotDepth = 768;     // of vectors that multiply pairs
  static constexpr int64_t kAmxDepth = 768;
  static constexpr int64_t kAmxSplitDepth = 384;  // of f32 in three parts of 2 bytes
  static constexpr int64_t kAmxCols = 768;        // of a block of b, which only AMX has
  static constexpr int64_t kAmxSplitCols = 512;
  static constexpr int64_t kAmxRows = 32;      // of a tile
  static constexpr int64_t kAmxHeight = 1024;  // rows whose panels, or sums, are kept
  static constexpr int64_t kPad = 32;          // elements between the rows of a panel of a
  static constexpr int64_t kMaxTile = 64;      // rows and columns
  // The largest panel of the factor that has no block.
  static constexpr int64_t kPanelBytes = 106496;
  static constexpr int64_t kEdgeBytes = 8192;  // one tile of c
  static constexpr int64_t kStagedRows = 512;  // of c, kept in f32 until rounded
  static constexpr int64_t kStagedCols = 384;

  static constexpr int64_t blockRows(int64_t elementBytes) { return elementBytes == 8 ? 384 : 768; }

  static constexpr int64_t blockBytes(const GemmShape& shape) {
    const int64_t height = blockRows(shape.elementBytes);
    const int64_t slices = roundUp(shape.k, kVectorDepth) / kVectorDepth;
    const int64_t rows =
        std::min(height, (std::min(height, shape.m) + kMaxTile) * slices) + kMaxTile;
    const int64_t ofA =
        rows * (kVectorDepth + kPad) * std::max<int64_t>(shape.elementBytes, sizeof(float));
    return roundUp(std::max(ofA, blockOfBBytes(shape)), 64);
  }

  // Sums of some rows and columns; AMX: of a block of b's columns, for the rows of one tile if all
  // depths are one slice, else for kAmxHeight rows.
  static constexpr int64_t stagedBytes(const GemmShape& shape) {
    if (!shape.staged) return 0;
    const int64_t rows = shape.k <= kAmxDepth ? kAmxRows : roundUp(shape.m, kAmxRows);
    const int64_t sums =
        std::max(std::min(kStagedRows, shape.m) * std::min(kStagedCols, shape.n),
                 std::min(kAmxHeight, rows) * std::min(kAmxCols, roundUp(shape.n, kMaxTile)));
    return roundUp(sums * 4, 64);
  }

  // One panel of the factor that has no block; AMX: of kAmxHeight rows. What other engines leave
  // untouched of it is no memory.
  static constexpr int64_t panelsBytes(const GemmShape& shape) {
    return std::max(kPanelBytes, panelsOfABytes(shape));
  }

 private:
  static constexpr int64_t panelsOfABytes(const GemmShape& shape) {
    const int64_t rows = std::min(kAmxHeight, roundUp(shape.m, kAmxRows));
    return rows * packedRowBytes(shape);
  }
  static constexpr int64_t blockOfBBytes(const GemmShape& shape) {
    const int64_t most = shape.elementBytes == 2 ? kAmxCols : kAmxSplitCols;
    return std::min(most, roundUp(shape.n, kMaxTile)) * packedRowBytes(shape);
  }
  // Of a row, or column, in a slice for AMX.
  static constexpr int64_t packedRowBytes(const GemmShape& shape) {
    const int64_t depth = roundUp(shape.k, kMaxTile);
    switch (shape.elementBytes) {
      case 2:
        return std::min(kAmxDepth, depth) * 2;
      case 4:
        return std::min(kAmxSplitDepth, depth) * 6;
      default:
        return 0;
    }
  }
};

// Scratch of a product on one thread, and of one that is divided over threads.
constexpr int64_t gemmScratchBytes(const GemmShape& shape) {
  return GemmBlocking::blockBytes(shape) + GemmBlocking::panelsBytes(shape) +
         GemmBlocking::kEdgeBytes + GemmBlocking::stagedBytes(shape) + 64;
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
