#include "runtime/kernels/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "runtime/kernels/gemm_engine.h"

namespace trireme::runtime {
namespace {

template <typename T>
std::vector<T> drawMatrix(int64_t count) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<T> values(static_cast<size_t>(count));
  for (T& v : values) v = narrow<T>(normal(random));
  return values;
}

template <typename T>
using Engine = GemmEngine<T, SumOf<T>>;

// The scratch that is promised is enough.
template <typename T, typename C = SumOf<T>>
std::vector<C> product(const GemmCall<T, C>& call, const Engine<T>& engine) {
  std::vector<C> c(static_cast<size_t>(call.m * call.n));
  GemmCall<T, C> whole = call;
  whole.c = c.data();
  const auto bytes = static_cast<size_t>(program::gemmScratchBytes(call.shape()));
  constexpr size_t kGuard = 1 << 17;
  constexpr char kUntouched = 0x5A;
  std::vector<char> scratch(bytes + kGuard, kUntouched);
  gemmBy(engine, whole, scratch.data());
  for (size_t i = 0; i < kGuard; ++i)
    if (scratch[bytes + i] != kUntouched) {
      ADD_FAILURE() << "byte " << i << " behind the scratch of " << call.m << " x " << call.n
                    << " x " << call.k << " is written";
      break;
    }
  return c;
}

// The bits of an element depend on its row of a and its column of b alone: a tensor-parallel rank
// that holds some columns computes the same numbers as one that holds all.
template <typename T>
void expectPartsEqualWhole(const Engine<T>& engine) {
  constexpr int64_t m = 45, n = 70, k = 800;
  const std::vector<T> a = drawMatrix<T>(m * k), b = drawMatrix<T>(k * n);
  const auto aRef = rowMajor<T>(a.data(), k), bRef = rowMajor<T>(b.data(), n);
  const auto whole = product<T>({m, n, k, aRef, bRef, nullptr, n, false}, engine);
  constexpr int64_t row = 19, rows = 7, col = 33, cols = 11;
  const auto part =
      product<T>({rows, cols, k, aRef.at(row, 0), bRef.at(0, col), nullptr, cols, false}, engine);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j)
      ASSERT_EQ(part[i * cols + j], whole[(row + i) * n + col + j]);
}

// Rows for several packed blocks, depths for several slices of each and, of the wider one, columns
// for several blocks: a row's bits are those that it has in a block of its own.
template <typename T>
void expectRowsAlone(const Engine<T>& engine, int64_t m, int64_t n, bool aIsTransposed) {
  constexpr int64_t k = 801;
  const std::vector<T> a = drawMatrix<T>(m * k), b = drawMatrix<T>(k * n);
  const auto aRef =
      aIsTransposed ? rowMajor<T>(a.data(), m).transposed() : rowMajor<T>(a.data(), k);
  const auto bRef = rowMajor<T>(b.data(), n);
  const auto whole = product<T>({m, n, k, aRef, bRef, nullptr, n, false}, engine);
  for (int64_t row = 0; row < m; row += 97) {
    const auto alone = product<T>({1, n, k, aRef.at(row, 0), bRef, nullptr, n, false}, engine);
    for (int64_t j = 0; j < n; ++j) ASSERT_EQ(whole[row * n + j], alone[j]) << row << " " << j;
  }
}
template <typename T>
void expectBlocksEqualRows(const Engine<T>& engine) {
  for (const bool aIsTransposed : {false, true}) {
    expectRowsAlone<T>(engine, 1601, 37, aIsTransposed);
    expectRowsAlone<T>(engine, 1101, 805, aIsTransposed);
  }
}

// c = a b and c += a b for both orders of a and of b in memory, against sums in double. The error
// of a sum of k products in type Sum is at most k units in the last place of the sum of their
// sizes.
template <typename T>
void expectSumsOfProducts(const Engine<T>& engine, int64_t m, int64_t n, int64_t k) {
  using Sum = SumOf<T>;
  const std::vector<T> a = drawMatrix<T>(m * k), b = drawMatrix<T>(k * n);
  std::vector<char> scratch(
      static_cast<size_t>(program::gemmScratchBytes({m, n, k, sizeof(T), false})));
  const double unit = std::numeric_limits<Sum>::epsilon();
  for (const auto& aRef : {rowMajor<T>(a.data(), k), rowMajor<T>(a.data(), m).transposed()})
    for (const auto& bRef : {rowMajor<T>(b.data(), n), rowMajor<T>(b.data(), k).transposed()})
      for (const bool accumulate : {false, true}) {
        std::vector<Sum> c(static_cast<size_t>(m * n), Sum{3});
        gemmBy<T, Sum>(engine, {m, n, k, aRef, bRef, c.data(), n, accumulate}, scratch.data());
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < n; ++j) {
            double sum = accumulate ? 3 : 0, size = 3;
            for (int64_t l = 0; l < k; ++l) {
              const double term = static_cast<double>(widen(*aRef.at(i, l).data)) *
                                  static_cast<double>(widen(*bRef.at(l, j).data));
              sum += term;
              size += std::abs(term);
            }
            ASSERT_NEAR(c[i * n + j], sum, unit * static_cast<double>(k + 1) * size)
                << engine.rows << " x " << engine.cols << ": " << m << " " << n << " " << k << ", "
                << i << " " << j;
          }
      }
}

// A product of 16 bits is the sum, rounded: with depths for one slice and for several, rows for one
// tile, for several, and for more than are staged, and columns for less than a block and more.
template <typename T>
void expectRoundedSums(const Engine<T>& engine) {
  for (const int64_t m : {3, 70, 1100})
    for (const int64_t n : {37, 130, 800})
      for (const int64_t k : {65, 900}) {
        const std::vector<T> a = drawMatrix<T>(m * k), b = drawMatrix<T>(k * n);
        const auto aRef = rowMajor<T>(a.data(), k), bRef = rowMajor<T>(b.data(), n);
        const auto sums = product<T>({m, n, k, aRef, bRef, nullptr, n, false}, engine);
        const auto atRef = rowMajor<T>(a.data(), m).transposed();
        const auto btRef = rowMajor<T>(b.data(), k).transposed();
        const auto transposedSums = product<T>({m, n, k, atRef, btRef, nullptr, n, false}, engine);
        for (const bool pastCaches : {false, true}) {
          const auto rounded =
              product<T, T>({m, n, k, aRef, bRef, nullptr, n, false, pastCaches}, engine);
          const auto transposed =
              product<T, T>({m, n, k, atRef, btRef, nullptr, n, false, pastCaches}, engine);
          for (size_t i = 0; i < sums.size(); ++i) {
            ASSERT_EQ(rounded[i].bits, narrow<T>(sums[i]).bits) << m << " " << n << " " << k;
            ASSERT_EQ(transposed[i].bits, narrow<T>(transposedSums[i]).bits) << m << " " << n;
          }
        }
      }
}

// One product of f32 is as exact as its rounding where it is made of parts of 8 bits: what they
// leave out is 2^-23 of it at most (two products of 2^-8 by 2^-16, each rounded to nearest), next
// to a rounding of 2^-24 for each of the sums.
void expectExactProducts(const Engine<float>& engine) {
  constexpr int64_t m = 50, n = 60;
  const std::vector<float> a = drawMatrix<float>(m), b = drawMatrix<float>(n);
  const auto c = product<float>(
      {m, n, 1, rowMajor<float>(a.data(), 1), rowMajor<float>(b.data(), n), nullptr, n, false},
      engine);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      const double exact = static_cast<double>(a[i]) * static_cast<double>(b[j]);
      ASSERT_NEAR(c[i * n + j], exact, std::abs(exact) * 0x3p-23) << a[i] << " " << b[j];
    }
}

template <typename T>
void expectEverySize(const Engine<T>& engine) {
  const int64_t height = engine.rows, width = engine.cols, step = engine.depthMultiple;
  for (const int64_t m : {int64_t{1}, height - 1, height, 2 * height + 3})
    for (const int64_t n : {int64_t{1}, width / 2 + 1, width, width + 5})
      for (const int64_t k : {int64_t{1}, step + 1, 4 * step + 7})
        expectSumsOfProducts<T>(engine, m, n, k);
  expectSumsOfProducts<T>(engine, height + 1, width + 1, engine.depth + step + 1);
}

template <typename T>
void expectAll(void (*expect)(const Engine<T>&)) {
  for (const Engine<T>* engine : gemmEngines<T>()) expect(*engine);
}

TEST(Gemm, IsTheSumOfTheProducts) {
  expectAll<double>(expectEverySize<double>);
  expectAll<float>(expectEverySize<float>);
  expectAll<Bf16>(expectEverySize<Bf16>);
  expectAll<F16>(expectEverySize<F16>);
}

TEST(Gemm, ProductsOf16BitsAreTheRoundedSums) {
  expectAll<Bf16>(expectRoundedSums<Bf16>);
  expectAll<F16>(expectRoundedSums<F16>);
}

TEST(Gemm, ProductsOfF32KeepAllBits) { expectAll<float>(expectExactProducts); }

TEST(Gemm, BlocksOfRowsEqualEachRowBitwise) {
  expectAll<double>(expectBlocksEqualRows<double>);
  expectAll<float>(expectBlocksEqualRows<float>);
  expectAll<Bf16>(expectBlocksEqualRows<Bf16>);
  expectAll<F16>(expectBlocksEqualRows<F16>);
}

TEST(Gemm, PartsEqualTheWholeBitwise) {
  expectAll<double>(expectPartsEqualWhole<double>);
  expectAll<float>(expectPartsEqualWhole<float>);
  expectAll<Bf16>(expectPartsEqualWhole<Bf16>);
}

TEST(Gemm, ScratchIsEnoughForEveryPiece) {
  // A piece of a divided product is no larger than the product in any dim.
  const program::GemmShape whole{300, 900, 1000, 2, true}, piece{300, 450, 1000, 2, true};
  EXPECT_LE(program::gemmScratchBytes(piece), program::gemmScratchBytes(whole));
  const program::GemmShape high{2100, 900, 1000, 2, true}, rows{1050, 900, 1000, 2, true};
  EXPECT_LE(program::gemmScratchBytes(rows), program::gemmScratchBytes(high));
}

}  // namespace
}  // namespace trireme::runtime
