#include "cost_models/described_memory.h"

#include <algorithm>

#include "cost_models/formulas.h"
#include "cost_models/in_flight.h"
#include "cost_models/topology.h"
#include "ir/plan/sharding.h"
#include "ir/program/gpu_memory.h"

namespace trireme::cost {
namespace {

double elementBytes(const plan::Plan& plan) {
  return asDouble(byteSize(spec::computeDType(plan.training.precision)));
}

double tokensOf(const plan::Plan& plan) {
  return asDouble(plan.microbatchSize * plan.training.sequenceLength) / asDouble(plan.cp);
}

// One residual stream.
double borderBytes(const spec::ModelSpec& model, const plan::Plan& plan) {
  const double shared = plan.sequenceParallel ? asDouble(plan.tp) : 1;
  return tokensOf(plan) * asDouble(model.hiddenSize) * elementBytes(plan) / shared;
}

// The same as norms read it, and as it is kept.
double streamBytes(const spec::ModelSpec& model, const plan::Plan& plan,
                   const spec::StackDescription& stack) {
  const double border = borderBytes(model, plan);
  return autocasts(plan, stack) ? border * (4 / elementBytes(plan)) : border;
}

double scoreBytes(const spec::ModelSpec& model, const plan::Plan& plan) {
  const double e = elementBytes(plan);
  const double perScore = plan.training.attentionDropout > 0 ? 2 * e + 1 : e;
  return tokensOf(plan) * asDouble(plan.training.sequenceLength) * asDouble(model.numHeads) /
         asDouble(plan.tp) * perScore;
}

// What single operators keep of a layer beside what fused ones do.
double eagerBytes(const spec::ModelSpec& m, const plan::Plan& plan,
                  const spec::StackDescription& stack) {
  constexpr double kF32 = 4;
  double bytes = 0;
  if (stack.eagerLayers) {
    const double repeated = 2 * asDouble((m.numHeads - m.numKvHeads) * m.headSize);
    const double factor = m.activation == spec::ActivationKind::kSwiGlu ? asDouble(m.ffnSize) : 0.0;
    bytes += tokensOf(plan) * (repeated + factor) * elementBytes(plan) / asDouble(plan.tp);
  }
  // A stream in f32 is kept itself.
  if (stack.eagerNorms && m.norm == spec::NormKind::kRmsNorm && elementBytes(plan) < kF32 &&
      !autocasts(plan, stack))
    bytes += 2 * borderBytes(m, plan) * (kF32 / elementBytes(plan));
  return bytes;
}

bool gathersInF8(const plan::Plan& plan, const spec::StackDescription& stack) {
  return spec::linearFormat(plan.training) == MathFormat::kF8 && stack.gathersF8Activations;
}

bool keepsNarrow(const plan::Plan& plan, const spec::StackDescription& stack) {
  return stack.keepsNarrow && spec::linearFormat(plan.training) == MathFormat::kF8;
}

// Results of the two norms, which the products behind them read.
double normedBytes(const spec::ModelSpec& m, const plan::Plan& plan,
                   const spec::StackDescription& stack) {
  const bool isWhole = stack.keepsGatheredInputs && plan.sequenceParallel;
  const bool isF8 = isWhole ? gathersInF8(plan, stack) : keepsNarrow(plan, stack);
  return 2 * borderBytes(m, plan) * (isWhole ? asDouble(plan.tp) : 1) /
         (isF8 ? elementBytes(plan) : 1);
}

// The gathered weights of its products, unless they are there anyway.
double gatheredWeights(const spec::ModelSpec& m, const plan::Plan& plan,
                       const spec::StackDescription& stack) {
  if (!stack.keepsGatheredWeights || keepsWhole(plan, stack) ||
      plan.stateSharding != plan::StateSharding::kParameters)
    return 0;
  const double queries = asDouble(m.numHeads * m.headSize);
  const double kv = asDouble(m.numKvHeads * m.headSize);
  const double inner = m.activation == spec::ActivationKind::kSwiGlu ? 3 : 2;
  return (2 * queries + 2 * kv + inner * asDouble(m.ffnSize)) * asDouble(m.hiddenSize) /
         asDouble(plan.tp) * stack.gatheredParameterBytes;
}

// A layer in full, without recomputation.
double layerBytes(const spec::ModelSpec& m, const plan::Plan& plan,
                  const spec::StackDescription& stack, bool keepsScores) {
  const double e = elementBytes(plan), t = asDouble(plan.tp), tokens = tokensOf(plan);
  const double heads = asDouble(m.numHeads * m.headSize);
  const double kv = asDouble(m.numKvHeads * m.headSize);
  const bool gated = m.activation == spec::ActivationKind::kSwiGlu;
  const double widths = heads + 2 * kv + heads + (gated ? 3 : 2) * asDouble(m.ffnSize);
  const double masks = plan.training.residualDropout > 0 ? 2 / e : 0;
  double bytes = tokens * widths * e / t + masks * borderBytes(m, plan) +
                 normedBytes(m, plan, stack) + 2 * streamBytes(m, plan, stack);
  // Inputs of the two other products; that of the output's is kept by attention as well.
  if (keepsNarrow(plan, stack))
    bytes += tokens * heads / t - tokens * asDouble(m.ffnSize) * (e - 1) / t;
  if (keepsScores && !spec::isFlash(stack.attention)) bytes += scoreBytes(m, plan);
  return bytes + eagerBytes(m, plan, stack);
}

// What a layer keeps with selective recomputation by operators: its input, queries, values, the
// result of attention and every second product, gate and down.
double perOperatorBytes(const spec::ModelSpec& m, const plan::Plan& plan,
                        const spec::StackDescription& stack) {
  const double heads = asDouble(m.numHeads * m.headSize);
  const double kv = asDouble(m.numKvHeads * m.headSize);
  return borderBytes(m, plan) + streamBytes(m, plan, stack) +
         tokensOf(plan) * (2 * heads + kv + asDouble(m.ffnSize)) * elementBytes(plan) /
             asDouble(plan.tp);
}

// Layers of a chunk that keep only their input.
int64_t recomputedLayers(const plan::Plan& plan, size_t stage, size_t chunk) {
  if (plan.recompute != plan::Recompute::kFull) return 0;
  const int64_t count = plan.layers[stage][chunk].count;
  return plan.recomputeLayers > 0 ? std::min(count, plan.recomputeLayers) : count;
}

// Activations of a layer that is not recomputed in full.
double activationsKept(const spec::ModelSpec& model, const plan::Plan& plan,
                       const spec::StackDescription& stack) {
  if (plan.recompute != plan::Recompute::kSelective) return layerBytes(model, plan, stack, true);
  switch (stack.selective) {
    case spec::SelectiveRecompute::kAttention:
      return layerBytes(model, plan, stack, false);
    case spec::SelectiveRecompute::kEveryOther:
      return (layerBytes(model, plan, stack, true) + streamBytes(model, plan, stack)) / 2;
    case spec::SelectiveRecompute::kPerOperator:
      return perOperatorBytes(model, plan, stack);
  }
  return 0;
}

double layerKept(const spec::ModelSpec& model, const plan::Plan& plan,
                 const spec::StackDescription& stack) {
  const bool isHalf = plan.recompute == plan::Recompute::kSelective &&
                      stack.selective == spec::SelectiveRecompute::kEveryOther;
  return activationsKept(model, plan, stack) +
         gatheredWeights(model, plan, stack) / (isHalf ? 2 : 1);
}

// Of each chunk, by one microbatch.
std::vector<double> keptByChunks(const spec::ModelSpec& model, const plan::Plan& plan,
                                 const spec::StackDescription& stack, size_t stage) {
  const double kept = layerKept(model, plan, stack), border = streamBytes(model, plan, stack);
  std::vector<double> bytes;
  bytes.reserve(plan.layers[stage].size());
  for (size_t c = 0; c < plan.layers[stage].size(); ++c) {
    const double inputs = asDouble(recomputedLayers(plan, stage, c));
    bytes.push_back((asDouble(plan.layers[stage][c].count) - inputs) * kept + inputs * border);
  }
  return bytes;
}

// Of all microbatches in flight, most at once.
double inFlight(const spec::ModelSpec& model, const plan::Plan& plan, size_t stage,
                const std::vector<double>& kept) {
  const auto rank = static_cast<int64_t>(stage);
  const int64_t microbatches = plan.numMicrobatches();
  if (!plan::splitsBackward(plan.schedule))
    return peakTogether(plan.schedule, plan.pp, plan.virtualStages, microbatches, rank, kept);
  const double layers = asDouble(plan.layers[stage].front().count);
  return peakOfSplit(plan.schedule, plan.pp, microbatches, rank, kept.front(),
                     keptForWeights(model, plan).count() * layers);
}

// Of a fused kernel nothing does: its inputs and its result are kept anyway.
bool recomputesActivations(const plan::Plan& plan, const spec::StackDescription& stack) {
  if (plan.recompute != plan::Recompute::kSelective)
    return plan.recompute != plan::Recompute::kNone;
  return stack.selective != spec::SelectiveRecompute::kAttention || !spec::isFlash(stack.attention);
}

// Whole tensors of the residual stream that a layer's products read or make, on ranks that keep
// parts of them: one gathered and one to be reduced, or a buffer for every collective. Where
// DTensor gathers, queries, keys and values, or gate and up, are products of their own: two to be
// reduced.
double gatheredBytes(const spec::ModelSpec& model, const plan::Plan& plan,
                     const spec::ClusterSpec& cluster, const spec::StackDescription& stack) {
  if (!plan.sequenceParallel) return 0;
  const double whole = borderBytes(model, plan) * asDouble(plan.tp);
  if (!stack.keepsLayerBuffers || !hidesTensors(plan, cluster))
    return (stack.keepsGatheredInputs ? 3 : 2) * whole;
  return (6 / (gathersInF8(plan, stack) ? elementBytes(plan) : 1) + 4) * whole;
}

// Of the first chunk and the last one, which need the loader's tensors.
double maskBytes(const plan::Plan& plan, const spec::StackDescription& stack, size_t stage) {
  const double length = asDouble(plan.training.sequenceLength);
  const double mask = length * length * asDouble(plan.microbatchSize);
  const bool isFirst = stage == 0, isLast = stage + 1 == plan.layers.size();
  if (!isFirst && !isLast) return 0;
  const double toCut = plan.cp > 1 ? mask : 0, part = mask / asDouble(plan.cp);
  const bool isArgument = plan.recompute == plan::Recompute::kFull ||
                          (plan.recompute == plan::Recompute::kSelective &&
                           stack.selective == spec::SelectiveRecompute::kAttention);
  if (!isArgument) return toCut + part;
  const std::vector<int64_t> alive = peakSlots(plan.schedule, plan.pp, plan.virtualStages,
                                               plan.numMicrobatches(), static_cast<int64_t>(stage));
  return toCut + part * asDouble(isFirst ? alive.front() : alive.back());
}

// Beside what microbatches in flight keep.
double workingBytes(const StageSetting& setting, size_t stage) {
  const DescribedBlocks& blocks = setting.blocks;
  const spec::ModelSpec& model = setting.model;
  const plan::Plan& plan = setting.plan;
  const spec::StackDescription& stack = setting.stack;
  double beside = stack.workingLayers;
  if (recomputesActivations(plan, stack)) beside = std::max(beside, 1.0);
  double bytes = beside * layerBytes(model, plan, stack, true);
  bytes += gatheredBytes(model, plan, setting.cluster, stack);
  if (stack.loaderMasks) bytes += maskBytes(plan, stack, stage);
  if (stage + 1 == plan.layers.size())
    bytes += tokensOf(plan) * asDouble(plan::paddedVocab(plan, model)) / asDouble(plan.tp) *
             (stack.logitBytes > 0 ? stack.logitBytes : elementBytes(plan) + 2 * 4);
  if (keepsWhole(plan, stack))
    bytes += parametersOfStage(blocks, model, plan, stage) *
             (stack.gatheredParameterBytes + stack.reducedGradientBytes);
  else if (plan.stateSharding == plan::StateSharding::kParameters)
    bytes += 2 * blocks.layer.parameters * stack.gatheredParameterBytes +
             blocks.embedding.parameters * stack.gatheredParameterBytes +
             blocks.layer.parameters * stack.reducedGradientBytes;
  else if (gathersForPasses(plan, stack))
    bytes += blocks.layer.parameters * stack.reducedGradientBytes;
  return bytes;
}

}  // namespace

bool keepsWhole(const plan::Plan& plan, const spec::StackDescription& stack) {
  return stack.pipelineKeepsWhole && plan.pp > 1 &&
         plan.stateSharding == plan::StateSharding::kParameters;
}

bool gathersForPasses(const plan::Plan& plan, const spec::StackDescription& stack) {
  return plan.stateSharding == plan::StateSharding::kGradients && stack.parameterTraffic > 0;
}

double keptParameterBytes(const spec::StackDescription& stack, plan::StateSharding sharding,
                          double shards) {
  const double shared = stack.parameterBytes / shards;
  if (sharding == plan::StateSharding::kParameters) return shared;
  if (sharding == plan::StateSharding::kGradients && stack.parameterTraffic > 0)
    return shared + stack.gatheredParameterBytes;
  return stack.parameterBytes;
}

bool autocasts(const plan::Plan& plan, const spec::StackDescription& stack) {
  return stack.autocastBytes > 0 && plan.stateSharding == plan::StateSharding::kNone &&
         plan.tp * plan.pp == 1 && elementBytes(plan) < 4;
}

double bucketBytes(const plan::Plan& plan, const spec::StackDescription& stack) {
  const bool isAlone = groupSize(dataGroup(plan)) == 1;
  return plan.stateSharding == plan::StateSharding::kNone && !isAlone ? stack.bucketBytes : 0;
}

double f8CopyBytes(const plan::Plan& plan, const spec::StackDescription& stack) {
  if (spec::linearFormat(plan.training) != MathFormat::kF8) return 0;
  // One rank has nothing to share, and the software keeps parameters as it would among several.
  const bool isShared =
      plan.stateSharding != plan::StateSharding::kNone || groupSize(dataGroup(plan)) == 1;
  return stack.gathersF8 && isShared ? 0 : stack.f8CopyBytes;
}

Bytes workingMemory(const StageSetting& s, size_t stage) { return Bytes(workingBytes(s, stage)); }

Bytes stepGradients(const StageSetting& s, double parameters) {
  const bool isShared = s.plan.stateSharding != plan::StateSharding::kNone;
  const double shards = isShared ? asDouble(s.plan.stateShards()) : 1;
  const Bytes all(s.stack.stepGradientBytes * parameters / shards),
      most = s.stack.stepGradientsAtOnce;
  const bool inGroups = s.plan.stateSharding == plan::StateSharding::kParameters && most > Bytes(0);
  return inGroups ? std::min(all, most) : all;
}

double parametersOfStage(const DescribedBlocks& blocks, const spec::ModelSpec& model,
                         const plan::Plan& plan, size_t stage) {
  double parameters = 0;
  for (const plan::LayerRange& range : plan.layers[stage])
    parameters += blocks.layer.parameters * asDouble(range.count);
  const bool first = stage == 0, last = stage + 1 == plan.layers.size();
  if (first) parameters += blocks.embedding.parameters;
  if (last) parameters += blocks.head.parameters;
  if (first && last && model.tiedEmbeddings)
    parameters -= asDouble(plan::paddedVocab(plan, model) / plan.tp * model.hiddenSize);
  return parameters;
}

Bytes keptByLayer(const spec::ModelSpec& model, const plan::Plan& plan,
                  const spec::StackDescription& stack) {
  if (plan.recompute == plan::Recompute::kFull) return Bytes(streamBytes(model, plan, stack));
  return Bytes(layerKept(model, plan, stack));
}

Bytes keptForWeights(const spec::ModelSpec& m, const plan::Plan& plan) {
  const double heads = asDouble(m.numHeads * m.headSize);
  const double kv = asDouble(m.numKvHeads * m.headSize);
  const double ups = m.activation == spec::ActivationKind::kSwiGlu ? 2 : 1;
  const double widths = 2 * heads + 2 * kv + (1 + ups) * asDouble(m.ffnSize);
  return Bytes(4 * borderBytes(m, plan) +
               tokensOf(plan) * widths * elementBytes(plan) / asDouble(plan.tp));
}

Bytes describedReserve(const plan::Plan& plan, const spec::ClusterSpec& cluster,
                       const spec::StackDescription& stack) {
  using program::Lane;
  if (cluster.device.kind != spec::DeviceKind::kCuda) return {};
  if (stack.ncclConnection.count() == 0) return stack.reserve;
  double connections = 0;
  const auto add = [&](const GroupShape& group, Lane lane, double times) {
    if (groupSize(group) == 1) return;
    const spec::LinkTier& tier = innermostTierOf(group, ranksOf(plan, cluster), cluster);
    connections += times * program::ncclConnections(lane, program::channelsOver(tier.bandwidth));
  };
  add(tensorGroup(plan), Lane::kCollectives, 1);
  add(contextGroup(plan), Lane::kCollectives, 1);
  const bool isPart = plan.stateSharding != plan::StateSharding::kNone && plan.dpReplicate > 1;
  add(isPart ? shardGroup(plan) : dataGroup(plan), Lane::kCollectives, 1);
  if (isPart) add(replicaGroup(plan), Lane::kCollectives, 1);
  const GroupShape stages = {{plan.pp, plan::stageStride(plan)}};
  const double neighbours = plan.pp > 2 ? 2 : 1;
  add(stages, Lane::kForward, neighbours);
  add(stages, Lane::kBackward, neighbours);
  return stack.reserve + stack.ncclConnection * connections;
}

Bytes leastDescribedReserve(int64_t tp, int64_t pp, int64_t dp, const spec::ClusterSpec& cluster,
                            const spec::StackDescription& stack) {
  if (cluster.device.kind != spec::DeviceKind::kCuda) return {};
  return stack.reserve + stack.ncclConnection * leastConnections(tp, pp, dp, cluster);
}

MemoryUse describedMemoryOf(const StageSetting& setting, size_t stage) {
  const plan::Plan& plan = setting.plan;
  const spec::ModelSpec& model = setting.model;
  const spec::StackDescription& stack = setting.stack;
  const double parameters = parametersOfStage(setting.blocks, model, plan, stage);
  const double shards = asDouble(plan.stateShards());
  const auto shared = [&](plan::StateSharding from) {
    return plan.stateSharding >= from ? shards : 1;
  };
  // An exabyte fits nowhere, and sums of a few of them still fit in 64 bits.
  const auto whole = [](double bytes) { return static_cast<int64_t>(std::min(bytes, 0x1p60)); };
  MemoryUse use;
  use.stage = static_cast<int32_t>(stage);
  double layers = 0;
  for (const plan::LayerRange& range : plan.layers[stage]) layers += asDouble(range.count);
  use.arena.parameters = whole(parameters * keptParameterBytes(stack, plan.stateSharding, shards) +
                               setting.blocks.layer.parameters * layers * f8CopyBytes(plan, stack));
  const double looksUp = model.tiedEmbeddings ? 0 : setting.blocks.embedding.parameters;
  if (autocasts(plan, stack))
    use.arena.parameters += whole((parameters - looksUp) * stack.autocastBytes);
  use.arena.gradients =
      whole(parameters * (stack.gradientBytes / shared(plan::StateSharding::kGradients) +
                          bucketBytes(plan, stack)));
  use.arena.optimizer =
      whole(parameters * stack.optimizerBytes / shared(plan::StateSharding::kOptimizer));
  const std::vector<double> kept = keptByChunks(model, plan, stack, stage);
  use.perMicrobatch.reserve(kept.size());
  for (const double bytes : kept) use.perMicrobatch.emplace_back(bytes);
  if (plan::splitsBackward(plan.schedule))
    use.forWeights = {keptForWeights(model, plan) * asDouble(plan.layers[stage].front().count)};
  use.inFlight = Bytes(inFlight(model, plan, stage, kept));
  use.arena.activations = whole(
      std::max(use.inFlight + workingMemory(setting, stage), stepGradients(setting, parameters))
          .count());
  use.reserve = setting.reserve() + Bytes(stack.fragmentation * asDouble(use.arena.total()));
  return use;
}

MemoryUse describedMemory(const StageSetting& setting) {
  MemoryUse largest = describedMemoryOf(setting, 0);
  for (size_t stage = 1; stage < setting.plan.layers.size(); ++stage) {
    const MemoryUse use = describedMemoryOf(setting, stage);
    if (use.total() > largest.total()) largest = use;
  }
  return largest;
}

}  // namespace trireme::cost
