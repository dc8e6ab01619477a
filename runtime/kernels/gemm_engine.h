// How one instruction set multiplies: the shape of its tile, and the packed forms it reads.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "runtime/kernels/gemm.h"

namespace trireme::runtime {

inline constexpr int64_t kFetchDepth = 8;
inline constexpr int64_t kLineBytes = 64;  // of a cache line

// Cache lines for a tile to fetch into the second-level cache, one every kFetchDepth depths: from
// `first` on until depth `half`, then from `second` on, `stride` bytes apart.
struct LineFetch {
  const char *first, *second;
  int64_t half, stride;
};

// The lines of a part of b, divided over tiles.
class PanelFetch {
 public:
  PanelFetch() = default;
  // `depth` is what a tile will multiply meanwhile.
  template <typename T>
  PanelFetch(const MatrixRef<T>& part, int64_t rows, int64_t cols, int64_t depth)
      : address_(reinterpret_cast<const char*>(part.data)),
        half_(std::max<int64_t>(1, depth / (2 * kFetchDepth)) * kFetchDepth) {
    const int64_t rowBytes = part.rowStride * int64_t{sizeof(T)};
    const int64_t colBytes = part.colStride * int64_t{sizeof(T)};
    if (part.colStride == 1) {  // down the rows, then to the next line of each row
      strides_ = {rowBytes, kLineBytes};
      extents_ = {rows, lines(cols * colBytes)};
    } else {
      strides_ = {kLineBytes, colBytes};
      extents_ = {lines(rows * rowBytes), cols};
    }
  }

  LineFetch take() {
    const char* first = takeHalf();
    return {first, takeHalf(), half_, strides_[0]};
  }

 private:
  static int64_t lines(int64_t bytes) { return (bytes + kLineBytes - 1) / kLineBytes; }

  // Past the end nothing is left: the last lines again.
  const char* takeHalf() {
    const char* from = address_ + at_[0] * strides_[0] + at_[1] * strides_[1];
    at_[0] += half_ / kFetchDepth;
    if (at_[0] < extents_[0]) return from;
    if (at_[1] + 1 < extents_[1]) at_ = {0, at_[1] + 1};
    return from;
  }

  const char* address_ = nullptr;
  int64_t half_ = kFetchDepth;
  std::array<int64_t, 2> strides_ = {}, extents_ = {}, at_ = {};
};

// Factors of type T, sums of type Sum.
template <typename T, typename Sum>
struct GemmEngine {
  int64_t rows, cols;     // of a tile of c
  int64_t heightStep;     // what divides the height of a lower tile
  int64_t depth;          // of a slice, and so the most that a panel holds
  int64_t strip;          // of these, the depths that tiles multiply at once
  int64_t depthMultiple;  // a packed slice is filled up with zeros to this
  int64_t packedElementBytes;
  int64_t blockCols;  // of a packed block of b; 0 if a's are packed in blocks

  // Packs rows x depth of `a` into a panel from depth `first` on, filled up with zeros to a whole
  // tile. Two forms: for a matrix with contiguous rows, and with contiguous columns.
  using PackA = void (*)(const MatrixRef<T>& a, int64_t first, int64_t depth, int64_t rows,
                         void* panel);
  PackA packByRows, packByColumns;
  // c[rows, cols] (+)= panel of a times panel of b; `depth` is a multiple of depthMultiple.
  // May fetch `next` meanwhile.
  using Multiply = void (*)(int64_t depth, const void* a, const void* b, Sum* c, int64_t ldc,
                            bool accumulate, LineFetch next);
  // For tiles of heightStep rows, twice as many, ..., `rows`.
  using Heights = std::array<Multiply, 3>;
  Heights multiplyByRows, multiplyByColumns;
  // Packs depth x cols of `b`, filled up with zeros to a whole tile.
  using PackB = void (*)(const MatrixRef<T>& b, int64_t depth, int64_t cols, void* panel);
  PackB packB;

  void (*begin)();  // before and after a run of products on this thread; may be null
  void (*end)();
};

// The engines that this machine can run; the first is the one that products use.
template <typename T>
const std::vector<const GemmEngine<T, SumOf<T>>*>& gemmEngines();

// gemm (gemm.h) by this engine.
template <typename T, typename C>
void gemmBy(const GemmEngine<T, SumOf<T>>& engine, const GemmCall<T, C>& call, void* scratch);

// What gemmEngines is made of. Vectors of multiply-adds, the widest first:
template <typename T>
std::vector<const GemmEngine<T, SumOf<T>>*> vectorEngines();
// vectors that multiply pairs of bf16, and the matrix unit, for bf16 and for f32 in three parts;
// null if this machine has none.
const GemmEngine<Bf16, float>* dotEngine();
const GemmEngine<Bf16, float>* amxEngine();
const GemmEngine<float, float>* amxSplitEngine();

}  // namespace trireme::runtime
