// What the order of ranks is worth: the stages of a replica in a node, or the replicas of a stage.
#include <gtest/gtest.h>

#include "cost_models/cluster_costs.h"
#include "cost_models/described_estimate.h"
#include "cost_models/estimate.h"
#include "tests/cost_models/small_specs.h"

namespace trireme::cost {
namespace {

using plan::RankOrder;

// Four nodes of four, 100 GB/s within and 10 GB/s between them, without latencies.
spec::ClusterSpec nodesOfFour() {
  spec::ClusterSpec cluster = small::cluster(16, 4);
  for (spec::LinkTier& tier : cluster.tiers) tier.latency = Seconds(0);
  return cluster;
}

// 4 stages x 4 replicas, 4 microbatches of each.
plan::Plan fourByFour(const spec::ModelSpec& model, int64_t microbatch, RankOrder order) {
  plan::Plan plan = small::plan(model, small::training(16 * microbatch, 32), 1, 4, 4);
  plan.microbatchSize = microbatch;
  plan.rankOrder = order;
  return plan;
}

spec::ModelSpec fewWords() {
  spec::ModelSpec model = small::gpt(4, 64, 4);
  model.vocabSize = 64;
  return model;
}

struct Both {
  Estimate replicasInside, stagesInside;
};

Both estimateBoth(int64_t microbatch, const spec::StackProfile& stack) {
  const spec::ModelSpec model = fewWords();
  const auto of = [&](RankOrder order) {
    return estimate(model, fourByFour(model, microbatch, order), nodesOfFour(), stack).value();
  };
  return {of(RankOrder::kTpCpDpPp), of(RankOrder::kTpCpPpDp)};
}

spec::StackProfile described() {
  spec::StackProfile stack;
  stack.ownPrograms = false;
  return stack;
}

// With the replicas of a stage in a node they add up gradients at 100 GB/s and hand on activations
// at 10 GB/s; with the stages of a replica there it is the other way round. A border is microbatch
// x 32 x 64 x 2 B: of 8 sequences 32,768 B, 3.2768 us at 10 GB/s.
TEST(RankOrder, SwapsTheLinksOfGradientsAndOfBorders) {
  for (const spec::StackProfile& stack : {spec::StackProfile(), described()}) {
    const auto [replicas, stages] = estimateBoth(8, stack);
    EXPECT_NEAR(replicas.hops.front().count(), 3.2768e-6, 1e-12);
    EXPECT_NEAR(stages.hops.front().count(), 0.32768e-6, 1e-12);
    EXPECT_GT(replicas.breakdown.dataParallel, Seconds(0));
    EXPECT_EQ(stages.breakdown.products, replicas.breakdown.products);
    EXPECT_EQ(stages.breakdown.attention, replicas.breakdown.attention);
    EXPECT_EQ(stages.breakdown.elementwise, replicas.breakdown.elementwise);
    EXPECT_LT(stages.breakdown.pipeline, replicas.breakdown.pipeline);
  }
  const auto reduced = [](RankOrder order) {  // by an inner stage of own programs
    const Estimate e =
        estimate(fewWords(), fourByFour(fewWords(), 8, order), nodesOfFour(), {}).value();
    return e.stages[1].reduction.total().communication(program::GroupKind::kDp).count();
  };
  EXPECT_NEAR(reduced(RankOrder::kTpCpPpDp) / reduced(RankOrder::kTpCpDpPp), 10, 1e-9);
}

// A stage has about 12 h^2 parameters of h = 64, 4 B each: a ring of four moves 2 x 3/4 of 196,608
// B, which takes 26.5 us longer between nodes. Until the first microbatch is through and the last
// one back 6 borders are handed on, each of b x 4,096 B: of 32 sequences 78.6 us at 10 GB/s, of
// one 2.5 us.
TEST(RankOrder, WithStagesInsideIsFasterWhereBordersAreLargerThanGradients) {
  for (const spec::StackProfile& stack : {spec::StackProfile(), described()}) {
    const Both large = estimateBoth(32, stack), small = estimateBoth(1, stack);
    EXPECT_LT(large.stagesInside.step, large.replicasInside.step);
    EXPECT_GT(small.stagesInside.step, small.replicasInside.step);
  }
}

// The program that is played sends and reduces over the same links.
TEST(RankOrder, IsTheSimulationsAsWell) {
  const spec::ModelSpec model = fewWords();
  for (const RankOrder order : {RankOrder::kTpCpDpPp, RankOrder::kTpCpPpDp}) {
    const plan::Plan plan = fourByFour(model, 32, order);
    const auto expansion = expand::expand(model, plan);
    ASSERT_TRUE(expansion.has_value());
    const spec::ClusterSpec cluster = nodesOfFour();
    const auto simulation = simulate(expansion->program, ClusterCosts(plan, cluster, {}));
    ASSERT_TRUE(simulation.has_value()) << simulation.error().message();
    const Seconds step = estimate(model, plan, cluster, {})->step;
    EXPECT_NEAR(step / simulation->makespan, 1, 0.02);
  }
}

}  // namespace
}  // namespace trireme::cost
