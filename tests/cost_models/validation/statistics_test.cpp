#include "cost_models/validation/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace trireme::cost {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Optional;

// Four values stand at 0, 1/3, 2/3 and 1; 0.9 is 0.7 of the way from the third to the fourth.
TEST(Percentile, IsLinearBetweenOrderedValues) {
  EXPECT_DOUBLE_EQ(percentile({4, 1, 3, 2}, 0.9), 3.7);
  EXPECT_DOUBLE_EQ(percentile({4, 1, 3, 2}, 0), 1);
  EXPECT_DOUBLE_EQ(percentile({4, 1, 3, 2}, 1), 4);
  EXPECT_DOUBLE_EQ(percentile({7}, 0.9), 7);
}

TEST(Median, IsTheMiddleValueOrTheMeanOfTwo) {
  EXPECT_DOUBLE_EQ(median({5, 1, 3}), 3);
  EXPECT_DOUBLE_EQ(median({5, 1, 3, 100}), 4);
}

TEST(Percentile, NeverFallsAndStaysWithinTheSample) {
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    std::vector<double> values(1 + random() % 9);
    for (double& value : values) value = static_cast<double>(random() % 5);
    double before = *std::min_element(values.begin(), values.end());
    for (double p = 0; p <= 1; p += 0.125) {
      EXPECT_GE(percentile(values, p), before);
      before = percentile(values, p);
    }
    EXPECT_DOUBLE_EQ(before, *std::max_element(values.begin(), values.end()));
  }
}

// Magnitudes 0.1, 0.3, 0.2: mean 0.2, median 0.2; 0.9 is 0.8 of the way from 0.2 to 0.3. The signed
// sum is 0.
TEST(Summarize, MatchesHandDerivation) {
  const ErrorSummary summary = summarize({0.1, -0.3, 0.2});
  EXPECT_EQ(summary.count, 3);
  EXPECT_DOUBLE_EQ(summary.meanAbsolute, 0.2);
  EXPECT_DOUBLE_EQ(summary.medianAbsolute, 0.2);
  EXPECT_DOUBLE_EQ(summary.p90Absolute, 0.28);
  EXPECT_NEAR(summary.meanSigned, 0, 1e-15);
  EXPECT_DOUBLE_EQ(summary.worst, -0.3);
  EXPECT_EQ(summary.worstIndex, 1);
}

TEST(Summarize, OfNothingIsNothing) {
  EXPECT_EQ(summarize({}).count, 0);
  EXPECT_EQ(summarize({}).worstIndex, -1);
}

TEST(Summarize, TheFirstOfEquallyWrongIsTheWorst) {
  EXPECT_EQ(summarize({0.1, 0.2, -0.2}).worstIndex, 1);
  EXPECT_EQ(summarize({0.0, 0.0}).worstIndex, 0);
}

// 5 < 10 < 20 = 20: the two share ranks 3 and 4.
TEST(Ranks, EqualValuesShareTheMeanOfTheirRanks) {
  EXPECT_THAT(ranksOf({10, 20, 20, 5}), ElementsAre(2, 3.5, 3.5, 1));
  EXPECT_THAT(ranksOf({7, 7, 7}), ElementsAre(2, 2, 2));
}

TEST(Spearman, SeesOrderAndNothingElse) {
  EXPECT_THAT(spearman({1, 2, 3}, {10, 100, 1000}), Optional(1.0));
  EXPECT_THAT(spearman({1, 2, 3}, {9, 4, 1}), Optional(-1.0));
}

// Ranks 1, 2.5, 2.5, 4 and 1, 2, 3, 4, all with mean 2.5: products 2.25 + 0 + 0 + 2.25 = 4.5,
// squares 4.5 and 5, so 4.5 / sqrt(22.5) = 0.9487.
TEST(Spearman, WithTiesMatchesHandDerivation) {
  EXPECT_THAT(spearman({1, 2, 2, 3}, {1, 2, 3, 4}), Optional(DoubleNear(0.9487, 5e-5)));
}

TEST(Spearman, IsUndefinedWithoutTwoDifferentValues) {
  EXPECT_EQ(spearman({1}, {1}), std::nullopt);
  EXPECT_EQ(spearman({}, {}), std::nullopt);
  EXPECT_EQ(spearman({1, 2}, {3, 3}), std::nullopt);
  EXPECT_EQ(spearman({4, 4}, {1, 2}), std::nullopt);
}

// Without ties it is the textbook's 1 - 6 sum d^2 / (n (n^2 - 1)).
TEST(Spearman, OfPermutationsIsTheClosedForm) {
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {
    std::vector<double> a(2 + random() % 9), b(a.size());
    std::iota(a.begin(), a.end(), 1.0);
    std::iota(b.begin(), b.end(), 1.0);
    std::shuffle(a.begin(), a.end(), random);
    std::shuffle(b.begin(), b.end(), random);
    double squares = 0;
    for (size_t k = 0; k < a.size(); ++k) squares += (a[k] - b[k]) * (a[k] - b[k]);
    const auto n = static_cast<double>(a.size());
    EXPECT_THAT(spearman(a, b), Optional(DoubleNear(1 - 6 * squares / (n * (n * n - 1)), 1e-12)));
  }
}

// The second is predicted to be the fastest and takes 12 s; the third takes 10 s.
TEST(Regret, IsWhatThePickTakesLongerThanTheBest) {
  EXPECT_DOUBLE_EQ(regret({2, 1, 3}, {11, 12, 10}), 0.2);
  EXPECT_DOUBLE_EQ(regret({2, 3, 1}, {11, 12, 10}), 0);
}

TEST(Regret, OfEqualPredictionsIsThatOfTheSlowest) {
  EXPECT_DOUBLE_EQ(regret({1, 1, 2}, {10, 15, 5}), 2);
}

}  // namespace
}  // namespace trireme::cost
