// How one instruction set multiplies: the shape of its tile, and the packed forms it reads.
#pragma once
#include <cstdint>

#include "runtime/kernels/gemm.h"

namespace trireme::runtime {

// Factors of type T, sums of type Sum.
template <typename T, typename Sum>
struct GemmEngine {
  int64_t rows, cols;     // of a tile of c
  int64_t depth;          // of a block; also the most that a panel of a holds
  int64_t depthMultiple;  // a packed block is filled up with zeros to this
  int64_t packedElementBytes;

  // Packs a(0..rows, 0..depth), filled up with zeros to a whole tile.
  using Pack = void (*)(const MatrixRef<T>& matrix, int64_t depth, int64_t extent, void* panel);
  // c[rows, cols] (+)= panel of a times panel of b; `depth` is a multiple of depthMultiple.
  using Multiply = void (*)(int64_t depth, const void* a, const void* b, Sum* c, int64_t ldc,
                            bool accumulate);
  // Two forms of a panel of a: for a matrix with contiguous rows, and with contiguous columns.
  Pack packByRows, packByColumns;
  Multiply multiplyByRows, multiplyByColumns;
  Pack packB;

  void (*begin)();  // before and after a run of products on this thread; may be null
  void (*end)();
};

// The widest vectors that this machine has.
template <typename T, typename Sum>
const GemmEngine<T, Sum>& vectorEngine();

// The matrix unit; null if this machine or its system has none.
const GemmEngine<Bf16, float>* amxEngine();

}  // namespace trireme::runtime
