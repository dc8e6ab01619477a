#include "cost_models/collectives.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

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

// 4 devices at 100 GB/s in each of 2 nodes at 10 GB/s a device, 80 MB, no latency. 8 members, of
// whose rings every link carries 7/8 of what its device sends:
//   inside  80 MB at 100 GB/s = 0.8 ms;  between  80 MB over 4 devices' 10 GB/s = 2 ms, the slower
//   reduce-scatter = 7/8 x 2 ms = 1.75 ms, all-reduce = 3.5 ms
TEST(HierarchicalAllReduce, MatchesHandDerivation) {
  const Levels levels = {{4, {0_us, 100_GBps}}, {2, {0_us, 10_GBps}}};
  EXPECT_NEAR(reduceScatterTime(80_MB, levels).count(), 1.75e-3, 1e-12);
  EXPECT_NEAR(allReduceTime(80_MB, levels).count(), 3.5e-3, 1e-12);
}

TEST(HierarchicalAllReduce, IsReduceScatterPlusAllGather) {
  const Levels levels = {{4, {2_us, 100_GBps}}, {3, {5_us, 10_GBps}}, {2, {9_us, 5_GBps}}};
  EXPECT_EQ(allReduceTime(1_GB, levels),
            reduceScatterTime(1_GB, levels) + allGatherTime(1_GB, levels));
}

// 23/24 of the tensor through every link, in 23 hops whatever their level.
TEST(HierarchicalAllReduce, WithEqualLinksIsAFlatRing) {
  const Link link{7_us, 100_GBps};
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
  EXPECT_LT(time(200_GBps, 20_GBps), time(100_GBps, 20_GBps));  // 8 x 20 is more than 100
  EXPECT_EQ(time(200_GBps, 10_GBps), time(100_GBps, 10_GBps));
  EXPECT_LT(time(100_GBps, 20_GBps), time(100_GBps, 10_GBps));
}

spec::LinkTier measuredTier() {
  spec::LinkTier tier;
  tier.devices = 8;
  tier.bandwidth = 100_GBps;
  tier.latency = 2_us;
  tier.curves = {{spec::CollectiveKind::kAllReduce, 8, {{1_MB, 10_GBps}, {4_MB, 20_GBps}}, "s"}};
  return tier;
}

// All-reduce over 8: 2 x 7/8 of the bytes. 1 MB at 10 GB/s = 175 us, 4 MB at 20 GB/s = 350 us. 2 MB
// is half way between them by logarithms: sqrt(175 x 350) = 247.49 us. Beyond, 3 MB more take 175
// us: 7 MB 525 us. Half of 1 MB is half way from the latency, 2 x 7 x 2 us = 28 us, to 175 us:
// 101.5 us.
TEST(CollectiveTime, FollowsTheMeasuredCurve) {
  const spec::LinkTier tier = measuredTier();
  const Levels levels = {{8, {tier.latency, tier.bandwidth}, &tier, Level::Lie::kInOrder}};
  const auto time = [&](Bytes bytes) {
    return collectiveTime(spec::CollectiveKind::kAllReduce, bytes, levels).count();
  };
  EXPECT_NEAR(time(1_MB), 175e-6, 1e-12);
  EXPECT_NEAR(time(2_MB), 247.487e-6, 1e-9);
  EXPECT_NEAR(time(4_MB), 350e-6, 1e-12);
  EXPECT_NEAR(time(7_MB), 525e-6, 1e-12);
  EXPECT_NEAR(time(Bytes(0.5e6)), 101.5e-6, 1e-12);
  EXPECT_NEAR(collectiveTime(spec::CollectiveKind::kAllGather, 4_MB, levels).count(), 175e-6,
              1e-12);
}

// A table that ends at 1 MB in 175 us goes on at the pace of the links, 2 x 7/8 MB at 100 GB/s =
// 17.5 us a MB: of one size, and of two that take the same time. Links that are slower than it was
// do not make it slower: 175 us a MB. Nor does one that has levelled off get faster.
TEST(CollectiveTime, BeyondATableLatencyIsPaidOnce) {
  spec::LinkTier tier = measuredTier();
  const auto micros = [&](const std::vector<spec::CollectivePoint>& points, BytesPerSecond rate) {
    tier.curves[0].points = points;
    const Levels levels = {{8, {tier.latency, rate}, &tier, Level::Lie::kInOrder}};
    return collectiveTime(spec::CollectiveKind::kAllReduce, 3_MB, levels).count() * 1e6;
  };
  EXPECT_NEAR(micros({{1_MB, 10_GBps}}, 100_GBps), 175 + 2 * 17.5, 1e-6);
  EXPECT_NEAR(micros({{Bytes(0.5e6), 5_GBps}, {1_MB, 10_GBps}}, 100_GBps), 175 + 2 * 17.5, 1e-6);
  EXPECT_NEAR(micros({{1_MB, 10_GBps}}, 1_GBps), 3 * 175, 1e-6);
  EXPECT_NEAR(micros({{Bytes(0.5e6), BytesPerSecond(9.6e9)}, {1_MB, 10_GBps}}, 100_GBps), 3 * 175,
              1e-6);
  // As much more for a tenth more bytes is not level: 0.1 MB take 175 - 164.0625 us.
  EXPECT_NEAR(micros({{Bytes(0.9e6), BytesPerSecond(9.6e9)}, {1_MB, 10_GBps}}, 100_GBps),
              175 + 20 * 10.9375, 1e-6);
}

// Eight ranks in order, two in each block inside: what was measured. One in each of eight blocks is
// another group, that shares its links with others.
TEST(CollectiveTime, OfAMeasuredGroupFollowsTheCurveOfItsOutermostTier) {
  spec::LinkTier tier = measuredTier();
  const spec::LinkTier inside;
  const Link link{tier.latency, tier.bandwidth};
  const auto time = [&](const Levels& levels) {
    return collectiveTime(spec::CollectiveKind::kAllReduce, 1_MB, levels).count();
  };
  EXPECT_NEAR(
      time({{2, link, &inside, Level::Lie::kInOrder}, {4, link, &tier, Level::Lie::kInOrder}}),
      175e-6, 1e-12);
  const Levels apart = {{8, link, &tier, Level::Lie::kEven}};
  EXPECT_EQ(time(apart), allReduceTime(1_MB, apart).count());
  tier.curves[0].perBlock = 1;
  EXPECT_NEAR(time(apart), 175e-6, 1e-12);
  const Levels straddling = {{8, link, &tier, Level::Lie::kUneven}};
  EXPECT_EQ(time(straddling), allReduceTime(1_MB, straddling).count());
  const Levels pairs = {{2, link, &inside, Level::Lie::kInOrder},
                        {4, link, &tier, Level::Lie::kEven}};
  EXPECT_EQ(time(pairs), allReduceTime(1_MB, pairs).count());
  // No faster than links that are shared: 2 x 7/8 MB at 5 GB/s.
  const Levels shared = {{8, {tier.latency, 5_GBps}, &tier, Level::Lie::kEven}};
  EXPECT_NEAR(time(shared), 350e-6, 1e-12);
}

TEST(CollectiveTime, OfOtherGroupsFollowsTheFormulas) {
  const spec::LinkTier tier = measuredTier();
  const Levels four = {{4, {tier.latency, tier.bandwidth}, &tier, Level::Lie::kInOrder}};
  EXPECT_EQ(collectiveTime(spec::CollectiveKind::kAllReduce, 1_MB, four),
            allReduceTime(1_MB, four));
  EXPECT_EQ(collectiveTime(spec::CollectiveKind::kReduceScatter, 1_MB, four),
            reduceScatterTime(1_MB, four));
}

// 10 ms beside 4 ms of work: 6 ms are left over; beside 9.5 ms the share of a tenth is felt.
TEST(ExposedTime, IsWhatWorkDoesNotHide) {
  EXPECT_EQ(exposedTime(10_ms, 4_ms, 0.1), 6_ms);
  EXPECT_EQ(exposedTime(10_ms, Seconds(9.5e-3), 0.1), 1_ms);
  EXPECT_EQ(exposedTime(10_ms, 4_ms, 1), 10_ms);
}

TEST(HierarchicalAllReduce, WithoutLevelsIsFree) { EXPECT_EQ(allReduceTime(1_GB, {}), Seconds(0)); }

// 50 MB at 10 GB/s = 5 ms, and one latency.
TEST(Send, IsLatencyPlusBytes) {
  EXPECT_NEAR(sendTime(50_MB, {5_us, 10_GBps}).count(), 5.005e-3, 1e-12);
}

// A switch that adds up on the way: 1 GB among 8 at 700 GB/s of bus bandwidth, 2.5 ms, where links
// carry 100 GB/s. Gathering is no half of that: 7/8 of 1 GB has to come over a link, 8.75 ms.
TEST(CollectiveTime, GatheringIsNoFasterThanItsLinks) {
  spec::LinkTier tier;
  tier.devices = 8;
  tier.curves = {{spec::CollectiveKind::kAllReduce, 8, {{1_GB, 700_GBps}}, "test"}};
  const Levels levels = {{8, {0_us, 100_GBps}, &tier, Level::Lie::kInOrder}};
  EXPECT_NEAR(collectiveTime(spec::CollectiveKind::kAllReduce, 1_GB, levels).count(), 2.5e-3, 1e-9);
  EXPECT_NEAR(collectiveTime(spec::CollectiveKind::kAllGather, 1_GB, levels).count(), 8.75e-3,
              1e-9);
}

// However the bytes are cut into calls, and whatever the curve: also one that measures faster in
// the middle than at its end.
TEST(LeastCollectiveTime, IsNoMoreThanAnyPiecesTake) {
  using spec::CollectiveKind;
  spec::LinkTier tier = measuredTier();
  tier.curves[0].points = {{Bytes(1e3), 1_GBps}, {1_MB, 30_GBps}, {4_MB, 20_GBps}};
  const spec::LinkTier rising = measuredTier();
  const Levels beyond = {{8, {rising.latency, rising.bandwidth}, &rising, Level::Lie::kInOrder}};
  const Levels curved = {{8, {tier.latency, tier.bandwidth}, &tier, Level::Lie::kInOrder}};
  const Levels ring = {{4, {tier.latency, tier.bandwidth}, &tier, Level::Lie::kInOrder}};
  std::mt19937 random(1);
  std::uniform_real_distribution<double> exponent(2, 8);
  for (int round = 0; round < 300; ++round)
    for (CollectiveKind kind :
         {CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kReduceScatter})
      for (const Levels& levels : {curved, beyond, ring}) {
        const int64_t parts = 1 + static_cast<int64_t>(random() % 5);
        Bytes all;
        Seconds time;
        for (int64_t i = 0; i < parts; ++i) {
          const Bytes part(std::pow(10, exponent(random)));
          all += part;
          time += collectiveTime(kind, part, levels);
        }
        EXPECT_LE(leastCollectiveTime(kind, all, parts, levels), time * (1 + 1e-12));
      }
  EXPECT_EQ(leastCollectiveTime(CollectiveKind::kAllReduce, 1_MB, 1, {}), Seconds(0));
}

// 2 parts of a ring of 4: the bytes once, 2 x 3 latencies of 2 us each way, no more.
TEST(LeastCollectiveTime, WithoutACurveIsExact) {
  const spec::LinkTier tier = measuredTier();
  const Levels ring = {{4, {tier.latency, tier.bandwidth}, &tier, Level::Lie::kInOrder}};
  const Seconds apart = allReduceTime(1_MB, ring) + allReduceTime(3_MB, ring);
  EXPECT_NEAR(leastCollectiveTime(spec::CollectiveKind::kAllReduce, 4_MB, 2, ring).count(),
              apart.count(), 1e-15);
}

}  // namespace
}  // namespace trireme::cost
