// The engine of vector multiply-adds. Panels are in the type of the sums: bf16 is widened when
// packed.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "runtime/kernels/gemm_engine.h"
#include "runtime/kernels/transpose.h"

#if defined(__x86_64__)
#define TRIREME_ISA avx512
#define TRIREME_TARGET __attribute__((target("avx512f")))
#define TRIREME_VECTOR_BYTES 64
#include "runtime/kernels/gemm_tile.inc"
#undef TRIREME_ISA
#undef TRIREME_TARGET
#undef TRIREME_VECTOR_BYTES
#define TRIREME_ISA avx2
#define TRIREME_TARGET __attribute__((target("avx2,fma")))
#define TRIREME_VECTOR_BYTES 32
#include "runtime/kernels/gemm_tile.inc"
#undef TRIREME_ISA
#undef TRIREME_TARGET
#undef TRIREME_VECTOR_BYTES
#endif
#define TRIREME_ISA baseline
#define TRIREME_TARGET
#define TRIREME_VECTOR_BYTES 16
#include "runtime/kernels/gemm_tile.inc"

namespace trireme::runtime {
namespace {

using program::GemmBlocking;

// Not a power of two, which would put all rows of a panel into one set of the cache.
constexpr int kRowStride = GemmBlocking::kVectorDepth + GemmBlocking::kPad;

// panel[k * kWidth + j] = b(k, j) for j < cols, and 0 for the other j < kWidth.
template <typename T, typename Sum, int kWidth>
void packColumns(const MatrixRef<T>& b, int64_t depth, int64_t cols, void* out) {
  Sum* panel = static_cast<Sum*>(out);
  if (cols < kWidth) std::fill(panel, panel + depth * kWidth, Sum{0});
  if (b.colStride == 1) {
    for (int64_t k = 0; k < depth; ++k) {
      const T* row = b.data + k * b.rowStride;
      if (cols == kWidth)  // a length that the compiler knows
        for (int64_t j = 0; j < kWidth; ++j) panel[k * kWidth + j] = widen(row[j]);
      else
        for (int64_t j = 0; j < cols; ++j) panel[k * kWidth + j] = widen(row[j]);
    }
    return;
  }
  int64_t squareCols = 0, squareDepth = 0;
  if constexpr (std::is_same_v<T, float>) {
    squareCols = cols / 4 * 4;
    squareDepth = depth / 4 * 4;
    for (int64_t k = 0; k < squareDepth; k += 4)
      for (int64_t j = 0; j < squareCols; j += 4)
        transpose4x4(b.data + j * b.colStride + k, 4 * b.colStride, panel + k * kWidth + j,
                     4 * kWidth);
  }
  for (int64_t k = 0; k < depth; ++k)
    for (int64_t j = k < squareDepth ? squareCols : 0; j < cols; ++j)
      panel[k * kWidth + j] = widen(b.data[k + j * b.colStride]);
}

// A panel by columns is a packed b of as many columns as the tile has rows.
template <typename T, typename Sum, int kRows>
void packByColumns(const MatrixRef<T>& a, int64_t depth, int64_t rows, void* panel) {
  packColumns<T, Sum, kRows>(a.transposed(), depth, rows, panel);
}

// panel[i * kRowStride + k] = a(i, k); 0 for the rows beyond.
template <typename T, typename Sum, int kRows>
void packByRows(const MatrixRef<T>& a, int64_t depth, int64_t rows, void* out) {
  for (int64_t i = 0; i < kRows; ++i) {
    Sum* row = static_cast<Sum*>(out) + i * kRowStride;
    for (int64_t k = 0; k < depth && i < rows; ++k) row[k] = widen(a.data[i * a.rowStride + k]);
    if (i >= rows) std::fill_n(row, depth, Sum{0});
  }
}

#define TRIREME_MULTIPLY(isa, rowStride, colStride)                                         \
  [](int64_t depth, const void* a, const void* b, Sum* c, int64_t ldc, bool accumulate) {   \
    isa::multiplyTile<Sum, kRows, 2, rowStride, colStride>(                                 \
        depth, static_cast<const Sum*>(a), static_cast<const Sum*>(b), c, ldc, accumulate); \
  }
#define TRIREME_ENGINE(isa, tileRows)                                      \
  template <typename T, typename Sum>                                      \
  GemmEngine<T, Sum> isa##Engine() {                                       \
    constexpr int kRows = tileRows, kCols = 2 * isa::kVectorElements<Sum>; \
    return {kRows,                                                         \
            kCols,                                                         \
            GemmBlocking::kVectorDepth,                                    \
            1,                                                             \
            sizeof(Sum),                                                   \
            packByRows<T, Sum, kRows>,                                     \
            packByColumns<T, Sum, kRows>,                                  \
            TRIREME_MULTIPLY(isa, kRowStride, 1),                          \
            TRIREME_MULTIPLY(isa, 1, kRows),                               \
            packColumns<T, Sum, kCols>,                                    \
            nullptr,                                                       \
            nullptr};                                                      \
  }

#if defined(__x86_64__)
TRIREME_ENGINE(avx512, 14)  // 28 sums, 2 columns of b and 1 element of a in 32 registers
TRIREME_ENGINE(avx2, 6)     // 12 + 2 + 1 in 16
#endif
TRIREME_ENGINE(baseline, 6)

template <typename T, typename Sum>
GemmEngine<T, Sum> pickEngine() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return avx512Engine<T, Sum>();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2Engine<T, Sum>();
#endif
  return baselineEngine<T, Sum>();
}

}  // namespace

template <typename T, typename Sum>
const GemmEngine<T, Sum>& vectorEngine() {
  static const GemmEngine<T, Sum> engine = pickEngine<T, Sum>();
  return engine;
}

template const GemmEngine<float, float>& vectorEngine();
template const GemmEngine<double, double>& vectorEngine();
template const GemmEngine<Bf16, float>& vectorEngine();

}  // namespace trireme::runtime
