// The engine of vectors that multiply pairs (AVX512_BF16): bf16 factors, f32 sums. An instruction
// adds two products to every sum.
//   a: kRows rows of bf16, kRowStride apart; or, for each pair of depths, the pairs of kRows rows
//   b: for each pair of depths, the pairs of kCols columns
#include "runtime/kernels/gemm_engine.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/kernels/transpose.h"

#define TRIREME_DOT __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

namespace trireme::runtime {
namespace {

using program::GemmBlocking;
using program::roundUp;

// 24 sums, 4 vectors of b and a pair of a in 32 registers.
constexpr int kRows = 6, kVectors = 4, kPairs = 16, kCols = kVectors * kPairs;
constexpr int64_t kRowStride = GemmBlocking::kDotDepth + GemmBlocking::kPad;
static_assert(kCols * GemmBlocking::kDotDepth * 2 <= GemmBlocking::kPanelBytes);
static_assert(kRows * kCols * 4 <= GemmBlocking::kEdgeBytes);

TRIREME_DOT inline __m512bh repeatedPair(const Bf16* pair) {
  int32_t bits;
  std::memcpy(&bits, pair, sizeof(bits));
  return (__m512bh)_mm512_set1_epi32(bits);
}

// Depths 2p and 2p + 1 of row i of a are at i * kRow + 2p * kDepth.
template <int kHeight, int kRow, int kDepth>
TRIREME_DOT void multiplyTile(int64_t depth, const void* panelOfA, const void* panelOfB, float* c,
                              int64_t ldc, bool accumulate, LineFetch next) {
  const auto* a = static_cast<const Bf16*>(panelOfA);
  const auto* b = static_cast<const Bf16*>(panelOfB);
  __m512 sum[kHeight][kVectors];
#pragma GCC unroll 8
  for (int i = 0; i < kHeight; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) sum[i][j] = _mm512_setzero_ps();
  const char* line = next.first;
  int64_t lineOfC = 0;
  for (int64_t step = 0; step < depth; step += kFetchDepth) {
    if (step == next.half) line = next.second;
    __builtin_prefetch(line, 0, 2);
    line += next.stride;
    if (lineOfC < kHeight * kVectors) {
      __builtin_prefetch(c + lineOfC / kVectors * ldc + lineOfC % kVectors * kPairs, 1);
      ++lineOfC;
    }
    const int64_t end = std::min(depth, step + kFetchDepth);
#pragma GCC unroll 4
    for (int64_t k = step; k < end; k += 2) {
      __m512bh row[kVectors];
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j)
        row[j] = (__m512bh)_mm512_load_si512(b + k * kCols + j * 2 * kPairs);
#pragma GCC unroll 8
      for (int i = 0; i < kHeight; ++i) {
        const __m512bh factor = repeatedPair(a + i * kRow + k * kDepth);
#pragma GCC unroll 4
        for (int j = 0; j < kVectors; ++j) sum[i][j] = _mm512_dpbf16_ps(sum[i][j], factor, row[j]);
      }
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kHeight; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      float* to = c + i * ldc + j * kPairs;
      if (accumulate) sum[i][j] = _mm512_add_ps(_mm512_loadu_ps(to), sum[i][j]);
      _mm512_storeu_ps(to, sum[i][j]);
    }
}

using Engine = GemmEngine<Bf16, float>;

template <int kRow, int kDepth, int... kIndices>
constexpr Engine::Heights heights(std::integer_sequence<int, kIndices...>) {
  return {multiplyTile<2 * (kIndices + 1), kRow, kDepth>...};
}
template <int kRow, int kDepth>
constexpr Engine::Heights heights() {
  return heights<kRow, kDepth>(std::make_integer_sequence<int, kRows / 2>{});
}

constexpr uint16_t firstLanes(int64_t lanes) {
  return static_cast<uint16_t>((1u << std::clamp<int64_t>(lanes, 0, kPairs)) - 1u);
}

// Words of two 16-bit elements: those of `even` below those of `odd`, for 32 columns.
TRIREME_DOT inline void interleave32(const Bf16* even, const Bf16* odd, Bf16* pairs) {
  typedef uint16_t V __attribute__((vector_size(64)));
  V e, o;
  std::memcpy(&e, even, sizeof(V));
  std::memcpy(&o, odd, sizeof(V));
  const V low =
      __builtin_shufflevector(e, o, 0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 8, 40,
                              9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47);
  const V high =
      __builtin_shufflevector(e, o, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
                              24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63);
  std::memcpy(pairs, &low, sizeof(V));
  std::memcpy(pairs + 32, &high, sizeof(V));
}

typedef uint32_t Words __attribute__((vector_size(64)));
TRIREME_DOT inline Words widened(__m256i halves) {
  typedef uint16_t Halves __attribute__((vector_size(32)));
  return __builtin_convertvector((Halves)halves, Words);
}

// The same for columns [j, j + 16) of a panel of kWidth, zeros beyond `cols` and `depth`; from
// depth `k` on, which is even.
template <int kWidth>
TRIREME_DOT void interleaveGroup(const MatrixRef<Bf16>& b, int64_t k, int64_t depth, int64_t cols,
                                 int64_t j, Bf16* panel) {
  const __mmask16 read = firstLanes(cols - j), write = firstLanes(kWidth - j);
  for (; k < depth; k += 2) {
    const Bf16 *even = b.data + k * b.rowStride + j, *odd = even + b.rowStride;
    const __mmask16 readOdd = k + 1 < depth ? read : __mmask16{0};
    const Words low = widened(_mm256_maskz_loadu_epi16(read, even));
    const Words high = widened(_mm256_maskz_loadu_epi16(readOdd, odd));
    _mm512_mask_storeu_epi32(panel + k * kWidth + 2 * j, write, (__m512i)(low | high << 16));
  }
}

// Pairs of rows of b whose columns are contiguous, kWidth pairs each.
template <int kWidth>
TRIREME_DOT void interleaveRows(const MatrixRef<Bf16>& b, int64_t depth, int64_t cols,
                                Bf16* panel) {
  int64_t k = 0;
  if (kWidth % 32 == 0 && cols >= kWidth)
    for (; k + 1 < depth; k += 2) {
      const Bf16 *even = b.data + k * b.rowStride, *odd = even + b.rowStride;
#pragma GCC unroll 2
      for (int64_t j = 0; j < kWidth; j += 32)
        interleave32(even + j, odd + j, panel + k * kWidth + 2 * j);
    }
  for (int64_t j = 0; j < kWidth; j += kPairs) interleaveGroup<kWidth>(b, k, depth, cols, j, panel);
}

// Columns of b whose depths are contiguous: a pair is a word, and words are transposed.
template <int kWidth>
TRIREME_DOT void transposePairs(const MatrixRef<Bf16>& b, int64_t depth, int64_t cols,
                                Bf16* panel) {
  constexpr int kSquare = 4;
  const int64_t squareCols = cols / kSquare * kSquare;
  const int64_t squareDepth = depth / (2 * kSquare) * (2 * kSquare);
  for (int64_t k = 0; k < squareDepth; k += 2 * kSquare)
    for (int64_t j = 0; j < squareCols; j += kSquare)
      transpose4x4(b.data + j * b.colStride + k, 2 * b.colStride, panel + k * kWidth + 2 * j,
                   4 * kWidth);
  for (int64_t k = 0; k < roundUp(depth, 2); ++k)
    for (int64_t j = k < squareDepth ? squareCols : 0; j < kWidth; ++j)
      panel[(k / 2 * kWidth + j) * 2 + k % 2] =
          j < cols && k < depth ? b.data[j * b.colStride + k] : Bf16{0};
}

template <int kWidth>
void packPairs(const MatrixRef<Bf16>& b, int64_t depth, int64_t cols, void* out) {
  auto* panel = static_cast<Bf16*>(out);
  if (b.colStride == 1)
    interleaveRows<kWidth>(b, depth, cols, panel);
  else
    transposePairs<kWidth>(b, depth, cols, panel);
}

void packByColumns(const MatrixRef<Bf16>& a, int64_t first, int64_t depth, int64_t rows,
                   void* panel) {
  packPairs<kRows>(a.transposed(), depth, rows, static_cast<Bf16*>(panel) + first * kRows);
}

void packByRows(const MatrixRef<Bf16>& a, int64_t first, int64_t depth, int64_t rows, void* out) {
  const int64_t packedDepth = roundUp(depth, 2);
  for (int64_t i = 0; i < kRows; ++i) {
    Bf16* row = static_cast<Bf16*>(out) + i * kRowStride + first;
    const int64_t filled = i < rows ? depth : 0;
    std::copy_n(a.data + i * a.rowStride, filled, row);
    std::fill(row + filled, row + packedDepth, Bf16{0});
  }
}

constexpr Engine kEngine = {kRows,
                            kCols,
                            2,
                            GemmBlocking::kDotDepth,
                            GemmBlocking::kDotDepth,
                            2,
                            2,
                            0,
                            packByRows,
                            packByColumns,
                            heights<kRowStride, 1>(),
                            heights<2, kRows>(),
                            packPairs<kCols>,
                            nullptr,
                            nullptr};

}  // namespace

const GemmEngine<Bf16, float>* dotEngine() {
  static const bool has = __builtin_cpu_supports("avx512bf16") &&
                          __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  return has ? &kEngine : nullptr;
}

}  // namespace trireme::runtime

#else

namespace trireme::runtime {
const GemmEngine<Bf16, float>* dotEngine() { return nullptr; }
}  // namespace trireme::runtime

#endif
