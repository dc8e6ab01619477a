// How one instruction set multiplies: the shape of its tile, and the packed forms it reads.
#pragma once
#include <array>
#include <cstdint>

#include "runtime/kernels/gemm.h"

namespace trireme::runtime {

// Fetches the cache lines of a part of a matrix, some at each step: to be read, from the
// second-level cache; to be written, from the first.
template <bool kForWriting>
class Prefetch {
 public:
  Prefetch() = default;
  template <typename T>
  Prefetch(const MatrixRef<T>& part, int64_t rows, int64_t cols) {
    const bool byRows = part.colStride == 1;
    address_ = reinterpret_cast<const char*>(part.data);
    runs_ = byRows ? rows : cols;
    stride_ = (byRows ? part.rowStride : part.colStride) * int64_t{sizeof(T)};
    runBytes_ = (byRows ? cols : rows) * int64_t{sizeof(T)};
  }

  // So that all lines are fetched in this many steps.
  void spread(int64_t steps) {
    const int64_t lines = runs_ * ((runBytes_ + 63) / 64);
    perStep_ = steps > 0 ? (lines + steps - 1) / steps : 0;
  }

  void step() {
    for (int64_t i = 0; i < perStep_ && runs_ > 0; ++i) {
      __builtin_prefetch(address_ + offset_, kForWriting ? 1 : 0, kForWriting ? 3 : 2);
      offset_ += 64;
      if (offset_ < runBytes_) continue;
      offset_ = 0;
      address_ += stride_;
      --runs_;
    }
  }

 private:
  const char* address_ = nullptr;
  int64_t runs_ = 0, stride_ = 0, runBytes_ = 0, offset_ = 0, perStep_ = 0;
};

// What is fetched while a tile is multiplied: some of the next panel of b, and the next tile of c.
struct NextOperands {
  Prefetch<false> b;
  Prefetch<true> c;

  void step() {
    b.step();
    c.step();
  }
};

// Factors of type T, sums of type Sum.
template <typename T, typename Sum>
struct GemmEngine {
  int64_t rows, cols;     // of a tile of c
  int64_t heightStep;     // what divides the height of a lower tile
  int64_t depth;          // of a slice, and so the most that a panel holds
  int64_t depthMultiple;  // a packed slice is filled up with zeros to this
  int64_t packedElementBytes;
  int64_t fetchDepth;  // of a step of the prefetch below
  bool blockOfB;       // rather than of a

  // Packs rows x depth of `a` into a panel from depth `first` on, filled up with zeros to a whole
  // tile. Two forms: for a matrix with contiguous rows, and with contiguous columns.
  using PackA = void (*)(const MatrixRef<T>& a, int64_t first, int64_t depth, int64_t rows,
                         void* panel);
  PackA packByRows, packByColumns;
  // c[rows, cols] (+)= panel of a times panel of b; `depth` is a multiple of depthMultiple.
  // Meanwhile takes the steps of `next`.
  using Multiply = void (*)(int64_t depth, const void* a, const void* b, Sum* c, int64_t ldc,
                            bool accumulate, NextOperands& next);
  // For tiles of heightStep rows, twice as many, ..., `rows`.
  using Heights = std::array<Multiply, 7>;
  Heights multiplyByRows, multiplyByColumns;
  // Packs depth x cols of `b`, filled up with zeros to a whole tile.
  using PackB = void (*)(const MatrixRef<T>& b, int64_t depth, int64_t cols, void* panel);
  PackB packB;

  void (*begin)();  // before and after a run of products on this thread; may be null
  void (*end)();
};

// The widest vectors that this machine has.
template <typename T, typename Sum>
const GemmEngine<T, Sum>& vectorEngine();

// The matrix unit; null if this machine or its system has none.
const GemmEngine<Bf16, float>* amxEngine();

}  // namespace trireme::runtime
