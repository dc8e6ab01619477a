// How far off an estimate may be.
#include "cost_models/interval.h"

#include <gtest/gtest.h>

namespace trireme::cost {
namespace {

// A step of 10 s, of which `collectives` are spent among tp ranks.
Estimate stepWith(Seconds collectives) {
  Estimate estimate;
  estimate.step = Seconds(10);
  estimate.breakdown.tensorParallel = collectives;
  estimate.breakdown.products = Seconds(10) - collectives;
  return estimate;
}

spec::StackDescription stackWith(double faster, double slower) {
  spec::StackDescription stack;
  stack.fasterRuns = faster;
  stack.slowerRuns = slower;
  return stack;
}

TEST(Interval, IsNotStatedWhereTheStackDoesNotSay) {
  EXPECT_FALSE(intervalOf(stepWith(Seconds(1)), 8, stackWith(0, 0)).has_value());
}

// 10 s less 5 % and more 8 %.
TEST(Interval, WithoutCollectivesIsTheStacksOwn) {
  const auto interval = intervalOf(stepWith(Seconds(0)), 8, stackWith(0.05, 0.08));
  ASSERT_TRUE(interval.has_value());
  EXPECT_DOUBLE_EQ(interval->low.count(), 9.5);
  EXPECT_DOUBLE_EQ(interval->high.count(), 10.8);
}

// A tenth of the step in collectives: 3 x 0.1 wider.
TEST(Interval, CollectivesWithinLayersWidenIt) {
  const auto interval = intervalOf(stepWith(Seconds(1)), 8, stackWith(0.05, 0.08));
  ASSERT_TRUE(interval.has_value());
  EXPECT_NEAR(interval->low.count(), 10 - 0.5 * 1.3, 1e-12);
  EXPECT_NEAR(interval->high.count(), 10 + 0.8 * 1.3, 1e-12);
}

// Four ranks and a CPU that takes half as long as the device: 0.6 x 2 x 0.5 wider. One that takes
// longer than the device sets the pace, which is all that it can do. One rank waits for no other.
TEST(Interval, RanksInLockstepWidenItAsFarAsTheCpuSetsThePace) {
  const auto highOf = [](double hostPace, int64_t tp) {
    Estimate estimate = stepWith(Seconds(0));
    estimate.hostPace = hostPace;
    return intervalOf(estimate, tp, stackWith(0.05, 0.1))->high.count();
  };
  EXPECT_NEAR(highOf(0.5, 4), 10 + 1.6, 1e-12);
  EXPECT_NEAR(highOf(1, 4), 10 + 2.2, 1e-12);
  EXPECT_NEAR(highOf(3, 4), 10 + 2.2, 1e-12);
  EXPECT_NEAR(highOf(3, 1), 10 + 1.0, 1e-12);
}

// 10 s less 9 % and more 30 %, but no narrower than the stack's own interval, from 9.5 s to 10.8 s.
TEST(Interval, OfOthersIsNoNarrower) {
  spec::StackDescription stack = stackWith(0.05, 0.08);
  EXPECT_FALSE(intervalOf(stepWith(Seconds(0)), 8, stack)->ofOthers.has_value());
  stack.fasterElsewhere = 0.09;
  stack.slowerElsewhere = 0.3;
  const auto wide = intervalOf(stepWith(Seconds(0)), 8, stack);
  ASSERT_TRUE(wide->ofOthers.has_value());
  EXPECT_DOUBLE_EQ(wide->ofOthers->low.count(), 9.1);
  EXPECT_DOUBLE_EQ(wide->ofOthers->high.count(), 13);
  stack.fasterElsewhere = 0;
  stack.slowerElsewhere = 0.02;
  const auto narrow = intervalOf(stepWith(Seconds(0)), 8, stack);
  ASSERT_TRUE(narrow->ofOthers.has_value());
  EXPECT_DOUBLE_EQ(narrow->ofOthers->low.count(), 9.5);
  EXPECT_DOUBLE_EQ(narrow->ofOthers->high.count(), 10.8);
}

// All of the step in collectives: four times 30 % is more than the step, and no step takes less
// than nothing.
TEST(Interval, NeverReachesBelowZeroAndHoldsTheEstimate) {
  for (double share = 0; share <= 1; share += 0.05) {
    const auto interval = intervalOf(stepWith(Seconds(10 * share)), 8, stackWith(0.3, 0.3));
    ASSERT_TRUE(interval.has_value());
    EXPECT_GE(interval->low, Seconds(0));
    EXPECT_LT(interval->low, Seconds(10));
    EXPECT_GT(interval->high, Seconds(10));
  }
}

}  // namespace
}  // namespace trireme::cost
