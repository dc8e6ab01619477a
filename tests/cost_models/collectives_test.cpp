#include "cost_models/collectives.h"

#include <gtest/gtest.h>

namespace trireme::cost {
namespace {

using namespace literals;

// 8 ranks, 1 GB, 100 GB/s, 5 us:
//   chunk = 1 GB / 8 = 125 MB; 125 MB at 100 GB/s = 1.25 ms
//   14 steps of (1.25 ms + 0.005 ms) = 17.57 ms
TEST(RingAllReduce, MatchesHandDerivation) {
  const Link link{5_us, 100_GBps};
  EXPECT_NEAR(ringAllReduceTime(1_GB, 8, link).count(), 17.57e-3, 1e-9);
}

TEST(RingAllReduce, GroupOfOneIsFree) {
  EXPECT_EQ(ringAllReduceTime(1_GB, 1, {5_us, 100_GBps}), Seconds(0));
}

// Each rank must send (n-1)/n of the tensor and receive as much, twice: no algorithm beats that.
TEST(RingAllReduce, IsNeverBelowTheBandwidthBound) {
  const Link link{0_us, 100_GBps};
  for (int64_t n = 2; n <= 64; ++n) {
    const double bound = 2 * 0.01 * static_cast<double>(n - 1) / static_cast<double>(n);
    EXPECT_NEAR(ringAllReduceTime(1_GB, n, link).count(), bound, 1e-12) << n;
  }
}

TEST(RingAllReduce, GrowsWithTheGroup) {
  const Link link{5_us, 100_GBps};
  for (int64_t n = 1; n < 64; ++n)
    EXPECT_LT(ringAllReduceTime(1_MB, n, link), ringAllReduceTime(1_MB, n + 1, link)) << n;
}

// 4 devices at 100 GB/s in each of 2 nodes at 10 GB/s, 80 MB, no latency:
//   inside  3 steps of 20 MB at 100 GB/s = 0.6 ms
//   between 1 step of 10 MB (half of the quarter) at 10 GB/s = 1 ms
//   reduce-scatter = 1.6 ms, all-reduce = 3.2 ms
TEST(HierarchicalAllReduce, MatchesHandDerivation) {
  const Levels levels = {{4, {0_us, 100_GBps}}, {2, {0_us, 10_GBps}}};
  EXPECT_NEAR(reduceScatterTime(80_MB, levels).count(), 1.6e-3, 1e-12);
  EXPECT_NEAR(allReduceTime(80_MB, levels).count(), 3.2e-3, 1e-12);
}

TEST(HierarchicalAllReduce, IsReduceScatterPlusAllGather) {
  const Levels levels = {{4, {2_us, 100_GBps}}, {3, {5_us, 10_GBps}}, {2, {9_us, 5_GBps}}};
  EXPECT_EQ(allReduceTime(1_GB, levels),
            reduceScatterTime(1_GB, levels) + allGatherTime(1_GB, levels));
}

// (4-1)/4 + (3-1)/12 + (2-1)/24 = 23/24
TEST(HierarchicalAllReduce, WithEqualLinksMovesWhatAFlatRingMoves) {
  const Link link{0_us, 100_GBps};
  const Levels levels = {{4, link}, {3, link}, {2, link}};
  EXPECT_NEAR(allReduceTime(1_GB, levels).count(), ringAllReduceTime(1_GB, 24, link).count(),
              1e-12);
}

TEST(HierarchicalAllReduce, IsNeverSlowerThanAFlatRingOverTheSlowestLink) {
  const Link inner{2_us, 100_GBps}, outer{5_us, 10_GBps};
  for (int64_t a : {1, 2, 4, 8})
    for (int64_t b : {2, 3, 16})
      EXPECT_LE(allReduceTime(1_GB, {{a, inner}, {b, outer}}),
                ringAllReduceTime(1_GB, a * b, outer));
}

TEST(HierarchicalAllReduce, MoreBandwidthIsNeverSlower) {
  const auto time = [](BytesPerSecond inner, BytesPerSecond outer) {
    return allReduceTime(100_MB, {{8, {2_us, inner}}, {4, {5_us, outer}}});
  };
  EXPECT_LT(time(200_GBps, 10_GBps), time(100_GBps, 10_GBps));
  EXPECT_LT(time(100_GBps, 20_GBps), time(100_GBps, 10_GBps));
}

TEST(HierarchicalAllReduce, WithoutLevelsIsFree) { EXPECT_EQ(allReduceTime(1_GB, {}), Seconds(0)); }

// 50 MB at 10 GB/s = 5 ms, and one latency.
TEST(Send, IsLatencyPlusBytes) {
  EXPECT_NEAR(sendTime(50_MB, {5_us, 10_GBps}).count(), 5.005e-3, 1e-12);
}

}  // namespace
}  // namespace trireme::cost
