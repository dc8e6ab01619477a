// Steps of programs that Trireme does not make.
#include "cost_models/described_estimate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cost_models/collectives.h"
#include "cost_models/described_blocks.h"
#include "cost_models/described_memory.h"
#include "cost_models/formulas.h"
#include "ir/spec/load.h"
#include "tests/cost_models/quiet_cluster.h"

namespace trireme::cost {
namespace {

// With v chunks on each of p stages what a chunk reduces or gathers is beside the other v - 1
// chunks' passes of p microbatches: p (v - 1) / v microbatches of all chunks, and one at least.
//   time t, felt to e though hidden, in v pieces: max(e t, t - beside) + t / v
TEST(OnceParts, AreHiddenBesideTheOtherChunksOfPMicrobatches) {
  const spec::ModelSpec model = small::gpt(16);
  spec::StackDescription stack;
  stack.gradientExposed = 0.1;
  stack.gatherExposed = 0.2;
  for (const auto& [pp, v, expected] :
       {std::tuple{4, 1, 1.0}, {4, 2, 2.0}, {4, 4, 3.0}, {2, 2, 1.0}, {1, 1, 1.0}}) {
    plan::Plan plan = small::plan(model, small::training(64, 32), 1, pp, 2);
    if (v > 1) plan = small::interleaved(plan, model, v);
    plan.stateSharding = plan::StateSharding::kOptimizer;
    std::swap(plan.dpReplicate, plan.dpShard);
    const spec::ClusterSpec cluster = quietCluster();
    const DescribedBlocks blocks = describeBlocks(model, plan, cluster, stack);
    const OnceParts parts = oncePartsOf({blocks, model, plan, cluster, stack}, 1e6);
    for (const auto& part : {parts.reduced, parts.gathered}) {
      ASSERT_GT(part.time, Seconds(0));
      EXPECT_EQ(part.microbatches, expected) << pp << v;
      const Seconds t = part.time, pass = t * (0.5 / expected);
      EXPECT_NEAR(part.felt(pass, 4) / t, 0.5 + 0.25, 1e-12);
      EXPECT_NEAR(part.felt(t * 2, 4) / t, part.share + 0.25, 1e-12);
    }
  }
}

// Shards first, then replicas, in one stream once per step: both together, beside one backward.
TEST(OnceParts, ShardsAndReplicasReduceOneAfterTheOther) {
  const spec::ModelSpec model = small::gpt(16);
  spec::StackDescription stack;
  const spec::ClusterSpec cluster = small::cluster(16, 4);
  const auto reduced = [&](int64_t replicas) {
    plan::Plan plan = small::plan(model, small::training(64, 32), 1, 1, 16);
    plan.dpReplicate = replicas;
    plan.dpShard = 16 / replicas;
    plan.stateSharding =
        replicas < 16 ? plan::StateSharding::kOptimizer : plan::StateSharding::kNone;
    const DescribedBlocks blocks = describeBlocks(model, plan, cluster, stack);
    return oncePartsOf({blocks, model, plan, cluster, stack}, 1e6).reduced.time;
  };
  const auto time = [&](spec::CollectiveKind kind, double bytes, const GroupShape& group,
                        const plan::Plan& plan) {
    return collectiveTime(kind, Bytes(bytes), levelsOf(group, ranksOf(plan, cluster), cluster));
  };
  plan::Plan plan = small::plan(model, small::training(64, 32), 1, 1, 16);
  plan.dpReplicate = plan.dpShard = 4;
  const Seconds both = time(spec::CollectiveKind::kReduceScatter, 4e6, shardGroup(plan), plan) +
                       time(spec::CollectiveKind::kAllReduce, 1e6, replicaGroup(plan), plan);
  EXPECT_NEAR(reduced(4) / both, 1, 1e-12);
  EXPECT_GT(reduced(16), reduced(1));
}

using namespace literals;
using spec::StackDescription;

// Ends with a tied table reduce longest, the middle with most layers updates longest: it begins
// when the ends have reduced, and so do all. With post-validation every stage goes on by itself.
TEST(DescribedEstimate, StagesUpdateWhenAllHaveReduced) {
  spec::ModelSpec model = small::gpt(24);
  model.tiedEmbeddings = true;
  plan::Plan plan = small::plan(model, small::training(3), 1, 3, 1);
  plan.microbatchSize = 1;
  plan.layers = {{{0, 1}}, {{1, 22}}, {{23, 1}}};
  spec::ClusterSpec cluster = quietCluster(3, 1);
  for (const bool waits : {true, false}) {
    StackDescription stack;
    stack.postValidation = !waits;
    plan.schedule = waits ? plan::ScheduleKind::k1F1B : plan::ScheduleKind::kZeroBubbleH1;
    const DescribedBlocks blocks = describeBlocks(model, plan, cluster, stack);
    const StageSetting setting(blocks, model, plan, cluster, stack);
    const Simulation simulation = simulateDescribed(setting);
    OnceTimes longestOfEach;
    Seconds longestInAll, flush = simulation.path[simulation.path.size() - 2].begin;
    for (size_t rank = 0; rank < 3; ++rank) {
      const OncePerStep once = estimateStage(setting, rank).once;
      EXPECT_EQ(once.waits, waits);
      longestOfEach = longest(longestOfEach, {once.reducing(), once.updating()});
      longestInAll = std::max(longestInAll, once.reducing() + once.updating());
    }
    EXPECT_GT(longestOfEach.total(), longestInAll * 1.05);
    for (size_t rank = 0; rank < 3; ++rank) {
      const OncePerStep once = estimateStage(setting, rank).once;
      const PathItem& update = simulation.tasks[rank].back();
      const Seconds begin = flush + (waits ? longestOfEach.reducing : once.reducing());
      EXPECT_NEAR(update.begin / begin, 1, 1e-12) << waits << rank;
      EXPECT_NEAR(update.end / (begin + once.updating()), 1, 1e-12) << waits << rank;
    }
    EXPECT_NEAR(simulation.makespan / (flush + (waits ? longestOfEach.total() : longestInAll)), 1,
                1e-12);
  }
}

// Full sharding over two nodes whose gathers reach two fifths of one of four ports, a tenth of the
// network: nothing of 8 layers
// hides (share 1), so that three passes over a layer's parameters take ten times as long.
TEST(DescribedEstimate, GathersShardedParametersThroughOnePort) {
  spec::ClusterSpec cluster = quietCluster(8, 4);
  const spec::ModelSpec model = small::gpt();
  plan::Plan plan = small::plan(model, small::training());
  plan.dpReplicate = 1;
  plan.dpShard = 8;
  plan.stateSharding = plan::StateSharding::kParameters;
  StackDescription stack;
  const auto parallel = [&] {
    return estimateDescribed(model, plan, cluster, stack)->breakdown.dataParallel.count();
  };
  const double whole = parallel();
  stack.shardedPortEfficiency = 0.4;
  // Within the node 100 GB/s, between 10 GB/s of four devices: the network sets the pace by
  // 40 against 100, and by 4 against 100.
  EXPECT_NEAR(parallel() / whole, 10, 1e-6);
  // Of the only port two fifths are two fifths of the network.
  cluster.tiers[1].nics = 1;
  EXPECT_NEAR(parallel() / whole, 2.5, 1e-6);
}

// Four pairs in a machine are no four machines, and links between pairs are no ports. Without its
// bridges the machine is no faster.
TEST(DescribedEstimate, BridgedPairsAreNoNodes) {
  const spec::ClusterSpec bridged = spec::loadCluster("h100-nvl").value();
  spec::ClusterSpec plain = bridged;
  plain.tiers.erase(plain.tiers.begin());
  plan::Plan plan;
  plan.dpShard = 8;
  spec::StackDescription stack;
  stack.slowdownPerDoubling = 0.1;
  EXPECT_EQ(stepFactor(plan, bridged, stack), 1);
  plan.dpShard = 32;
  EXPECT_DOUBLE_EQ(stepFactor(plan, bridged, stack), 1.2);
  EXPECT_EQ(stepFactor(plan, bridged, stack), stepFactor(plan, plain, stack));
  plan.devicesPerHost = 4;  // eight machines
  EXPECT_DOUBLE_EQ(stepFactor(plan, bridged, stack), 1.3);
  plan.devicesPerHost = 0;

  const spec::ModelSpec model = spec::loadModel("mpt-1b").value();
  const spec::StackProfile zero3 = spec::loadStack("deepspeed-zero3").value();
  plan.model = model.name;
  plan.fingerprint = plan::fingerprintOf(model);
  plan.dpShard = 8;
  plan.microbatchSize = 4;
  plan.stateSharding = plan::StateSharding::kParameters;
  plan.training.precision = spec::Precision::kBf16;
  plan.training.globalBatchSize = 64;
  plan.training.sequenceLength = 2048;
  plan.layers = plan::evenLayers(model.numLayers, 1, 1);
  const auto step = [&](const spec::ClusterSpec& cluster) {
    const Result<Estimate> estimated = estimate(model, plan, cluster, zero3);
    EXPECT_TRUE(estimated.has_value()) << estimated.error().message();
    return estimated->step;
  };
  EXPECT_LT(step(bridged), step(plain));
}

// Two stages over four ranks that share, 8 microbatches, 2 bytes per gathered parameter and 4 per
// reduced gradient. Kept whole, a stage's P parameters take 2 P + 4 P more than shards, in place of
// two layers gathered and one layer's gradients; what is done 8 times is done once.
TEST(DescribedEstimate, APipelineThatKeepsParametersWholeGathersThemOnce) {
  const spec::ClusterSpec cluster = quietCluster(8, 8);
  const spec::ModelSpec model = small::gpt(8);
  plan::Plan plan = small::plan(model, small::training(32, 32), 1, 2, 4);
  plan.dpReplicate = 1;
  plan.dpShard = 4;
  plan.microbatchSize = 1;
  plan.stateSharding = plan::StateSharding::kParameters;
  StackDescription stack;
  const Estimate shared = *estimateDescribed(model, plan, cluster, stack);
  stack.pipelineKeepsWhole = true;
  const Estimate whole = *estimateDescribed(model, plan, cluster, stack);
  plan.stateSharding = plan::StateSharding::kOptimizer;
  const Estimate once = *estimateDescribed(model, plan, cluster, stack);
  EXPECT_EQ(whole.breakdown.dataParallel, once.breakdown.dataParallel);
  EXPECT_LT(whole.breakdown.dataParallel, shared.breakdown.dataParallel / 4);
  plan.stateSharding = plan::StateSharding::kParameters;
  const DescribedBlocks blocks = describeBlocks(model, plan, cluster, stack);
  const size_t stage = 0;
  const double parameters = parametersOfStage(blocks, model, plan, stage);
  const double layer = blocks.layer.parameters, embedding = blocks.embedding.parameters;
  const Bytes kept = describedMemoryOf({blocks, model, plan, cluster, stack}, stage).total();
  stack.pipelineKeepsWhole = false;
  const Bytes passing = describedMemoryOf({blocks, model, plan, cluster, stack}, stage).total();
  EXPECT_NEAR((kept - passing).count(), 6 * parameters - (8 * layer + 2 * embedding), 16);
  plan = small::plan(model, small::training(32, 32), 1, 1, 8);
  EXPECT_FALSE(keepsWhole(plan, stack));
}

// One stage on eight ranks that share gradients, all of whose reduction is felt: of each backward
// the 4 bytes per parameter of L layers, once more of the layer that has no neighbour, and of the
// table, which is the head's as well. Parameters are gathered once per step.
TEST(DescribedEstimate, ReducesShardedGradientsInEveryBackward) {
  const spec::ClusterSpec cluster = quietCluster();
  const spec::ModelSpec model = small::gpt(4);
  const StackDescription stack;
  const auto parallel = [&](plan::StateSharding sharding, int64_t microbatches) {
    plan::Plan plan = small::plan(model, small::training(8 * microbatches, 32), 1, 1, 8);
    plan.dpReplicate = 1;
    plan.dpShard = 8;
    plan.microbatchSize = 1;
    plan.stateSharding = sharding;
    EXPECT_EQ(plan.numMicrobatches(), microbatches);
    return estimateDescribed(model, plan, cluster, stack)->breakdown.dataParallel;
  };
  plan::Plan plan = small::plan(model, small::training(8, 32), 1, 1, 8);
  plan.dpReplicate = 1;
  plan.dpShard = 8;
  plan.microbatchSize = 1;
  const DescribedBlocks blocks = describeBlocks(model, plan, cluster, stack);
  const Levels levels = levelsOf(shardGroup(plan), ranksOf(plan, cluster), cluster);
  const auto reduce = [&](double parameters) {
    return collectiveTime(spec::CollectiveKind::kReduceScatter, Bytes(4 * parameters), levels);
  };
  const Seconds each = reduce(blocks.layer.parameters) * 5 + reduce(blocks.embedding.parameters);
  const Seconds one = parallel(plan::StateSharding::kGradients, 1);
  EXPECT_NEAR((parallel(plan::StateSharding::kGradients, 4) - one).count(), 3 * each.count(),
              1e-12);
  EXPECT_NEAR(
      (parallel(plan::StateSharding::kOptimizer, 4) - parallel(plan::StateSharding::kOptimizer, 1))
          .count(),
      0, 1e-12);
}

// Replicas of shards, or of all, all of whose exchange is felt. Per step: 4 bytes of each of P
// parameters, or of its share of them. Per microbatch: of L layers, once more of the one that has
// no neighbour, and of the table, which is the head's as well. A pipeline exchanges once in any
// case.
TEST(DescribedEstimate, ReplicasExchangeGradientsPerStepOrPerMicrobatch) {
  const spec::ClusterSpec cluster = quietCluster();
  const spec::ModelSpec model = small::gpt(4);
  using spec::ReplicaReduction;
  for (const auto sharding : {plan::StateSharding::kNone, plan::StateSharding::kGradients,
                              plan::StateSharding::kParameters}) {
    const bool isShared = sharding != plan::StateSharding::kNone;
    const auto planOf = [&](int64_t microbatches, int64_t pp) {
      plan::Plan plan =
          small::plan(model, small::training(8 / pp * microbatches, 32), 1, pp, 8 / pp);
      plan.dpShard = isShared ? 2 : 1;
      plan.dpReplicate = 8 / pp / plan.dpShard;
      plan.microbatchSize = 1;
      plan.stateSharding = sharding;
      return plan;
    };
    const auto parallel = [&](ReplicaReduction when, int64_t microbatches, int64_t pp = 1) {
      StackDescription stack;
      stack.replicaReduction = when;
      stack.pipelineKeepsWhole = true;
      return estimateDescribed(model, planOf(microbatches, pp), cluster, stack)
          ->breakdown.dataParallel;
    };
    const plan::Plan plan = planOf(1, 1);
    const StackDescription stack;
    const DescribedBlocks blocks = describeBlocks(model, plan, cluster, stack);
    const Levels levels =
        levelsOf(isShared ? replicaGroup(plan) : dataGroup(plan), ranksOf(plan, cluster), cluster);
    const auto reduce = [&](double parameters) {
      return collectiveTime(spec::CollectiveKind::kAllReduce,
                            Bytes(4 * parameters / (isShared ? 2 : 1)), levels);
    };
    const Seconds each = reduce(blocks.layer.parameters) * 5 + reduce(blocks.embedding.parameters);
    const auto between = [&](ReplicaReduction when, int64_t pp = 1) {
      return (parallel(when, 4, pp) - parallel(when, 2, pp)).count();
    };
    const double shards = between(ReplicaReduction::kPerStep);  // their own exchange
    EXPECT_NEAR(between(ReplicaReduction::kPerMicrobatch) - shards, 2 * each.count(), 1e-12);
    EXPECT_NEAR(between(ReplicaReduction::kOfShardsPerMicrobatch) - shards,
                isShared ? 2 * each.count() : 0, 1e-12);
    EXPECT_NEAR(between(ReplicaReduction::kPerMicrobatch, 2),
                between(ReplicaReduction::kPerStep, 2), 1e-12);
  }
}

// Slow links, beside which a layer's backward hides a part of what the layer gathers and reduces,
// and recomputation another: with n of 8 layers recomputed the step is n eighths of the way from
// none to all, and none is no slower.
TEST(DescribedEstimate, RecomputedLayersAloneHideMore) {
  spec::ClusterSpec cluster = small::cluster(8, 4);
  for (spec::LinkTier& tier : cluster.tiers) tier.bandwidth = tier.bandwidth * 1e-3;
  const spec::ModelSpec model = small::gpt(8);
  StackDescription stack;
  stack.gradientExposed = stack.gatherExposed = 0.1;
  plan::Plan plan = small::plan(model, small::training(16, 32), 1, 1, 8);
  std::swap(plan.dpShard, plan.dpReplicate);
  for (const auto sharding : {plan::StateSharding::kGradients, plan::StateSharding::kParameters}) {
    plan.stateSharding = sharding;
    const auto stepOf = [&](plan::Recompute recompute, int64_t layers) {
      plan.recompute = recompute;
      plan.recomputeLayers = layers;
      return estimateDescribed(model, plan, cluster, stack)->step.count();
    };
    const double none = stepOf(plan::Recompute::kNone, 0), all = stepOf(plan::Recompute::kFull, 0);
    EXPECT_GE(all, none);
    for (const int64_t layers : {1, 5})
      EXPECT_NEAR(stepOf(plan::Recompute::kFull, layers),
                  none + (all - none) * static_cast<double>(layers) / 8, 1e-9 * all);
    plan.recompute = plan::Recompute::kFull;
    plan.recomputeLayers = 0;
    const DescribedBlocks blocks = describeBlocks(model, plan, cluster, stack);
    EXPECT_GT(StageSetting(blocks, model, plan, cluster, stack).traffic.recomputedLess, Seconds(0));
  }
}

// Blocks of 4, and two exchanges beside one backward, both longer than it: two that share state lie
// within a block and their replicas without, side by side, so that the longer counts; eight lie
// over two, and both go over the same links, one after the other. A backward that is longer for
// recomputation hides no more than it adds.
TEST(DescribedEstimate, ReplicasWaitForShardsThatSendOverTheSameLinks) {
  spec::ClusterSpec cluster = small::cluster(16, 4);
  for (spec::LinkTier& tier : cluster.tiers) tier.bandwidth = tier.bandwidth * 1e-3;
  const spec::ModelSpec model = small::gpt(4);
  StackDescription stack;
  stack.replicaReduction = spec::ReplicaReduction::kPerMicrobatch;
  stack.gradientExposed = stack.gatherExposed = 0;
  for (const int64_t shards : {2, 8}) {
    plan::Plan plan = small::plan(model, small::training(16, 32), 1, 1, 16);
    plan.dpShard = shards;
    plan.dpReplicate = 16 / shards;
    plan.microbatchSize = 1;
    const DescribedBlocks blocks = describeBlocks(model, plan, cluster, stack);
    const double parameters = blocks.layer.parameters;
    PassCost back = blocks.layer.backward;
    back += blocks.layer.recomputed;
    const Seconds work = passTime(back, stack);
    const Ranks ranks = ranksOf(plan, cluster);
    const auto time = [&](spec::CollectiveKind kind, double bytes, const GroupShape& group) {
      return collectiveTime(kind, Bytes(bytes), levelsOf(group, ranks, cluster));
    };
    const Seconds reduced =
                      time(spec::CollectiveKind::kReduceScatter, 4 * parameters, shardGroup(plan)),
                  gathered = time(spec::CollectiveKind::kAllGather,
                                  stack.gatheredParameterBytes * parameters, shardGroup(plan)),
                  replicated =
                      time(spec::CollectiveKind::kAllReduce,
                           4 * parameters / static_cast<double>(shards), replicaGroup(plan));
    ASSERT_GT(reduced, work);
    ASSERT_GT(replicated, work);
    for (const auto sharding :
         {plan::StateSharding::kGradients, plan::StateSharding::kParameters}) {
      plan.stateSharding = sharding;
      const StageSetting setting(blocks, model, plan, cluster, stack);
      const Seconds first =
          sharding == plan::StateSharding::kParameters ? gathered + reduced : reduced;
      const Seconds both = shards == 8 ? first + replicated : std::max(first, replicated);
      EXPECT_NEAR(setting.traffic.layerBackward / (both - work), 1, 1e-9) << shards;
      plan::Plan recomputed = plan;
      recomputed.recompute = plan::Recompute::kFull;
      EXPECT_GE(estimateDescribed(model, recomputed, cluster, stack)->step,
                estimateDescribed(model, plan, cluster, stack)->step);
    }
  }
}

// Of 8 ranks that share gradients, FSDP2 that does not reshard after the forward: f32 shares of
// everything, a 16-bit copy of all parameters and, while a layer's are on their way, its gradients
// whole. ZeRO-2: the parameters themselves are whole.
TEST(DescribedMemory, SharedGradientsKeepWholeParametersOnce) {
  const spec::ClusterSpec cluster = quietCluster();
  const spec::ModelSpec model = small::gpt(4);
  plan::Plan plan = small::plan(model, small::training(8, 32), 1, 1, 8);
  plan.dpShard = 8;
  plan.dpReplicate = 1;
  plan.stateSharding = plan::StateSharding::kGradients;
  StackDescription stack;
  stack.parameterBytes = stack.gradientBytes = 4;
  stack.optimizerBytes = 8;
  const DescribedBlocks blocks = describeBlocks(model, plan, cluster, stack);
  const double parameters = parametersOfStage(blocks, model, plan, 0);
  const auto memory = [&] {
    return describedMemoryOf({blocks, model, plan, cluster, stack}, 0).arena;
  };
  const auto zero = memory();
  EXPECT_NEAR(static_cast<double>(zero.parameters), 4 * parameters, 1);
  EXPECT_NEAR(static_cast<double>(zero.gradients), 4 * parameters / 8, 1);
  stack.parameterTraffic = 12;
  const auto fsdp = memory();
  EXPECT_NEAR(static_cast<double>(fsdp.parameters), (4.0 / 8 + 2) * parameters, 1);
  EXPECT_EQ(fsdp.gradients, zero.gradients);
  EXPECT_EQ(fsdp.optimizer, zero.optimizer);
  EXPECT_NEAR(static_cast<double>(fsdp.activations - zero.activations),
              stack.reducedGradientBytes * blocks.layer.parameters, 1);
}

// The same FSDP2 reshards after every backward: each microbatch gathers L layers, the first once
// more, for nothing is beside it, and the table; reduces as many; and copies 12 B a parameter. With
// shared parameters it gathers the layers again before their backward.
TEST(DescribedEstimate, CopiesAreGatheredForEveryForward) {
  const spec::ClusterSpec cluster = quietCluster();
  const spec::ModelSpec model = small::gpt(4);
  StackDescription stack;
  stack.parameterTraffic = 12;
  const auto planOf = [&](plan::StateSharding sharding, int64_t microbatches) {
    plan::Plan plan = small::plan(model, small::training(8 * microbatches, 32), 1, 1, 8);
    plan.dpReplicate = 1;
    plan.dpShard = 8;
    plan.microbatchSize = 1;
    plan.stateSharding = sharding;
    return plan;
  };
  const auto perMicrobatch = [&](plan::StateSharding sharding) {
    const auto time = [&](int64_t microbatches) {
      return estimateDescribed(model, planOf(sharding, microbatches), cluster, stack)
          ->breakdown.dataParallel;
    };
    return (time(5) - time(1)) / 4.0;
  };
  const plan::Plan plan = planOf(plan::StateSharding::kGradients, 1);
  const DescribedBlocks blocks = describeBlocks(model, plan, cluster, stack);
  const Levels levels = levelsOf(shardGroup(plan), ranksOf(plan, cluster), cluster);
  const auto time = [&](spec::CollectiveKind kind, double bytes, double parameters) {
    return collectiveTime(kind, Bytes(bytes * parameters), levels);
  };
  using spec::CollectiveKind;
  const double layer = blocks.layer.parameters, table = blocks.embedding.parameters;
  const Seconds expected = time(CollectiveKind::kAllGather, 2, layer) * 5 +
                           time(CollectiveKind::kAllGather, 2, table) +
                           time(CollectiveKind::kReduceScatter, 4, layer) * 5 +
                           time(CollectiveKind::kReduceScatter, 4, table) +
                           Bytes(12 * (4 * layer + table)) /
                               (cluster.device.memoryBandwidth * cluster.device.memoryEfficiency);
  EXPECT_NEAR(perMicrobatch(plan::StateSharding::kGradients) / expected, 1, 1e-9);
  EXPECT_NEAR((perMicrobatch(plan::StateSharding::kParameters) -
               perMicrobatch(plan::StateSharding::kGradients)) /
                  (time(CollectiveKind::kAllGather, 2, layer) * 4),
              1, 1e-9);
}

// Ranks that share nothing: 4 bytes of a bucket per parameter where there are several of them, and
// 2 of what autocast keeps of all but a table that is looked up alone, with the two norms' inputs
// of every layer in f32 instead of bf16: 4 T h more per layer, 2 T h if only its input is kept.
// Shared state has nothing of it, nor has f32; parts of a model have no autocast.
TEST(DescribedMemory, OfRanksThatShareNothingHasBucketsAndWhatAutocastKeeps) {
  const spec::ClusterSpec cluster = quietCluster();
  spec::ModelSpec model = small::gpt(4);
  model.tiedEmbeddings = true;
  plan::Plan plan = small::plan(model, small::training(8, 32), 1, 1, 8);
  plan.microbatchSize = 1;
  plan.training.precision = spec::Precision::kBf16;
  const auto memoryOf = [&](const StackDescription& stack) {
    const DescribedBlocks blocks = describeBlocks(model, plan, cluster, stack);
    return describedMemoryOf({blocks, model, plan, cluster, stack}, 0).total().count();
  };
  const StackDescription none;
  StackDescription stack;
  stack.bucketBytes = 4;
  stack.autocastBytes = 2;
  const auto more = [&] { return memoryOf(stack) - memoryOf(none); };
  const DescribedBlocks blocks = describeBlocks(model, plan, cluster, none);
  const double parameters = parametersOfStage(blocks, model, plan, 0);
  const double border = 32 * static_cast<double>(model.hiddenSize);  // T h
  EXPECT_NEAR(more(), 6 * parameters + 4 * 4 * border, 8);
  plan.recompute = plan::Recompute::kFull;  // and one layer in full besides
  EXPECT_NEAR(more(), 6 * parameters + (4 * 2 + 4) * border, 8);
  plan.recompute = plan::Recompute::kNone;
  plan.training.precision = spec::Precision::kFp32;
  EXPECT_NEAR(more(), 4 * parameters, 8);
  plan.training.precision = spec::Precision::kBf16;
  plan.dpReplicate = 1;
  EXPECT_NEAR(more(), 2 * parameters + 4 * 4 * border, 8);
  model.tiedEmbeddings = false;
  const DescribedBlocks apart = describeBlocks(model, plan, cluster, none);
  EXPECT_NEAR(more(), 2 * (4 * apart.layer.parameters + apart.head.parameters) + 4 * 4 * border, 8);
  plan.tp = 2;
  EXPECT_NEAR(more(), 0, 8);
  plan.tp = 1;
  plan.dpShard = 8;
  plan.stateSharding = plan::StateSharding::kOptimizer;
  EXPECT_NEAR(more(), 0, 8);
}

// Casts of 4 to 2 bytes of every parameter of a product, and of its gradient back, are elementwise
// work of every microbatch: one rank communicates with nobody.
TEST(DescribedEstimate, CastsOfAutocastAreElementwise) {
  const spec::ClusterSpec cluster = quietCluster();
  const spec::ModelSpec model = small::gpt(4);
  plan::Plan plan = small::plan(model, small::training(2, 32), 1, 1, 1);
  plan.microbatchSize = 1;
  plan.training.precision = spec::Precision::kBf16;
  StackDescription stack;
  stack.parameterBytes = 4;
  const Estimate without = *estimateDescribed(model, plan, cluster, stack);
  stack.autocastBytes = 2;
  const Estimate with = *estimateDescribed(model, plan, cluster, stack);
  const DescribedBlocks blocks = describeBlocks(model, plan, cluster, stack);
  const Seconds each = Bytes(12 * (4 * blocks.layer.parameters + blocks.head.parameters)) /
                       (cluster.device.memoryBandwidth * cluster.device.memoryEfficiency);
  EXPECT_NEAR((with.breakdown.elementwise - without.breakdown.elementwise) / (each * 2), 1, 1e-9);
  EXPECT_EQ(with.breakdown.dataParallel, Seconds(0));
}

// One stage: embedding, head and all layers, forward and backward, and the layers' forward again.
TEST(DescribedEstimate, SaysHowLongTheCpuTakesBesideTheDevice) {
  const spec::ClusterSpec cluster = quietCluster();
  const spec::ModelSpec model = small::gpt();
  plan::Plan plan = small::plan(model, small::training());
  plan.recompute = plan::Recompute::kFull;
  StackDescription stack;
  stack.hostLaunch = Seconds(1e-6);
  const DescribedBlocks blocks = describeBlocks(model, plan, cluster, stack);
  PassCost all;
  for (int64_t layer = 0; layer < model.numLayers; ++layer)
    for (const PassCost& pass : {blocks.layer.forward, blocks.layer.backward, blocks.layer.forward})
      all += pass;
  for (const BlockCost& block : {blocks.embedding, blocks.head})
    for (const PassCost& pass : {block.forward, block.backward}) all += pass;
  EXPECT_NEAR(estimateDescribed(model, plan, cluster, stack)->hostPace / (all.host / all.device()),
              1, 1e-12);
}

// One stage on one device, so that the step is compute alone: recomputation is what full
// recomputation adds, the forward of the layers; and launching what a slow CPU adds, the rest being
// as without it.
TEST(DescribedEstimate, TellsRecomputationAndLaunchingFromOtherCompute) {
  const spec::ClusterSpec cluster = quietCluster();
  const spec::ModelSpec model = small::gpt();
  plan::Plan plan = small::plan(model, small::training());
  StackDescription stack;
  stack.hostLaunch = stack.hostMicrobatch = Seconds(0);
  const auto estimateOf = [&] { return *estimateDescribed(model, plan, cluster, stack); };
  const Estimate none = estimateOf();
  plan.recompute = plan::Recompute::kFull;
  const Estimate full = estimateOf();
  EXPECT_EQ(none.breakdown.recomputation, Seconds(0));
  EXPECT_NEAR(full.breakdown.recomputation / (full.step - none.step), 1, 1e-9);
  stack.hostLaunch = Seconds(1e-3);
  stack.hostMicrobatch = Seconds(1e-3);
  const Estimate paced = estimateOf();
  EXPECT_GT(paced.hostPace, 2);
  EXPECT_EQ(full.breakdown.launching, Seconds(0));
  EXPECT_NEAR(paced.breakdown.launching / (paced.step - full.step), 1, 1e-9);
  for (Seconds Breakdown::* part : {&Breakdown::products, &Breakdown::attention,
                                    &Breakdown::elementwise, &Breakdown::recomputation}) {
    EXPECT_GT(full.breakdown.*part, Seconds(0));
    EXPECT_NEAR(paced.breakdown.*part / full.breakdown.*part, 1, 1e-9);
  }
  const DescribedBlocks blocks = describeBlocks(model, plan, cluster, stack);
  Seconds products = (blocks.layer.forward.products + blocks.layer.backward.products) *
                     static_cast<double>(model.numLayers);
  products += blocks.head.forward.products + blocks.head.backward.products;
  EXPECT_NEAR(full.breakdown.products / (products * static_cast<double>(plan.numMicrobatches())), 1,
              1e-12);
}

// The backward's products are in two passes, which add up to the whole.
TEST(DescribedEstimate, ASplitBackwardHasTheProductsOfAWholeOne) {
  const spec::ClusterSpec cluster = quietCluster();
  const spec::ModelSpec model = small::gpt();
  plan::Plan plan = small::plan(model, small::training(), 1, 2, 1);
  const Breakdown whole = estimateDescribed(model, plan, cluster, {})->breakdown;
  plan.schedule = plan::ScheduleKind::kZeroBubbleH1;
  const Breakdown split = estimateDescribed(model, plan, cluster, {})->breakdown;
  EXPECT_NEAR(split.products / whole.products, 1, 1e-9);
  EXPECT_NEAR(split.elementwise / whole.elementwise, 1, 1e-9);
}

TEST(DescribedEstimate, IsNeverSlowerOnAFasterCluster) {
  const spec::ModelSpec model = small::gpt();
  StackDescription stack;
  stack.gradientExposed = stack.tensorParallelExposed = 0.3;
  for (const int64_t tp : {1, 2})
    for (const int64_t pp : {1, 2}) {
      plan::Plan plan = small::plan(model, small::training(), tp, pp, 8 / tp / pp);
      plan.sequenceParallel = tp > 1;
      const auto step = [&](const spec::ClusterSpec& cluster) {
        return estimateDescribed(model, plan, cluster, stack)->step;
      };
      const spec::ClusterSpec base = small::cluster();
      for (const int what : {0, 1, 2, 3}) {
        spec::ClusterSpec better = base;
        if (what == 0) better.device.matmul.front().rate = better.device.matmul.front().rate * 2;
        if (what == 1) better.device.memoryBandwidth = better.device.memoryBandwidth * 2;
        if (what == 2) better.tiers[0].bandwidth = better.tiers[0].bandwidth * 2;
        if (what == 3) better.tiers[1].bandwidth = better.tiers[1].bandwidth * 2;
        EXPECT_LE(step(better), step(base)) << tp << ' ' << pp << ' ' << what;
      }
    }
}

// 32 positions x 64 in two bytes: 4 KiB. In hosts of four, a stage of one rank sends it within the
// host in 4096 B / 100 GB/s + 2 us, and over the border of hosts in 4096 B / 10 GB/s + 5 us: both
// once per microbatch on ranks at the border, which has two passes. With two stages a rank has one
// border alone, and a stage that fills a host two slow ones.
TEST(DescribedEstimate, RanksExchangeOnceWithEachNeighbour) {
  const spec::ModelSpec model = small::gpt(16);
  const spec::ClusterSpec cluster = small::cluster(16, 4);
  const double inside = 4096 / 100e9 + 2e-6, outside = 4096 / 10e9 + 5e-6;
  const auto perMicrobatch = [&](int64_t tp, int64_t pp, int64_t virtualStages = 1) {
    plan::Plan plan = small::plan(model, small::training(), tp, pp);
    plan.virtualStages = virtualStages;
    return 2 * transferTime(model, plan, cluster, {}).count();
  };
  EXPECT_NEAR(perMicrobatch(1, 2), inside, 1e-12);
  EXPECT_NEAR(perMicrobatch(1, 4), 2 * inside, 1e-12);
  EXPECT_NEAR(perMicrobatch(1, 8), inside + outside, 1e-12);
  EXPECT_NEAR(perMicrobatch(4, 2), outside, 1e-12);
  EXPECT_NEAR(perMicrobatch(4, 4), 2 * outside, 1e-12);
  EXPECT_NEAR(perMicrobatch(1, 8, 2), 2 * outside, 1e-12);  // every pass waits for the slowest
}

}  // namespace
}  // namespace trireme::cost
