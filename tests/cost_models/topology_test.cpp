#include "cost_models/topology.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cost_models/described_blocks.h"
#include "ir/plan/sharding.h"
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

// Ranks 6..11 are two in one node and four in the next: two ports are all that leaves the first. Of
// 5..9 three and two, of 15..19 one and four, so that one port is all.
TEST(Levels, GroupsThatStraddleNodesPayTheOuterLink) {
  const Levels levels = levelsOf(GroupShape{{6, 1}}, {24, 6}, small::cluster(24, 8));
  EXPECT_EQ(sizes(levels), (Sizes{2, 3}));
  EXPECT_EQ(levels[1].link.bandwidth, BytesPerSecond(10e9));
  EXPECT_EQ(levels[1].lie, Level::Lie::kUneven);
  const Levels odd = levelsOf(GroupShape{{5, 1}}, {40, 5}, small::cluster(40, 8));
  EXPECT_EQ(sizes(odd), (Sizes{5}));
  EXPECT_EQ(odd[0].link.bandwidth, BytesPerSecond(10e9));
  // 30 of every second rank: 60 end in the middle of 8, and leave two.
  EXPECT_EQ(sizes(levelsOf(GroupShape{{30, 2}}, {120, 2}, small::cluster(120, 8))), (Sizes{2, 15}));
}

// Whatever the rank, no block that a group has members in has fewer than it counts with.
TEST(Levels, GroupsThatStraddleNodesCountWithTheFewest) {
  for (int64_t size = 2; size <= 24; ++size)
    for (int64_t stride : {1, 2, 4, 8, 16}) {
      const int64_t all = size * stride * 24;  // where groups end within nodes repeats by then
      const spec::ClusterSpec cluster = small::cluster(all, 8);
      const Levels levels = levelsOf(GroupShape{{size, stride}}, {all, 1}, cluster);
      int64_t fewest = size;
      for (int64_t first = 0; first < all; first += size * stride)
        for (int64_t offset = 0; offset < stride; ++offset) {
          std::map<int64_t, int64_t> members;
          for (int64_t i = 0; i < size; ++i) ++members[(first + offset + i * stride) / 8];
          for (const auto& [node, count] : members) fewest = std::min(fewest, count);
        }
      int64_t inside = 1;
      if (levels.front().tier->devices == 8) inside = levels.front().size;
      EXPECT_EQ(inside, fewest) << size << " of stride " << stride;
    }
}

// Bridged pairs in nodes of 8.
spec::ClusterSpec pairs(int64_t devices) {
  spec::ClusterSpec cluster = small::cluster(devices, 8);
  spec::LinkTier bridge = cluster.tiers[0];
  bridge.devices = 2;
  bridge.bandwidth = BytesPerSecond(300e9);
  cluster.tiers.insert(cluster.tiers.begin(), bridge);
  cluster.hostDevices = 8;
  return cluster;
}

// Ten ranks are five in each of two nodes, where no pair of ranks begins with the second node.
TEST(Levels, PairsThatTheRanksOfANodeDoNotFillAreNone) {
  const spec::ClusterSpec cluster = pairs(64);
  const auto blocks = [&](int64_t all, int64_t together) {
    const Ranks ranks{all, together};
    return std::pair(blockOf(0, ranks, cluster), blockOf(1, ranks, cluster));
  };
  EXPECT_EQ(blocks(10, 1), std::pair(int64_t{1}, int64_t{5}));
  EXPECT_EQ(blocks(14, 1), std::pair(int64_t{1}, int64_t{7}));
  EXPECT_EQ(blocks(12, 1), std::pair(int64_t{2}, int64_t{6}));
  EXPECT_EQ(blocks(16, 1), std::pair(int64_t{2}, int64_t{8}));
  EXPECT_EQ(blocks(10, 2), std::pair(int64_t{2}, int64_t{8}));  // groups of two do not fill five
  EXPECT_EQ(blocks(7, 1), std::pair(int64_t{2}, int64_t{8}));   // one node
  const Levels two = levelsOf(GroupShape{{2, 1}}, {10, 1}, cluster);
  EXPECT_EQ(two[0].link.bandwidth, cluster.tiers.back().sustained());  // ranks 4 and 5
  EXPECT_EQ(partlyFilled(degrees(1, 1, 10), cluster),
            "5 ranks in each of 2 blocks of " + cluster.tiers[1].name + " (8 devices)");
}

// Pairs in sockets of 4 in nodes of 8: parts of parts nest, whatever the ranks.
TEST(Levels, PartsOfHostsNest) {
  spec::ClusterSpec cluster = pairs(64);
  spec::LinkTier socket = cluster.tiers[0];
  socket.devices = 4;
  cluster.tiers.insert(cluster.tiers.begin() + 1, socket);
  for (int64_t all = 1; all <= 64; ++all)
    for (const int64_t together : {1, 2, 4}) {
      if (all % together != 0) continue;
      int64_t inner = 1;
      for (size_t tier = 0; tier < cluster.tiers.size(); ++tier) {
        const int64_t block = blockOf(tier, {all, together}, cluster);
        ASSERT_GE(block, 1) << all;
        EXPECT_EQ(block % inner, 0) << all << " ranks, tier " << tier;
        inner = block;
      }
    }
  EXPECT_EQ(blockOf(0, {10, 1}, cluster), 1);
  EXPECT_EQ(blockOf(1, {12, 1}, cluster), 2);  // six in each node
  // A rack is no host, unless the file says so.
  cluster.hostDevices = 0;
  EXPECT_EQ(blockOf(0, {10, 1}, cluster), 2);
}

// Of 15 ranks some neighbours are in one node, whatever the network.
TEST(Levels, GroupsThatStraddleNodesAreNoFasterThanTheLinksInside) {
  spec::ClusterSpec cluster = small::cluster(64, 8);
  cluster.tiers[1].bandwidth = BytesPerSecond(400e9);
  cluster.tiers[0].latency = Seconds(1e-3);
  const Levels levels = levelsOf(GroupShape{{15, 1}}, {15, 1}, cluster);
  EXPECT_EQ(sizes(levels), (Sizes{15}));
  EXPECT_EQ(levels[0].link.bandwidth, BytesPerSecond(100e9));
  EXPECT_EQ(levels[0].link.latency, Seconds(1e-3));
  // One member in each node has no neighbour there.
  EXPECT_EQ(levelsOf(GroupShape{{2, 8}}, {16, 8}, cluster)[0].link.bandwidth,
            BytesPerSecond(400e9));
}

// In order, or anyhow within a block of the innermost tier.
TEST(Levels, SayHowMembersLie) {
  const spec::ClusterSpec cluster = small::cluster(64, 8);
  const auto lieOf = [&](GroupShape shape) { return levelsOf(shape, {64, 1}, cluster).back().lie; };
  EXPECT_EQ(lieOf({{16, 1}}), Level::Lie::kInOrder);
  EXPECT_EQ(lieOf({{2, 4}}), Level::Lie::kInOrder);
  EXPECT_EQ(lieOf({{2, 1}, {8, 2}}), Level::Lie::kInOrder);
  EXPECT_EQ(lieOf({{2, 8}}), Level::Lie::kEven);
  EXPECT_EQ(lieOf({{16, 4}}), Level::Lie::kEven);
  EXPECT_EQ(lieOf({{6, 3}}), Level::Lie::kUneven);
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

// Jobs are given whole hosts, so that 1,024 ranks on racks of 72, which 15 of them would hold, lie
// in 16 of them: 64 in each. Not where there are only 15, nor of blocks that are hosts themselves.
TEST(Levels, RanksFillMoreBlocksThanTheyNeedByHosts) {
  spec::ClusterSpec racks = small::cluster(1152, 72);
  racks.hostDevices = 4;
  EXPECT_EQ(blockOf(0, {1024, 4}, racks), 64);
  EXPECT_EQ(blockOf(0, {1152, 4}, racks), 72);
  EXPECT_EQ(blockOf(0, {512, 4}, racks), 64);     // the eight that are needed
  EXPECT_EQ(blockOf(0, {1024, 128}, racks), 72);  // no part of those that stay together
  EXPECT_EQ(blockOf(0, {1028, 1}, racks), 72);    // 4 x 257: less than half of a rack
  EXPECT_EQ(sizes(levelsOf(GroupShape{{1024, 1}}, {1024, 1}, racks)), (Sizes{64, 16}));
  EXPECT_EQ(partlyFilled(degrees(4, 4, 64), racks),
            "64 ranks in each of 16 blocks of inner (72 devices)");
  EXPECT_EQ(partlyFilled(degrees(4, 4, 72), racks), "");
  racks.numDevices = racks.tiers.back().devices = 1080;
  EXPECT_EQ(blockOf(0, {1024, 4}, racks), 72);
  racks.scalable = true;
  EXPECT_EQ(blockOf(0, {1024, 4}, racks), 64);
  spec::ClusterSpec nodes = small::cluster(1024, 8);
  EXPECT_EQ(blockOf(0, {1020, 1}, nodes), 8);
}

// Ten racks that are partly empty do not lie in a unit of eight: five are in each of two.
TEST(Levels, AnOuterBlockHasNoMoreBlocksInside) {
  spec::ClusterSpec units = small::cluster(5760, 72);
  units.hostDevices = 4;
  units.tiers.insert(units.tiers.begin() + 1, units.tiers.back());
  units.tiers[1].devices = 576;
  const Ranks ranks{560, 8};
  EXPECT_EQ(blockOf(0, ranks, units), 56);
  EXPECT_EQ(blockOf(1, ranks, units), 280);
  EXPECT_EQ(sizes(levelsOf(GroupShape{{70, 8}}, ranks, units)), (Sizes{7, 5, 2}));
  EXPECT_EQ(blockOf(1, {576, 8}, units), 576);
}

TEST(GroupShape, FollowsTheRankOrder) {
  const plan::Plan plan = degrees(2, 4, 3);  // rank = tp + 2 (dp + 3 pp)
  const GroupShape data = groupShape(GroupKind::kDp, plan);
  EXPECT_EQ(data.inner.size, 3);
  EXPECT_EQ(data.inner.stride, 2);
  const GroupShape embedding = groupShape(GroupKind::kEmbedding, plan);
  EXPECT_EQ(embedding.inner.size, 2);
  EXPECT_EQ(embedding.inner.stride, 18);  // from stage 0 to stage 3
  EXPECT_EQ(groupSize(groupShape(GroupKind::kWorld, plan)), 24);
}

// The drawing of sharding.h: of tp 2, pp 2, dp 2 the replicas of stage 0 are ranks 0-1 and 2-3, or
// 0-1 and 4-5, and its last stage is four ranks behind, or two.
TEST(GroupShape, OfEitherOrderHasTheRanksThatAreDrawn) {
  plan::Plan plan = degrees(2, 2, 2);
  const auto strideOf = [&](GroupKind kind) { return groupShape(kind, plan).inner.stride; };
  EXPECT_EQ(strideOf(GroupKind::kDp), 2);
  EXPECT_EQ(strideOf(GroupKind::kPp), 4);
  EXPECT_EQ(strideOf(GroupKind::kEmbedding), 4);
  plan.rankOrder = plan::RankOrder::kTpCpPpDp;
  EXPECT_EQ(strideOf(GroupKind::kTp), 1);
  EXPECT_EQ(strideOf(GroupKind::kDp), 4);
  EXPECT_EQ(strideOf(GroupKind::kPp), 2);
  EXPECT_EQ(strideOf(GroupKind::kEmbedding), 2);
  const GroupShape replica = groupShape(GroupKind::kModel, plan);  // ranks 0-3 or 4-7
  EXPECT_EQ(replica.outer.size, 1);
  EXPECT_EQ(replica.inner.size, 4);
  EXPECT_EQ(replica.inner.stride, 1);
}

// cp 2 besides: ranks tp + 2 (cp + 2 (pp + 2 dp)). Who holds the parameters of rank 0: 0 and 2, and
// so 8 further. Of dp 4 in shards of 2: shards 0, 2, 8, 10; replicas 0 and 16.
TEST(GroupShape, OfContextsWithTheStagesInsideHasTwoDims) {
  plan::Plan plan = degrees(2, 2, 2);
  plan.cp = 2;
  plan.dpShard = 2;
  plan.rankOrder = plan::RankOrder::kTpCpPpDp;
  const auto ranksOf = [](const GroupShape& shape) {
    std::vector<int64_t> ranks = {0};
    for (const GroupDim& dim : {shape.inner, shape.outer}) {
      const std::vector<int64_t> inner = ranks;
      for (int64_t i = 1; i < dim.size; ++i)
        for (const int64_t rank : inner) ranks.push_back(rank + i * dim.stride);
    }
    return ranks;
  };
  EXPECT_EQ(ranksOf(dataGroup(plan)), (Sizes{0, 2, 8, 10, 16, 18, 24, 26}));
  EXPECT_EQ(ranksOf(shardGroup(plan)), (Sizes{0, 2, 8, 10}));
  EXPECT_EQ(ranksOf(replicaGroup(plan)), (Sizes{0, 16}));
  EXPECT_EQ(ranksOf(embeddingGroup(plan)), (Sizes{0, 4}));
  plan.rankOrder = plan::RankOrder::kTpCpDpPp;
  EXPECT_EQ(ranksOf(dataGroup(plan)), (Sizes{0, 2, 4, 6, 8, 10, 12, 14}));
  EXPECT_EQ(ranksOf(replicaGroup(plan)), (Sizes{0, 8}));
  EXPECT_EQ(ranksOf(embeddingGroup(plan)), (Sizes{0, 16}));
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

// As asked for one by one; where every hop leaves the node, or none does, they are not.
TEST(StageLink, OfAllStagesIsThatOfEachTwo) {
  const spec::ClusterSpec cluster = small::cluster(64, 8);
  for (const int64_t tp : {1, 2, 3, 4, 8, 16})
    for (const int64_t pp : {2, 3, 4, 6})
      for (const int64_t dp : {1, 2, 3}) {
        const plan::Plan plan = degrees(tp, pp, dp);
        if (plan.numRanks() > 64) continue;
        const std::vector<Link> links = stageLinks(plan, cluster);
        ASSERT_EQ(links.size(), pp);
        for (int64_t stage = 0; stage < pp; ++stage) {
          const Link link = stageLink(stage, (stage + 1) % pp, plan, cluster);
          const Link& of = links[static_cast<size_t>(stage)];
          EXPECT_EQ(of.bandwidth, link.bandwidth) << tp << " " << pp << " " << dp << ": " << stage;
          EXPECT_EQ(of.latency, link.latency) << tp << " " << pp << " " << dp << ": " << stage;
        }
      }
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

// Four such nodes in each of two racks, with as many ports out of a rack as its nodes have. Of 24
// ranks in two stages 12 fill three nodes of each rack: they leave these by six ports, 10 GB/s a
// device, though the rack has eight.
TEST(StageLink, LeavesTheNodeByItsOwnPorts) {
  spec::ClusterSpec racks = small::cluster(32, 4);
  racks.tiers[1].nics = 2;
  racks.tiers[1].devices = 16;
  spec::LinkTier spine = racks.tiers[1];
  spine.devices = 32;
  spine.nics = 8;
  racks.tiers.push_back(spine);
  const plan::Plan plan = small::plan(small::gpt(), small::training(), 1, 2, 12);
  ASSERT_EQ(blockOf(1, ranksOf(plan, racks), racks), 12);
  EXPECT_DOUBLE_EQ(stageLink(plan, racks).bandwidth.count(), 10e9);
}

// Nodes of 4, each device with 10 GB/s of 2 ports. A replica of 4 stages is a node's: nothing
// leaves it. One of 8 is two nodes': of each the last stage of a rank sends, through a port of its
// own, where with the replicas inside the four of a stage would share both.
TEST(StageLink, OfStagesInsideIsThatOfAReplica) {
  spec::ClusterSpec cluster = small::cluster(32, 4);
  cluster.tiers[1].nics = 2;
  const auto rate = [&](int64_t pp, int64_t dp, plan::RankOrder order) {
    plan::Plan plan = degrees(1, pp, dp);
    plan.rankOrder = order;
    return stageLink(plan, cluster).bandwidth.count();
  };
  EXPECT_DOUBLE_EQ(rate(4, 8, plan::RankOrder::kTpCpPpDp), 100e9);
  EXPECT_DOUBLE_EQ(rate(4, 8, plan::RankOrder::kTpCpDpPp), 10e9);
  EXPECT_DOUBLE_EQ(rate(8, 4, plan::RankOrder::kTpCpPpDp), 20e9);
  EXPECT_DOUBLE_EQ(rate(8, 4, plan::RankOrder::kTpCpDpPp), 10e9);
}

// Every rank, every stage, every tier: whether the rank of the stage is in another block.
size_t tierByRanks(const plan::Plan& plan, int64_t from, int64_t to,
                   const spec::ClusterSpec& cluster) {
  const Ranks ranks = ranksOf(plan, cluster);
  size_t tier = 0;
  for (int64_t rank = 0; rank < ranks.all; ++rank) {
    plan::RankCoordinates c = plan::coordinatesOf(rank, plan);
    if (c.pp != from) continue;
    c.pp = to;
    const int64_t peer = plan::rankOf(c, plan);
    for (size_t i = 0; i + 1 < cluster.tiers.size(); ++i) {
      const int64_t block = blockOf(i, ranks, cluster);
      if (rank / block != peer / block) tier = std::max(tier, i + 1);
    }
  }
  return tier;
}

// Degrees that fill blocks evenly, and degrees that do not, on clusters of one to three tiers.
std::vector<std::pair<plan::Plan, spec::ClusterSpec>> manyLayouts() {
  std::vector<std::pair<plan::Plan, spec::ClusterSpec>> layouts;
  for (const int64_t perNode : {2, 3, 4, 8, 12, 1024})
    for (const int64_t perRack : {24, 48, 1024})
      for (const int64_t tp : {1, 2, 3})
        for (const int64_t cp : {1, 2})
          for (const int64_t pp : {2, 3, 4})
            for (const int64_t dp : {2, 3, 8}) {
              spec::ClusterSpec cluster = small::cluster(1024, perNode);
              if (perRack < 1024 && perNode < perRack)
                cluster.tiers.insert(cluster.tiers.end() - 1,
                                     {"rack", perRack, BytesPerSecond(30e9), Seconds(3e-6)});
              plan::Plan plan = degrees(tp, pp, dp);
              plan.cp = cp;
              layouts.emplace_back(plan, cluster);
            }
  return layouts;
}

TEST(StageLink, IsThatOfTheFarthestPairOfRanks) {
  for (auto [plan, cluster] : manyLayouts())
    for (const plan::RankOrder order : {plan::RankOrder::kTpCpDpPp, plan::RankOrder::kTpCpPpDp})
      for (const int64_t chunks : {1, 2}) {
        plan.rankOrder = order;
        plan.virtualStages = chunks;
        size_t farthest = chunks > 1 ? tierByRanks(plan, plan.pp - 1, 0, cluster) : 0;
        for (int64_t stage = 0; stage + 1 < plan.pp; ++stage) {
          const size_t tier = tierByRanks(plan, stage, stage + 1, cluster);
          EXPECT_EQ(stageLink(stage, stage + 1, plan, cluster).latency,
                    cluster.tiers[tier].latency);
          farthest = std::max(farthest, tier);
        }
        EXPECT_EQ(stageLink(plan, cluster).latency, cluster.tiers[farthest].latency);
      }
}

// Links between nodes that are faster than those within: the transfers that stay inside set the
// pace, if there are any.
TEST(StageLink, IsNoFasterThanTheSlowestPairOfRanks) {
  int slowedDown = 0;
  for (auto [plan, cluster] : manyLayouts()) {
    cluster.tiers.front().bandwidth = BytesPerSecond(1e9);
    cluster.tiers.front().latency = Seconds(1e-3);
    const Ranks ranks = ranksOf(plan, cluster);
    bool isInside = false;
    for (int64_t rank = 0; rank < ranks.all; ++rank) {
      plan::RankCoordinates c = plan::coordinatesOf(rank, plan);
      if (++c.pp == plan.pp) continue;
      const int64_t block = blockOf(0, ranks, cluster);
      isInside = isInside || plan::rankOf(c, plan) / block == rank / block;
    }
    EXPECT_EQ(stageLink(plan, cluster).bandwidth == BytesPerSecond(1e9), isInside);
    EXPECT_EQ(stageLink(plan, cluster).latency == Seconds(1e-3), isInside);
    bool ofTwo = false;
    for (int64_t stage = 0; stage + 1 < plan.pp; ++stage)
      ofTwo = ofTwo || stageLink(stage, stage + 1, plan, cluster).latency == Seconds(1e-3);
    EXPECT_EQ(ofTwo, isInside);
    slowedDown += isInside && ranks.all > cluster.tiers.front().devices;
  }
  EXPECT_GT(slowedDown, 50);
}

// Nodes of 4. Stages of 4 fill a node each in either order; 4 stages of 1 share one if they are
// inside, 8 fill two, and some hops of theirs are near. On one node everything is.
TEST(StagesAreNearerInside, WhereTheirLinkIsFaster) {
  spec::ClusterSpec cluster = small::cluster(64, 4);
  EXPECT_TRUE(stagesAreNearerInside(degrees(1, 4, 8), cluster));
  EXPECT_TRUE(stagesAreNearerInside(degrees(2, 2, 16), cluster));
  EXPECT_FALSE(stagesAreNearerInside(degrees(4, 4, 4), cluster));
  EXPECT_TRUE(stagesAreNearerInside(degrees(1, 8, 8), cluster));
  EXPECT_FALSE(stagesAreNearerInside(degrees(1, 3, 4), cluster));  // 0 1 2 0 | 1 2 0 1 | 2 0 1 2
  EXPECT_FALSE(stagesAreNearerInside(degrees(1, 2, 2), cluster));
  cluster.tiers[1].nics = 2;
  EXPECT_TRUE(stagesAreNearerInside(degrees(1, 8, 8), cluster));
  EXPECT_FALSE(stagesAreNearerInside(degrees(4, 8, 2), cluster));
}

TEST(StagesAreNearerInside, IsThatOfTheLinks) {
  int nearer = 0;
  for (auto [plan, cluster] : manyLayouts()) {
    cluster.tiers.back().nics = cluster.tiers.size() > 1 ? 2 : 0;
    const bool isSaid = stagesAreNearerInside(plan, cluster);
    bool isFaster = false;
    for (const int64_t chunks : {1, 2})
      for (int64_t stage = 0; stage + (chunks == 1 ? 1 : 0) < plan.pp; ++stage) {
        plan.virtualStages = chunks;
        plan.rankOrder = plan::RankOrder::kTpCpDpPp;
        const Link outside = stageLink(stage, (stage + 1) % plan.pp, plan, cluster);
        plan.rankOrder = plan::RankOrder::kTpCpPpDp;
        const Link inside = stageLink(stage, (stage + 1) % plan.pp, plan, cluster);
        isFaster |= inside.bandwidth > outside.bandwidth || inside.latency < outside.latency;
      }
    EXPECT_EQ(isSaid, isFaster);
    nearer += isSaid;
  }
  EXPECT_GT(nearer, 100);
}

}  // namespace
}  // namespace trireme::cost
