#include "planner/space/block_costs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "cost_models/blocks.h"
#include "cost_models/body_cost.h"
#include "cost_models/collectives.h"
#include "cost_models/compute.h"
#include "cost_models/described_estimate.h"
#include "cost_models/described_memory.h"
#include "cost_models/pipeline.h"
#include "ir/program/workspace.h"
#include "ir/schedule/schedule.h"
#include "planner/rounding.h"
#include "planner/space/own_memory.h"
#include "planner/space/rank_orders.h"

namespace trireme::planner {
namespace {

using cost::Levels;
using program::GroupKind;

// One microbatch through first, inner and last stage; one stage if the plan has one.
plan::Plan probePlan(const spec::ModelSpec& model, const plan::Plan& like) {
  plan::Plan probe = like;
  probe.pp = like.pp == 1 ? 1 : std::min<int64_t>(3, model.numLayers);
  probe.dpReplicate = probe.dpShard = 1;
  probe.virtualStages = 1;
  const bool splits = plan::splitsBackward(like.schedule);
  probe.schedule = splits ? plan::ScheduleKind::kZeroBubbleH1 : plan::ScheduleKind::k1F1B;
  probe.stateSharding = plan::StateSharding::kNone;
  probe.scatterGather = false;
  probe.rankOrder = plan::RankOrder::kTpCpDpPp;
  probe.overlapReductions = like.overlapReductions && like.tp > 1;
  probe.training.globalBatchSize = probe.microbatchSize;
  probe.layers = plan::evenLayers(model.numLayers, probe.pp, 1);
  return probe;
}

// Rows of the state table: a layer's row holds one layer's elements, however many layers it stands
// for.
void addElements(const program::Role& role, int64_t tp, double& layer, double& other) {
  for (const program::Parameter& parameter : role.parameters) {
    const bool ofLayer = parameter.numLayers > 0;
    // With one stage the head reads the embedding's own table.
    if (parameter.copy && role.chunks.front().hasEmbedding) continue;
    (ofLayer ? layer : other) += static_cast<double>(parameter.localElements(tp));
  }
}

// Of one layer, each where the step puts it. Read off a role with layers.
LayerMatrices layerMatrices(const program::Role& role, int64_t tp) {
  LayerMatrices matrices;
  for (const program::Parameter& parameter : role.parameters) {
    if (parameter.numLayers == 0 || !role.buckets[static_cast<size_t>(parameter.bucket)].decay)
      continue;
    const int64_t aligned =
        program::roundUp(parameter.localElements(tp), LayerMatrices::kAlignment);
    (parameter.tpDim >= 0 ? matrices.split : matrices.whole) += aligned;
  }
  return matrices;
}

// Of an untied head, that the last backward may reduce.
double headMatrixElements(const program::Role& role, int64_t tp) {
  double elements = 0;
  for (const program::Parameter& parameter : role.parameters)
    if (role.buckets[static_cast<size_t>(parameter.bucket)].decay &&
        parameter.name == "head.weight")
      elements += static_cast<double>(parameter.localElements(tp));
  return elements;
}

Bytes bytesOf(int64_t n) { return Bytes(static_cast<double>(n)); }

Bytes scratchOf(const expand::ArenaUse& arena) { return bytesOf(arena.scratch + arena.workspace); }

// Activations of one slot: (layers + 2) borders, what every layer keeps, what the head keeps, ids.
void splitActivations(const expand::Expansion& expansion, BlockCosts& costs) {
  const program::Chunk& first = expansion.program.roles.front().chunks.front();
  const auto& training = expansion.program.training;
  const Bytes ids = bytesOf(2 * training.sequenceLength * training.microbatchSize * 4);
  const Bytes fixed = costs.border * 2 + ids + kAlignmentSlack;
  const Bytes firstStage = bytesOf(expansion.arenas.front().activations);
  const bool single = expansion.program.roles.size() == 1;
  // A lone stage also holds the head's part, which only makes this a larger share of the same sum.
  costs.layerActivations = std::max(firstStage - fixed, Bytes(0)) / first.numLayers;
  costs.chunkActivations = costs.border * 2;
  if (single) return;
  const program::Chunk& last = expansion.program.roles.back().chunks.front();
  costs.headActivations =
      std::max(bytesOf(expansion.arenas.back().activations) - fixed -
                   costs.layerActivations * last.numLayers - kAlignmentSlack * 2,
               Bytes(0));
}

// Weights, gradients and optimizer state, each divided by the ranks that share it.
Bytes sharedState(const Query& query, double elements, plan::StateSharding sharding,
                  int64_t shards) {
  const auto shared = [&](plan::StateSharding from) {
    return sharding >= from ? static_cast<double>(shards) : 1.0;
  };
  const auto compute = static_cast<double>(byteSize(spec::computeDType(query.training.precision)));
  const auto state = static_cast<double>(byteSize(spec::stateDType(query.training.precision)));
  double weights = compute / shared(plan::StateSharding::kParameters), gradients = state;
  double optimizer = query.stack.optimizerBytesPerParameter > 0
                         ? query.stack.optimizerBytesPerParameter
                         : 2 * state + (compute == state ? 0 : state);
  if (!query.stack.ownPrograms) {
    weights =
        cost::keptParameterBytes(query.stack.description, sharding, static_cast<double>(shards));
    gradients = query.stack.description.gradientBytes;
    optimizer = query.stack.description.optimizerBytes;
  }
  return Bytes(elements * (weights + gradients / shared(plan::StateSharding::kGradients) +
                           optimizer / shared(plan::StateSharding::kOptimizer)));
}

plan::StateSharding widestSharding(const spec::StackProfile& stack) {
  if (stack.supports(spec::StackChoice::kShardParameters)) return plan::StateSharding::kParameters;
  if (stack.supports(spec::StackChoice::kShardGradients)) return plan::StateSharding::kGradients;
  if (stack.supports(spec::StackChoice::kShardOptimizer)) return plan::StateSharding::kOptimizer;
  return plan::StateSharding::kNone;
}

cost::PassCost withoutWeights(const cost::BlockCost& block) {
  cost::PassCost backward = block.backward;
  backward += block.recomputed;
  backward -= block.weights;
  return backward;
}

PassTimes passTimes(const cost::BlockCost& block, const spec::StackDescription& stack) {
  cost::PassCost backward = block.backward;
  backward += block.recomputed;
  return {cost::passTime(block.forward, stack), cost::passTime(backward, stack)};
}

PassTimes deviceTimes(const cost::BlockCost& block) {
  return {block.forward.device(), block.backward.device() + block.recomputed.device()};
}

// Times whose sums over blocks are no more than the time of a stage that has them all. With a CPU
// beside the device blocks do not add up: a norm of their sums is less than the sum of their norms.
// Kernels alone add up, and so do layers alone, which are alike; what bounds more counts. Of full
// recomputation that may be of some layers only nothing is in them.
void setTimes(const cost::DescribedBlocks& blocks, const Query& query, const plan::Plan& plan,
              BlockCosts& costs) {
  const auto layers = static_cast<double>(query.model.numLayers);
  const PassTimes embedding = deviceTimes(blocks.embedding), head = deviceTimes(blocks.head);
  cost::BlockCost layer = blocks.layer;
  if (plan.recompute == plan::Recompute::kFull && mayRecomputeSome(query)) layer.recomputed = {};
  const PassTimes whole = passTimes(layer, query.stack.description);
  costs.layer = deviceTimes(layer);
  costs.splitLayer = {layer.forward.device(), withoutWeights(layer).device(),
                      layer.weights.device()};
  costs.embedding = embedding;
  costs.head = head;
  if (whole.total() * layers <= costs.layer.total() * layers + embedding.total() + head.total())
    return;
  const auto pass = [&](const cost::PassCost& cost) {
    return cost::passTime(cost, query.stack.description);
  };
  costs.layer = whole;
  costs.splitLayer = {pass(layer.forward), pass(withoutWeights(layer)), pass(layer.weights)};
  costs.embedding = costs.head = {};
}

// Of a layer, whatever the plans of the group share, in as many stages as they like: with nothing
// shared streams may be in f32, and with parameters what was gathered may be kept.
Bytes leastKept(const Query& query, plan::Plan plan) {
  plan.pp = 1;
  Bytes least(std::numeric_limits<double>::infinity());
  for (const auto sharding : {plan::StateSharding::kNone, plan::StateSharding::kOptimizer,
                              plan::StateSharding::kGradients, plan::StateSharding::kParameters}) {
    plan.stateSharding = sharding;
    least = std::min(least, cost::keptByLayer(query.model, plan, query.stack.description));
  }
  return least;
}

// Lower bounds: what sharding and pipelines add comes with the plan.
BlockCosts describedCosts(const Query& query, const plan::Plan& plan,
                          cost::DescribedBlocks blocks) {
  BlockCosts costs;
  setTimes(blocks, query, plan, costs);
  costs.layerElements = blocks.layer.parameters;
  costs.embeddingElements = blocks.embedding.parameters;
  costs.headElements = blocks.head.parameters;
  costs.layerActivations = leastKept(query, plan);
  costs.described = std::make_shared<const cost::DescribedBlocks>(std::move(blocks));
  return costs;
}

}  // namespace

BlockCosts withContextLinks(const Query& query, const plan::Plan& plan, const BlockCosts& blocks) {
  return describedCosts(query, plan,
                        cost::withContextLinks(*blocks.described, query.model, plan, query.cluster,
                                               query.stack.description));
}

Bytes stateBytes(const Query& query, double elements, const plan::Plan& plan) {
  return sharedState(query, elements, plan.stateSharding, plan.stateShards());
}

Bytes leastReserve(const Query& query, const plan::Plan& plan) {
  if (!query.stack.ownPrograms)
    return cost::leastDescribedReserve(plan.tp, plan.pp, plan.dp(), query.cluster,
                                       query.stack.description);
  return cost::leastReserve(plan, query.stack, query.cluster);
}

namespace {

// A rank with its share of the layers, of which one microbatch is alive.
Bytes leastMemory(const Query& query, const BlockCosts& blocks, int64_t pp,
                  plan::StateSharding sharding, int64_t shards, Bytes reserve) {
  const auto layers = static_cast<double>((query.model.numLayers + pp - 1) / pp);
  return (sharedState(query, blocks.layerElements * layers, sharding, shards) +
          blocks.layerActivations * layers + reserve) *
         kRounding;
}

}  // namespace

Bytes leastReserve(const Query& query, const Group& group) {
  plan::Plan plan = planOf(query, group);
  std::optional<Bytes> reserve;
  for (const plan::RankOrder order : allowedOrders(query, group)) {
    plan.rankOrder = order;
    const Bytes ofOrder = leastReserve(query, plan);
    reserve = reserve ? std::min(*reserve, ofOrder) : ofOrder;
  }
  return reserve.value_or(Bytes(0));
}

Bytes leastMemory(const Query& query, const Group& group, const BlockCosts& blocks, Bytes reserve) {
  return leastMemory(query, blocks, group.pp, widestSharding(query.stack), group.dp * group.cp,
                     reserve);
}

Bytes leastMemory(const Query& query, const Group& group, const BlockCosts& blocks) {
  return leastMemory(query, group, blocks, leastReserve(query, group));
}

Bytes leastMemoryBySample(const Query& query, const Group& group, const BlockCosts& ofSample,
                          Bytes reserve) {
  BlockCosts blocks;
  blocks.layerElements = ofSample.layerElements;
  blocks.layerActivations = std::max(ofSample.layerActivations - kAlignmentSlack, Bytes(0)) *
                            static_cast<double>(group.microbatchSize);
  return leastMemory(query, group, blocks, reserve);
}

Bytes leastMemory(const Query& query, const plan::Plan& plan, const BlockCosts& blocks) {
  return leastMemory(query, blocks, plan.pp, plan.stateSharding, plan.stateShards(),
                     leastReserve(query, plan));
}

namespace {

// Chunks of microbatches that are alive at once on a rank, at the fullest moment: peakTogether() of
// equal weights in closed form, for this is asked of every candidate; of a split backward before
// it.
double mostInFlight(const plan::Plan& plan, int64_t rank) {
  const int64_t m = plan.numMicrobatches(), p = plan.pp, v = plan.virtualStages;
  if (plan.schedule == plan::ScheduleKind::kGpipe || (v > 1 && m == p))
    return static_cast<double>(m * v);
  if (plan::splitsBackward(plan.schedule))  // those that wait for W keep less, or more
    return static_cast<double>(std::min(m, schedule::leadOf(plan.schedule, p, rank).forwards));
  if (v == 1) return static_cast<double>(std::min(m, p - rank));
  return static_cast<double>(std::min(m * v, 2 * (p - rank - 1) + (v - 1) * p + 1));
}

}  // namespace

namespace {

// Of one rank: what layers may take, and of a layer its state and what it keeps of a microbatch.
struct LayerRoom {
  Bytes free, state, kept;
};
LayerRoom layerRoomOf(const Query& query, const plan::Plan& plan, const BlockCosts& blocks) {
  const double padding = 1 + query.stack.description.fragmentation;
  return {query.cluster.device.memory - leastReserve(query, plan),
          stateBytes(query, blocks.layerElements, plan) * padding,
          blocks.layerActivations * padding};
}

}  // namespace

// Of n layers every chunk has (n - v + 1) / v at least. From the last stage on, which holds most.
bool mayHoldLayers(const Query& query, const plan::Plan& plan, const BlockCosts& blocks) {
  const auto [free, state, kept] = layerRoomOf(query, plan, blocks);
  const auto v = static_cast<double>(plan.virtualStages);
  auto left = static_cast<double>(query.model.numLayers);
  for (int64_t rank = plan.pp - 1; rank >= 0 && left > 0; --rank) {
    const Bytes alive = kept * (mostInFlight(plan, rank) / v);
    left -= std::max(std::floor((free + alive * (v - 1)) / (state + alive) / kRounding), 0.0);
  }
  return left <= 0;
}

// When the warm-up of a rank is over p microbatches of every chunk are alive, of the first one
// more, of the last one no more than what is left; or all of all chunks. One layer on every chunk,
// the others on the last one. An end of the model may have none, which leaves room for three at
// most.
bool mayHoldUnevenly(const Query& query, const plan::Plan& plan, const BlockCosts& blocks) {
  const auto [free, state, kept] = layerRoomOf(query, plan, blocks);
  const auto v = static_cast<double>(plan.virtualStages);
  auto left = static_cast<double>(query.model.numLayers);
  for (int64_t rank = plan.pp - 1; rank >= 0 && left > 0; --rank) {
    const int64_t ofLast = plan.numMicrobatches() == plan.pp
                               ? plan.pp
                               : std::min(2 * (plan.pp - rank - 1) + 1, plan.pp);
    const Bytes spare = free - state * v - kept * mostInFlight(plan, rank);
    const double more = spare / (state + kept * static_cast<double>(ofLast)) / kRounding;
    const double ofEnd = rank == 0 || rank + 1 == plan.pp ? 3 : 0;
    left -= std::max(std::floor(more) + v + ofEnd, 0.0);
  }
  return left <= 0;
}

std::vector<int64_t> innerBlocks(const Query& query, const cost::Ranks& ranks) {
  std::vector<int64_t> sizes;
  cost::Blocks blocks(ranks, query.cluster);
  for (size_t i = 0; i + 1 < query.cluster.tiers.size(); ++i) {
    sizes.push_back(std::min(blocks.next(), ranks.all));
    if (const auto& unlike = blocks.unlike())
      sizes.insert(sizes.end(), {unlike->unit, unlike->count, unlike->numLarger});
  }
  return sizes;
}

Result<BlockCosts> probeBlocks(const Query& query, const plan::Plan& like,
                               const BlockCosts* similar, graph::Graphs* graphs) {
  if (!query.stack.ownPrograms) {
    const spec::StackDescription& stack = query.stack.description;
    return describedCosts(
        query, like,
        similar != nullptr
            ? cost::withRecomputation(*similar->described, query.model, like, query.cluster, stack)
            : cost::describeBlocks(query.model, like, query.cluster, stack));
  }
  const plan::Plan probe = probePlan(query.model, like);
  expand::ExpandOptions options;
  options.tasks = false;
  options.innerBodies = false;
  options.graphs = graphs;
  TRIREME_ASSIGN_OR_RETURN(const expand::Expansion expansion,
                           expand::expand(query.model, probe, options));
  // The ranks lie as those of the plan do, whose tensor-parallel groups may leave their nodes.
  const cost::BodyWalker walker(expansion.program, like, query.cluster, query.stack);
  const program::Role& first = expansion.program.roles.front();
  const program::Role& last = expansion.program.roles.back();
  const auto walk = [&](const program::Role& role, int32_t body) {
    return walker.walk(role, role.bodies[static_cast<size_t>(body)]);
  };
  const cost::WalkedBody forward = walk(first, expand::forwardBody(0));
  const cost::WalkedBody backward = walk(first, expand::backwardBody(0));
  const double layers = first.chunks.front().numLayers;

  BlockCosts costs;
  costs.layer = {forward.repeated.total() / layers, backward.repeated.total() / layers};
  if (plan::splitsBackward(probe.schedule))
    costs.layer.weights = walk(first, expand::weightsBody(probe, 0)).repeated.total() / layers;
  costs.embedding = {forward.outside.total(), backward.outside.total()};
  addElements(first, probe.tp, costs.layerElements, costs.embeddingElements);
  costs.layerMatrices = layerMatrices(first, probe.tp);
  costs.headMatrixElements = headMatrixElements(last, probe.tp);
  if (probe.pp > 1) {
    costs.head = {walk(last, expand::forwardBody(0)).outside.total(),
                  walk(last, expand::backwardBody(0)).outside.total()};
    double counted = 0;
    addElements(last, probe.tp, counted, costs.headElements);
    for (const program::Parameter& parameter : last.parameters)
      if (parameter.copy)
        costs.tiedElements += static_cast<double>(parameter.localElements(probe.tp));
    costs.border = forward.outside.sentForward;
    costs.borderGather = cost::collectiveTime(spec::CollectiveKind::kAllGather, costs.border,
                                              walker.levels(GroupKind::kTp));
  }
  costs.firstBuckets = static_cast<int64_t>(first.buckets.size());
  costs.lastBuckets = static_cast<int64_t>(last.buckets.size());
  costs.squares = bytesOf(first.buffers[static_cast<size_t>(first.squares)].bytes());
  splitActivations(expansion, costs);
  costs.firstScratch = scratchOf(expansion.arenas.front());
  costs.lastScratch = scratchOf(expansion.arenas.back());
  if (probe.pp == 3) {
    costs.innerScratch = scratchOf(expansion.arenas[1]);
    costs.innerBuckets = static_cast<int64_t>(expansion.program.roles[1].buckets.size());
  }
  return costs;
}

cost::StageTimes stageTimesOf(const plan::Plan& plan, const BlockCosts& blocks, size_t rank) {
  const auto p = static_cast<size_t>(plan.pp), v = static_cast<size_t>(plan.virtualStages);
  const Seconds gather = plan.scatterGather ? blocks.borderGather : Seconds(0);
  cost::StageTimes times;
  times.forward.reserve(v);
  times.backward.reserve(v);
  for (size_t c = 0; c < v; ++c) {
    const auto layers = static_cast<double>(plan.layers[rank][c].count);
    const bool first = rank == 0 && c == 0, last = rank == p - 1 && c == v - 1;
    Seconds forward = blocks.layer.forward * layers, backward = blocks.layer.backward * layers;
    if (first) {
      forward += blocks.embedding.forward;
      backward += blocks.embedding.backward;
    } else {
      forward += gather;
    }
    if (last) {
      forward += blocks.head.forward;
      backward += blocks.head.backward;
    } else {
      backward += gather;
    }
    times.forward.push_back(forward);
    times.backward.push_back(backward);
    if (plan::splitsBackward(plan.schedule)) times.weights.push_back(blocks.layer.weights * layers);
  }
  return times;
}

cost::Pipeline pipelineOf(const Query& query, const plan::Plan& plan, const BlockCosts& blocks) {
  cost::Pipeline pipeline;
  pipeline.schedule = plan.schedule;
  pipeline.numMicrobatches = plan.numMicrobatches();
  pipeline.overlapTransfers = query.stack.overlapPipelineTransfers;
  pipeline.receivesIntoSlots = true;
  if (plan.pp == 1) return pipeline;
  const double parts = plan.scatterGather ? static_cast<double>(plan.tp) : 1.0;
  pipeline.hops = cost::stageHops(blocks.border / parts, plan, query.cluster);
  return pipeline;
}

namespace {

// Of inner ranks with as many layers in every chunk all but the activations in flight is the same.
bool isLikePrevious(const plan::Plan& plan, size_t rank) {
  if (rank < 2 || rank + 1 == plan.layers.size()) return false;
  return std::equal(plan.layers[rank].begin(), plan.layers[rank].end(),
                    plan.layers[rank - 1].begin(),
                    [](const auto& a, const auto& b) { return a.count == b.count; });
}

}  // namespace

PlanBound boundOf(const Query& query, const plan::Plan& plan, const BlockCosts& blocks) {
  if (blocks.described) {
    const spec::StackDescription& stack = query.stack.description;
    PlanBound bound;
    bound.memory =
        cost::describedMemory({*blocks.described, query.model, plan, query.cluster, stack})
            .total() *
        kRounding;
    if (bound.memory <= query.cluster.device.memory)  // of others nobody asks the time
      bound.time = cost::estimateFromBlocks(*blocks.described, query.model, plan, query.cluster,
                                            stack, cost::pipelineTime)
                       .step *
                   kRounding;
    return bound;
  }
  PlanBound bound;
  bound.memory = fullestMemory(query, plan, blocks) * kRounding;
  if (bound.memory > query.cluster.device.memory) return bound;
  cost::Pipeline pipeline = pipelineOf(query, plan, blocks);
  const StepLinks links = stepLinksOf(query, plan);
  cost::OnceTimes once;
  pipeline.stages.reserve(plan.layers.size());
  for (size_t rank = 0; rank < plan.layers.size(); ++rank) {
    if (isLikePrevious(plan, rank)) {
      pipeline.stages.push_back(pipeline.stages.back());
      continue;
    }
    StageBound stage = stageBoundOf(query, plan, blocks, rank, links);
    once = longest(once, stage.once);
    pipeline.stages.push_back(std::move(stage.times));
  }
  bound.time = (cost::pipelineTime(pipeline) + once.total()) * kRounding;
  return bound;
}

}  // namespace trireme::planner
