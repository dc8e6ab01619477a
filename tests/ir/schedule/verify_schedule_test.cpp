#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "ir/schedule/schedule.h"

namespace trireme::schedule {
namespace {

using program::Direction;
using ::testing::HasSubstr;

TEST(S1EachTaskOnce, ATaskIsMissing) {
  Schedule s = oneForwardOneBackward(2, 3);
  s.order[1].pop_back();
  EXPECT_THAT(verifySchedule(s).message(), HasSubstr("(S1) rank 1: 5 tasks, expected 6"));
}

TEST(S1EachTaskOnce, ATaskIsThereTwice) {
  Schedule s = oneForwardOneBackward(2, 3);
  s.order[0][1] = s.order[0][0];
  EXPECT_THAT(verifySchedule(s).message(), HasSubstr("(S1) rank 0: F0.0 twice"));
}

TEST(S1EachTaskOnce, ATaskIsOfNoMicrobatchOrChunkOrDirection) {
  for (const Task& task : {Task{Direction::kForward, 0, 3}, Task{Direction::kForward, 0, -1},
                           Task{Direction::kForward, 1, 0}, Task{Direction::kForward, -1, 0},
                           Task{Direction::kStep, 0, 0}}) {
    Schedule s = oneForwardOneBackward(2, 3);
    s.order[0][0] = task;
    EXPECT_THAT(verifySchedule(s).message(), HasSubstr("(S1) rank 0: " + printTask(task)));
  }
}

TEST(S1EachTaskOnce, AGradientOfWeightsIsMissingOrTooMuch) {
  Schedule missing = zeroBubbleH1(2, 3);
  missing.order[1].pop_back();
  EXPECT_THAT(verifySchedule(missing).message(), HasSubstr("(S1) rank 1: 8 tasks, expected 9"));
  Schedule tooMuch = oneForwardOneBackward(2, 3);
  tooMuch.order[0].push_back({Direction::kWeights, 0, 0});
  EXPECT_THAT(verifySchedule(tooMuch).message(), HasSubstr("(S1) rank 0: W0.0 is no task"));
}

TEST(S1EachTaskOnce, ARankIsMissing) {
  Schedule s = oneForwardOneBackward(2, 3);
  s.order.pop_back();
  EXPECT_THAT(verifySchedule(s).message(), HasSubstr("(S1) 1 ranks have an order, expected 2"));
}

TEST(S1EachTaskOnce, ThereIsNothingToDo) {
  EXPECT_THAT(verifySchedule({.numMicrobatches = 0}).message(), HasSubstr("(S1)"));
}

// Rank 0 wants the gradient of 1 first, rank 1 makes that of 0 first but only after a forward that
// rank 0 holds back: F0.1 of rank 1 needs F0.1 of rank 0, which stands behind B0.0 of rank 0, which
// needs B0.0 of rank 1, which stands behind F0.1.
TEST(S2TheRanksDoNotWaitForEachOther, AForwardIsHeldBackByABackward) {
  const Task f0{Direction::kForward, 0, 0}, f1{Direction::kForward, 0, 1};
  const Task b0{Direction::kBackward, 0, 0}, b1{Direction::kBackward, 0, 1};
  const Schedule s{.stages = 2,
                   .virtualStages = 1,
                   .numMicrobatches = 2,
                   .order = {{f0, b0, f1, b1}, {f0, f1, b0, b1}}};
  EXPECT_EQ(verifySchedule(s).message(),
            "(S2) the ranks wait for each other: B0.0 of rank 0 for B0.0 of rank 1; F0.1 of rank 1 "
            "for F0.1 of rank 0");
}

// Chunk 1 of rank 0 needs chunk 0 of rank 1 of the same microbatch, and the reverse order waits for
// itself on one rank.
TEST(S2TheRanksDoNotWaitForEachOther, AChunkStandsBeforeItsOwnInput) {
  Schedule s = interleaved(1, 2, 1);
  std::swap(s.order[0][0], s.order[0][1]);
  EXPECT_THAT(verifySchedule(s).message(),
              HasSubstr("(S2) the ranks wait for each other: F1.0 of rank 0 for F0.0 of rank 0"));
}

TEST(S3BackwardFollowsForward, TheyAreSwapped) {
  Schedule s = oneForwardOneBackward(2, 3);
  std::swap(s.order[1][2], s.order[1][3]);  // F0 B0 [F1 B1] F2 B2
  EXPECT_THAT(verifySchedule(s).message(), HasSubstr("(S3) rank 1: B0.1 stands before F0.1"));
}

TEST(S3EachPassFollowsTheOneBefore, AGradientOfWeightsStandsBeforeItsBackward) {
  Schedule s = zeroBubbleH1(2, 3);
  std::swap(s.order[0][2], s.order[0][3]);
  EXPECT_EQ(verifySchedule(s).message(), "(S3) rank 0: W0.0 stands before B0.0");
}

}  // namespace
}  // namespace trireme::schedule
