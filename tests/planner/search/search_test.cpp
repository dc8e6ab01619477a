#include "planner/search/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "ir/base/format.h"
#include "ir/spec/load.h"
#include "planner/answer/report.h"
#include "planner/plan_text.h"
#include "planner/search/relax.h"
#include "tests/planner/small_query.h"

namespace trireme::planner {
namespace {

using namespace literals;

struct BestPlan {
  plan::Plan plan;
  Seconds step;
};

// Sanitized, all cuts take minutes.
constexpr CutsOf* kCuts = TRIREME_SANITIZED ? triedCuts : allCuts;

// The fastest plan that fits, of all that use up to `devices`; of equal ones the simplest.
std::optional<BestPlan> planByBruteForce(const Query& query, int64_t devices,
                                         const CostFunctions& costs) {
  std::optional<BestPlan> best;
  for (const plan::Plan& plan : everyPlanUpTo(query, devices, costs, kCuts)) {
    const auto estimate = costs.estimate(plan);
    EXPECT_TRUE(estimate.has_value()) << summary(plan) << estimate.error().message();
    if (!estimate.has_value() || !estimate->fits()) continue;
    const bool faster = !best || estimate->step < best->step;
    const bool tie = best && estimate->step == best->step && simplerThan(plan, best->plan);
    if (faster || tie) best = BestPlan{plan, estimate->step};
  }
  return best;
}

// `mostGap`: of Trireme's own programs, whose cuts are not all costed.
void expectOptimalPlan(const Query& query, int64_t devices, double mostGap = 0.02) {
  const CostFunctions costs = modelCosts(query);
  const auto expected = planByBruteForce(query, devices, costs);
  const auto found = searchPlan(query);
  ASSERT_EQ(found.has_value(), expected.has_value());
  if (!expected) return;
  EXPECT_EQ(found->plan, expected->plan)
      << summary(found->plan) << " | " << summary(expected->plan);
  EXPECT_EQ(found->estimate.step, expected->step);
  EXPECT_LE(found->certificate.bound, expected->step);
  EXPECT_LE(found->certificate.gap, query.stack.ownPrograms ? mostGap : 0) << summary(found->plan);
}

// With the stages of a replica inside, a microbatch or two pass two stages so fast that reductions
// between nodes are most of a step: of what is hidden of them the bound of all cuts knows less.
TEST(Search, EqualsBruteForce) {
  for (int64_t devices : {1, 2, 3, 4, 6})
    for (int64_t layers : {1, 2, 4, 5})
      expectOptimalPlan(smallQuery(devices, layers, 12), devices, 0.05);
}

TEST(Search, SaysHowFarItIs) {
  const Query query = smallQuery(4, 4, 8);
  std::vector<SearchState> states;
  const auto found = searchPlan(query, [&](const SearchState& s) { states.push_back(s); });
  ASSERT_TRUE(found.has_value());
  ASSERT_GE(states.size(), 2u);
  EXPECT_EQ(states.front().numGroupsOpened, 0);
  for (size_t i = 0; i < states.size(); ++i) {
    EXPECT_EQ(states[i].numGroups, states.front().numGroups);
    EXPECT_LE(states[i].numGroupsOpened, states[i].numGroups);
    EXPECT_GE(states[i].numGroupsOpened, states[i == 0 ? 0 : i - 1].numGroupsOpened);
  }
  EXPECT_LE(states.front().numGroups, found->certificate.numGroups);
  EXPECT_GT(states.back().numGroupsOpened, 0);
}

TEST(Search, EqualsBruteForceWhenMemoryIsShort) {
  Query query = smallQuery(4, 4, 8);
  const CostFunctions costs = modelCosts(query);
  std::set<double> needs;
  for (const plan::Plan& plan : everyPlan(query, 4, costs))
    needs.insert(costs.estimate(plan)->memory.total().count());
  // From too little for any plan to enough for a third of them.
  auto need = needs.begin();
  query.cluster.device.memory = Bytes(*need - 1);
  EXPECT_FALSE(searchPlan(query).has_value());
  for (size_t step = 0; step < 8; ++step) {
    query.cluster.device.memory = Bytes(*need);
    expectOptimalPlan(query, 4, 1);  // bounds of memory leave in what lacks a few bytes
    std::advance(need, static_cast<long>(needs.size() / 24));
  }
}

TEST(Search, EqualsBruteForceForOtherStacks) {
  Query query = smallQuery(4, 4, 8);
  query.stack.flashAttention = false;
  std::erase(query.stack.choices, spec::StackChoice::kOverlapReductions);
  query.stack.overlapPipelineTransfers = false;
  expectOptimalPlan(query, 4);
}

// Overlapping is worth more than what the reductions of single layers cost where links are slow,
// and less where their latency is. On a host and without the choice nothing overlaps.
TEST(Search, OverlapsReductionsWhereThatIsFaster) {
  Query query = smallQuery(2, 8, 8);
  query.pins.dp = 2;
  for (spec::LinkTier& tier : query.cluster.tiers) tier = {"slow", 2, 1_GBps, 1_us};
  expectOptimalPlan(query, 2);
  EXPECT_TRUE(searchPlan(query)->plan.overlapReductions);
  for (spec::LinkTier& tier : query.cluster.tiers) tier = {"far", 2, 100_GBps, Seconds(0.1)};
  expectOptimalPlan(query, 2);
  EXPECT_FALSE(searchPlan(query)->plan.overlapReductions);
  for (spec::LinkTier& tier : query.cluster.tiers) tier = {"slow", 2, 1_GBps, 1_us};
  Query host = query;
  host.cluster.device.kind = spec::DeviceKind::kHost;
  expectOptimalPlan(host, 2);
  EXPECT_FALSE(searchPlan(host)->plan.overlapReductions);
  std::vector<Rejection> ignored;
  for (const Group& group : groupsFor(host, 2, ignored)) EXPECT_FALSE(group.overlapReductions);
  host.pins.overlapReductions = true;  // is obeyed
  EXPECT_TRUE(searchPlan(host)->plan.overlapReductions);
  std::erase(query.stack.choices, spec::StackChoice::kOverlapReductions);
  expectOptimalPlan(query, 2);
  EXPECT_FALSE(searchPlan(query)->plan.overlapReductions);
}

// Two nodes of four, of which two stages x two replicas on nodes of two are the smallest: large
// borders on a slow network keep the stages of a replica in a node, large gradients the replicas.
// With or without it nothing else of the space changes; on one tier, or pinned, there is one order.
TEST(Search, OrdersRanksByWhatTheyExchange) {
  for (const bool own : {true, false}) {
    Query query = smallQuery(4, 4, 32);
    query.stack.ownPrograms = own;
    query.pins.tp = 1;
    query.pins.pp = query.pins.dp = 2;
    query.pins.layers = {2, 2};
    query.pins.schedule = plan::ScheduleKind::k1F1B;
    query.pins.microbatchSize = 8;
    query.model.vocabSize = 64;
    query.cluster.tiers[1].bandwidth = BytesPerSecond(0.1e9);
    query.training.sequenceLength = 128;
    expectOptimalPlan(query, 4);
    EXPECT_EQ(searchPlan(query)->plan.rankOrder, plan::RankOrder::kTpCpPpDp);
    Query without = query;
    std::erase(without.stack.choices, spec::StackChoice::kRankOrder);
    expectOptimalPlan(without, 4);
    EXPECT_EQ(searchPlan(without)->plan.rankOrder, plan::RankOrder::kTpCpDpPp);
    EXPECT_LT(searchPlan(query)->estimate.step, searchPlan(without)->estimate.step);
    Query flat = query;
    flat.cluster.tiers.erase(flat.cluster.tiers.begin());
    expectOptimalPlan(flat, 4);
    EXPECT_EQ(searchPlan(flat)->plan.rankOrder, plan::RankOrder::kTpCpDpPp);
    flat.pins.rankOrder = plan::RankOrder::kTpCpPpDp;  // is obeyed
    expectOptimalPlan(flat, 4);
    EXPECT_EQ(searchPlan(flat)->plan.rankOrder, plan::RankOrder::kTpCpPpDp);
    query.pins.microbatchSize = 1;
    query.training.sequenceLength = 16;
    query.training.globalBatchSize = 4;
    expectOptimalPlan(query, 4);
    EXPECT_EQ(searchPlan(query)->plan.rankOrder, plan::RankOrder::kTpCpDpPp);
  }
}

// Nodes of two whose inside is a hundred times as slow as what joins them, as where GPUs without
// peer access share one PCIe switch with as many ports: large gradients leave the node.
TEST(Search, ReplicasLeaveNodesThatAreSlowInside) {
  for (const bool own : {true, false}) {
    Query query = smallQuery(4, 4, 4);
    query.stack.ownPrograms = own;
    query.pins.tp = 1;
    query.pins.pp = query.pins.dp = 2;
    query.pins.schedule = plan::ScheduleKind::k1F1B;
    query.pins.layers = {2, 2};
    query.cluster.tiers[0].bandwidth = BytesPerSecond(0.1e9);
    query.cluster.tiers[0].latency = query.cluster.tiers[1].latency;
    expectOptimalPlan(query, 4);
    EXPECT_EQ(searchPlan(query)->plan.rankOrder, plan::RankOrder::kTpCpPpDp);
  }
}

// Estimates that have nothing to do with the bounds but to be above them: the order of the search
// must not matter.
TEST(Search, EqualsBruteForceUnderArbitraryCosts) {
  const Query query = smallQuery(4, 4, 8);
  const CostFunctions real = modelCosts(query);
  for (size_t seed = 0; seed < 5; ++seed) {
    CostFunctions costs = real;
    costs.estimate = [&](const plan::Plan& plan) -> Result<cost::Estimate> {
      const PlanBound bound = boundOf(query, plan, **real.blocks(plan));
      const size_t noise = std::hash<std::string>()(plan::printPlan(plan)) + 7919 * seed;
      cost::Estimate estimate;
      estimate.step = bound.time * (1 + static_cast<double>(noise % 5));
      estimate.breakdown.products = estimate.step;
      estimate.memoryAvailable = query.cluster.device.memory;
      return estimate;
    };
    const auto expected = planByBruteForce(query, 4, costs);
    const auto found = searchPlan(query, costs);
    ASSERT_TRUE(found.has_value() && expected);
    EXPECT_EQ(found->plan, expected->plan) << seed;
  }
}

TEST(Search, TiesGoToTheSimplestPlan) {
  const Query query = smallQuery(4, 4, 8);
  CostFunctions costs = modelCosts(query);
  costs.estimate = [&](const plan::Plan&) -> Result<cost::Estimate> {
    cost::Estimate estimate;
    estimate.step = estimate.breakdown.products = Seconds(1);
    estimate.memoryAvailable = query.cluster.device.memory;
    return estimate;
  };
  const auto found = searchPlan(query, costs);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->plan.tp, 1);
  EXPECT_EQ(found->plan.pp, 1);
  EXPECT_EQ(found->plan.microbatchSize, 1);
  EXPECT_EQ(found->plan.stateSharding, plan::StateSharding::kNone);
  const plan::Plan plan = small::plan(query.model, query.training, 1, 2, 2);
  plan::Plan reordered = plan;
  reordered.rankOrder = plan::RankOrder::kTpCpPpDp;
  EXPECT_TRUE(simplerThan(plan, reordered));
  EXPECT_FALSE(simplerThan(reordered, plan));
}

TEST(Search, ObeysEveryPin) {
  Query query = smallQuery(8, 4, 16);
  query.pins.tp = 2;
  query.pins.pp = 2;
  query.pins.microbatchSize = 2;
  query.pins.schedule = plan::ScheduleKind::kInterleaved;
  query.pins.virtualStages = 2;
  query.pins.recompute = plan::Recompute::kFull;
  query.pins.stateSharding = plan::StateSharding::kOptimizer;
  query.pins.sequenceParallel = false;
  query.pins.scatterGather = true;
  query.pins.overlapReductions = true;
  query.pins.rankOrder = plan::RankOrder::kTpCpPpDp;
  const auto found = searchPlan(query);
  ASSERT_TRUE(found.has_value()) << found.error().message();
  const plan::Plan& plan = found->plan;
  EXPECT_EQ(summary(plan),
            "tp 2, pp 2, dp 2, microbatch 2, interleaved x 2, recompute full, "
            "sharded optimizer, scatter-gather, overlapped reductions, rank order tp-cp-pp-dp");
}

TEST(Search, PinnedSwitchesAreNeverDroppedSilently) {
  Query query = smallQuery(1);
  query.pins.sequenceParallel = true;  // needs tp > 1, and there is one device
  const auto found = searchPlan(query);
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code(), StatusCode::kInfeasible);
}

TEST(Search, UsesAllDevices) {
  const auto found = searchPlan(computeBound(smallQuery(6, 4, 12)));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->gpusUsed, 6);
  EXPECT_EQ(found->plan.numRanks(), 6);
}

// 7 devices, 6 layers, 4 heads, batch 8: 7 divides none of them, and is too many for a pipeline.
TEST(Search, UsesFewerDevicesIfNoLayoutHasAll) {
  Query query = smallQuery(7, 6, 8);
  query.cluster = small::cluster(7, 7);
  query = computeBound(query);
  const auto found = searchPlan(query);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->gpusAvailable, 7);
  EXPECT_EQ(found->gpusWithLayout, 6);
  EXPECT_THAT(idleReason(*found), ::testing::EndsWith("no legal layout has more"));
  std::set<std::string> rules;
  for (const Rejection& rejection : found->rejections) rules.insert(rejection.rule);
  EXPECT_TRUE(rules.contains("P3") && rules.contains("P4") && rules.contains("P8"));
  query.pins.pp = 3;  // 3 devices take twice as long
  const auto pinned = searchPlan(query);
  ASSERT_TRUE(pinned.has_value());
  EXPECT_EQ(pinned->gpusUsed, 6);
  EXPECT_EQ(idleReason(*pinned), "no legal layout with these pins has more");
  query.pins = {.gpus = 7};
  const auto all = searchPlan(query);
  ASSERT_TRUE(all.has_value());
  EXPECT_THAT(idleReason(*all), ::testing::EndsWith("no legal layout has more"));
}

// 5 devices, 5 layers, 4 heads, batch 8: all 5 make a pipeline of one layer each, whose bubble is
// a third of the step, (8 + 4) x 1 layer; four replicas of one stage have none, 2 x 5 layers.
TEST(Search, UsesFewerDevicesThanGivenWhereThatIsFaster) {
  Query query = smallQuery(5, 5, 8);
  query.cluster = small::cluster(5, 5);
  query = computeBound(query);
  const auto found = searchPlan(query);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->gpusWithLayout, 5);
  EXPECT_EQ(found->gpusUsed, 4);
  ASSERT_TRUE(found->stepOfMost);
  EXPECT_GT(*found->stepOfMost, found->estimate.step);
  EXPECT_THAT(idleReason(*found), ::testing::HasSubstr("the best plan of 5 takes"));
  expectOptimalPlan(query, 5);
  query.pins.pp = 5;  // A pin may leave none idle.
  const auto pinned = searchPlan(query);
  ASSERT_TRUE(pinned.has_value());
  EXPECT_EQ(pinned->gpusUsed, 5);
  EXPECT_EQ(pinned->estimate.step, *found->stepOfMost);
  EXPECT_EQ(idleReason(*pinned), "");
}

// Nodes of 8 and replicas of 9: one or three of them are parted over nodes within tensor-parallel
// groups of 3, two lie as three nodes of 6. So what a replica takes alone is no bound for two.
Query withReplicasOfNine() {
  Query query = smallQuery(32, 2, 4);
  query.model = small::gpt(2, 96, 6);
  query.training = small::training(12, 36);
  query.cluster = small::cluster(32, 8);
  query.cluster.tiers.back().latency = Seconds(1e-3);
  query.stack.name = "described";
  query.stack.ownPrograms = false;
  query.stack.choices.push_back(spec::StackChoice::kContextParallel);
  query.stack.description.tensorParallelExposed = 1;
  query.pins.tp = query.pins.cp = 3;
  query.pins.microbatchSize = 1;
  query.pins.pp = 1;
  query.topK = 1;
  return query;
}

TEST(Search, KnowsHowAllRanksLieOfEveryNumberOfThem) {
  const Query query = withReplicasOfNine();
  const auto found = searchPlan(query);
  ASSERT_TRUE(found.has_value()) << found.error().message();
  EXPECT_EQ(found->gpusUsed, 18);
  expectOptimalPlan(query, 32);
}

// 9 ranks lie in one block of the second tier, 72 in two, although neither fills its blocks of 8
// evenly: contexts of 3 are parted over other links.
TEST(InnerBlocks, TellRanksOfOneBlockFromThoseOfMore) {
  Query query = smallQuery();
  query.cluster = small::cluster(1024, 8);
  spec::LinkTier middle = query.cluster.tiers.front();
  middle.devices = 64;
  query.cluster.tiers.insert(query.cluster.tiers.begin() + 1, middle);
  EXPECT_NE(innerBlocks(query, {9, 1}), innerBlocks(query, {72, 1}));
  EXPECT_EQ(innerBlocks(query, {72, 1}), innerBlocks(query, {66, 1}));
}

// With virtual stages pinned by the schedule there is no plan of one chunk whose memory would say
// by how much nothing fits.
TEST(Search, SaysByHowMuchInterleavedPlansMiss) {
  Query query = smallQuery(4, 4, 8);
  query.cluster.device.memory = Bytes(1000);
  query.pins.schedule = plan::ScheduleKind::kInterleaved;
  const auto found = searchPlan(query, modelCosts(query));
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code(), StatusCode::kInfeasible);
  EXPECT_THAT(found.error().message(), ::testing::HasSubstr("no plan fits in memory: the leanest"));
}

TEST(Search, RunnersUpAreTheBestOfOtherDegreesInOrder) {
  Query query = smallQuery(4, 4, 8);
  query.topK = 4;
  const CostFunctions costs = modelCosts(query);
  std::map<std::tuple<int64_t, int64_t, int64_t>, Seconds> best;
  for (const plan::Plan& plan : everyPlanUpTo(query, 4, costs)) {
    const Seconds step = costs.estimate(plan)->step;
    const auto [place, isNew] = best.try_emplace({plan.tp, plan.pp, plan.dp()}, step);
    if (!isNew) place->second = std::min(place->second, step);
  }
  std::vector<Seconds> times;
  for (const auto& [degrees, step] : best) times.push_back(step);
  std::sort(times.begin(), times.end());
  const auto found = searchPlan(query);
  ASSERT_TRUE(found.has_value());
  ASSERT_EQ(found->runnersUp.size(), 3u);
  EXPECT_EQ(found->estimate.step, times[0]);
  for (size_t i = 0; i < 3; ++i) {
    const RunnerUp& runner = found->runnersUp[i];
    EXPECT_EQ(runner.estimate.step, times[i + 1]);
    EXPECT_EQ(runner.slower, times[i + 1] - times[0]);
    EXPECT_NE(runner.lostBy, "tie");
    EXPECT_GT(runner.lostByAmount, Seconds(0));
  }
}

TEST(Search, IsDeterministic) {
  const Query query = smallQuery(8, 6, 24);
  const auto a = searchPlan(query), b = searchPlan(query);
  ASSERT_TRUE(a.has_value() && b.has_value());
  EXPECT_EQ(a->plan, b->plan);
  EXPECT_EQ(a->certificate.numCosted, b->certificate.numCosted);
}

TEST(Search, SaysByHowMuchNothingFitsAndWhatWould) {
  Query query = smallQuery(4, 4, 8);
  const CostFunctions costs = modelCosts(query);
  query.pins.microbatchSize = 8;
  query.pins.dp = 1;
  query.pins.recompute = plan::Recompute::kNone;
  Bytes least(1e18);
  for (const plan::Plan& plan : everyPlan(query, 4, costs))
    least = std::min(least, costs.estimate(plan)->memory.total());
  query.cluster.device.memory = least * 0.99;
  const auto found = searchPlan(query);
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code(), StatusCode::kInfeasible);
  const std::string& message = found.error().message();
  EXPECT_NE(message.find(formatBytes(least)), std::string::npos) << message;
  EXPECT_NE(message.find("too much"), std::string::npos) << message;
  EXPECT_NE(message.find("microbatch"), std::string::npos) << message;
  EXPECT_NE(message.find("pinned: 8"), std::string::npos) << message;
}

TEST(Search, PrunesThousandsOfCandidatesWithoutCostingThem) {
  Query query = smallQuery(64, 16, 256);
  query.cluster = small::cluster(64, 8);
  const auto found = searchPlan(query);
  ASSERT_TRUE(found.has_value());
  int64_t pruned = 0;
  for (const PruneCount& count : found->certificate.pruned) pruned += count.count;
  EXPECT_GT(found->certificate.numGroups, 100);
  EXPECT_GT(pruned, 10 * found->certificate.numCosted);
  std::printf("%ld groups, %ld bounded, %ld costed in %.3f s\n",
              static_cast<long>(found->certificate.numGroups),
              static_cast<long>(found->certificate.numBounded),
              static_cast<long>(found->certificate.numCosted), found->seconds);
}

// 10,000,000 tokens in sequences of 16.
TEST(Search, RefusesABatchThatIsMeantInTokens) {
  Query query = smallQuery(4, 4, 10'000'000);
  query.training.sequenceLength = 16;
  const auto found = searchPlan(query);
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code(), StatusCode::kInvalidArgument);
  const std::string& message = found.error().message();
  EXPECT_NE(message.find("up to 131072 samples"), std::string::npos) << message;
  EXPECT_NE(message.find("10000000 tokens in sequences of 16 are 625000 samples"),
            std::string::npos)
      << message;
  query.training.globalBatchSize = cost::kMostSamples;
  EXPECT_TRUE(searchPlan(query).has_value());
}

TEST(Search, RefusesMoreDevicesThanThereAre) {
  Query query = smallQuery(4);
  query.pins.gpus = 8;
  const auto found = searchPlan(query);
  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().code(), StatusCode::kInvalidArgument);
}

Query shippedQuery(const char* model, const char* cluster, int64_t gpus, int64_t batch,
                   int64_t sequence, const char* stack = "megatron-core") {
  Query query;
  query.model = *spec::loadModel(model);
  query.cluster = *spec::withNumDevices(*spec::loadCluster(cluster), gpus);
  query.stack = *spec::loadStack(stack);
  query.training.precision = spec::Precision::kBf16;
  query.training.globalBatchSize = batch;
  query.training.sequenceLength = sequence;
  return query;
}

// The leanest plan of the space is not the leanest of all where chunks may be as uneven as one
// likes. It lacks a little here: what no cut has enough for is not said of cuts.
TEST(Search, ThatNoPlanFitsIsSaidOfEvenChunks) {
  Query query = shippedQuery("llama3-8b", "dgx-h100", 8, 32, 8192);
  query.pins.pp = 4;
  query.pins.tp = 2;
  for (const int64_t virtualStages : {1, 2}) {
    query.pins.virtualStages = virtualStages;
    query.cluster.device.memory = Bytes(1e9);
    const std::optional<NearestMiss> miss = shortfallOf(query, infeasible(""))->nearest;
    ASSERT_TRUE(miss.has_value());
    query.cluster.device.memory = miss->estimate.memory.total() * 0.9999;
    const Result<PlanResult> found = searchPlan(query);
    ASSERT_FALSE(found.has_value());
    const bool isSaid = found.error().message().starts_with(
        "no plan whose chunks of a stage differ by one layer at most (others: --layers) fits in "
        "memory");
    EXPECT_EQ(isSaid, virtualStages > 1) << found.error().message();
  }
}

// Moves of layers take cuts of some numbers of chunks beyond the space, by several per cent: plans
// are opened for it whose bound is above what was found, and from cuts that are slower.
TEST(Search, WhatAPinWouldMakeFasterIsFoundWithoutIt) {
  Query large = shippedQuery("llama3-70b", "dgx-h100", 256, 512, 8192);
  large.pins.tp = large.pins.cp = 2;
  large.pins.pp = 8;
  Query larger = shippedQuery("llama3-70b", "dgx-b200", 4096, 2048, 8192);
  larger.pins.tp = 1;
  for (Query& query : std::vector<Query>{large, larger}) {
    const Seconds step = searchPlan(query)->estimate.step;
    for (const int64_t virtualStages : {2, 3, 4, 5, 6}) {
      query.pins.virtualStages = virtualStages;
      const Result<PlanResult> pinned = searchPlan(query);
      ASSERT_TRUE(pinned.has_value()) << virtualStages;
      EXPECT_LE(step, pinned->estimate.step * (1 + 1e-9)) << virtualStages;
    }
  }
}

// With stages inside every second hop stays on its host while the slowest is as slow as before
// (hops), and NCCL's connections take less memory, so that layers need not be recomputed (room).
TEST(Search, NeitherRankOrderHasToBePinned) {
  const Query hops = shippedQuery("llama3-70b", "dgx-h100", 80, 800, 8192);
  const Query room = shippedQuery("gpt3-175b", "dgx-h100", 96, 1536, 2048, "nemo");
  for (Query query : {hops, room}) {
    const Seconds step = searchPlan(query)->estimate.step;
    query.pins.rankOrder = plan::RankOrder::kTpCpDpPp;
    EXPECT_GT(searchPlan(query)->estimate.step, step * (1 + 1e-6));
    query.pins.rankOrder = plan::RankOrder::kTpCpPpDp;
    EXPECT_LE(step, searchPlan(query)->estimate.step * (1 + 1e-9));
  }
}

// 10 layers on 4 chunks of a stage lie in 6 ways, 24 on 16 in 12,870, which are too many to go
// through. Of GPT-3 all cuts are, and its certificate says so for both stacks.
TEST(Search, CertificatesAreClosedWhereAllCutsAreGoneThrough) {
  for (const int64_t virtualStages : {4, 16}) {
    Query query = computeBound(smallQuery(2, virtualStages == 4 ? 20 : 48, 32));
    query.stack.ownPrograms = false;
    query.pins.tp = query.pins.microbatchSize = 1;
    query.pins.pp = 2;
    query.pins.virtualStages = virtualStages;
    const Result<PlanResult> found = searchPlan(query);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->certificate.gap > 0, virtualStages == 16) << found->certificate.gap;
    EXPECT_LT(found->certificate.gap, 0.01);
  }
  for (const char* stack : {"megatron-core", "trireme"}) {
    const Query query = shippedQuery("gpt3-175b", "dgx-a100", 1024, 1536, 2048, stack);
    const Result<PlanResult> found = searchPlan(query);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->certificate.gap, 0) << stack;
  }
}

// Both layers on the first stage, for the head is as long as ten of them: what recomputes nothing
// may hold one there and not two, so that to recompute is not in vain.
TEST(Search, AnEndWithoutLayersMayAskForRecomputation) {
  Query query;
  query.model = small::gpt(2, 4096, 64);
  query.model.ffnSize = 16384;
  query.model.vocabSize = 200000;
  query.model.maxSequence = 4096;
  query.training = small::training(16, 4096);
  query.training.precision = spec::Precision::kBf16;
  query.cluster = *spec::loadCluster("dgx-a100");
  query.stack = *spec::loadStack("megatron-core-2023-zero-bubble");
  query.pins.gpus = query.pins.pp = 2;
  query.pins.schedule = plan::ScheduleKind::kZeroBubbleH1;
  int recomputed = 0;
  for (double gib = 29; gib < 33; gib += 0.2) {
    query.cluster.device.memory = Bytes(gib * 0x1p30);
    const auto found = searchPlan(query, modelCosts(query));
    if (!found.has_value()) continue;
    recomputed += found->plan.recompute != plan::Recompute::kNone;
    for (const plan::Recompute pinned :
         {plan::Recompute::kNone, plan::Recompute::kSelective, plan::Recompute::kFull}) {
      Query narrower = query;
      narrower.pins.recompute = pinned;
      const auto other = searchPlan(narrower, modelCosts(narrower));
      if (other.has_value()) {
        EXPECT_GE(other->estimate.step, found->estimate.step * (1 - 1e-9)) << gib << " GiB";
      }
    }
  }
  EXPECT_GT(recomputed, 0);
}

}  // namespace
}  // namespace trireme::planner
