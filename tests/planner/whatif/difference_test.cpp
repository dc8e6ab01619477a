#include "planner/whatif/difference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "planner/answer/outlook.h"
#include "tests/planner/small_query.h"

namespace trireme::planner {
namespace {

// 0.4 + 0.4 + 0.4 = 1.2, so one of them is 1; of those that lose as much the first. -1.5 + 2.25 is
// 0.75, which is 1: -2 and 2 miss one, and the first lost more.
TEST(RoundedToSum, ByHand) {
  EXPECT_EQ(roundedToSum({0.4, 0.4, 0.4}), (std::vector<int64_t>{1, 0, 0}));
  EXPECT_EQ(roundedToSum({-1.5, 2.25}), (std::vector<int64_t>{-1, 2}));
  EXPECT_EQ(roundedToSum({}), std::vector<int64_t>{});
}

TEST(RoundedToSum, IsNextToTheValuesAndAddsUp) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> value(-1e6, 1e6);
  for (int round = 0; round < 1000; ++round) {
    std::vector<double> values;
    for (size_t n = random() % 9; n > 0; --n) values.push_back(value(random));
    double sum = 0;
    int64_t whole = 0;
    const std::vector<int64_t> rounded = roundedToSum(values);
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_LT(std::abs(static_cast<double>(rounded[i]) - values[i]), 1);
      sum += values[i];
      whole += rounded[i];
    }
    EXPECT_EQ(whole, std::llround(sum));
  }
}

TEST(Difference, PartsAddUpToTheDifferenceOfTheSteps) {
  for (const double factor : {0.1, 1.0, 7.0}) {
    const Query before = smallQuery();
    Query after = before;
    for (spec::PeakRate& peak : after.cluster.device.matmul) peak.rate = peak.rate * factor;
    const Result<Difference> d = compareQueries("a", before, "b", after);
    ASSERT_TRUE(d.has_value());
    const Seconds change = d->after.estimate.step - d->before.estimate.step;
    int64_t sum = 0;
    for (const DifferencePart& part : d->parts) sum += part.change;
    EXPECT_EQ(sum, d->change);
    EXPECT_NEAR(static_cast<double>(d->change), change / d->unit, 0.5 + 1e-6);
    // The best plan there is no slower than the one from here.
    ASSERT_TRUE(d->samePlan.has_value());
    EXPECT_LE(d->after.estimate.step, *d->samePlan * (1 + 1e-9));
  }
}

TEST(Difference, OfTheSameIsNothing) {
  const Query query = smallQuery();
  const Result<Difference> d = compareQueries("a", query, "b", query);
  ASSERT_TRUE(d.has_value());
  EXPECT_EQ(d->change, 0);
  EXPECT_EQ(*d->samePlan, d->before.estimate.step);
}

TEST(Difference, ASideWithoutAPlanIsNamed) {
  Query after = smallQuery();
  after.cluster.device.memory = Bytes(1000);
  const Result<Difference> d = compareQueries("a", smallQuery(), "small one", after);
  ASSERT_FALSE(d.has_value());
  EXPECT_EQ(d.error().message().rfind("small one: ", 0), 0u) << d.error().message();
}

// Pinned to tp 2, on software that has none of it.
TEST(Difference, APlanThatTheSoftwareLacksIsNamed) {
  Query before = smallQuery(), after = smallQuery();
  before.pins.tp = 2;
  std::erase(after.stack.choices, spec::StackChoice::kTensorParallel);
  after.stack.name = "other";
  const Result<Difference> d = compareQueries("a", before, "b", after);
  ASSERT_TRUE(d.has_value()) << d.error().message();
  EXPECT_FALSE(d->samePlan.has_value());
  EXPECT_EQ(d->noSamePlan, "is not possible after: stack 'other' has no tp 2; nearest: tp 1");
}

TEST(Difference, APlanForMoreDevicesIsNamed) {
  Query before = computeBound(smallQuery()), after = computeBound(smallQuery());
  after.pins.gpus = 2;
  const Result<Difference> d = compareQueries("a", before, "b", after);
  ASSERT_TRUE(d.has_value());
  ASSERT_EQ(d->before.plan.numRanks(), 4);
  EXPECT_EQ(d->noSamePlan, "is not possible after: it needs 4 devices, there are 2");
}

// A device that has 1 KiB less than the plan of all data parallelism needs.
TEST(Difference, APlanThatDoesNotFitSaysByHowMuch) {
  Query before = smallQuery(), after = smallQuery();
  before.pins.tp = before.pins.pp = 1;
  before.pins.gpus = 1;
  const Result<PlanResult> best = searchPlan(before);
  ASSERT_TRUE(best.has_value());
  after.cluster.device.memory = best->estimate.memory.total() - Bytes(1024);
  const Result<Difference> d = compareQueries("a", before, "b", after);
  ASSERT_TRUE(d.has_value()) << d.error().message();
  EXPECT_EQ(d->noSamePlan, "does not fit after: 1.00 KiB too much memory");
}

// A tenth of what the cluster has: small::cluster's numbers.
TEST(Sensitivities, SayHowMuchMoreThereIs) {
  const Query query = smallQuery();
  const Result<PlanResult> result = searchPlan(query);
  const auto changes = sensitivitiesOf(query, *result);
  ASSERT_TRUE(changes.has_value());
  const auto outlook = lookAround(query, *result);
  ASSERT_EQ(changes->size(), outlook->sensitivities.size());
  for (size_t i = 0; i < changes->size(); ++i) {
    const Sensitivity& s = (*changes)[i];
    EXPECT_EQ(s.step, outlook->sensitivities[i].step);
    if (s.change == "10 % more memory") {
      EXPECT_NEAR(s.amount, query.cluster.device.memory.count() / 10 / 1073741824.0, 1e-9);
      EXPECT_EQ(s.unit, "GiB");
    }
    if (s.change == "10 % more outer link bandwidth") {
      EXPECT_NEAR(s.amount, 1, 1e-9);  // of 10 GB/s
    }
  }
}

}  // namespace
}  // namespace trireme::planner
