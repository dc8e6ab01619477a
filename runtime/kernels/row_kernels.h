// Loops over contiguous elements that attention and loss are made of, compiled for each instruction
// set and picked by CPUID. f64 has plain loops: it is for tests.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "ir/base/rng.h"
#include "runtime/kernels/bf16.h"

namespace trireme::runtime {

// exp below is within 1.02 units in the last place for |x| <= 87, and beyond exp of the nearer
// bound. A NaN stays.
struct RowKernels {
  float (*max)(const float* x, int64_t n);  // -inf if n == 0
  // y[i] = exp(x[i] * scale - shift); returns their sum, in a fixed order. y may be x.
  float (*expSum)(const float* x, int64_t n, float scale, float shift, float* y);
  // y[i] = exp(x[i] - shift) * factor. y may be x.
  void (*expTimes)(const float* x, int64_t n, float shift, float factor, float* y);
  // Sum of x[i] * y[i], in a fixed order.
  float (*dot)(const float* x, const float* y, int64_t n);
  float (*dotBf16)(const Bf16* x, const Bf16* y, int64_t n);
  float (*dotF16)(const F16* x, const F16* y, int64_t n);
  // g[i] = p[i] * (g[i] - delta) * scale
  void (*softmaxGrad)(const float* p, int64_t n, float delta, float scale, float* g);
  void (*widen)(const Bf16* x, int64_t n, float* y);
  void (*narrow)(const float* x, int64_t n, Bf16* y);
  void (*widenF16)(const F16* x, int64_t n, float* y);
  void (*narrowF16)(const float* x, int64_t n, F16* y);
  void (*narrowRows)(const float* x, int64_t ldx, int64_t rows, int64_t n, Bf16* y, int64_t ldy);
  void (*narrowRowsPastCaches)(const float* x, int64_t ldx, int64_t rows, int64_t n, Bf16* y,
                               int64_t ldy);
  void (*narrowRowsF16)(const float* x, int64_t ldx, int64_t rows, int64_t n, F16* y, int64_t ldy);
  // words[i] = randomWord(key, sample, first + i)
  void (*randomWords)(RngKey key, uint64_t sample, uint64_t first, int64_t n, uint32_t* words);
};
// Those that this CPU has, the fastest first.
const std::vector<const RowKernels*>& rowKernelSets();
const RowKernels& rowKernels();  // The fastest.

// The same for either type of sums.
inline float rowMax(const float* x, int64_t n) { return rowKernels().max(x, n); }
inline double rowMax(const double* x, int64_t n) { return *std::max_element(x, x + n); }

inline float rowExpSum(const float* x, int64_t n, float scale, float shift, float* y) {
  return rowKernels().expSum(x, n, scale, shift, y);
}
inline double rowExpSum(const double* x, int64_t n, double scale, double shift, double* y) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += y[i] = std::exp(x[i] * scale - shift);
  return sum;
}

inline float rowDot(const float* x, const float* y, int64_t n) { return rowKernels().dot(x, y, n); }
inline float rowDot(const Bf16* x, const Bf16* y, int64_t n) {
  return rowKernels().dotBf16(x, y, n);
}
inline float rowDot(const F16* x, const F16* y, int64_t n) { return rowKernels().dotF16(x, y, n); }
inline double rowDot(const double* x, const double* y, int64_t n) {
  return std::inner_product(x, x + n, y, 0.0);
}

inline void rowSoftmaxGrad(const float* p, int64_t n, float delta, float scale, float* g) {
  rowKernels().softmaxGrad(p, n, delta, scale, g);
}
inline void rowSoftmaxGrad(const double* p, int64_t n, double delta, double scale, double* g) {
  for (int64_t i = 0; i < n; ++i) g[i] = p[i] * (g[i] - delta) * scale;
}

inline void rowWiden(const Bf16* x, int64_t n, float* y) { rowKernels().widen(x, n, y); }
inline void rowWiden(const F16* x, int64_t n, float* y) { rowKernels().widenF16(x, n, y); }
inline void rowNarrow(const float* x, int64_t n, Bf16* y) { rowKernels().narrow(x, n, y); }
inline void rowNarrow(const float* x, int64_t n, F16* y) { rowKernels().narrowF16(x, n, y); }
// Of `rows` rows, ldx and ldy apart.
inline void rowsNarrow(const float* x, int64_t ldx, int64_t rows, int64_t n, Bf16* y, int64_t ldy) {
  rowKernels().narrowRows(x, ldx, rows, n, y, ldy);
}
// Past the caches, where the instruction set can.
inline void rowsNarrowPastCaches(const float* x, int64_t ldx, int64_t rows, int64_t n, Bf16* y,
                                 int64_t ldy) {
  rowKernels().narrowRowsPastCaches(x, ldx, rows, n, y, ldy);
}
inline void rowsNarrow(const float* x, int64_t ldx, int64_t rows, int64_t n, F16* y, int64_t ldy) {
  rowKernels().narrowRowsF16(x, ldx, rows, n, y, ldy);
}
template <typename T>
void rowNarrow(const T* x, int64_t n, T* y) {
  std::copy_n(x, n, y);
}

}  // namespace trireme::runtime
