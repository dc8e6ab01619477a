#include "cost_models/task_order.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <tuple>

namespace trireme::cost {
namespace {

using plan::ScheduleKind;
using schedule::Schedule;
using schedule::Task;

// Two stages, one microbatch. Steps in turns of the ranks: F on the first, on the second, and so
// on. What comes from the other rank is sent.
//   rank 0   0:F0          3:B0
//   rank 1         1:F0 2:B0
TEST(TaskOrder, OfTwoStagesAndOneMicrobatch) {
  const TaskOrder order = orderTasks(schedule::scheduleFor(ScheduleKind::k1F1B, 2, 1, 1), 0, false);
  ASSERT_EQ(order.steps.size(), 4);
  const auto isStep = [&](size_t i, size_t rank, program::Direction direction, uint32_t before,
                          uint32_t input, uint32_t way) {
    const TaskOrder::Step& step = order.steps[i];
    EXPECT_EQ(step.pass, order.passAt(rank, direction, 0)) << i;
    EXPECT_EQ(step.before, before) << i;
    EXPECT_EQ(step.input, input) << i;
    EXPECT_EQ(step.way, way) << i;
    EXPECT_EQ(step.slot, order.never()) << i;
  };
  using enum program::Direction;
  isStep(0, 0, kForward, order.start(), order.start(), TaskOrder::kAtHand);
  isStep(1, 1, kForward, order.start(), 0, order.hopBehind(0));
  isStep(2, 1, kBackward, 1, 1, TaskOrder::kAtHand);
  isStep(3, 0, kBackward, 0, 2, order.hopBehind(0));
  EXPECT_EQ(order.looks.back().last, (std::vector<uint32_t>{3, 2}));
}

// Of the second stage alone: what comes from the first one comes through it.
TEST(TaskOrder, OfTheLastOfTwoStages) {
  const TaskOrder order =
      orderTasks(schedule::scheduleFor(ScheduleKind::kInterleaved, 2, 2, 2), 1, false);
  std::set<uint32_t> forwards, backwards;
  for (const TaskOrder::Step& step : order.steps) {
    const TaskOrder::Pass pass = order.passOf(step.pass);
    if (pass.direction == program::Direction::kForward) {
      EXPECT_EQ(step.way, order.throughForward(pass.chunk));
      forwards.insert(step.way);
    } else if (pass.chunk == 0) {  // from the second chunk, back through the first stage
      EXPECT_EQ(step.way, order.throughBackward(1));
      backwards.insert(step.way);
    } else {
      EXPECT_EQ(step.way, TaskOrder::kAtHand);
    }
  }
  EXPECT_EQ(forwards.size(), 2);
  EXPECT_EQ(backwards.size(), 1);
}

// Of every task of the last stages one step, after all that it waits for, in its rank's order; and
// after every look what is left is what has not come.
TEST(TaskOrder, HasEveryTaskAfterWhatItWaitsFor) {
  std::mt19937 random(1);
  const ScheduleKind kinds[] = {ScheduleKind::kGpipe, ScheduleKind::k1F1B,
                                ScheduleKind::kInterleaved, ScheduleKind::kZeroBubbleH1,
                                ScheduleKind::kZeroBubbleH2};
  for (int trial = 0; trial < 200; ++trial) {
    const ScheduleKind kind = kinds[trial % 5];
    const auto stages = static_cast<int32_t>(1 + random() % 6);
    const auto chunks = static_cast<int32_t>(
        kind == ScheduleKind::kInterleaved && stages > 1 ? 1 + random() % 4 : 1);
    const auto microbatches =
        static_cast<int32_t>(stages * (1 + static_cast<int32_t>(random() % 8)));
    const Schedule schedule = schedule::scheduleFor(kind, stages, chunks, microbatches);
    const size_t first = random() % static_cast<size_t>(stages);
    const TaskOrder order = orderTasks(schedule, first, random() % 2);
    std::vector<size_t> numOfRank(order.numRanks);
    std::vector<double> left(order.numPasses());
    std::vector<uint32_t> last(order.numRanks, order.start());
    for (const TaskOrder::Step& step : order.steps) ++left[step.pass];
    auto look = order.looks.begin();
    for (uint32_t i = 0; i < order.steps.size(); ++i) {
      const TaskOrder::Step& step = order.steps[i];
      const TaskOrder::Pass pass = order.passOf(step.pass);
      EXPECT_EQ(step.before, last[pass.rank]);
      for (const uint32_t other : {step.input, step.slot})
        EXPECT_TRUE(other < i || other >= order.start());
      const Task& task = schedule.order[first + pass.rank][numOfRank[pass.rank]++];
      EXPECT_EQ(std::tie(task.direction, task.microbatch),
                std::make_tuple(pass.direction, static_cast<int32_t>(step.microbatch)));
      EXPECT_EQ(static_cast<size_t>(task.chunk), pass.chunk);
      last[pass.rank] = i;
      --left[step.pass];
      if (look->step != i + 1) continue;
      EXPECT_EQ(look->left, left);
      EXPECT_EQ(look->last, last);
      ++look;
    }
    EXPECT_EQ(look, order.looks.end());
    for (size_t rank = 0; rank < order.numRanks; ++rank)
      EXPECT_EQ(numOfRank[rank], schedule.order[first + rank].size());
  }
}

}  // namespace
}  // namespace trireme::cost
