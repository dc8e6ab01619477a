#include "cost_models/topology.h"

#include <gtest/gtest.h>

#include "tests/cost_models/small_specs.h"

namespace trireme::cost {
namespace {

using program::GroupKind;

std::vector<int64_t> sizes(const Levels& levels) {
  std::vector<int64_t> sizes;
  for (const Level& level : levels) sizes.push_back(level.size);
  return sizes;
}
using Sizes = std::vector<int64_t>;

plan::Plan degrees(int64_t tp, int64_t pp, int64_t dp) {
  plan::Plan plan;
  plan.tp = tp;
  plan.pp = pp;
  plan.dpReplicate = dp;
  return plan;
}

TEST(Levels, AGroupInsideANodeHasOneLevel) {
  const Levels levels = levelsOf(GroupShape{{8, 1}}, {64, 8}, small::cluster(64, 8));
  EXPECT_EQ(sizes(levels), (Sizes{8}));
  EXPECT_EQ(levels[0].link.bandwidth, BytesPerSecond(100e9));
}

// Stride 4: two members per node of 8, and eight such nodes.
TEST(Levels, AGroupAcrossNodesHasTwo) {
  const Levels levels = levelsOf(GroupShape{{16, 4}}, {64, 4}, small::cluster(64, 8));
  EXPECT_EQ(sizes(levels), (Sizes{2, 8}));
  EXPECT_EQ(levels[1].link.bandwidth, BytesPerSecond(10e9));
}

TEST(Levels, OneMemberPerNodeUsesTheOuterTierOnly) {
  EXPECT_EQ(sizes(levelsOf(GroupShape{{8, 8}}, {64, 1}, small::cluster(64, 8))), (Sizes{8}));
  EXPECT_EQ(levelsOf(GroupShape{{8, 8}}, {64, 1}, small::cluster(64, 8))[0].link.bandwidth,
            BytesPerSecond(10e9));
}

// 6 does not fill 8: ranks 6..11 straddle two nodes, so all such groups pay the outer link.
TEST(Levels, GroupsThatStraddleNodesPayTheOuterLink) {
  const Levels levels = levelsOf(GroupShape{{6, 1}}, {24, 6}, small::cluster(24, 8));
  EXPECT_EQ(sizes(levels), (Sizes{6}));
  EXPECT_EQ(levels[0].link.bandwidth, BytesPerSecond(10e9));
}

// The embedding group of tp 1, dp 2, pp 4: ranks 0 and 6 of a node's eight. Of 16 ranks they may be
// on two nodes.
TEST(Levels, OneBlockThatHasAllRanksHasEveryGroup) {
  const Levels inside = levelsOf(GroupShape{{2, 6}}, {8, 1}, small::cluster(64, 8));
  EXPECT_EQ(sizes(inside), (Sizes{2}));
  EXPECT_EQ(inside[0].link.bandwidth, BytesPerSecond(100e9));
  const Levels across = levelsOf(GroupShape{{2, 6}}, {16, 1}, small::cluster(64, 8));
  EXPECT_EQ(sizes(across), (Sizes{2}));
  EXPECT_EQ(across[0].link.bandwidth, BytesPerSecond(10e9));
}

TEST(Levels, AGroupOfOneHasNone) {
  EXPECT_TRUE(levelsOf(GroupShape{{1, 1}}, {1, 1}, small::cluster()).empty());
}

// Racks of 72 of which a job takes 64 each, as most do: nothing of a job on one rack leaves it, and
// of two racks each holds half. Nodes of 8 for 12 ranks: 6 each, unless that parts ranks that stay
// together.
TEST(Levels, RanksFillTheBlocksThatTheyNeedEvenly) {
  const spec::ClusterSpec racks = small::cluster(576, 72);
  EXPECT_EQ(blockOf(0, {64, 4}, racks), 64);
  EXPECT_EQ(blockOf(0, {128, 4}, racks), 64);
  EXPECT_EQ(blockOf(0, {144, 4}, racks), 72);
  EXPECT_EQ(blockOf(0, {145, 1}, racks), 72);  // three racks, and no third of it
  EXPECT_EQ(sizes(levelsOf(GroupShape{{8, 4}}, {64, 4}, racks)), (Sizes{8}));
  EXPECT_EQ(levelsOf(GroupShape{{8, 4}}, {64, 4}, racks)[0].link.bandwidth, BytesPerSecond(100e9));
  EXPECT_EQ(sizes(levelsOf(GroupShape{{32, 4}}, {128, 4}, racks)), (Sizes{16, 2}));
  const spec::ClusterSpec nodes = small::cluster(64, 8);
  EXPECT_EQ(blockOf(0, {12, 2}, nodes), 6);
  EXPECT_EQ(blockOf(0, {12, 4}, nodes), 8);
  EXPECT_EQ(blockOf(0, {5, 1}, nodes), 5);
}

TEST(GroupShape, FollowsTheRankOrder) {
  const plan::Plan plan = degrees(2, 4, 3);  // rank = tp + 2 (dp + 3 pp)
  const GroupShape data = groupShape(GroupKind::kDp, plan);
  EXPECT_EQ(data[0].size, 3);
  EXPECT_EQ(data[0].stride, 2);
  const GroupShape embedding = groupShape(GroupKind::kEmbedding, plan);
  EXPECT_EQ(embedding[0].size, 2);
  EXPECT_EQ(embedding[0].stride, 18);  // from stage 0 to stage 3
  EXPECT_EQ(groupSize(groupShape(GroupKind::kWorld, plan)), 24);
}

TEST(StageLink, IsTheOutermostTierThatATransferCrosses) {
  const spec::ClusterSpec cluster = small::cluster(16, 8);
  EXPECT_EQ(stageLink(degrees(2, 4, 1), cluster).bandwidth, BytesPerSecond(100e9));  // 8 ranks
  EXPECT_EQ(stageLink(degrees(2, 8, 1), cluster).bandwidth, BytesPerSecond(10e9));   // 3 -> 4
  EXPECT_EQ(stageLink(degrees(8, 2, 1), cluster).bandwidth, BytesPerSecond(10e9));
  EXPECT_EQ(stageLink(degrees(3, 2, 1), cluster).bandwidth, BytesPerSecond(100e9));  // 0-2 -> 3-5
  EXPECT_EQ(stageLink(degrees(3, 3, 1), cluster).bandwidth, BytesPerSecond(10e9));   // 5 -> 8
}

// Stages of 4 on nodes of 8: 0 and 1 share a node, 1 and 2 do not, nor do 0 and 3. Stages of 3: of
// the second the ranks 6 and 7 send across.
TEST(StageLink, OfTwoStagesIsTheirOwn) {
  const spec::ClusterSpec cluster = small::cluster(16, 8);
  const plan::Plan even = degrees(4, 4, 1), odd = degrees(3, 4, 1);
  EXPECT_EQ(stageLink(0, 1, even, cluster).bandwidth, BytesPerSecond(100e9));
  EXPECT_EQ(stageLink(1, 2, even, cluster).bandwidth, BytesPerSecond(10e9));
  EXPECT_EQ(stageLink(3, 0, even, cluster).bandwidth, BytesPerSecond(10e9));
  EXPECT_EQ(stageLink(0, 1, odd, cluster).bandwidth, BytesPerSecond(100e9));
  EXPECT_EQ(stageLink(1, 2, odd, cluster).bandwidth, BytesPerSecond(10e9));
}

// Two stages of four ranks each on two nodes of four: ranks 0 to 3 hand on to ranks 4 to 7,
// whatever the four share out, context or data.
TEST(StageLink, CountsEveryRankOfAStage) {
  const spec::ModelSpec model = small::gpt(2);
  const spec::ClusterSpec nodes = small::cluster(8, 4);
  plan::Plan byContext = small::plan(model, small::training(), 1, 2, 1);
  byContext.cp = 4;
  EXPECT_EQ(stageLink(byContext, nodes).bandwidth, nodes.tiers[1].sustained());
  const plan::Plan byData = small::plan(model, small::training(), 1, 2, 4);
  EXPECT_EQ(stageLink(byData, nodes).bandwidth, nodes.tiers[1].sustained());
  const plan::Plan inside = small::plan(model, small::training(), 1, 2, 1);
  EXPECT_EQ(stageLink(inside, nodes).bandwidth, nodes.tiers[0].sustained());
}

// Nodes of 4 with 2 ports of 20 GB/s, 10 GB/s a device. A stage of one rank sends alone and has a
// port, a stage of two 20 GB/s each, one of four its devices' shares; with two chunks twice as many
// send.
TEST(StageLink, SharesThePortsAmongThoseThatSend) {
  spec::ClusterSpec cluster = small::cluster(8, 4);
  cluster.tiers[1].nics = 2;
  const spec::ModelSpec model = small::gpt();
  const auto rate = [&](int64_t tp, int64_t pp) {
    return stageLink(small::plan(model, small::training(), tp, pp), cluster).bandwidth.count();
  };
  EXPECT_DOUBLE_EQ(rate(1, 8), 20e9);
  EXPECT_DOUBLE_EQ(rate(2, 4), 20e9);
  EXPECT_DOUBLE_EQ(rate(4, 2), 10e9);
  const plan::Plan chunks =
      small::interleaved(small::plan(model, small::training(), 2, 4), model, 2);
  EXPECT_DOUBLE_EQ(stageLink(chunks, cluster).bandwidth.count(), 10e9);
}

}  // namespace
}  // namespace trireme::cost
