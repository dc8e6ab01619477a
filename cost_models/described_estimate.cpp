#include "cost_models/described_estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "cost_models/collectives.h"
#include "cost_models/compute.h"
#include "cost_models/described_memory.h"
#include "cost_models/formulas.h"
#include "cost_models/gemm.h"
#include "cost_models/interval.h"
#include "cost_models/play.h"

namespace trireme::cost {
namespace {

using spec::CollectiveKind;

// Where that is in every backward.
bool reducesEveryMicrobatch(const StageSetting& s) {
  if (s.plan.pp > 1) return false;
  switch (s.stack.replicaReduction) {
    case spec::ReplicaReduction::kPerStep:
      return false;
    case spec::ReplicaReduction::kOfShardsPerMicrobatch:
      return s.plan.stateSharding >= plan::StateSharding::kGradients;
    case spec::ReplicaReduction::kPerMicrobatch:
      return s.plan.stateSharding != plan::StateSharding::kOptimizer;
  }
  return false;
}

// Of parameters on a rank that are divided among `shards`: the exchange with replicas.
Seconds replicatedTime(const StageSetting& s, double parameters) {
  if (s.plan.stateSharding == plan::StateSharding::kNone)
    return collectiveTime(CollectiveKind::kAllReduce,
                          Bytes(s.stack.reducedGradientBytes * parameters), s.data);
  return collectiveTime(
      CollectiveKind::kAllReduce,
      Bytes(s.stack.reducedGradientBytes * parameters / asDouble(s.plan.stateShards())),
      s.replicas);
}

Seconds gatherTime(const StageSetting& s, double parameters, const Levels& levels) {
  return collectiveTime(CollectiveKind::kAllGather,
                        Bytes(s.stack.gatheredParameterBytes * parameters), levels);
}

Seconds scatterTime(const StageSetting& s, double parameters, const Levels& levels) {
  return collectiveTime(CollectiveKind::kReduceScatter,
                        Bytes(s.stack.reducedGradientBytes * parameters), levels);
}

// Whether the ranks that share state and those that hold the same part of it send over the same
// links.
bool shareLinks(const StageSetting& s) {
  return !s.shards.empty() && !s.replicas.empty() && s.shards.back().tier == s.replicas.back().tier;
}

// What recomputation hides may be as long as it is, and rounding shall not make it the faster one.
constexpr double kHidden = 1 - 1e-12;

// Of a layer, which a layer's communication hides behind.
Seconds backwardTime(const StageSetting& s, bool isRecomputed) {
  PassCost back = s.blocks.layer.backward;
  if (isRecomputed) back += s.blocks.layer.recomputed;
  return passTime(back, s.stack);
}

Seconds copyTime(const StageSetting& s, double parameters) {
  return Bytes(s.stack.parameterTraffic * parameters) /
         (s.cluster.device.memoryBandwidth * s.cluster.device.memoryEfficiency);
}

// Those of sharded parameters. Where one port of a node carries them, devices that have a share of
// all ports reach so much less.
Levels shardLevels(const StageSetting& s) {
  Levels levels = s.shards;
  if (s.stack.shardedPortEfficiency == 0) return levels;
  for (size_t k = 1; k < levels.size(); ++k) {
    if (levels[k].tier->devices <= s.cluster.devicesPerHost()) continue;  // no ports
    const auto tier = static_cast<size_t>(levels[k].tier - s.cluster.tiers.data());
    levels[k].link.bandwidth =
        levels[k].link.bandwidth * (s.stack.shardedPortEfficiency / s.cluster.portsPerHost(tier));
  }
  return levels;
}

// Communication of every backward, `share` of which is felt though all of it is hidden.
struct Exchange {
  Seconds time;
  double share = 0;
};

// What is felt of two beside one backward: one after the other, or side by side.
Seconds exposedTogether(const Exchange& a, const Exchange& b, bool inTurn, Seconds work) {
  const Seconds whole = inTurn ? a.time + b.time : std::max(a.time, b.time);
  return std::max(a.time * a.share + b.time * b.share, whole - work);
}

// In every pass: parameters are gathered for the forward and, if they did not stay, for the
// backward, and gradients leave the rank after it, as those alone do with ZeRO 2 and Megatron-FSDP
// (grad_reduce_every_bprop), which add up shards. Then replicas exchange what they have. What a
// layer's backward needs is beside that of the next layer; the first layer's parameters, the last
// one's gradients, the embedding and the head have no neighbour.
ShardedTraffic shardedTraffic(const StageSetting& s) {
  const bool isShared = s.plan.stateSharding == plan::StateSharding::kParameters;
  const bool isGathered =
      (isShared && !keepsWhole(s.plan, s.stack)) || gathersForPasses(s.plan, s.stack);
  const bool isReduced = isGathered || s.plan.stateSharding == plan::StateSharding::kGradients;
  const bool isReplicated = reducesEveryMicrobatch(s);
  const Levels levels = isGathered ? shardLevels(s) : s.shards;
  const auto gather = [&](const BlockCost& block) {
    return isGathered ? gatherTime(s, block.parameters, levels) : Seconds(0);
  };
  const auto reduce = [&](const BlockCost& block) {
    return isReduced ? scatterTime(s, block.parameters, levels) : Seconds(0);
  };
  const auto replicate = [&](const BlockCost& block) {
    return isReplicated ? replicatedTime(s, block.parameters) : Seconds(0);
  };
  const auto copy = [&](const BlockCost& block) {
    return isGathered ? copyTime(s, block.parameters) : Seconds(0);
  };
  const auto alone = [&](const BlockCost& block) {
    return gather(block) + reduce(block) + replicate(block);
  };
  const BlockCost& layer = s.blocks.layer;
  const Exchange shards{(isShared ? gather(layer) : Seconds(0)) + reduce(layer),
                        isGathered ? s.stack.gatherExposed : s.stack.gradientExposed};
  const Exchange replicas{replicate(layer), s.stack.gradientExposed};
  const auto felt = [&](bool isRecomputed) {
    return exposedTogether(shards, replicas, shareLinks(s), backwardTime(s, isRecomputed));
  };
  const bool isTied = s.model.tiedEmbeddings && s.plan.pp == 1;
  return {exposedTime(gather(layer), passTime(layer.forward, s.stack), s.stack.gatherExposed),
          felt(false) + copy(layer),
          alone(s.blocks.embedding) + alone(layer) + copy(s.blocks.embedding),
          isTied ? Seconds(0) : alone(s.blocks.head), (felt(false) - felt(true)) * kHidden};
}

// One chunk of a stage: what its passes cost, by kind.
struct ChunkCost {
  PassCost forward, backward, recomputed;
  PassCost weights;          // of a backward that is split, which is without them
  Seconds parameterTraffic;  // of sharded parameters, that nothing hides: forward and backward
};

struct StageDescription {
  std::vector<ChunkCost> chunks;
  double layers = 0, parameters = 0;
  StageTimes times;
};

// Layers of the chunk that are recomputed.
double recomputedLayers(const plan::Plan& plan, double layers) {
  if (plan.recompute == plan::Recompute::kFull && plan.recomputeLayers > 0)
    return std::min(layers, asDouble(plan.recomputeLayers));
  return layers;
}

// Of parameters before products, and of their gradients after.
Seconds castTime(const StageSetting& s, double parameters) {
  return Bytes(2 * (s.stack.parameterBytes + s.stack.autocastBytes) * parameters) /
         (s.cluster.device.memoryBandwidth * s.cluster.device.memoryEfficiency);
}

ChunkCost chunkCost(const StageSetting& s, double layers, bool first, bool last) {
  ChunkCost chunk;
  chunk.forward = s.blocks.layer.forward * layers;
  chunk.backward = s.blocks.layer.backward * layers;
  const double recomputed = recomputedLayers(s.plan, layers);
  chunk.recomputed = s.blocks.layer.recomputed * recomputed;
  chunk.parameterTraffic = (s.traffic.layerForward + s.traffic.layerBackward) * layers -
                           s.traffic.recomputedLess * recomputed;
  if (first) {
    chunk.forward += s.blocks.embedding.forward;
    chunk.backward += s.blocks.embedding.backward;
    chunk.parameterTraffic += s.traffic.embedding;
  }
  if (last) {
    chunk.forward += s.blocks.head.forward;
    chunk.backward += s.blocks.head.backward;
    chunk.parameterTraffic += s.traffic.head;
  }
  if (autocasts(s.plan, s.stack))
    chunk.backward.streams +=
        castTime(s, s.blocks.layer.parameters * layers + (last ? s.blocks.head.parameters : 0));
  if (!plan::splitsBackward(s.plan.schedule)) return chunk;
  chunk.weights = s.blocks.layer.weights * layers;
  chunk.backward -= chunk.weights;
  return chunk;
}

// A chunk like the one before it.
void repeatLast(StageDescription& stage) {
  stage.chunks.push_back(ChunkCost(stage.chunks.back()));
  for (std::vector<Seconds>* times :
       {&stage.times.forward, &stage.times.backward, &stage.times.weights})
    if (!times->empty()) times->push_back(Seconds(times->back()));
}

StageDescription describeStage(const StageSetting& s, size_t rank) {
  const size_t last = s.plan.layers.size() - 1;
  StageDescription stage;
  const std::vector<plan::LayerRange>& ranges = s.plan.layers[rank];
  stage.chunks.reserve(ranges.size());
  stage.times.forward.reserve(ranges.size());
  stage.times.backward.reserve(ranges.size());
  for (size_t c = 0; c < ranges.size(); ++c) {
    const double layers = asDouble(ranges[c].count);
    const bool isFirst = rank == 0 && c == 0, isLast = rank == last && c + 1 == ranges.size();
    stage.layers += layers;
    const bool isAfterFirst = rank == 0 && c == 1;
    if (c > 0 && !isAfterFirst && !isLast && ranges[c].count == ranges[c - 1].count) {
      repeatLast(stage);
      continue;
    }
    const ChunkCost chunk = chunkCost(s, layers, isFirst, isLast);
    PassCost backward = chunk.backward;
    backward += chunk.recomputed;
    stage.chunks.push_back(chunk);
    stage.times.forward.push_back(passTime(chunk.forward, s.stack) + s.stack.hostMicrobatch / 2);
    stage.times.backward.push_back(passTime(backward, s.stack) + chunk.parameterTraffic +
                                   s.stack.hostMicrobatch / 2);
    if (plan::splitsBackward(s.plan.schedule))
      stage.times.weights.push_back(passTime(chunk.weights, s.stack));
  }
  stage.parameters = parametersOfStage(s.blocks, s.model, s.plan, rank);
  return stage;
}

// Gradients that are reduced and parameters that are gathered once per step come in as many pieces
// as there are layers or, with virtual stages, chunks; the last one stands alone.
OncePerStep onceOf(const StageSetting& s, const StageDescription& stage, size_t rank) {
  const OnceParts parts = oncePartsOf(s, stage.parameters);
  const double pieces =
      s.plan.virtualStages > 1 ? asDouble(s.plan.virtualStages) : std::max(1.0, stage.layers);
  Seconds forward, backward;
  for (const Seconds time : stage.times.forward) forward += time;
  for (const auto* times : {&stage.times.backward, &stage.times.weights})
    for (const Seconds time : *times) backward += time;
  const bool goesOn = s.stack.postValidation && plan::splitsBackward(s.plan.schedule);
  OncePerStep once{{}, tiedTime(s, rank), parts.copies, parts.optimizer, !goesOn};
  once.gradients = parts.reduced.felt(backward, pieces);
  once.parameters = parts.gathered.felt(forward, pieces);
  return once;
}

Seconds communication(const PassCost& cost) { return cost.tensorParallel + cost.contextParallel; }

// The longer of what both do until the gradient norm is known, and after it.
void lengthen(OncePerStep& longest, const OncePerStep& stage) {
  if (!stage.waits) {
    if (stage.times().total() > longest.times().total()) longest = stage;
    return;
  }
  if (stage.times().reducing > longest.times().reducing) {
    longest.gradients = stage.gradients;
    longest.tied = stage.tied;
  }
  if (stage.times().updating > longest.times().updating) {
    longest.parameters = stage.parameters;
    longest.optimizer = stage.optimizer;
  }
}

// All microbatches on one stage; compute, with waiting for the CPU, is all elementwise.
Breakdown busyTime(const StageDescription& stage, const StageSetting& s) {
  const double microbatches = asDouble(s.plan.numMicrobatches());
  Breakdown busy;
  Seconds forwardCompute, backwardCompute;
  for (size_t c = 0; c < stage.chunks.size(); ++c) {
    const ChunkCost& chunk = stage.chunks[c];
    PassCost backward = chunk.backward;
    backward += chunk.recomputed;
    busy.tensorParallel += (chunk.forward.tensorParallel + backward.tensorParallel) * microbatches;
    busy.contextParallel +=
        (chunk.forward.contextParallel + backward.contextParallel) * microbatches;
    busy.dataParallel += chunk.parameterTraffic * microbatches;
    forwardCompute += (stage.times.forward[c] - communication(chunk.forward)) * microbatches;
    backwardCompute +=
        (stage.times.backward[c] - communication(backward) - chunk.parameterTraffic) * microbatches;
    if (!stage.times.weights.empty()) backwardCompute += stage.times.weights[c] * microbatches;
  }
  busy.elementwise = forwardCompute + backwardCompute;
  return busy;
}

// Waiting for the CPU counts where it is felt: what a pass takes beyond its kernels.
Breakdown::Kinds kindsOf(const StageDescription& stage, const StageSetting& s) {
  Breakdown::Kinds kinds;
  const auto addLaunching = [&](const PassCost& pass) {
    kinds.launching += passTime(pass, s.stack) - pass.device();
  };
  for (const ChunkCost& chunk : stage.chunks) {
    for (const PassCost& pass : {chunk.forward, chunk.backward, chunk.weights}) {
      kinds.products += pass.products;
      kinds.attention += pass.attention;
    }
    kinds.recomputation += chunk.recomputed.compute();
    PassCost backward = chunk.backward;
    backward += chunk.recomputed;
    for (const PassCost& pass : {chunk.forward, backward, chunk.weights}) addLaunching(pass);
    kinds.launching += s.stack.hostMicrobatch;
  }
  const double microbatches = asDouble(s.plan.numMicrobatches());
  for (Seconds* part : {&kinds.products, &kinds.attention, &kinds.recomputation, &kinds.launching})
    *part *= microbatches;
  return kinds;
}

double hostPace(const StageDescription& stage) {
  PassCost all;
  for (const ChunkCost& chunk : stage.chunks)
    for (const PassCost& pass : {chunk.forward, chunk.backward, chunk.recomputed, chunk.weights})
      all += pass;
  return all.host / all.device();
}

void fillTimes(const StageSetting& s, const std::vector<StageDescription>& stages,
               const FlushTime& flushTime, Estimate& result) {
  Pipeline pipeline;
  pipeline.schedule = s.plan.schedule;
  pipeline.numMicrobatches = s.plan.numMicrobatches();
  pipeline.overlapTransfers = false;
  pipeline.postValidation = s.stack.postValidation && plan::splitsBackward(s.plan.schedule);
  size_t busiest = 0;
  for (size_t i = 0; i < stages.size(); ++i) {
    pipeline.stages.push_back(stages[i].times);
    if (stages[i].times.total() > stages[busiest].times.total()) busiest = i;
  }
  const Seconds withoutTransfers = flushTime(pipeline);
  result.hops.assign(stages.size(), transferTime(s.model, s.plan, s.cluster, s.stack));
  pipeline.hops = result.hops;
  const Seconds flush = flushTime(pipeline);

  OncePerStep longest;
  for (size_t i = 0; i < stages.size(); ++i) lengthen(longest, onceOf(s, stages[i], i));
  Breakdown& b = result.breakdown;
  b = busyTime(stages[busiest], s);
  result.hostPace = hostPace(stages[busiest]);
  b.bubble = std::max(withoutTransfers - b.total(), Seconds(0));
  b.pipeline = flush - withoutTransfers;
  b.dataParallel += longest.gradients + longest.parameters;
  b.synchronisation = longest.tied;
  b.optimizer = longest.optimizer;
  b.synchronisation += b.total() * (stepFactor(s.plan, s.cluster, s.stack) - 1);
  result.step = b.total();
  b.divideCompute(kindsOf(stages[busiest], s));
}

}  // namespace

StageSetting::StageSetting(const DescribedBlocks& ofBlocks, const spec::ModelSpec& ofModel,
                           const plan::Plan& ofPlan, const spec::ClusterSpec& onCluster,
                           const spec::StackDescription& ofStack)
    : StageSetting(ofBlocks, ofModel, ofPlan, onCluster, ofStack, ranksOf(ofPlan, onCluster)) {}

StageSetting::StageSetting(const DescribedBlocks& ofBlocks, const spec::ModelSpec& ofModel,
                           const plan::Plan& ofPlan, const spec::ClusterSpec& onCluster,
                           const spec::StackDescription& ofStack, const Ranks& ranks)
    : blocks(ofBlocks),
      model(ofModel),
      plan(ofPlan),
      cluster(onCluster),
      stack(ofStack),
      data(levelsOf(dataGroup(plan), ranks, cluster)),
      shards(levelsOf(shardGroup(plan), ranks, cluster)),
      replicas(levelsOf(replicaGroup(plan), ranks, cluster)),
      embedding(model.tiedEmbeddings && plan.pp > 1 ? levelsOf(embeddingGroup(plan), ranks, cluster)
                                                    : Levels()),
      traffic(shardedTraffic(*this)) {}

Bytes StageSetting::reserve() const {
  if (!reserve_) reserve_ = describedReserve(plan, cluster, stack);
  return *reserve_;
}

StageEstimate estimateStage(const StageSetting& s, size_t rank) {
  StageDescription stage = describeStage(s, rank);
  const OncePerStep once = onceOf(s, stage, rank);
  StageEstimate result{std::move(stage.times), {}, once};
  result.communication.forward.reserve(stage.chunks.size());
  result.communication.backward.reserve(stage.chunks.size());
  for (const ChunkCost& chunk : stage.chunks) {
    PassCost backward = chunk.backward;
    backward += chunk.recomputed;
    result.communication.forward.push_back(communication(chunk.forward));
    result.communication.backward.push_back(communication(backward));
  }
  return result;
}

Seconds OnceParts::Communication::felt(Seconds ofMicrobatch, double pieces) const {
  return share >= 1 ? time
                    : std::min(time, exposedTime(time, ofMicrobatch * microbatches, share) +
                                         time / pieces);
}

Seconds tiedTime(const StageSetting& s, size_t stage) {
  if (s.embedding.empty() || (stage > 0 && stage + 1 < s.plan.layers.size())) return {};
  const double table =
      asDouble(plan::paddedVocab(s.plan, s.model) / s.plan.tp) * asDouble(s.model.hiddenSize);
  return collectiveTime(CollectiveKind::kAllReduce, Bytes(s.stack.reducedGradientBytes * table),
                        s.embedding);
}

namespace {

// That communication of all chunks is beside.
double microbatchesBeside(const plan::Plan& plan) {
  const double stages = asDouble(plan.pp), chunks = asDouble(plan.virtualStages);
  return std::max(1.0, stages * (chunks - 1) / chunks);
}

}  // namespace

OnceParts oncePartsOf(const StageSetting& s, double parameters) {
  const plan::Plan& plan = s.plan;
  const double shards = asDouble(plan.stateShards());
  OnceParts parts;
  parts.optimizer =
      streamTime(Bytes(parameters / shards * s.stack.optimizerTraffic), s.cluster.device) +
      s.stack.hostStep;
  const double beside = microbatchesBeside(plan);
  parts.reduced = {{}, s.stack.gradientExposed, beside};
  parts.gathered = {{}, s.stack.gatherExposed, beside};
  if (!reducesEveryMicrobatch(s)) parts.reduced.time = replicatedTime(s, parameters);
  if (plan.stateSharding == plan::StateSharding::kNone) return parts;
  if (plan.stateSharding == plan::StateSharding::kParameters && !keepsWhole(plan, s.stack))
    return parts;
  if (gathersForPasses(plan, s.stack)) return parts;
  if (plan.stateSharding != plan::StateSharding::kGradients)  // else in every backward
    parts.reduced.time += scatterTime(s, parameters, s.shards);
  parts.gathered.time = gatherTime(s, parameters, s.shards);
  if (keepsWhole(plan, s.stack))
    parts.copies = streamTime(Bytes(s.stack.parameterTraffic * parameters), s.cluster.device);
  return parts;
}

namespace {

// What transfers add to a pass of the rank that waits longest for them. Interleaved, every pass
// sends to the next stage and receives from the one before. Otherwise a rank exchanges with the
// next stage after its forward and with the one before after its backward, and the first and the
// last have one of the two: of both passes the mean.
Seconds stopAtBorders(Bytes message, Seconds behind, const plan::Plan& plan,
                      const spec::ClusterSpec& cluster) {
  if (plan.virtualStages > 1) return sendTime(message, stageLink(plan, cluster)) + behind;
  std::vector<Seconds> hops = stageHops(message, plan, cluster);
  hops.back() = Seconds(0);
  Seconds longest, before;
  for (const Seconds hop : hops) {
    const Seconds next = hop > Seconds(0) ? hop + behind : hop;
    longest = std::max(longest, before + next);
    before = next;
  }
  return longest / 2;
}

}  // namespace

Seconds transferTime(const spec::ModelSpec& model, const plan::Plan& plan,
                     const spec::ClusterSpec& cluster, const spec::StackDescription& stack) {
  if (plan.pp == 1) return {};
  const double element = asDouble(byteSize(spec::computeDType(plan.training.precision)));
  const Bytes border(element * asDouble(plan.microbatchSize * plan.training.sequenceLength /
                                        plan.cp * model.hiddenSize));
  const bool divided = plan.sequenceParallel || plan.scatterGather;
  const Seconds gather =
      plan.scatterGather
          ? collectiveTime(CollectiveKind::kAllGather, border,
                           levelsOf(tensorGroup(plan), ranksOf(plan, cluster), cluster))
          : Seconds(0);
  const Seconds time =
      stopAtBorders(divided ? border / asDouble(plan.tp) : border, gather, plan, cluster);
  const bool isHidden = plan.virtualStages > 1 || !stack.hidesBetweenChunks;
  return time * (isHidden ? stack.transferExposed : 1) + stack.transferSync;
}

double stepFactor(const plan::Plan& plan, const spec::ClusterSpec& cluster,
                  const spec::StackDescription& stack) {
  const int64_t host = cluster.devicesPerHost(), block = cluster.tiers.front().devices;
  const Ranks ranks = ranksOf(plan, cluster);
  const bool fillsPart = host >= block && ranks.perHost > 0 && ranks.perHost < host;
  const double nodes =
      asDouble(ranks.all) / asDouble(fillsPart ? ranks.perHost : std::max(block, host));
  return 1 + stack.slowdownPerDoubling * std::log2(std::max(1.0, nodes));
}

namespace {

void setApartCommunication(const StageTimes& communication, PathItem& item) {
  if (item.direction == program::Direction::kWeights) return;
  const auto chunk = static_cast<size_t>(item.chunk);
  const bool isForward = item.direction == program::Direction::kForward;
  Seconds& tensor = item.reduce[static_cast<size_t>(program::GroupKind::kTp)];
  tensor = isForward ? communication.forward[chunk] : communication.backward[chunk];
  item.compute -= tensor;
}

PathItem stepItem(size_t stage, Seconds begin, Seconds end) {
  PathItem item;
  item.stage = static_cast<int32_t>(stage);
  item.direction = program::Direction::kStep;
  item.begin = begin;
  item.end = end;
  return item;
}

// What stages do after the flush: until the gradient norm is known of all, and after it, with what
// large clusters lose in all of the step.
class StepItems {
 public:
  StepItems(const std::vector<OncePerStep>& once, Seconds flush, double factor)
      : once_(once), flush_(flush), factor_(factor), norm_(flush) {
    for (const OncePerStep& stage : once) norm_ = std::max(norm_, flush + stage.reducing());
  }
  PathItem reduction(size_t stage) const {
    const OncePerStep& once = once_[stage];
    PathItem item = stepItem(stage, flush_, flush_ + once.reducing());
    item.reduce[static_cast<size_t>(program::GroupKind::kDp)] = once.gradients;
    item.reduce[static_cast<size_t>(program::GroupKind::kEmbedding)] = once.tied;
    return item;
  }
  PathItem update(size_t stage) const {
    const OncePerStep& once = once_[stage];
    const Seconds begin = once.waits ? norm_ : flush_ + once.reducing();
    PathItem item = stepItem(stage, begin, (begin + once.updating()) * factor_);
    item.gather[static_cast<size_t>(program::GroupKind::kDp)] = once.parameters;
    item.compute = once.optimizer;
    item.reduce[static_cast<size_t>(program::GroupKind::kWorld)] =
        item.end - begin - once.updating();
    return item;
  }
  // Of the stages for which it takes longest.
  std::array<PathItem, 2> longest() const {
    size_t reduction = 0, update = 0;
    for (size_t stage = 1; stage < once_.size(); ++stage) {
      if (once_[stage].reducing() > once_[reduction].reducing()) reduction = stage;
      if (once_[stage].updating() > once_[update].updating()) update = stage;
    }
    if (!once_.front().waits) reduction = update = longestInAll();
    return {this->reduction(reduction), this->update(update)};
  }

 private:
  size_t longestInAll() const {
    const auto longest = std::max_element(once_.begin(), once_.end(), [](auto& a, auto& b) {
      return a.times().total() < b.times().total();
    });
    return static_cast<size_t>(longest - once_.begin());
  }

  const std::vector<OncePerStep>& once_;
  const Seconds flush_;
  const double factor_;
  Seconds norm_;
};

}  // namespace

Simulation simulateDescribed(const StageSetting& s, bool keepsTasks) {
  Pipeline pipeline;
  pipeline.schedule = s.plan.schedule;
  pipeline.numMicrobatches = s.plan.numMicrobatches();
  pipeline.overlapTransfers = false;
  pipeline.hops.assign(s.plan.layers.size(), transferTime(s.model, s.plan, s.cluster, s.stack));
  std::vector<StageTimes> communication;
  std::vector<OncePerStep> once;
  for (size_t rank = 0; rank < s.plan.layers.size(); ++rank) {
    StageEstimate stage = estimateStage(s, rank);
    pipeline.stages.push_back(std::move(stage.times));
    communication.push_back(std::move(stage.communication));
    once.push_back(stage.once);
  }
  Simulation result = play(pipeline, keepsTasks);
  const auto divide = [&](PathItem& item) {
    setApartCommunication(communication[static_cast<size_t>(item.stage)], item);
  };
  std::for_each(result.path.begin(), result.path.end(), divide);
  const StepItems step(once, result.makespan, stepFactor(s.plan, s.cluster, s.stack));
  for (size_t rank = 0; rank < result.tasks.size(); ++rank) {
    std::for_each(result.tasks[rank].begin(), result.tasks[rank].end(), divide);
    result.tasks[rank].push_back(step.reduction(rank));
    result.tasks[rank].push_back(step.update(rank));
  }
  for (const PathItem& item : step.longest()) result.path.push_back(item);
  result.makespan = result.path.back().end;
  return result;
}

Estimate estimateFromBlocks(const DescribedBlocks& blocks, const spec::ModelSpec& model,
                            const plan::Plan& plan, const spec::ClusterSpec& cluster,
                            const spec::StackDescription& stack, const FlushTime& flush) {
  const StageSetting s(blocks, model, plan, cluster, stack);
  std::vector<StageDescription> stages;
  for (size_t rank = 0; rank < plan.layers.size(); ++rank) stages.push_back(describeStage(s, rank));
  Estimate result;
  fillTimes(s, stages, flush, result);
  result.memory = describedMemory(s);
  result.memoryAvailable = cluster.device.memory;
  result.headroom = cluster.device.headroom;
  result.memoryDoubt = stack.memoryDoubt;
  fillRates(model, plan, cluster, result);
  result.interval = intervalOf(result, plan.tp, stack);
  if (result.interval)
    result.interval->isOfOtherDevices =
        !cluster.device.caution.empty() || !stack.isComparedOn(cluster.device.name);
  return result;
}

Result<Estimate> estimateDescribed(const spec::ModelSpec& model, const plan::Plan& plan,
                                   const spec::ClusterSpec& cluster,
                                   const spec::StackDescription& stack, const FlushTime& flush) {
  TRIREME_RETURN_IF_ERROR(plan::verifyPlan(plan, model));
  TRIREME_RETURN_IF_ERROR(checkCluster(cluster, plan.training));
  if (plan.numRanks() > cluster.numDevices)
    return Error(invalidArgument(fmt::format("the plan needs {} devices, cluster {} has {}",
                                             plan.numRanks(), cluster.name, cluster.numDevices)));
  return estimateFromBlocks(describeBlocks(model, plan, cluster, stack), model, plan, cluster,
                            stack, flush);
}

}  // namespace trireme::cost
