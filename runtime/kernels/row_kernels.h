// Loops over contiguous elements that attention and loss are made of, compiled for each instruction
// set and picked by CPUID. f64 has plain loops: it is for tests.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "ir/base/rng.h"
#include "runtime/kernels/bf16.h"

namespace trireme::runtime {

// exp for |x| <= 87, within 2 units in the last place; beyond, exp of the nearer bound. A NaN
// stays. Cody and Waite reduction to [-ln2/2, ln2/2] and a polynomial; no branch, so that loops
// over it become vector code.
inline float fastExp(float x) {
  constexpr float kLog2E = 1.44269504f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  x = x < -87.0f ? -87.0f : x;
  x = x > 87.0f ? 87.0f : x;
  const float shifted = x * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float value = p * r * r + r + 1.0f;
  // The low bits of `shifted` are n: moved into the exponent they make 2^n.
  const uint32_t power = (std::bit_cast<uint32_t>(shifted) << 23) + 0x3F800000u;
  return value * std::bit_cast<float>(power);
}

struct RowKernels {
  float (*max)(const float* x, int64_t n);  // -inf if n == 0
  // y[i] = exp(x[i] * scale - shift); returns their sum, in a fixed order. y may be x.
  float (*expSum)(const float* x, int64_t n, float scale, float shift, float* y);
  // y[i] = exp(x[i] - shift) * factor. y may be x.
  void (*expTimes)(const float* x, int64_t n, float shift, float factor, float* y);
  void (*widen)(const Bf16* x, int64_t n, float* y);
  void (*narrow)(const float* x, int64_t n, Bf16* y);
  void (*widenF16)(const F16* x, int64_t n, float* y);
  void (*narrowF16)(const float* x, int64_t n, F16* y);
  void (*narrowRows)(const float* x, int64_t ldx, int64_t rows, int64_t n, Bf16* y, int64_t ldy);
  void (*narrowRowsF16)(const float* x, int64_t ldx, int64_t rows, int64_t n, F16* y, int64_t ldy);
  // words[i] = randomWord(key, sample, first + i)
  void (*randomWords)(RngKey key, uint64_t sample, uint64_t first, int64_t n, uint32_t* words);
};
const RowKernels& rowKernels();

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

inline void rowWiden(const Bf16* x, int64_t n, float* y) { rowKernels().widen(x, n, y); }
inline void rowWiden(const F16* x, int64_t n, float* y) { rowKernels().widenF16(x, n, y); }
inline void rowNarrow(const float* x, int64_t n, Bf16* y) { rowKernels().narrow(x, n, y); }
inline void rowNarrow(const float* x, int64_t n, F16* y) { rowKernels().narrowF16(x, n, y); }
// Of `rows` rows, ldx and ldy apart.
inline void rowsNarrow(const float* x, int64_t ldx, int64_t rows, int64_t n, Bf16* y, int64_t ldy) {
  rowKernels().narrowRows(x, ldx, rows, n, y, ldy);
}
inline void rowsNarrow(const float* x, int64_t ldx, int64_t rows, int64_t n, F16* y, int64_t ldy) {
  rowKernels().narrowRowsF16(x, ldx, rows, n, y, ldy);
}
template <typename T>
void rowNarrow(const T* x, int64_t n, T* y) {
  std::copy_n(x, n, y);
}

}  // namespace trireme::runtime
