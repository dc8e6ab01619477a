// Plays schedules with a forward of 1, a backward of 2 and free communication.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/schedule/schedule.h"
#include "tests/support/replay.h"

namespace trireme::schedule {
namespace {

double makespan(const Schedule& s) { return testing::replaySeconds(s, {1, 2, 0}); }

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
