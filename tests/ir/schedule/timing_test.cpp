// Plays schedules with a forward of 1, a backward of 2 and free communication.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "ir/schedule/schedule.h"

namespace trireme::schedule {
namespace {

// The end of the last task. A task starts when its rank is free and its input is there.
// Time is counted in units of 1 / virtualStages, in which a chunk's forward is 1 and backward 2.
double makespan(const Schedule& s) {
  const int32_t numStages = s.stages * s.virtualStages;
  const auto at = [&](bool backward, int32_t stage, int32_t microbatch) {
    return static_cast<size_t>(((backward ? numStages : 0) + stage) * s.numMicrobatches +
                               microbatch);
  };
  std::vector<int64_t> end(static_cast<size_t>(2 * numStages * s.numMicrobatches), -1);
  std::vector<int64_t> rankFree(s.order.size(), 0);
  std::vector<size_t> next(s.order.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (int32_t rank = 0; rank < s.stages; ++rank) {
      const auto r = static_cast<size_t>(rank);
      for (; next[r] < s.order[r].size(); ++next[r]) {
        const Task& task = s.order[r][next[r]];
        const bool backward = task.direction == program::Direction::kBackward;
        const int32_t stage = task.chunk * s.stages + rank;
        int64_t ready = 0;
        if (backward)
          ready = stage + 1 < numStages ? end[at(true, stage + 1, task.microbatch)]
                                        : end[at(false, stage, task.microbatch)];
        else if (stage > 0)
          ready = end[at(false, stage - 1, task.microbatch)];
        if (ready < 0) break;
        rankFree[r] = std::max(rankFree[r], ready) + (backward ? 2 : 1);
        end[at(backward, stage, task.microbatch)] = rankFree[r];
        moved = true;
      }
    }
  }
  for (size_t r = 0; r < s.order.size(); ++r) EXPECT_EQ(next[r], s.order[r].size());
  return static_cast<double>(*std::max_element(rankFree.begin(), rankFree.end())) / s.virtualStages;
}

struct Row {
  int32_t p, m;
  double v1, v2, v3, v4;
};

// T = m (1 + 2) + (p - 1)(1 + 2) / v, worked out by hand: p=4, m=8, v=2: 24 + 9/2 = 28.5.
TEST(Makespan, EqualsThePublishedTable) {
  for (const Row& row : {Row{2, 4, 15, 13.5, 13, 12.75}, Row{4, 4, 21, 16.5, 15, 14.25},
                         Row{4, 8, 33, 28.5, 27, 26.25}, Row{8, 16, 69, 58.5, 55, 53.25},
                         Row{8, 64, 213, 202.5, 199, 197.25}}) {
    SCOPED_TRACE(::testing::Message() << "p=" << row.p << " m=" << row.m);
    EXPECT_EQ(makespan(gpipe(row.p, row.m)), row.v1);
    EXPECT_EQ(makespan(oneForwardOneBackward(row.p, row.m)), row.v1);
    EXPECT_EQ(makespan(interleaved(row.p, 2, row.m)), row.v2);
    EXPECT_EQ(makespan(interleaved(row.p, 3, row.m)), row.v3);
    EXPECT_EQ(makespan(interleaved(row.p, 4, row.m)), row.v4);
  }
}

TEST(Makespan, EqualsTheClosedFormForAllSizes) {
  for (int32_t p = 1; p <= 8; ++p)
    for (int32_t m = 1; m <= 24; ++m) {
      SCOPED_TRACE(::testing::Message() << "p=" << p << " m=" << m);
      EXPECT_EQ(makespan(gpipe(p, m)), 3 * (m + p - 1));
      EXPECT_EQ(makespan(oneForwardOneBackward(p, m)), 3 * (m + p - 1));
      if (m % p != 0) continue;
      for (int32_t v = 2; v <= 4; ++v)  // One division: exact in double where it is exact at all.
        EXPECT_DOUBLE_EQ(makespan(interleaved(p, v, m)), 3.0 * (m * v + p - 1) / v) << "v=" << v;
    }
}

std::vector<int32_t> peaks(const Schedule& s) {
  std::vector<int32_t> result;
  for (int32_t rank = 0; rank < s.stages; ++rank) result.push_back(peakLiveTotal(s, rank));
  return result;
}

TEST(Peaks, EqualThePublishedTable) {
  using ::testing::ElementsAre;
  EXPECT_THAT(peaks(oneForwardOneBackward(2, 4)), ElementsAre(2, 1));
  EXPECT_THAT(peaks(oneForwardOneBackward(4, 8)), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(peaks(oneForwardOneBackward(8, 16)), ElementsAre(8, 7, 6, 5, 4, 3, 2, 1));
  EXPECT_THAT(peaks(interleaved(2, 2, 4)), ElementsAre(5, 3));
  EXPECT_THAT(peaks(interleaved(4, 2, 4)), ElementsAre(8, 8, 8, 8));
  EXPECT_THAT(peaks(interleaved(4, 2, 8)), ElementsAre(11, 9, 7, 5));
  EXPECT_THAT(peaks(interleaved(8, 2, 16)), ElementsAre(23, 21, 19, 17, 15, 13, 11, 9));
  EXPECT_THAT(peaks(interleaved(8, 2, 64)), ElementsAre(23, 21, 19, 17, 15, 13, 11, 9));
}

}  // namespace
}  // namespace trireme::schedule
