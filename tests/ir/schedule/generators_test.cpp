#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "ir/schedule/schedule.h"

namespace trireme::schedule {
namespace {

TEST(Gpipe, RunsAllForwardsThenAllBackwardsFirstInFirstOut) {
  const std::string row = "F0.0 F0.1 F0.2 F0.3 B0.0 B0.1 B0.2 B0.3\n";
  EXPECT_EQ(printSchedule(gpipe(3, 4)), row + row + row);
}

TEST(OneForwardOneBackward, IsTheDrawnTimeline) {
  EXPECT_EQ(printSchedule(oneForwardOneBackward(3, 4)),
            "F0.0 F0.1 F0.2 B0.0 F0.3 B0.1 B0.2 B0.3\n"
            "F0.0 F0.1 B0.0 F0.2 B0.1 F0.3 B0.2 B0.3\n"
            "F0.0 B0.0 F0.1 B0.1 F0.2 B0.2 F0.3 B0.3\n");
}

TEST(OneForwardOneBackward, WarmsUpWithNoMoreThanThereIs) {
  EXPECT_EQ(printSchedule(oneForwardOneBackward(4, 2)),
            "F0.0 F0.1 B0.0 B0.1\n"
            "F0.0 F0.1 B0.0 B0.1\n"
            "F0.0 F0.1 B0.0 B0.1\n"
            "F0.0 B0.0 F0.1 B0.1\n");
}

TEST(Interleaved, TwoStagesTwoChunksFourMicrobatches) {
  EXPECT_EQ(printSchedule(interleaved(2, 2, 4)),
            "F0.0 F0.1 F1.0 F1.1 F0.2 B1.0 F0.3 B1.1 F1.2 B0.0 F1.3 B0.1 B1.2 B1.3 B0.2 B0.3\n"
            "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 F0.2 B0.0 F0.3 B0.1 F1.2 B1.2 F1.3 B1.3 B0.2 B0.3\n");
}

TEST(Interleaved, FourStagesTwoChunksEightMicrobatches) {
  EXPECT_EQ(printSchedule(interleaved(4, 2, 8)),
            "F0.0 F0.1 F0.2 F0.3 F1.0 F1.1 F1.2 F1.3 F0.4 F0.5 F0.6 B1.0 F0.7 B1.1 F1.4 B1.2 "
            "F1.5 B1.3 F1.6 B0.0 F1.7 B0.1 B0.2 B0.3 B1.4 B1.5 B1.6 B1.7 B0.4 B0.5 B0.6 B0.7\n"
            "F0.0 F0.1 F0.2 F0.3 F1.0 F1.1 F1.2 F1.3 F0.4 B1.0 F0.5 B1.1 F0.6 B1.2 F0.7 B1.3 "
            "F1.4 B0.0 F1.5 B0.1 F1.6 B0.2 F1.7 B0.3 B1.4 B1.5 B1.6 B1.7 B0.4 B0.5 B0.6 B0.7\n"
            "F0.0 F0.1 F0.2 F0.3 F1.0 F1.1 F1.2 B1.0 F1.3 B1.1 F0.4 B1.2 F0.5 B1.3 F0.6 B0.0 "
            "F0.7 B0.1 F1.4 B0.2 F1.5 B0.3 F1.6 B1.4 F1.7 B1.5 B1.6 B1.7 B0.4 B0.5 B0.6 B0.7\n"
            "F0.0 F0.1 F0.2 F0.3 F1.0 B1.0 F1.1 B1.1 F1.2 B1.2 F1.3 B1.3 F0.4 B0.0 F0.5 B0.1 "
            "F0.6 B0.2 F0.7 B0.3 F1.4 B1.4 F1.5 B1.5 F1.6 B1.6 F1.7 B1.7 B0.4 B0.5 B0.6 B0.7\n");
}

// As many microbatches as stages: all forwards first, as in the published schedule.
TEST(Interleaved, AsManyMicrobatchesAsStagesIsAllForwardsFirst) {
  const std::string row = "F0.0 F0.1 F1.0 F1.1 B1.0 B1.1 B0.0 B0.1\n";
  EXPECT_EQ(printSchedule(interleaved(2, 2, 2)), row + row);
}

// W is d = r backwards behind: none on the first rank, two on the last.
TEST(ZeroBubble, H1IsTheDrawnTimeline) {
  EXPECT_EQ(printSchedule(zeroBubbleH1(3, 5)),
            "F0.0 F0.1 F0.2 B0.0 W0.0 F0.3 B0.1 W0.1 F0.4 B0.2 W0.2 B0.3 W0.3 B0.4 W0.4\n"
            "F0.0 F0.1 B0.0 F0.2 B0.1 W0.0 F0.3 B0.2 W0.1 F0.4 B0.3 W0.2 B0.4 W0.3 W0.4\n"
            "F0.0 B0.0 F0.1 B0.1 F0.2 B0.2 W0.0 F0.3 B0.3 W0.1 F0.4 B0.4 W0.2 W0.3 W0.4\n");
}

TEST(ZeroBubble, H2FillsTheWarmUpToo) {
  EXPECT_EQ(printSchedule(zeroBubbleH2(2, 4)),
            "F0.0 F0.1 F0.2 B0.0 W0.0 F0.3 B0.1 W0.1 B0.2 W0.2 B0.3 W0.3\n"
            "F0.0 B0.0 F0.1 B0.1 F0.2 B0.2 W0.0 F0.3 B0.3 W0.1 W0.2 W0.3\n");
}

TEST(ZeroBubble, WarmsUpWithNoMoreThanThereIs) {
  EXPECT_EQ(printSchedule(zeroBubbleH2(3, 2)),
            "F0.0 F0.1 B0.0 W0.0 B0.1 W0.1\n"
            "F0.0 F0.1 B0.0 B0.1 W0.0 W0.1\n"
            "F0.0 B0.0 F0.1 B0.1 W0.0 W0.1\n");
}

TEST(ScheduleFor, FollowsThePlan) {
  plan::Plan plan;
  plan.pp = 2;
  plan.dpReplicate = 2;
  plan.microbatchSize = 3;
  plan.training.globalBatchSize = 24;  // 24 / (2 replicas x 3 sequences) = 4 microbatches
  plan.schedule = plan::ScheduleKind::kGpipe;
  EXPECT_EQ(printSchedule(scheduleFor(plan)), printSchedule(gpipe(2, 4)));
  plan.schedule = plan::ScheduleKind::k1F1B;
  EXPECT_EQ(printSchedule(scheduleFor(plan)), printSchedule(oneForwardOneBackward(2, 4)));
  plan.schedule = plan::ScheduleKind::kZeroBubbleH1;
  EXPECT_EQ(printSchedule(scheduleFor(plan)), printSchedule(zeroBubbleH1(2, 4)));
  plan.schedule = plan::ScheduleKind::kZeroBubbleH2;
  EXPECT_EQ(printSchedule(scheduleFor(plan)), printSchedule(zeroBubbleH2(2, 4)));
  plan.schedule = plan::ScheduleKind::kInterleaved;
  plan.virtualStages = 2;
  EXPECT_EQ(printSchedule(scheduleFor(plan)), printSchedule(interleaved(2, 2, 4)));
}

// Every legal schedule of up to 8 stages, 4 chunks and 24 microbatches.
template <typename Check>
void forAllSizes(Check check) {
  for (int32_t p = 1; p <= 8; ++p)
    for (int32_t v = 1; v <= 4; ++v)
      for (int32_t m = 1; m <= 24; ++m) check(p, v, m);
}

void expectEachTaskOnce(const Schedule& s) {
  for (const std::vector<Task>& order : s.order) {
    const int32_t passes = s.splitsBackward ? 3 : 2;
    std::vector<int> seen(static_cast<size_t>(passes * s.virtualStages * s.numMicrobatches), 0);
    for (const Task& task : order) {
      const int32_t pass = task.direction == program::Direction::kForward    ? 0
                           : task.direction == program::Direction::kBackward ? 1
                                                                             : 2;
      ++seen.at(
          static_cast<size_t>(passes * (task.chunk * s.numMicrobatches + task.microbatch) + pass));
    }
    EXPECT_THAT(seen, ::testing::Each(1));
  }
}

TEST(AllSchedules, AreLegalAndHaveEachTaskOnce) {
  forAllSizes([](int32_t p, int32_t v, int32_t m) {
    SCOPED_TRACE(::testing::Message() << "p=" << p << " v=" << v << " m=" << m);
    std::vector<Schedule> schedules;
    if (v == 1)
      schedules = {gpipe(p, m), oneForwardOneBackward(p, m), zeroBubbleH1(p, m),
                   zeroBubbleH2(p, m)};
    if (m % p == 0) schedules.push_back(interleaved(p, v, m));
    for (const Schedule& s : schedules) {
      const Status status = verifySchedule(s);
      EXPECT_TRUE(status.ok()) << status.message();
      expectEachTaskOnce(s);
    }
  });
}

// GPipe keeps all m; 1F1B min(m, p - r); interleaved min(mv, 2 (p - r - 1) + (v - 1) p + 1) chunks,
// and all mv if m == p.
TEST(AllSchedules, KeepAsManyActivationsAsTheClosedFormSays) {
  forAllSizes([](int32_t p, int32_t v, int32_t m) {
    SCOPED_TRACE(::testing::Message() << "p=" << p << " v=" << v << " m=" << m);
    for (int32_t r = 0; r < p; ++r) {
      if (v == 1) {
        EXPECT_EQ(peakLive(gpipe(p, m), r, 0), m);
        EXPECT_EQ(peakLive(oneForwardOneBackward(p, m), r, 0), std::min(m, p - r));
        EXPECT_EQ(peakLive(zeroBubbleH1(p, m), r, 0), std::min(m, p));
        EXPECT_EQ(peakLive(zeroBubbleH2(p, m), r, 0), std::min(m, 2 * p - 1));
      }
      if (m % p == 0) {
        const int32_t all = m * v;
        const int32_t expected = m == p ? all : std::min(all, 2 * (p - r - 1) + (v - 1) * p + 1);
        EXPECT_EQ(peakLiveTotal(interleaved(p, v, m), r), expected);
      }
    }
  });
}

// A slot is reused only after its backward, and no more slots are used than are alive at once.
TEST(AssignSlots, GivesEachLiveActivationItsOwnAndNoMoreThanThePeak) {
  forAllSizes([](int32_t p, int32_t v, int32_t m) {
    if (m % p != 0 || m > 12) return;
    SCOPED_TRACE(::testing::Message() << "p=" << p << " v=" << v << " m=" << m);
    const Schedule s = interleaved(p, v, m);
    const auto slots = assignSlots(s);
    for (int32_t r = 0; r < p; ++r)
      for (int32_t chunk = 0; chunk < v; ++chunk) {
        const auto& order = s.order[static_cast<size_t>(r)];
        std::vector<int32_t> holder(static_cast<size_t>(peakLive(s, r, chunk)), -1);
        for (size_t i = 0; i < order.size(); ++i) {
          if (order[i].chunk != chunk) continue;
          int32_t& slot = holder.at(static_cast<size_t>(slots[static_cast<size_t>(r)][i]));
          const bool forward = order[i].direction == program::Direction::kForward;
          EXPECT_EQ(slot, forward ? -1 : order[i].microbatch);
          slot = forward ? order[i].microbatch : -1;
        }
      }
  });
}

TEST(AssignSlots, ReusesTheLowestFreeSlot) {
  // F0 F1 F2 B0 F3 B1 B2 B3: microbatch 3 starts when only 0's slot is free.
  EXPECT_THAT(assignSlots(oneForwardOneBackward(3, 4))[0],
              ::testing::ElementsAre(0, 1, 2, 0, 0, 1, 2, 0));
}

}  // namespace
}  // namespace trireme::schedule
