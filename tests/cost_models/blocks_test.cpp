// Ranks on hosts that are partly filled, and on blocks that are unlike.
#include "cost_models/blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

#include "cost_models/topology.h"
#include "tests/cost_models/small_specs.h"

namespace trireme::cost {
namespace {

std::vector<int64_t> sizesOf(const GroupShape& shape, const Ranks& ranks,
                             const spec::ClusterSpec& cluster) {
  std::vector<int64_t> sizes;
  for (const Level& level : levelsOf(shape, ranks, cluster)) sizes.push_back(level.size);
  return sizes;
}
using Sizes = std::vector<int64_t>;

// 20 ranks, 5 on each of four hosts of 8: without that 8, 8 and 4, whose
// ports are fewest.
TEST(Blocks, AreAsManyRanksAsLaunchersStartOnAHost) {
  const spec::ClusterSpec nodes = small::cluster(64, 8);
  EXPECT_EQ(blockOf(0, {20, 1, 5}, nodes), 5);
  EXPECT_EQ(blockOf(0, {20, 1}, nodes), 8);
  EXPECT_EQ(sizesOf({{20, 1}}, {20, 1, 5}, nodes), (Sizes{5, 4}));
  EXPECT_EQ(sizesOf({{5, 4}}, {20, 4, 4}, nodes), (Sizes{5}));
  EXPECT_EQ(sizesOf({{20, 1}}, {20, 1}, nodes), (Sizes{4, 5}));
  EXPECT_EQ(sizesOf({{8, 1}}, {32, 8, 4}, nodes), (Sizes{4, 2}));  // groups of two hosts
  EXPECT_EQ(ranksOn(5, 20, 1, nodes).perHost, 5);
  EXPECT_EQ(ranksOn(8, 20, 1, nodes).perHost, 0);
  EXPECT_EQ(ranksOn(8, 12, 2, nodes).perHost, 6);
  EXPECT_EQ(ranksOn(0, 16, 1, nodes).perHost, 8);
  EXPECT_EQ(ranksOn(10, 20, 2, nodes).perHost, 0);  // hosts have 8
}

// Two ranks on each of 37 trays of 4: racks have 18 of them.
TEST(Blocks, OfHostsThatArePartlyFilledHoldLess) {
  spec::ClusterSpec racks = small::cluster(1152, 72);
  racks.hostDevices = 4;
  EXPECT_EQ(blockOf(0, {72, 1, 2}, racks), 36);
  EXPECT_EQ(blockOf(0, {74, 1, 2}, racks), 24);  // 24, 24 and 26
  EXPECT_EQ(blockOf(0, {36, 1, 2}, racks), 36);
}

// Hosts of 4: no rack has half of one, so that 100 ranks are 52 and 48, and 148 are 52, 48 and 48.
TEST(Blocks, HaveWholeHosts) {
  spec::ClusterSpec racks = small::cluster(1152, 72);
  racks.hostDevices = 4;
  const Ranks ranks{100, 1, 4};
  Blocks blocks(ranks, racks);
  EXPECT_EQ(blocks.next(), 48);
  ASSERT_TRUE(blocks.unlike().has_value());
  EXPECT_EQ(blocks.unlike()->most(), 52);
  EXPECT_EQ(blocks.unlike()->count, 2);
  EXPECT_EQ(blocks.unlike()->numLarger, 1);
  EXPECT_EQ(sizesOf({{148, 1}}, {148, 1, 4}, racks), (Sizes{48, 4}));
  EXPECT_EQ(sizesOf({{37, 4}}, {148, 4, 4}, racks), (Sizes{12, 4}));
  EXPECT_EQ(sizesOf({{4, 1}}, {148, 4, 4}, racks), (Sizes{4}));
  // A stage of 74: of the first 52 and 22, of the second 26 and 48.
  EXPECT_EQ(sizesOf({{74, 1}}, {148, 1, 4}, racks), (Sizes{22, 4}));
  EXPECT_EQ(levelsOf({{148, 1}}, {148, 1, 4}, racks)[1].lie, Level::Lie::kUneven);
  plan::Plan plan;
  plan.tp = plan.devicesPerHost = 4;
  plan.dpReplicate = 37;
  EXPECT_EQ(partlyFilled(plan, racks), "48 or 52 ranks in each of 3 blocks of inner (72 devices)");
}

// A rack ends at 52, within the second pipeline of 8 and between its stages of 4: a transfer there
// leaves it. Racks of 68 end where pipelines do not, either; of 64 none is parted.
TEST(Blocks, ThatAreUnlikePartPipelines) {
  spec::ClusterSpec racks = small::cluster(1152, 72);
  racks.hostDevices = 4;
  plan::Plan plan;
  plan.tp = plan.devicesPerHost = 4;
  plan.pp = 2;
  plan.rankOrder = plan::RankOrder::kTpCpPpDp;
  const auto bandwidth = [&](int64_t replicas) {
    plan.dpReplicate = replicas;
    return stageLink(plan, racks).bandwidth;
  };
  EXPECT_EQ(bandwidth(16), racks.tiers[0].sustained());  // 64 in each of two
  EXPECT_LT(bandwidth(19), racks.tiers[0].sustained());
  EXPECT_LT(bandwidth(17), racks.tiers[0].sustained());
}

// Members of every group in every block, counted one by one: the tier has the fewest of them.
TEST(Blocks, ThatAreUnlikeHaveTheMembersThatAreCounted) {
  std::mt19937 random(1);
  const auto pick = [&](std::vector<int64_t> values) {
    return values[std::uniform_int_distribution<size_t>(0, values.size() - 1)(random)];
  };
  int unlike = 0, whole = 0, parts = 0;
  for (int round = 0; round < 4000; ++round) {
    const int64_t host = pick({2, 4, 8}), hosts = std::uniform_int_distribution(2, 60)(random);
    spec::ClusterSpec cluster = small::cluster(host * 512, host * pick({3, 6, 9, 16}));
    cluster.hostDevices = host;
    const Ranks ranks{host * hosts, 1, host};
    Blocks blocks(ranks, cluster);
    blocks.next();
    if (!blocks.unlike()) continue;
    ++unlike;
    std::vector<int64_t> blockOfRank;
    for (int64_t i = 0; i < blocks.unlike()->count; ++i) {
      const bool isLarger = i < blocks.unlike()->numLarger;
      const int64_t size = isLarger ? blocks.unlike()->most() : blocks.unlike()->least;
      blockOfRank.insert(blockOfRank.end(), static_cast<size_t>(size), i);
      EXPECT_LE(size, cluster.tiers[0].devices);
    }
    ASSERT_EQ(static_cast<int64_t>(blockOfRank.size()), ranks.all);
    const int64_t stride = pick({1, 2, host});
    std::vector<int64_t> members;
    for (int64_t n = 2; n <= ranks.all / stride; ++n)
      if (ranks.all % (n * stride) == 0) members.push_back(n);
    const int64_t size = pick(members);
    int64_t fewest = size;
    for (int64_t base = 0; base < ranks.all; base += size * stride) {
      std::map<int64_t, int64_t> inBlock;
      for (int64_t i = 0; i < size; ++i)
        ++inBlock[blockOfRank[static_cast<size_t>(base + i * stride)]];
      for (const auto& [block, count] : inBlock) fewest = std::min(fewest, count);
    }
    const Sizes sizes = sizesOf({{size, stride}}, ranks, cluster);
    if (fewest == 1)
      EXPECT_EQ(sizes, (Sizes{size}));
    else if (fewest == size)
      EXPECT_EQ(sizes, (Sizes{size}));
    else
      EXPECT_EQ(sizes, (Sizes{fewest, (size + fewest - 1) / fewest}));
    ++(fewest == size ? whole : parts);
  }
  EXPECT_GT(unlike, 1000);
  EXPECT_GT(whole, 100);
  EXPECT_GT(parts, 300);
}

}  // namespace
}  // namespace trireme::cost
