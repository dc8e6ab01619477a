#include <gtest/gtest.h>

#include <random>

#include "planner/plan_text.h"
#include "planner/search/frontier.h"
#include "planner/space/rank_orders.h"
#include "tests/planner/small_query.h"

namespace trireme::planner {
namespace {

// What the search takes of other groups: no more than of the group itself.
void expectLikened(const Query& query, const Group& group, const BlockCosts& own,
                   const CostFunctions& costs) {
  if (!query.stack.ownPrograms) return;
  if (const auto plain = plainerThan(query, group)) {
    const SharedBlocks blocks = *costs.blocks(planOf(query, *plain));
    EXPECT_LE(groupBound(query, group, probedWork(query, *blocks)),
              groupBound(query, group, probedWork(query, own)) * (1 + 1e-12));
  }
  const SharedBlocks ofSample = *costs.blocks(planOf(query, sampleOf(query, group)));
  EXPECT_LE(leastMemoryBySample(query, group, *ofSample, leastReserve(query, group)),
            leastMemory(query, group, own));
}

// Every bound of every plan of the space holds, and is close to what it bounds.
void expectAdmissible(const Query& query, int64_t devices) {
  const CostFunctions costs = modelCosts(query);
  double loosestTime = 1, loosestMemory = 1;
  const std::vector<plan::Plan> plans =
      everyPlan(query, devices, costs, TRIREME_SANITIZED ? triedCuts : allCuts);
  ASSERT_GT(plans.size(), 10u);
  for (const plan::Plan& plan : plans) {
    const auto blocks = costs.blocks(plan);
    const auto estimate = costs.estimate(plan);
    ASSERT_TRUE(blocks.has_value() && estimate.has_value());
    const PlanBound bound = boundOf(query, plan, **blocks);
    EXPECT_LE(bound.time, estimate->step);
    EXPECT_LE(bound.memory, estimate->memory.total()) << summary(plan) << " " << layersText(plan);
    const Group group{plan.tp,
                      plan.pp,
                      plan.cp,
                      plan.dp(),
                      plan.microbatchSize,
                      plan.recompute,
                      plan.sequenceParallel,
                      plan.overlapReductions,
                      plan::splitsBackward(plan.schedule)};
    EXPECT_LE(leastMemory(query, group, **blocks), estimate->memory.total());
    expectLikened(query, group, **blocks, costs);
    for (const Work& work : {leastWork(query, group), probedWork(query, **blocks)}) {
      EXPECT_LE(groupBound(query, group, work), bound.time);
      for (int64_t ranks = plan.pp * plan.dp(); ranks < 8; ++ranks)
        EXPECT_LE(shapeBound(query, group, work, ranks), bound.time);
    }
    loosestTime = std::min(loosestTime, bound.time / estimate->step);
    loosestMemory = std::min(loosestMemory, bound.memory / estimate->memory.total());
  }
  std::printf(
      "%zu plans: time bound at least %.1f %%, memory bound at least %.1f %% of the estimate\n",
      plans.size(), 100 * loosestTime, 100 * loosestMemory);
  EXPECT_GT(loosestTime, 0.5);
  EXPECT_GT(loosestMemory, 0.8);
}

TEST(Bounds, HoldForASmallModel) { expectAdmissible(smallQuery(4, 4, 8), 4); }

TEST(Bounds, HoldForOneLayer) { expectAdmissible(smallQuery(4, 1, 8), 4); }

TEST(Bounds, HoldForTwoStagesOfOneLayer) { expectAdmissible(smallQuery(4, 2, 8), 4); }

TEST(Bounds, HoldForUnevenLayersAndOddDegrees) {
  Query query = smallQuery(6, 7, 12);
  query.model = small::gpt(7, 48, 3);
  query.cluster = small::cluster(6, 3);
  expectAdmissible(query, 6);
}

TEST(Bounds, HoldForUntiedEmbeddingsAndSinglePrecision) {
  Query query = smallQuery(4, 4, 8);
  query.model.tiedEmbeddings = false;
  query.training.precision = spec::Precision::kFp32;
  expectAdmissible(query, 4);
}

TEST(Bounds, HoldForOtherStacks) {
  Query query = smallQuery(4, 4, 8);
  query.stack.flashAttention = false;
  query.stack.overlapPipelineTransfers = false;
  query.stack.optimizerBytesPerParameter = 20;
  query.stack.fixedReserve = Bytes(1e6);
  query.stack.gpuReserve = Bytes(1e5);
  query.stack.ncclConnection = Bytes(1e3);
  expectAdmissible(query, 4);
}

// Sequence parallelism, collectives that are half hidden, a CPU beside the device.
TEST(Bounds, HoldForStacksWithADescription) {
  Query query = smallQuery(4, 4, 8);
  query.stack.ownPrograms = false;
  query.stack.description.tensorParallelExposed = 0.5;
  query.stack.description.hostLaunch = Seconds(1e-6);
  query.stack.description.hostExponent = 2;
  expectAdmissible(query, 4);
  query = computeBound(query);
  expectAdmissible(query, 4);
}

TEST(Bounds, HoldForLlama) {
  Query query = smallQuery(4, 4, 8);
  spec::ModelSpec& model = query.model;
  model.family = spec::ModelFamily::kLlama;
  model.norm = spec::NormKind::kRmsNorm;
  model.activation = spec::ActivationKind::kSwiGlu;
  model.position = spec::PositionKind::kRotary;
  model.numKvHeads = 2;
  model.tiedEmbeddings = model.qkvBias = model.linearBias = false;
  expectAdmissible(query, 4);
}

// What is computed again is all of a layer but its last product, which no backward needs.
TEST(Bounds, HoldWhereProductsTakeMostOfTheTime) {
  for (const spec::ActivationKind activation :
       {spec::ActivationKind::kGeluTanh, spec::ActivationKind::kSwiGlu}) {
    Query query = smallQuery(4, 4, 8);
    query.model.activation = activation;
    if (activation == spec::ActivationKind::kSwiGlu) query.model.linearBias = false;
    for (spec::PeakRate& peak : query.cluster.device.matmul) peak.rate = peak.rate * 1e-6;
    expectAdmissible(query, 4);
  }
}

// NCCL's connections take more over fast links, which another order gives to other groups: a group
// needs no more than the order that needs less.
TEST(Bounds, HoldForBothRankOrders) {
  for (const bool own : {true, false}) {
    Query query = smallQuery(4, 4, 8);
    query.cluster.device.kind = spec::DeviceKind::kCuda;
    query.cluster.tiers[0].bandwidth = BytesPerSecond(450e9);
    query.stack.ownPrograms = own;
    query.stack.ncclConnection = query.stack.description.ncclConnection = Bytes(1e4);
    query.pins.tp = 1;
    query.pins.pp = query.pins.dp = 2;
    expectAdmissible(query, 4);
    query.stack.ncclConnection = query.stack.description.ncclConnection = Bytes(1e8);
    const CostFunctions costs = modelCosts(query);
    std::vector<Rejection> ignored;
    for (const Group& group : groupsFor(query, 4, ignored)) {
      EXPECT_EQ(rankOrdersOf(query, group).size(), 2u);
      const SharedBlocks blocks = *costs.blocks(planOf(query, group));
      forEachPlan(query, group, [&](plan::Plan plan) {
        plan.layers = plan::evenLayers(query.model.numLayers, plan.pp, plan.virtualStages);
        EXPECT_LE(leastMemory(query, group, *blocks), costs.estimate(plan)->memory.total());
      });
    }
  }
}

// Links on which reductions take longer than the backward that they run beside, and others.
TEST(Bounds, HoldForReductionsThatOverlap) {
  for (const double speed : {1e-2, 0.1, 1.0, 10.0})
    for (const bool tied : {false, true}) {
      Query query = smallQuery(4, 4, 8);
      query.model.tiedEmbeddings = tied;
      query.pins.overlapReductions = true;
      for (spec::LinkTier& tier : query.cluster.tiers) tier.bandwidth *= speed;
      expectAdmissible(query, 4);
      query.cluster.device.kind = spec::DeviceKind::kHost;
      expectAdmissible(query, 4);
    }
}

// Tensor-parallel groups of two on nodes of three. Of six ranks every other group is parted, and
// all pay for it; of four none is, as two nodes have two each.
TEST(Bounds, KnowGroupsThatLeaveTheirNodes) {
  Query query = smallQuery(6, 6, 12);
  query.cluster = small::cluster(6, 3);
  query.cluster.tiers.back().bandwidth *= 1e-3;
  const CostFunctions costs = modelCosts(query);
  for (const auto& [pp, dp] : {std::pair(1, 3), {3, 1}, {2, 1}}) {
    plan::Plan plan = small::plan(query.model, query.training, 2, pp, dp);
    plan.microbatchSize = 2;
    const auto blocks = costs.blocks(plan);
    const auto estimate = costs.estimate(plan);
    ASSERT_TRUE(blocks.has_value() && estimate.has_value());
    EXPECT_EQ(estimate->breakdown.tensorParallel > estimate->step * 0.25, pp * dp == 3);
    const Seconds bound = boundOf(query, plan, **blocks).time;
    EXPECT_LE(bound, estimate->step) << pp << " stages";
    EXPECT_GT(bound, estimate->step * 0.8) << pp << " stages";
  }
}

// Layer by layer what is left of the reductions beside the last backward, and the gathers.
TEST(Bounds, KnowWhatOverlapLeavesOfReductions) {
  int numLong = 0;
  for (const double speed : {3e-3, 6e-3, 1e-2, 2e-2})
    for (const int64_t chunks : {1, 2, 3})
      for (const auto sharding : {plan::StateSharding::kNone, plan::StateSharding::kOptimizer}) {
        Query query = smallQuery(8, 12, 32);
        query.cluster.device.launchOverhead *= 5;  // so that a backward is long
        for (spec::LinkTier& tier : query.cluster.tiers) {
          tier.bandwidth *= speed;
          tier.latency *= 5;  // of which every layer has its own
        }
        plan::Plan plan = small::plan(query.model, query.training, 1, 2, 4);
        plan.microbatchSize = 1;
        plan.overlapReductions = true;
        plan.stateSharding = sharding;
        if (sharding == plan::StateSharding::kOptimizer) std::swap(plan.dpReplicate, plan.dpShard);
        if (chunks > 1) plan = small::interleaved(plan, query.model, chunks);
        const CostFunctions costs = modelCosts(query);
        const auto blocks = costs.blocks(plan);
        const auto estimate = costs.estimate(plan);
        ASSERT_TRUE(blocks.has_value() && estimate.has_value());
        numLong += estimate->breakdown.dataParallel > estimate->step * 0.4;
        cost::Pipeline pipeline = pipelineOf(query, plan, **blocks);
        cost::OnceTimes once;
        for (size_t rank = 0; rank < 2; ++rank) {
          StageBound stage = stageBoundOf(query, plan, **blocks, rank, stepLinksOf(query, plan));
          once = longest(once, stage.once);
          pipeline.stages.push_back(std::move(stage.times));
        }
        const double share = (cost::FlushPlayer().timeOf(pipeline) + once.total()) / estimate->step;
        EXPECT_LE(share, 1 + 1e-9) << summary(plan) << ", links of " << speed;
        EXPECT_GT(share, 0.995) << summary(plan) << ", links of " << speed;
      }
  EXPECT_GE(numLong, 4);
}

// What a stage does once per step, by the layers that it has at least: never more than with some
// more of them, however slow the links are.
TEST(Bounds, WhatIsDoneOnceHoldsForMoreLayers) {
  std::mt19937 random(5);
  int behind = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    Query query = smallQuery(8, 12, 8);
    query.model.tiedEmbeddings = random() % 2 == 0;
    const double speed = std::pow(10.0, std::uniform_real_distribution<double>(-3, 1)(random));
    for (spec::LinkTier& tier : query.cluster.tiers) tier.bandwidth *= speed;
    plan::Plan plan = small::plan(query.model, query.training, 1, 2, 2);
    plan.microbatchSize = 1;
    plan.overlapReductions = true;
    const int chunks = 1 + static_cast<int>(random() % 2);
    if (chunks > 1) {
      plan.schedule = plan::ScheduleKind::kInterleaved;
      plan.virtualStages = chunks;
    } else if (random() % 2 == 0) {
      plan.schedule = plan::ScheduleKind::kZeroBubbleH1;
    }
    const SharedBlocks blocks = *modelCosts(query).blocks(plan);
    plan.layers.assign(2, std::vector<plan::LayerRange>(static_cast<size_t>(chunks)));
    const size_t rank = random() % 2;
    for (plan::LayerRange& range : plan.layers[rank])
      range.count = 1 + static_cast<int64_t>(random() % 40);
    const cost::OnceTimes least = leastOnceOf(query, plan, *blocks, rank, stepLinksOf(query, plan));
    plan::Plan none = plan;
    none.overlapReductions = false;
    behind += least.reducing >
              leastOnceOf(query, none, *blocks, rank, stepLinksOf(query, none)).reducing * 0.5;
    for (int more = 0; more < 6; ++more) {
      const cost::OnceTimes once =
          stageBoundOf(query, plan, *blocks, rank, stepLinksOf(query, plan)).once;
      EXPECT_LE(least.reducing, once.reducing * (1 + 1e-9)) << trial << ": " << more << " more";
      EXPECT_LE(least.updating, once.updating * (1 + 1e-9)) << trial << ": " << more << " more";
      ++plan.layers[rank][random() % static_cast<size_t>(chunks)].count;
    }
  }
  EXPECT_GT(behind, 300);  // where they are slow it is of the order of all that is reduced
}

// Of a host whose kernels and collectives were measured, by curves that are not even monotone.
TEST(Bounds, HoldForMeasuredKernelsAndCollectives) {
  Query query = smallQuery(4, 4, 8);
  spec::DeviceSpec& device = query.cluster.device;
  device.kind = spec::DeviceKind::kHost;
  double scale = 1;
  for (const std::string& kernel : spec::measuredKernelNames())
    for (DType type : {DType::kBf16, DType::kF32}) {
      spec::KernelTiming timing{kernel, type, {}, "test"};
      timing.per.fill(Seconds(1e-12 * scale));
      timing.per[static_cast<size_t>(spec::KernelUnit::kCall)] = Seconds(1e-6);
      device.kernels.push_back(timing);
      scale = scale > 20 ? 1 : scale * 1.3;
    }
  using spec::CollectiveKind;
  for (spec::LinkTier& tier : query.cluster.tiers)
    for (int64_t group : {2, 4})
      for (CollectiveKind kind : {CollectiveKind::kAllReduce, CollectiveKind::kAllGather})
        for (int64_t perBlock : {0, 1})
          if (group <= tier.devices)
            tier.curves.push_back({kind,
                                   group,
                                   {{Bytes(1e3), BytesPerSecond(1e9)},
                                    {Bytes(1e5), BytesPerSecond(9e9)},
                                    {Bytes(1e6), BytesPerSecond(4e9)}},
                                   "test",
                                   perBlock});
  expectAdmissible(query, 4);
}

// One format may reach a larger share of its peak than any other.
TEST(Bounds, HoldWhereAFormatHasAShareOfItsOwn) {
  for (const MathFormat format : {MathFormat::kF32, MathFormat::kTf32, MathFormat::kF16}) {
    Query query = smallQuery(4, 4, 8);
    query.training.precision =
        format == MathFormat::kF16 ? spec::Precision::kFp16 : spec::Precision::kFp32;
    query.training.tf32 = format == MathFormat::kTf32;
    spec::DeviceSpec& device = query.cluster.device;
    if (device.peak(format) == nullptr)
      device.matmul.push_back({format, device.matmul.front().rate});
    device.matmulEfficiency = device.attentionEfficiency = 0.1;
    (format == MathFormat::kF32    ? device.f32MatmulEfficiency
     : format == MathFormat::kTf32 ? device.tf32MatmulEfficiency
                                   : device.f16MatmulEfficiency) = 1;
    device.launchOverhead = Seconds(0);  // products are what takes time
    device.memoryBandwidth = BytesPerSecond(1e15);
    expectAdmissible(query, 4);
  }
}

}  // namespace
}  // namespace trireme::planner
