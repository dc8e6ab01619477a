// The search against an enumeration that knows nothing of it but the rules of plans, on thousands
// of random small instances: models, clusters, stacks, batches, pins, memory.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <random>
#include <string>

#include "cost_models/described_estimate.h"
#include "cost_models/topology.h"
#include "planner/answer/critical_path.h"
#include "planner/plan_text.h"
#include "tests/planner/small_query.h"

namespace trireme::planner {
namespace {

using plan::RankOrder;
using plan::Recompute;
using plan::ScheduleKind;
using plan::StateSharding;
using spec::StackChoice;

// Fewer where every one takes ten times as long.
constexpr int kInstances = TRIREME_SANITIZED ? 100 : 2000;

constexpr StackChoice kAllChoices[] = {StackChoice::kTensorParallel,
                                       StackChoice::kSequenceParallel,
                                       StackChoice::kContextParallel,
                                       StackChoice::kPipeline,
                                       StackChoice::kGpipe,
                                       StackChoice::kInterleaved,
                                       StackChoice::kZeroBubble,
                                       StackChoice::kScatterGather,
                                       StackChoice::kShardOptimizer,
                                       StackChoice::kShardGradients,
                                       StackChoice::kShardParameters,
                                       StackChoice::kReplicatedShards,
                                       StackChoice::kRecomputeSelective,
                                       StackChoice::kRecomputeFull,
                                       StackChoice::kRecomputeLayers};

class Instance {
 public:
  explicit Instance(uint32_t seed) : random_(seed) {
    query_ = smallQuery(pick({1, 2, 3, 4, 6, 8}), pick({1, 2, 3, 5}), pick({1, 4, 6}));
    model();
    cluster();
    stack();
    pins();
  }
  const Query& query() const { return query_; }
  Query& query() { return query_; }
  double uniform(double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random_);
  }

 private:
  int64_t pick(std::vector<int64_t> of) { return of[random_() % of.size()]; }
  bool chance(double probability) { return uniform(0, 1) < probability; }

  void model() {
    const int64_t heads = pick({1, 2, 3, 4, 6});
    query_.model = small::gpt(query_.model.numLayers, heads * 16, heads);
    query_.model.tiedEmbeddings = chance(0.5);
    query_.model.vocabSize = pick({64, 512, 5000});
    query_.training.sequenceLength = pick({16, 24, 64});
  }
  void cluster() {
    const int64_t devices = query_.cluster.numDevices;
    std::vector<int64_t> perNode;
    for (int64_t n = 1; n <= devices; ++n)
      if (devices % n == 0) perNode.push_back(n);
    query_.cluster = small::cluster(devices, pick(perNode));
    for (spec::LinkTier& tier : query_.cluster.tiers) {
      tier.bandwidth = tier.bandwidth * uniform(0.01, 2);
      tier.latency = tier.latency * uniform(0, 2);
    }
    query_.cluster.device.numMultiprocessors = pick({0, 8, 100});
    query_.cluster.device.tileDelivery = uniform(0, 50);
  }
  void stack() {
    query_.stack.name = "random";
    query_.stack.ownPrograms = false;
    query_.stack.choices.clear();
    for (StackChoice choice : kAllChoices)
      if (chance(0.7)) query_.stack.choices.push_back(choice);
    if (chance(0.2)) query_.stack.choices.push_back(StackChoice::kRankOrder);
    spec::StackDescription& d = query_.stack.description;
    d.attention = chance(0.5) ? spec::AttentionKind::kFlash2 : spec::AttentionKind::kUnfused;
    d.gradientExposed = uniform(0, 1);
    d.gatherExposed = uniform(0, 1);
    d.tensorParallelExposed = uniform(0, 1);
    d.transferExposed = uniform(0, 1);
    d.hostLaunch = Seconds(chance(0.3) ? uniform(0, 1e-4) : 0);
    d.hostExponent = chance(0.5) ? uniform(1, 4) : 0;
    d.hostExposed = chance(0.5) ? uniform(0, 1) : 0;
    d.hostStep = Seconds(uniform(0, 1e-3));
    d.fragmentation = uniform(0, 0.1);
    d.reserve = Bytes(uniform(0, 1e5));
    d.ncclConnection = Bytes(uniform(0, 1e4));
    d.pipelineKeepsWhole = chance(0.5);
    d.postValidation = chance(0.3);
    d.replicaReduction =
        static_cast<spec::ReplicaReduction>(std::uniform_int_distribution<int>(0, 2)(random_));
    d.bucketBytes = chance(0.3) ? 4 : 0;
    d.autocastBytes = chance(0.3) ? 2 : 0;
    d.hidesBetweenChunks = d.postValidation || d.autocastBytes > 0;  // half
    d.loaderMasks = d.pipelineKeepsWhole && d.bucketBytes == 0;      // a third
    d.keepsGatheredWeights = !d.hidesBetweenChunks;
    d.keepsGatheredInputs = d.pipelineKeepsWhole;
    d.eagerLayers = d.eagerNorms = d.bucketBytes == 0;
  }
  void pins() {
    Pins& p = query_.pins;
    if (chance(0.15)) p.tp = pick({1, 2, 3});
    if (chance(0.15)) p.pp = pick({1, 2});
    if (chance(0.1)) p.cp = pick({1, 2});
    if (chance(0.15)) p.microbatchSize = pick({1, 2});
    if (chance(0.1)) p.recompute = Recompute::kFull;
    if (chance(0.1)) p.recomputeLayers = pick({1, 2, 3});
    if (chance(0.1)) p.schedule = ScheduleKind::k1F1B;
    if (chance(0.1)) p.stateSharding = StateSharding::kOptimizer;
    if (chance(0.1)) p.sequenceParallel = chance(0.5);
    if (chance(0.05)) p.rankOrder = chance(0.5) ? RankOrder::kTpCpPpDp : RankOrder::kTpCpDpPp;
    if (chance(0.05)) p.dp = pick({1, 2, 4});
    if (chance(0.05)) p.dpShard = pick({1, 2});
    if (chance(0.05)) p.virtualStages = pick({1, 2});
    if (chance(0.05)) p.scatterGather = chance(0.5);
    if (chance(0.1)) p.mostTp = pick({1, 2, 3});
    if (chance(0.1)) p.mostPp = pick({1, 2, 3});
    if (chance(0.05)) p.mostCp = 1;
    if (chance(0.1)) p.mostDp = pick({1, 2, 3});
    if (chance(0.1)) p.mostMicrobatchSize = pick({1, 2});
    if (chance(0.1)) p.mostVirtualStages = pick({1, 2});
  }

  std::mt19937 random_;
  Query query_;
};

template <typename T>
bool obeys(const std::optional<T>& pin, T value) {
  return !pin || *pin == value;
}
bool obeys(const std::optional<int64_t>& pin, const std::optional<int64_t>& most, int64_t value) {
  return obeys(pin, value) && (!most || value <= *most);
}

// What the stack and the pins say of a plan; the rules of plans are verifyPlan's.
bool isWanted(const Query& query, const plan::Plan& p) {
  const auto can = [&](StackChoice choice, bool used) {
    return !used || query.stack.supports(choice);
  };
  const Pins& pins = query.pins;
  const auto shares = [&](StateSharding kind) { return p.stateSharding == kind; };
  return can(StackChoice::kTensorParallel, p.tp > 1) && can(StackChoice::kPipeline, p.pp > 1) &&
         can(StackChoice::kContextParallel, p.cp > 1) &&
         can(StackChoice::kSequenceParallel, p.sequenceParallel) &&
         can(StackChoice::kGpipe, p.schedule == ScheduleKind::kGpipe) &&
         can(StackChoice::kInterleaved, p.schedule == ScheduleKind::kInterleaved) &&
         can(StackChoice::kZeroBubble, plan::splitsBackward(p.schedule)) &&
         can(StackChoice::kScatterGather, p.scatterGather) &&
         can(StackChoice::kRankOrder, p.rankOrder != RankOrder::kTpCpDpPp) &&
         obeys(pins.rankOrder, p.rankOrder) &&
         (p.rankOrder == RankOrder::kTpCpDpPp || shares(StateSharding::kNone) ||
          shares(StateSharding::kOptimizer)) &&
         can(StackChoice::kShardOptimizer, shares(StateSharding::kOptimizer)) &&
         can(StackChoice::kShardGradients, shares(StateSharding::kGradients)) &&
         can(StackChoice::kShardParameters, shares(StateSharding::kParameters)) &&
         can(StackChoice::kReplicatedShards, !shares(StateSharding::kNone) && p.dpReplicate > 1) &&
         can(StackChoice::kRecomputeSelective, p.recompute == Recompute::kSelective) &&
         can(StackChoice::kRecomputeFull, p.recompute == Recompute::kFull) &&
         obeys(pins.tp, pins.mostTp, p.tp) && obeys(pins.pp, pins.mostPp, p.pp) &&
         obeys(pins.cp, pins.mostCp, p.cp) && obeys(pins.dp, pins.mostDp, p.dp()) &&
         obeys(pins.dpShard, p.dpShard) && obeys(pins.scatterGather, p.scatterGather) &&
         obeys(pins.virtualStages, pins.mostVirtualStages, p.virtualStages) &&
         (!pins.recomputeLayers ||
          (p.recompute == Recompute::kFull && *pins.recomputeLayers <= query.model.numLayers &&
           query.stack.supports(StackChoice::kRecomputeLayers))) &&
         obeys(pins.microbatchSize, pins.mostMicrobatchSize, p.microbatchSize) &&
         obeys(pins.recompute, p.recompute) && obeys(pins.schedule, p.schedule) &&
         obeys(pins.stateSharding, p.stateSharding) &&
         obeys(pins.sequenceParallel, p.sequenceParallel) &&
         !((p.schedule == ScheduleKind::kGpipe || plan::splitsBackward(p.schedule)) && p.pp == 1);
}

std::vector<plan::Plan> arrangementsOf(const plan::Plan& degrees, int64_t layers) {
  std::vector<plan::Plan> plans;
  for (Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull})
    for (bool sequence : {false, true})
      for (bool scatter : {false, true})
        for (StateSharding sharding : {StateSharding::kNone, StateSharding::kOptimizer,
                                       StateSharding::kGradients, StateSharding::kParameters})
          for (ScheduleKind schedule :
               {ScheduleKind::kGpipe, ScheduleKind::k1F1B, ScheduleKind::kInterleaved,
                ScheduleKind::kZeroBubbleH1, ScheduleKind::kZeroBubbleH2})
            for (int64_t v = 1; v <= layers + 2; ++v) {
              if ((v > 1) != (schedule == ScheduleKind::kInterleaved)) continue;  // (P6)
              plan::Plan plan = degrees;
              plan.recompute = recompute;
              plan.sequenceParallel = sequence;
              plan.scatterGather = scatter;
              plan.stateSharding = sharding;
              plan.schedule = schedule;
              plan.virtualStages = v;
              plans.push_back(plan);
            }
  return plans;
}

// Every way to cut the layers that the search promises to know, written down anew: all numbers of
// layers per stage, and of these all spreads over chunks that differ by one at most.
void addEveryCut(const std::vector<std::vector<int64_t>>& stages, int64_t left,
                 const plan::Plan& plan,
                 std::vector<std::vector<std::vector<plan::LayerRange>>>& cuts) {
  const auto rank = static_cast<int64_t>(stages.size());
  if (rank == plan.pp) {
    if (left == 0) cuts.push_back(rangesFrom(stages));
    return;
  }
  for (int64_t layers = 0; layers <= left; ++layers)
    for (uint32_t longer = 0; longer < 1U << plan.virtualStages; ++longer) {
      if (std::popcount(longer) != layers % plan.virtualStages) continue;
      std::vector<int64_t> chunks;
      for (int64_t c = 0; c < plan.virtualStages; ++c)
        chunks.push_back(layers / plan.virtualStages + (longer >> c & 1));
      std::vector<std::vector<int64_t>> more = stages;
      more.push_back(chunks);
      addEveryCut(more, left - layers, plan, cuts);
    }
}

// All legal and wanted plans of exactly `devices` devices, with even layers, all recomputed.
std::vector<plan::Plan> enumerate(const Query& query, int64_t devices) {
  std::vector<plan::Plan> plans;
  const int64_t batch = query.training.globalBatchSize, layers = query.model.numLayers;
  for (int64_t tp = 1; tp <= devices; ++tp)
    for (int64_t cp = 1; tp * cp <= devices; ++cp)
      for (int64_t pp = 1; tp * cp * pp <= devices && pp <= layers; ++pp)
        for (int64_t shard = 1; tp * cp * pp * shard <= devices; ++shard) {
          if (devices % (tp * cp * pp * shard) != 0) continue;
          const int64_t dp = devices / (tp * cp * pp);
          for (int64_t microbatch = 1; microbatch <= batch; ++microbatch) {
            if (batch % (dp * microbatch) != 0) continue;
            plan::Plan degrees = small::plan(query.model, query.training, tp, pp, 1);
            degrees.stack = query.stack.name;
            degrees.cp = cp;
            degrees.dpShard = shard;
            degrees.dpReplicate = dp / shard;
            degrees.microbatchSize = microbatch;
            for (plan::Plan& plan : arrangementsOf(degrees, layers))
              for (RankOrder order : {RankOrder::kTpCpDpPp, RankOrder::kTpCpPpDp}) {
                plan.rankOrder = order;
                // The chunks of the embedding and of the head need no layer, of own programs they
                // do.
                const int64_t most = layers + (pp > 1 && !query.stack.ownPrograms ? 2 : 0);
                if (plan.virtualStages * pp > most || !isWanted(query, plan)) continue;
                plan.layers = plan::evenLayers(layers, pp, plan.virtualStages);
                if (plan::verifyPlan(plan, query.model).ok()) plans.push_back(plan);
              }
          }
        }
  return plans;
}

// Recomputing as many layers as the longest chunk has is recomputing all.
plan::Plan withCut(plan::Plan plan, std::vector<std::vector<plan::LayerRange>> layers) {
  int64_t longest = 0;
  for (const auto& stage : layers)
    for (const plan::LayerRange& range : stage) longest = std::max(longest, range.count);
  plan.layers = std::move(layers);
  if (plan.recomputeLayers >= longest) plan.recomputeLayers = 0;
  return plan;
}

std::vector<std::vector<std::vector<plan::LayerRange>>> everyCut(const Query& query,
                                                                 const plan::Plan& plan) {
  std::vector<std::vector<std::vector<plan::LayerRange>>> cuts = {plan.layers};
  if (plan.pp > 1) addEveryCut({}, query.model.numLayers, plan, cuts);
  return cuts;
}

struct BestOfAll {
  int64_t mostDevices = 0;  // that any plan has, fitting or not
  std::optional<Seconds> step, stepOfMost;
  bool isUneven = false, isPartly = false;  // the best: its cut, its recomputation
};

void improve(const Query& query, const CostFunctions& costs, int64_t devices, BestOfAll& best) {
  std::optional<Seconds> step;
  bool isUneven = false, isPartly = false;
  for (plan::Plan& plan : enumerate(query, devices)) {
    best.mostDevices = std::max(best.mostDevices, devices);
    const bool some = plan.recompute == Recompute::kFull && !query.pins.recompute &&
                      query.stack.supports(StackChoice::kRecomputeLayers);
    for (int64_t recomputed = 0; recomputed < (some ? query.model.numLayers : 1); ++recomputed) {
      plan.recomputeLayers = query.pins.recomputeLayers.value_or(recomputed);
      for (const auto& layers : everyCut(query, plan)) {
        const plan::Plan whole = withCut(plan, layers);
        if (!plan::verifyPlan(whole, query.model).ok()) continue;
        const auto estimate = costs.estimate(whole);
        if (!estimate->fits() || (step && estimate->step >= *step)) continue;
        step = estimate->step;
        isUneven = layers != plan.layers;
        isPartly = whole.recomputeLayers > 0;
      }
    }
  }
  if (devices == best.mostDevices) best.stepOfMost = step;
  if (!step || (best.step && *step >= *best.step)) return;
  best.step = step;
  best.isUneven = isUneven;
  best.isPartly = isPartly;
}

// Sums in another order.
constexpr double kSumRounding = 1e-12;

bool isAsFast(std::optional<Seconds> a, std::optional<Seconds> b) {
  if (!a || !b) return !a && !b;
  return *a <= *b * (1 + kSumRounding) && *b <= *a * (1 + kSumRounding);
}

// On any number of devices.
BestOfAll bestOfAll(const Query& query) {
  const CostFunctions costs = modelCosts(query);
  BestOfAll best;
  for (int64_t devices = query.cluster.numDevices; devices >= 1; --devices)
    improve(query, costs, devices, best);
  return best;
}

// Memory between what the leanest and the most wasteful plans need, so that it often binds.
void limitMemory(Instance& instance) {
  Query& query = instance.query();
  if (instance.uniform(0, 1) < 0.4) return;
  const auto found = searchPlan(query, modelCosts(query));
  if (!found.has_value()) return;
  query.cluster.device.memory = found->estimate.memory.total() * instance.uniform(0.3, 1.05);
}

TEST(RandomInstances, TheSearchFindsWhatEnumerationFinds) {
  int feasible = 0, infeasible = 0, leavesIdle = 0, uneven = 0, partly = 0, beyond = 0, pinned = 0,
      split = 0;
  for (uint32_t seed = 0; seed < static_cast<uint32_t>(kInstances); ++seed) {
    Instance instance(seed);
    limitMemory(instance);
    const Query& query = instance.query();
    const BestOfAll best = bestOfAll(query);
    const auto found = searchPlan(query, modelCosts(query));
    ASSERT_EQ(found.has_value(), best.step.has_value())
        << "seed " << seed << (found.has_value() ? "" : ": " + found.error().message());
    if (!best.step) {
      ++infeasible;
      continue;
    }
    ++feasible;
    const bool isBeyond = leavesSpace(found->plan);
    ASSERT_TRUE(isBeyond ? found->estimate.step < *best.step
                         : isAsFast(found->estimate.step, best.step))
        << "seed " << seed << ": " << summary(found->plan) << ", "
        << found->estimate.step / *best.step;
    beyond += isBeyond;
    ASSERT_EQ(found->certificate.gap, 0) << "seed " << seed;
    ASSERT_EQ(found->gpusWithLayout, best.mostDevices) << "seed " << seed;
    // With a cut beyond the space, which the winner on fewer devices need not have, it is faster.
    const bool isFaster =
        found->stepOfMost && best.stepOfMost && *found->stepOfMost < *best.stepOfMost;
    ASSERT_TRUE(isFaster || isAsFast(found->stepOfMost, best.stepOfMost)) << "seed " << seed;
    uneven += best.isUneven;
    partly += best.isPartly;
    pinned += best.isPartly && query.pins.recomputeLayers;
    const bool isAhead =
        query.stack.description.postValidation && plan::splitsBackward(found->plan.schedule);
    split += plan::splitsBackward(found->plan.schedule);
    if (!query.stack.ownPrograms &&
        !isAhead) {  // the schedule played takes no longer than what was promised
      ASSERT_LE(criticalPath(query, found->plan, found->estimate.step)->simulated,
                found->estimate.step * (1 + kSumRounding))
          << "seed " << seed << ": " << summary(found->plan);
    }
    leavesIdle += found->gpusUsed < found->gpusWithLayout;
    ASSERT_TRUE(plan::verifyPlan(found->plan, query.model).ok()) << "seed " << seed;
  }
  std::printf(
      "%d feasible instances (best with idle devices %d, with an uneven cut %d, with some layers "
      "recomputed %d, as pinned %d, with a split backward %d; cuts beyond "
      "the space %d), and %d "
      "infeasible\n",
      feasible, leavesIdle, uneven, partly, pinned, split, beyond, infeasible);
  EXPECT_GT(split, kInstances / 50);
  EXPECT_LT(beyond, feasible / 100);
  EXPECT_GT(uneven, kInstances / 50);
  EXPECT_GT(partly, kInstances / 200);
  EXPECT_GT(pinned, kInstances / 200);
  EXPECT_GT(leavesIdle, kInstances / 50);
  EXPECT_GT(feasible, kInstances / 3);
  EXPECT_GT(infeasible, kInstances / 10);
}

// Two stages in nodes of two or four, large borders, and links between nodes so slow that it
// decides over a step what crosses them.
TEST(RandomInstances, RanksAreInTheOrderThatEnumerationFinds) {
  int reordered = 0, kept = 0;
  for (uint32_t seed = 0; seed < static_cast<uint32_t>(kInstances / 20); ++seed) {
    Instance instance(seed);
    Query& query = instance.query();
    query.pins = {};
    query.pins.cp = 1;
    query.pins.pp = 2;
    query.pins.dp = seed % 4 < 2 ? 2 : 4;
    query.pins.microbatchSize = 8 / *query.pins.dp;
    for (const StackChoice choice : {StackChoice::kPipeline, StackChoice::kRankOrder})
      if (!query.stack.supports(choice)) query.stack.choices.push_back(choice);
    query.model.numLayers = 2;
    query.model.vocabSize = 64;
    query.training.globalBatchSize = 8;
    query.training.sequenceLength = 64;
    query.cluster = small::cluster(8, seed % 2 == 0 ? 2 : 4);
    query.cluster.tiers[1].nics = seed % 3 == 0 ? 1 : 0;
    query.cluster.tiers[1].bandwidth *= instance.uniform(0.01, 0.1);
    if (seed % 2 == 0) limitMemory(instance);
    const BestOfAll best = bestOfAll(query);
    const auto found = searchPlan(query, modelCosts(query));
    ASSERT_EQ(found.has_value(), best.step.has_value()) << "seed " << seed;
    if (!best.step) continue;
    ASSERT_TRUE(isAsFast(found->estimate.step, best.step))
        << "seed " << seed << ": " << summary(found->plan) << ", "
        << found->estimate.step / *best.step;
    ASSERT_EQ(found->certificate.gap, 0) << "seed " << seed;
    ++(found->plan.rankOrder == RankOrder::kTpCpPpDp ? reordered : kept);
  }
  std::printf("stages inside %d, replicas inside or one replica %d\n", reordered, kept);
  EXPECT_GE(reordered, kInstances / 1000);
  EXPECT_GE(kept, kInstances / 1000);
}

// Of every (tp, pp, cp, dp) the fastest plan that fits, on any number of devices.
std::map<std::string, Seconds> fastestOf(const Query& query) {
  const CostFunctions costs = modelCosts(query);
  std::map<std::string, Seconds> fastest;
  for (int64_t devices = query.cluster.numDevices; devices >= 1; --devices)
    for (plan::Plan& plan : enumerate(query, devices))
      for (int64_t recomputed = 0;
           recomputed < (plan.recompute == Recompute::kFull ? query.model.numLayers : 1);
           ++recomputed) {
        plan.recomputeLayers = recomputed;
        for (const auto& layers : everyCut(query, plan)) {
          const plan::Plan whole = withCut(plan, layers);
          if (!plan::verifyPlan(whole, query.model).ok()) continue;
          const auto estimate = costs.estimate(whole);
          if (!estimate->fits()) continue;
          const auto [place, isNew] = fastest.try_emplace(
              fmt::format("tp {} pp {}{} dp {}", plan.tp, plan.pp,
                          plan.cp > 1 ? fmt::format(" cp {}", plan.cp) : "", plan.dp()),
              estimate->step);
          if (!isNew) place->second = std::min(place->second, estimate->step);
        }
      }
  return fastest;
}

// Where memory is short and computing takes time, so that it decides how many layers are
// recomputed.
Instance shortOfMemory(uint32_t seed) {
  Instance instance(seed);
  Query& query = instance.query();
  query.pins = {};
  auto& choices = query.stack.choices;
  for (const StackChoice choice :
       {StackChoice::kPipeline, StackChoice::kRecomputeFull, StackChoice::kRecomputeLayers})
    if (!query.stack.supports(choice)) choices.push_back(choice);
  query.cluster.device.memory = Bytes(1e15);
  query = computeBound(query);
  query.topK = std::vector<int32_t>{1, 3, 1000}[seed % 3];
  const auto found = searchPlan(query, modelCosts(query));
  if (found.has_value())
    query.cluster.device.memory = found->estimate.memory.total() * instance.uniform(0.2, 1);
  return instance;
}

// All that is shown, not the winner alone, and nothing is said to lack memory that fits.
TEST(RandomInstances, TheSearchShowsWhatEnumerationFindsWhereMemoryIsShort) {
  int feasible = 0, partly = 0, rejections = 0, beyond = 0;
  for (uint32_t seed = 0; seed < static_cast<uint32_t>(kInstances) / 4; ++seed) {
    const Instance instance = shortOfMemory(seed);
    const Query& query = instance.query();
    const std::map<std::string, Seconds> fastest = fastestOf(query);
    const auto found = searchPlan(query, modelCosts(query));
    ASSERT_EQ(found.has_value(), !fastest.empty()) << "seed " << seed;
    if (!found.has_value()) continue;
    ++feasible;
    std::vector<Seconds> expected;
    for (const auto& [degrees, step] : fastest) expected.push_back(step);
    std::sort(expected.begin(), expected.end());
    expected.resize(std::min(expected.size(), static_cast<size_t>(query.topK)));
    ASSERT_EQ(found->runnersUp.size() + 1, expected.size()) << "seed " << seed;
    bool isBeyond = false;  // one so far; those behind it move up
    for (size_t i = 0; i < expected.size(); ++i) {
      const bool isWinner = i == 0;
      const Seconds step = isWinner ? found->estimate.step : found->runnersUp[i - 1].estimate.step;
      isBeyond |= leavesSpace(isWinner ? found->plan : found->runnersUp[i - 1].plan);
      ASSERT_TRUE(isAsFast(step, expected[i]) || (isBeyond && step < expected[i]))
          << "seed " << seed << ", plan " << i << ": " << step / expected[i];
    }
    beyond += isBeyond;
    for (const Rejection& rejection : found->rejections) {
      if (rejection.rule != "memory") continue;
      ++rejections;
      ASSERT_FALSE(fastest.contains(rejection.subject)) << "seed " << seed;
    }
    partly += found->plan.recomputeLayers > 0;
  }
  std::printf("%d feasible instances, %d with some layers recomputed; %d rejections for memory\n",
              feasible, partly, rejections);
  EXPECT_LT(beyond, feasible / 20);
  EXPECT_GT(feasible, kInstances / 16);
  EXPECT_GE(partly, kInstances / 200);
  EXPECT_GT(rejections, kInstances / 40);
}

}  // namespace
}  // namespace trireme::planner
