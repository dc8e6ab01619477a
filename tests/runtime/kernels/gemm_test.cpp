#include "runtime/kernels/gemm.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace trireme::runtime {
namespace {

template <typename T>
std::vector<T> draw(int64_t count) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<T> values(static_cast<size_t>(count));
  for (T& v : values) v = narrow<T>(normal(random));
  return values;
}

template <typename T>
std::vector<SumOf<T>> product(const GemmCall<T, SumOf<T>>& call) {
  std::vector<SumOf<T>> c(static_cast<size_t>(call.m * call.n));
  GemmCall<T, SumOf<T>> whole = call;
  whole.c = c.data();
  std::vector<char> scratch(static_cast<size_t>(program::gemmScratchBytes(call.shape())));
  gemm(whole, scratch.data());
  return c;
}

// The bits of an element depend on its row of a and its column of b alone: a tensor-parallel rank
// that holds some columns computes the same numbers as one that holds all.
template <typename T>
void expectPartsEqualWhole() {
  constexpr int64_t m = 45, n = 70, k = 800;
  const std::vector<T> a = draw<T>(m * k), b = draw<T>(k * n);
  const auto aRef = rowMajor<T>(a.data(), k), bRef = rowMajor<T>(b.data(), n);
  const auto whole = product<T>({m, n, k, aRef, bRef, nullptr, n, false});
  constexpr int64_t row = 19, rows = 7, col = 33, cols = 11;
  const auto part =
      product<T>({rows, cols, k, aRef.at(row, 0), bRef.at(0, col), nullptr, cols, false});
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j)
      ASSERT_EQ(part[i * cols + j], whole[(row + i) * n + col + j]);
}

// Rows for several packed blocks and depths for several slices of each: a row's bits are those that
// it has in a block of its own, and the scratch that is promised is enough (sanitizers see more).
template <typename T>
void expectBlocksEqualRows() {
  constexpr int64_t m = 1601, n = 37, k = 801;
  const std::vector<T> a = draw<T>(m * k), b = draw<T>(k * n);
  const auto aRef = rowMajor<T>(a.data(), k), bRef = rowMajor<T>(b.data(), n);
  const auto whole = product<T>({m, n, k, aRef, bRef, nullptr, n, false});
  for (int64_t row = 0; row < m; row += 97) {
    const auto alone = product<T>({1, n, k, aRef.at(row, 0), bRef, nullptr, n, false});
    for (int64_t j = 0; j < n; ++j) ASSERT_EQ(whole[row * n + j], alone[j]) << row << " " << j;
  }
}

TEST(Gemm, BlocksOfRowsEqualEachRowBitwise) {
  expectBlocksEqualRows<double>();
  expectBlocksEqualRows<float>();
  expectBlocksEqualRows<Bf16>();
}

TEST(Gemm, PartsEqualTheWholeBitwise) {
  expectPartsEqualWhole<double>();
  expectPartsEqualWhole<float>();
  expectPartsEqualWhole<Bf16>();
}

TEST(Gemm, ScratchIsEnoughForEveryPiece) {
  // A piece of a divided product is no larger than the product in any dim.
  const program::GemmShape whole{300, 900, 1000, 2, true}, piece{300, 450, 1000, 2, true};
  EXPECT_LE(program::gemmScratchBytes(piece), program::gemmScratchBytes(whole));
}

}  // namespace
}  // namespace trireme::runtime
