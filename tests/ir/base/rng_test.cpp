#include "ir/base/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace trireme {
namespace {

// Known-answer vectors of Random123 (kat_vectors, philox4x32 10 rounds).
TEST(Philox, AnswersTheZeroVector) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (RngWords{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
}

TEST(Philox, AnswersTheAllOnesVector) {
  const uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox({ones, ones, ones, ones}, {ones, ones}),
            (RngWords{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Philox, AnswersTheDigitsOfPi) {
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (RngWords{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RngKey, DiffersInEveryPartOfTheKey) {
  std::set<std::pair<uint32_t, uint32_t>> keys;
  auto add = [&](RngKey key) { keys.insert({key.low, key.high}); };
  const uint64_t high = uint64_t{1} << 32;  // The upper half of 64-bit parts counts as well.
  add(makeRngKey(0, 0, 0, RngStream::kInit));
  add(makeRngKey(1, 0, 0, RngStream::kInit));
  add(makeRngKey(high, 0, 0, RngStream::kInit));
  add(makeRngKey(0, 1, 0, RngStream::kInit));
  add(makeRngKey(0, high, 0, RngStream::kInit));
  add(makeRngKey(0, 0, 1, RngStream::kInit));
  add(makeRngKey(0, 0, 0, RngStream::kAttentionDropout));
  EXPECT_EQ(keys.size(), 7u);
}

TEST(RandomWord, FourNeighboursShareOneCall) {
  const RngKey key{7, 9};
  const RngWords words = philox({5, 0, 3, 0}, key);
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(randomWord(key, 3, 20 + i), words[i]);
}

TEST(RandomWord, UsesAllBitsOfSampleAndElement) {
  const RngKey key{7, 9};
  EXPECT_NE(randomWord(key, 0, 0), randomWord(key, uint64_t{1} << 32, 0));
  EXPECT_NE(randomWord(key, 0, 0), randomWord(key, 0, uint64_t{1} << 34));
}

TEST(DropoutThreshold, KeepsTheRightShare) {
  EXPECT_EQ(dropoutThreshold(0.0), 0u);
  EXPECT_EQ(dropoutThreshold(0.5), 0x80000000u);
  // 100,000 Bernoulli draws of p = 0.1: standard deviation sqrt(0.09 / 1e5) = 0.00095; five of
  // them.
  const RngKey key = makeRngKey(1234, 0, 0, RngStream::kEmbeddingDropout);
  int dropped = 0;
  for (uint64_t i = 0; i < 100'000; ++i) dropped += randomWord(key, 0, i) < dropoutThreshold(0.1);
  EXPECT_NEAR(dropped / 1e5, 0.1, 5 * 0.00095);
}

// Box and Muller on the two pairs of words of one call, written out.
TEST(RandomNormal, FourNeighboursShareOneCall) {
  const RngKey key{7, 9};
  const RngWords w = philox({5, 0, 3, 0}, key);
  for (uint32_t pair = 0; pair < 2; ++pair) {
    const double radius = std::sqrt(-2 * std::log((w[2 * pair] + 1.0) / 4294967296.0));
    const double angle = 2 * std::acos(-1.0) * w[2 * pair + 1] / 4294967296.0;
    EXPECT_NEAR(randomNormal(key, 3, 20 + 2 * pair), radius * std::cos(angle), 1e-14);
    EXPECT_NEAR(randomNormal(key, 3, 21 + 2 * pair), radius * std::sin(angle), 1e-14);
  }
}

// Ranks hold different ranges of a tensor.
TEST(RandomNormal, IsTheSameInEveryRange) {
  const RngKey key{7, 9};
  for (uint64_t first : {uint64_t{0}, uint64_t{3}, (uint64_t{1} << 34) - 6})
    for (uint64_t begin = first; begin < first + 6; ++begin)
      for (size_t size = 0; size < 11; ++size) {
        std::vector<double> values(size);
        randomNormals(key, 2, begin, values);
        for (size_t i = 0; i < size; ++i) EXPECT_EQ(values[i], randomNormal(key, 2, begin + i));
      }
}

TEST(RandomNormal, UsesAllBitsOfTensorAndElement) {
  const RngKey key{7, 9};
  EXPECT_NE(randomNormal(key, 0, 0), randomNormal(key, uint64_t{1} << 32, 0));
  EXPECT_NE(randomNormal(key, 0, 0), randomNormal(key, 0, uint64_t{1} << 34));
}

// n = 100,000. Standard errors: mean 1/sqrt(n) = 0.0032, variance sqrt(2/n) = 0.0045,
// skewness sqrt(6/n) = 0.0077, kurtosis sqrt(24/n) = 0.0155. The bounds are four of each.
TEST(RandomNormal, HasTheMomentsOfAStandardNormal) {
  const RngKey key = makeRngKey(1234, 0, 0, RngStream::kInit);
  const int n = 100'000;
  double sum = 0, sum2 = 0, sum3 = 0, sum4 = 0;
  for (int i = 0; i < n; ++i) {
    const double x = randomNormal(key, 2, static_cast<uint64_t>(i));
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    sum2 += x * x;
    sum3 += x * x * x;
    sum4 += x * x * x * x;
  }
  EXPECT_NEAR(sum / n, 0, 0.013);
  EXPECT_NEAR(sum2 / n, 1, 0.018);
  EXPECT_NEAR(sum3 / n, 0, 4 * std::sqrt(15.0 / n));
  EXPECT_NEAR(sum4 / n, 3, 4 * std::sqrt(96.0 / n));
}

// P(|x| < 1) = 0.6827, P(|x| < 2) = 0.9545; standard error at most 0.0015.
TEST(RandomNormal, HasTheTailsOfAStandardNormal) {
  const RngKey key = makeRngKey(5, 0, 3, RngStream::kInit);
  const int n = 100'000;
  int within1 = 0, within2 = 0;
  for (int i = 0; i < n; ++i) {
    const double x = std::abs(randomNormal(key, 0, static_cast<uint64_t>(i)));
    within1 += x < 1;
    within2 += x < 2;
  }
  EXPECT_NEAR(within1 / double{n}, 0.6827, 0.006);
  EXPECT_NEAR(within2 / double{n}, 0.9545, 0.003);
}

// The elements of a pair share a radius and an angle, those of a call a counter. Standard errors of
// the means: x y has variance 1, so 0.0032; x^2 y^2 has 9 - 1, so 0.0089. The bounds are four.
TEST(RandomNormal, NeighboursAreUncorrelated) {
  const RngKey key = makeRngKey(1234, 0, 0, RngStream::kInit);
  const int n = 100'000;
  const auto expectUncorrelated = [&](uint64_t tensor, uint64_t distance, uint64_t step) {
    double products = 0, squares = 0;
    for (uint64_t i = 0; i < n; ++i) {
      const double product =
          randomNormal(key, 0, i * step) * randomNormal(key, tensor, i * step + distance);
      products += product;
      squares += product * product;
    }
    EXPECT_NEAR(products / n, 0, 0.013) << tensor << " " << distance << " " << step;
    EXPECT_NEAR(squares / n, 1, 0.036) << tensor << " " << distance << " " << step;
  };
  for (uint64_t distance : {1, 2, 3, 4}) expectUncorrelated(0, distance, 1);
  for (uint64_t distance : {1, 2, 3}) expectUncorrelated(0, distance, 4);  // within calls only
  expectUncorrelated(1, 0, 1);
}

}  // namespace
}  // namespace trireme
