#include "cost_models/estimate.h"

#include <gtest/gtest.h>

#include "cost_models/cluster_costs.h"
#include "cost_models/collectives.h"
#include "tests/cost_models/small_specs.h"

namespace trireme::cost {
namespace {

using namespace literals;
using program::GroupKind;

Estimate estimated(const spec::ModelSpec& model, const plan::Plan& plan,
                   const spec::ClusterSpec& cluster = small::cluster(),
                   const spec::StackProfile& stack = {}) {
  Result<Estimate> result = estimate(model, plan, cluster, stack);
  EXPECT_TRUE(result.has_value()) << result.error().message();
  return result.has_value() ? *result : Estimate{};
}

std::vector<plan::Plan> plans(const spec::ModelSpec& model, const spec::TrainingSpec& training) {
  std::vector<plan::Plan> plans;
  for (const auto& [tp, pp, dp] : {std::tuple{1, 1, 1}, {4, 2, 1}, {2, 2, 2}, {1, 4, 2}, {1, 1, 8}})
    plans.push_back(small::plan(model, training, tp, pp, dp));
  plans.push_back(small::interleaved(plans[2], model, 2));
  plans.push_back(plans[2]);
  plans.back().schedule = plan::ScheduleKind::kGpipe;
  plans.push_back(plans[2]);
  plans.back().sequenceParallel = true;
  plans.back().recompute = plan::Recompute::kFull;
  plans.push_back(plans[4]);
  std::swap(plans.back().dpReplicate, plans.back().dpShard);
  plans.back().stateSharding = plan::StateSharding::kOptimizer;
  for (size_t i = 1, numPlain = plans.size(); i < numPlain; ++i) {
    plans.push_back(plans[i]);
    plans.back().overlapReductions = true;
  }
  return plans;
}

TEST(Estimate, BreakdownAddsUpToTheStep) {
  const spec::ModelSpec model = small::gpt();
  for (const plan::Plan& plan : plans(model, small::training())) {
    const Estimate e = estimated(model, plan);
    EXPECT_DOUBLE_EQ(e.breakdown.total().count(), e.step.count());
    EXPECT_GE(e.breakdown.bubble, Seconds(0));
    EXPECT_GE(e.breakdown.pipeline, Seconds(0));
  }
}

TEST(Estimate, MemoryIsTheLargestArena) {
  const spec::ModelSpec model = small::gpt();
  for (const plan::Plan& plan : plans(model, small::training())) {
    const auto expansion = expand::expand(model, plan);
    ASSERT_TRUE(expansion.has_value());
    int64_t largest = 0;
    for (const program::Role& role : expansion->program.roles)
      largest = std::max(largest, role.arenaBytes);
    EXPECT_EQ(estimated(model, plan).memory.total().count(), static_cast<double>(largest));
  }
}

// One rank: forward and backward of every microbatch, then the step, and nothing else.
TEST(Estimate, OneRankHasNoBubbleAndNoCommunication) {
  const spec::ModelSpec model = small::gpt();
  const Breakdown b = estimated(model, small::plan(model, small::training())).breakdown;
  EXPECT_NEAR(b.bubble.count(), 0, 1e-12);
  for (Seconds s : {b.tensorParallel, b.pipeline, b.dataParallel, b.synchronisation})
    EXPECT_EQ(s, Seconds(0));
}

// Forward 2 all-reduces of b s h per layer, backward 2; embedding 1, head 1 (and 3 of b s in the
// loss).
//   ring all-reduce of b s h bf16 over 4: 6 (latency + bytes / 4 / bandwidth)
TEST(Estimate, TensorParallelTimeIsThatOfTheFieldsAllReduces) {
  const spec::ModelSpec model = small::gpt();
  const spec::TrainingSpec training = small::training(8);
  const Estimate e = estimated(model, small::plan(model, training, 4), small::cluster(4, 4));
  const Link link{5_us, 10_GBps};
  const double perMicrobatch =
      (4 * 8 + 2) * ringAllReduceTime(Bytes(32 * 64 * 2), 4, link).count() +
      3 * ringAllReduceTime(Bytes(32 * 4), 4, link).count();
  // Once per step: the squares of the gradient norm are summed over the model, not over tp.
  EXPECT_NEAR(e.breakdown.tensorParallel.count(), 8 * perMicrobatch, 1e-9);
}

TEST(Estimate, FullRecomputationTakesLongerAndLessMemory) {
  const spec::ModelSpec model = small::gpt();
  plan::Plan plan = small::plan(model, small::training(), 1, 2);
  const Estimate none = estimated(model, plan);
  plan.recompute = plan::Recompute::kFull;
  const Estimate full = estimated(model, plan);
  EXPECT_GT(full.step, none.step);
  EXPECT_LT(full.memory.arena.activations, none.memory.arena.activations);
}

// The forward of `op` in a layer, one microbatch.
Seconds forwardOf(program::OpKind kind, const plan::Plan& plan, const spec::ModelSpec& model) {
  Seconds sum;
  const expand::Expansion expansion = *expand::expand(model, plan);
  for (const program::Segment& segment : expansion.program.segments) {
    if (!segment.name.starts_with("layer.forward")) continue;
    for (const program::SegmentOp& op : segment.ops) {
      if (op.kind != kind) continue;
      program::Segment alone = segment;
      alone.ops = {op};
      sum += segmentTime(alone, small::cluster().device, {});
    }
  }
  return sum;
}

// Selective: the attention of 8 layers once more, of 16 microbatches. Full: of a layer's four
// products the last is not computed again, since nothing reads its result; and what is no product
// or attention is no more than the forward's, of which the last product is missing.
TEST(Estimate, WhatIsRecomputedIsApartFromTheRest) {
  const spec::ModelSpec model = small::gpt();
  plan::Plan plan = small::plan(model, small::training());
  const double times = 8 * 16;
  ASSERT_EQ(model.numLayers * plan.numMicrobatches(), times);
  const Estimate none = estimated(model, plan);
  EXPECT_EQ(none.breakdown.recomputation, Seconds(0));
  EXPECT_EQ(none.breakdown.launching, Seconds(0));
  const Seconds attention = forwardOf(program::OpKind::kAttention, plan, model);
  const Seconds products = forwardOf(program::OpKind::kMatmul, plan, model);
  for (const plan::Recompute recompute : {plan::Recompute::kSelective, plan::Recompute::kFull}) {
    plan.recompute = recompute;
    const Breakdown again = estimated(model, plan).breakdown;
    EXPECT_NEAR(again.products / none.breakdown.products, 1, 1e-12);
    EXPECT_NEAR(again.attention / none.breakdown.attention, 1, 1e-12);
    if (recompute == plan::Recompute::kSelective) {
      EXPECT_NEAR(again.recomputation / (attention * times), 1, 1e-12);
      EXPECT_NEAR(again.elementwise / none.breakdown.elementwise, 1, 1e-12);
    } else {
      EXPECT_GT(again.recomputation, (attention + products * 0.5) * times);
      EXPECT_LT(again.recomputation, (attention + products) * times + none.breakdown.elementwise);
    }
  }
}

// With tensor parallelism the backward's segments begin where collectives end, and of a split
// backward the products are in two bodies.
TEST(Estimate, ProductsAreTheSameHoweverTheBackwardIsCut) {
  const spec::ModelSpec model = small::gpt();
  plan::Plan plan = small::plan(model, small::training(), 2, 2, 1);
  const Breakdown whole = estimated(model, plan).breakdown;
  plan.schedule = plan::ScheduleKind::kZeroBubbleH1;
  const Breakdown split = estimated(model, plan).breakdown;
  EXPECT_NEAR(split.products / whole.products, 1, 1e-12);
  EXPECT_NEAR(split.attention / whole.attention, 1, 1e-12);
  EXPECT_EQ(split.recomputation, Seconds(0));
  EXPECT_GT(whole.products, Seconds(0));
}

TEST(Estimate, BetterHardwareIsNeverSlower) {
  const spec::ModelSpec model = small::gpt();
  for (const plan::Plan& plan : plans(model, small::training())) {
    const Seconds before = estimated(model, plan).step;
    for (int part = 0; part < 4; ++part) {
      spec::ClusterSpec cluster = small::cluster();
      if (part == 0) cluster.tiers[0].bandwidth *= 2;
      if (part == 1) cluster.tiers[1].bandwidth *= 2;
      if (part == 2) cluster.device.memoryBandwidth *= 2;
      if (part == 3)
        for (spec::PeakRate& peak : cluster.device.matmul) peak.rate *= 2;
      EXPECT_LE(estimated(model, plan, cluster).step, before) << part;
    }
  }
}

TEST(Estimate, MoreMicrobatchesInFlightTakeMoreMemory) {
  const spec::ModelSpec model = small::gpt();
  plan::Plan plan = small::plan(model, small::training(), 1, 4);
  const Bytes plain = estimated(model, plan).memory.total();
  EXPECT_GT(estimated(model, small::interleaved(plan, model, 2)).memory.total(), plain);
  plan.schedule = plan::ScheduleKind::kGpipe;
  EXPECT_GT(estimated(model, plan).memory.total(), plain);
}

// Of 8 layers with 12 h^2 = 786,432 elements in matrices, f32, an all-reduce each: r for 3,145,728
// B. When the layers are through, which take b each, and the step comes to its wait, the stream is
//   max(8 r - 7 b, r) - embedding - what the step itself reduces
// behind. Slow links (r > b), fast ones, and so fast ones that nothing is left.
TEST(Estimate, OverlapHidesTheReductionOfLayers) {
  const spec::ModelSpec model = small::gpt(8, 256, 4);
  plan::Plan plan = small::plan(model, small::training(), 1, 1, 8);
  plan.overlapReductions = true;
  const plan::Plan stages = small::plan(model, small::training(), 1, 2, 4);
  std::string regimes;
  for (const double speed : {1.0, 10.0, 1e4}) {
    spec::ClusterSpec cluster = small::cluster();
    for (spec::LinkTier& tier : cluster.tiers) {
      tier.bandwidth *= speed;
      tier.latency = Seconds(0);
    }
    const Estimate e = estimated(model, plan, cluster);
    const StageCost& stage = e.stages[0];
    const Levels dp = levelsOf(groupShape(GroupKind::kDp, plan), ranksOf(plan, cluster), cluster);
    const double r = allReduceTime(Bytes(3145728), dp).count();
    const double b = stage.backward[0].repeated.total().count() / 8;
    const double embedding =
        estimated(model, stages, cluster).stages[0].backward[0].outside.total().count();
    const double step = stage.reduction.total().communication(GroupKind::kDp).count();
    const double left = std::max(std::max(8 * r - 7 * b, r) - embedding - step, 0.0);
    EXPECT_NEAR(stage.exposedReduction.count(), left, 1e-12 + 1e-9 * left) << speed;
    EXPECT_DOUBLE_EQ(e.breakdown.dataParallel.count(), step + stage.exposedReduction.count());
    regimes += left == 0 ? "nothing " : r > b ? "all but a backward " : "the last layer ";
    // On a host all of it.
    cluster.device.kind = spec::DeviceKind::kHost;
    EXPECT_NEAR(estimated(model, plan, cluster).stages[0].exposedReduction.count(), 8 * r,
                1e-9 * r);
  }
  EXPECT_EQ(regimes, "all but a backward the last layer nothing ");
}

// One stage, one chunk: nothing but durations, which simulation and estimate share.
TEST(Estimate, OverlapOnOneStageIsExactlyAsSimulated) {
  for (const bool tied : {false, true})
    for (const int64_t batch : {16, 64})
      for (const int64_t tp : {1, 2})
        for (const bool sharded : {false, true})
          for (const auto kind : {spec::DeviceKind::kCuda, spec::DeviceKind::kHost})
            for (const double speed : {1e-3, 1.0, 30.0}) {
              spec::ModelSpec model = small::gpt();
              model.tiedEmbeddings = tied;
              plan::Plan plan = small::plan(model, small::training(batch), tp, 1, 8 / tp);
              plan.microbatchSize = 2;  // one microbatch or several
              plan.overlapReductions = true;
              if (sharded) {
                std::swap(plan.dpReplicate, plan.dpShard);
                plan.stateSharding = plan::StateSharding::kOptimizer;
              }
              spec::ClusterSpec cluster = small::cluster();
              cluster.device.kind = kind;
              for (spec::LinkTier& tier : cluster.tiers) tier.bandwidth *= speed;
              const spec::StackProfile stack;
              const auto expansion = expand::expand(model, plan);
              ASSERT_TRUE(expansion.has_value()) << expansion.error().message();
              const auto simulation =
                  simulate(expansion->program, ClusterCosts(plan, cluster, stack));
              ASSERT_TRUE(simulation.has_value()) << simulation.error().message();
              EXPECT_NEAR(estimated(model, plan, cluster).step / simulation->makespan, 1, 1e-9)
                  << tied << batch << tp << sharded << (kind == spec::DeviceKind::kHost) << speed;
            }
}

Seconds simulated(const spec::ModelSpec& model, const plan::Plan& plan,
                  const spec::ClusterSpec& cluster) {
  const auto expansion = expand::expand(model, plan);
  EXPECT_TRUE(expansion.has_value());
  const auto simulation =
      simulate(expansion->program, ClusterCosts(plan, cluster, spec::StackProfile{}));
  EXPECT_TRUE(simulation.has_value());
  return simulation->makespan;
}

// Nine ranks by three on nodes of eight: the last group lies over two nodes, and all wait for it.
TEST(Estimate, AgreesWithTheSimulationWhereSomeGroupsLeaveTheirNode) {
  const spec::ModelSpec model = small::gpt(4, 192, 6);
  plan::Plan plan = small::plan(model, small::training(12), 3, 1, 3);
  const spec::ClusterSpec cluster = small::cluster(16, 8);
  EXPECT_NEAR(estimated(model, plan, cluster).step / simulated(model, plan, cluster), 1, 1e-9);
}

// Ends have a table whose gradient they reduce together, over a slow link, the middle most of the
// parameters: it updates them when the ends have reduced, for the norm is of all gradients.
TEST(Estimate, AStageUpdatesWhenAllHaveReduced) {
  spec::ModelSpec model = small::gpt(24);
  model.tiedEmbeddings = true;
  plan::Plan plan = small::plan(model, small::training(1), 1, 3, 1);
  plan.microbatchSize = 1;
  plan.layers = {{{0, 1}}, {{1, 22}}, {{23, 1}}};
  spec::ClusterSpec cluster = small::cluster(8, 8);
  cluster.device.kind = spec::DeviceKind::kHost;  // which puts zeroing off
  for (spec::LinkTier& tier : cluster.tiers) tier.bandwidth *= 0.01;
  const Estimate e = estimated(model, plan, cluster);
  const auto reduction = [&](size_t stage) { return e.stages[stage].reduction.total().total(); };
  const auto update = [&](size_t stage) {
    return (e.stages[stage].begin.total().total() + e.stages[stage].update.total().total());
  };
  EXPECT_GT(reduction(0), reduction(1) * 2);
  EXPECT_GT(update(1), update(0) * 2);
  const Seconds sum =
      e.breakdown.synchronisation + e.breakdown.dataParallel + e.breakdown.optimizer;
  EXPECT_NEAR(sum / (reduction(0) + update(1)), 1, 1e-9);
  // Zeroing, which the estimate counts of the middle, is the first stage's to wait for.
  EXPECT_NEAR(e.step / simulated(model, plan, cluster), 1, 1e-3);
}

// Two stages on each of two nodes: one hop of three is slow, of which all microbatches take less
// than they compute.
TEST(Estimate, HopsWithinANodeAreFast) {
  const spec::ModelSpec model = small::gpt(8, 256, 4);
  spec::ClusterSpec cluster = small::cluster(4, 2);
  cluster.tiers[1].bandwidth *= 0.03;
  for (const auto kind :
       {plan::ScheduleKind::k1F1B, plan::ScheduleKind::kZeroBubbleH2, plan::ScheduleKind::kGpipe}) {
    plan::Plan plan = small::plan(model, small::training(8), 1, 4, 1);
    plan.schedule = kind;
    const Estimate e = estimated(model, plan, cluster);
    EXPECT_GT(e.hops[1], e.hops[0] * 10);
    EXPECT_EQ(e.hops[2], e.hops[0]);
    EXPECT_NEAR(e.step / simulated(model, plan, cluster), 1, 0.01) << plan::scheduleName(kind);
  }
}

// What overlapping gains, estimated and played: less by what stages wait for each other only, which
// are even but for the embedding and the head. Replicas have slow links, neighbours fast ones. Of
// chunks that followed each other at once the last case would be 14 % of the step worse.
TEST(Estimate, OverlapWithVirtualStagesGainsWhatIsSimulated) {
  const spec::ModelSpec model = small::gpt(16, 256, 4);
  for (const int64_t pp : {2, 4})
    for (const int64_t v : {2, 4})
      for (const int64_t batch : {2 * pp, int64_t{16}, int64_t{64}})
        for (const double speed : {0.002, 0.01, 0.03, 0.1}) {
          const plan::Plan plain = small::interleaved(
              small::plan(model, small::training(batch, 128), 1, pp, 2), model, v);
          plan::Plan plan = plain;
          plan.overlapReductions = true;
          spec::ClusterSpec cluster = small::cluster(2 * pp, 2);
          cluster.tiers[0].bandwidth *= speed;
          cluster.tiers[1].bandwidth *= 1000;
          cluster.tiers[1].latency = Seconds(1e-9);
          const Seconds step = simulated(model, plan, cluster);
          const Seconds gain = simulated(model, plain, cluster) - step;
          const Seconds expected =
              estimated(model, plain, cluster).step - estimated(model, plan, cluster).step;
          EXPECT_GT(gain / step, 0.002);
          EXPECT_LE(expected, gain * (1 + 1e-9)) << pp << v << batch << speed;
          EXPECT_LE((gain - expected) / step, 0.006) << pp << v << batch << speed;
        }
}

TEST(Estimate, SaysByHowMuchAPlanDoesNotFit) {
  const spec::ModelSpec model = small::gpt();
  spec::ClusterSpec cluster = small::cluster();
  const plan::Plan plan = small::plan(model, small::training());
  const Bytes needed = estimated(model, plan, cluster).memory.total();
  cluster.device.memory = needed - Bytes(1000);
  const Estimate e = estimated(model, plan, cluster);
  EXPECT_FALSE(e.fits());
  EXPECT_EQ(e.missing(), Bytes(1000));
}

TEST(Estimate, RefusesAPlanLargerThanTheCluster) {
  const spec::ModelSpec model = small::gpt();
  const auto result =
      estimate(model, small::plan(model, small::training(), 4, 4, 1), small::cluster(8), {});
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code(), StatusCode::kInvalidArgument);
}

TEST(Estimate, RefusesADTypeWithoutAPeak) {
  const spec::ModelSpec model = small::gpt();
  spec::TrainingSpec training = small::training();
  training.precision = spec::Precision::kFp64;
  const auto result = estimate(model, small::plan(model, training), small::cluster(), {});
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(result.error().message().find("f64"), std::string::npos);
}

// The closed form against the program played instruction by instruction.
TEST(Estimate, AgreesWithTheSimulation) {
  const spec::ModelSpec model = small::gpt(8, 256, 4);
  const spec::ClusterSpec cluster = small::cluster();
  const spec::StackProfile stack;
  for (const plan::Plan& plan : plans(model, small::training(16, 128))) {
    const auto expansion = expand::expand(model, plan);
    ASSERT_TRUE(expansion.has_value());
    const auto simulation = simulate(expansion->program, ClusterCosts(plan, cluster, stack));
    ASSERT_TRUE(simulation.has_value()) << simulation.error().message();
    const Seconds step = estimated(model, plan, cluster, stack).step;
    const double error = step / simulation->makespan - 1;
    std::printf("tp %ld pp %ld dp %ld v %ld: estimate %.3f ms, simulation %.3f ms, %+.2f %%\n",
                static_cast<long>(plan.tp), static_cast<long>(plan.pp),
                static_cast<long>(plan.dp()), static_cast<long>(plan.virtualStages),
                step.count() * 1e3, simulation->makespan.count() * 1e3, 100 * error);
    EXPECT_LT(std::abs(error), 0.1);
  }
}

}  // namespace
}  // namespace trireme::cost
