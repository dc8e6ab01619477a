#include "ir/expand/expand.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "ir/expand/beside.h"
#include "ir/expand/buildable.h"
#include "ir/expand/role_builder.h"
#include "ir/graph/graph.h"
#include "ir/schedule/schedule.h"

namespace trireme::expand {
namespace {

PassCode makePass(LoweredPass pass, const std::string& name, bool isBackward,
                  SegmentTable& segments) {
  PassCode code;
  code.pass = std::move(pass);
  code.placement = placeTemporaries(code.pass, isBackward);
  code.code = segments.cut(code.pass, name);
  return code;
}

// Where the backward writes what it keeps over what it has read.
std::vector<size_t> savedPlaces(const LoweredBlock& block, const PassCode& backward) {
  const auto indexOf = [&](ValueId value) {
    const graph::TensorId tensor = backward.pass.values[static_cast<size_t>(value)].tensor;
    return static_cast<size_t>(std::find(block.saved.begin(), block.saved.end(), tensor) -
                               block.saved.begin());
  };
  std::vector<size_t> places(block.saved.size());
  std::iota(places.begin(), places.end(), size_t{0});
  for (size_t v = 0; v < backward.pass.values.size(); ++v)
    if (backward.pass.values[v].storage == Storage::kKept)
      places[indexOf(static_cast<ValueId>(v))] = indexOf(backward.placement.root[v]);
  return places;
}

BlockCode makeBlock(const graph::Block& block, const plan::Plan& plan, plan::Recompute recompute,
                    bool splitsBackward, SegmentTable& segments) {
  BlockCode code;
  LoweredBlock& lowered = code.lowered;
  lowered = lowerBlock(block, {plan.tp, plan.sequenceParallel}, recompute, plan.training.precision,
                       splitsBackward);
  if (plan.overlapReductions && plan.tp > 1)
    lowered.backward = runBeside(std::move(lowered.backward));
  code.forward = makePass(std::move(lowered.forward), block.name + ".forward", false, segments);
  code.backward = makePass(std::move(lowered.backward), block.name + ".backward", true, segments);
  lowered.savedPlace = savedPlaces(lowered, code.backward);
  code.weights = makePass(std::move(lowered.weights), block.name + ".weights", true, segments);
  return code;
}

// Only layers are recomputed: the head's logits are needed at once, and the embedding keeps
// nothing. And only their backward is split: the head's products would keep the gradient of the
// logits, the largest tensor of all, and the embedding has none.
ModelCode makeModel(const graph::ModelGraph& graph, const plan::Plan& plan,
                    SegmentTable& segments) {
  ModelCode model;
  model.graph = &graph;
  const bool splits = plan::splitsBackward(plan.schedule);
  model.embedding = makeBlock(graph.embedding, plan, plan::Recompute::kNone, false, segments);
  model.layer = makeBlock(graph.layer, plan, plan.recompute, splits, segments);
  model.head = makeBlock(graph.head, plan, plan::Recompute::kNone, false, segments);
  model.computeDType = spec::computeDType(plan.training.precision);
  model.stateDType = spec::stateDType(plan.training.precision);
  model.residualElements =
      graph.numTokens() * graph.residual()[2].size / (plan.sequenceParallel ? plan.tp : 1);
  model.residualBytes = model.residualElements * byteSize(model.computeDType);
  model.workspaceBytes = segments.workspaceBytes();
  model.numEmbedding = static_cast<int32_t>(graph.embedding.parameters.size());
  model.numPerLayer = static_cast<int32_t>(graph.layer.parameters.size());
  for (const graph::Parameter& p : graph.head.parameters) model.numHead += p.tied ? 0 : 1;
  return model;
}

program::Training makeTraining(const spec::ModelSpec& model, const plan::Plan& plan) {
  const spec::TrainingSpec& t = plan.training;
  program::Training out;
  out.seed = t.seed;
  out.sequenceLength = t.sequenceLength;
  out.globalBatchSize = t.globalBatchSize;
  out.microbatchSize = plan.microbatchSize;
  out.numMicrobatches = plan.numMicrobatches();
  out.vocabSize = model.vocabSize;
  out.modelFingerprint = plan.fingerprint != 0 ? plan.fingerprint : plan::fingerprintOf(model);
  out.learningRate = t.learningRate;
  out.minLearningRate = t.minLearningRate;
  out.warmupSteps = t.warmupSteps;
  out.decaySteps = t.decaySteps;
  out.beta1 = t.beta1;
  out.beta2 = t.beta2;
  out.epsilon = t.epsilon;
  out.weightDecay = t.weightDecay;
  out.clipNorm = t.clipNorm;
  out.embeddingDropout = t.embeddingDropout;
  out.attentionDropout = t.attentionDropout;
  out.residualDropout = t.residualDropout;
  out.computeDType = spec::computeDType(t.precision);
  out.stateDType = spec::stateDType(t.precision);
  if (!out.scalesLoss()) return out;
  out.initialLossScale = t.initialLossScale;
  out.minLossScale = t.minLossScale;
  out.lossScaleWindow = t.lossScaleWindow;
  return out;
}

std::vector<program::TaskRecord> makeTasks(const plan::Plan& plan,
                                           const schedule::Schedule& schedule,
                                           const std::vector<int32_t>& slots, int32_t stage) {
  const auto bodyOf = [&](const schedule::Task& task) {
    const bool isLast = task.microbatch + 1 == plan.numMicrobatches();
    if (task.direction == program::Direction::kForward) return forwardBody(task.chunk);
    if (task.direction == program::Direction::kWeights)
      return isLast ? lastWeightsBody(plan, task.chunk) : weightsBody(plan, task.chunk);
    return isLast ? lastBackwardBody(plan, task.chunk) : backwardBody(task.chunk);
  };
  std::vector<program::TaskRecord> tasks;
  tasks.push_back({RoleBuilder::kBeginBody, -1, 0, 0, program::Direction::kStep});
  const auto& order = schedule.order[static_cast<size_t>(stage)];
  for (size_t i = 0; i < order.size(); ++i)
    tasks.push_back(
        {bodyOf(order[i]), order[i].chunk, order[i].microbatch, slots[i], order[i].direction});
  tasks.push_back({RoleBuilder::kStepBody, -1, 0, 0, program::Direction::kStep});
  return tasks;
}

// Ranks and their groups, in rank order; a group's members are in increasing rank order.
void addRanks(const plan::Plan& plan, program::Program& program) {
  const int64_t t = plan.tp, d = plan.dp(), p = plan.pp;
  const auto numRanks = static_cast<int32_t>(t * d * p);
  std::array<std::vector<int32_t>, program::kNumGroupKinds> groupIndex;
  const auto join = [&](int32_t rank, program::GroupKind kind, int64_t key) {
    auto& index = groupIndex[static_cast<size_t>(kind)];
    if (static_cast<size_t>(key) >= index.size()) index.resize(static_cast<size_t>(key) + 1, -1);
    int32_t& group = index[static_cast<size_t>(key)];
    if (group < 0) {
      group = static_cast<int32_t>(program.groups.size());
      program.groups.push_back({kind, {}});
    }
    program.groups[static_cast<size_t>(group)].ranks.push_back(rank);
    program.ranks[static_cast<size_t>(rank)].group[static_cast<size_t>(kind)] = group;
  };
  program.ranks.resize(static_cast<size_t>(numRanks));
  for (int32_t rank = 0; rank < numRanks; ++rank) {
    const plan::RankCoordinates c = plan::coordinatesOf(rank, plan);
    const int64_t dp = c.dpShard + plan.dpShard * c.dpReplicate;
    program::RankInfo& info = program.ranks[static_cast<size_t>(rank)];
    info.role = static_cast<int32_t>(c.pp);
    info.tpIndex = static_cast<int32_t>(c.tp);
    info.dpIndex = static_cast<int32_t>(dp);
    info.ppIndex = static_cast<int32_t>(c.pp);
    join(rank, program::GroupKind::kTp, dp + d * c.pp);
    join(rank, program::GroupKind::kDp, c.tp + t * c.pp);
    join(rank, program::GroupKind::kPp, c.tp + t * dp);
    // Ranks of inner stages are alone.
    const int64_t pair = c.tp + t * dp;
    const bool border = c.pp == 0 || c.pp == p - 1;
    join(rank, program::GroupKind::kEmbedding, border ? pair : t * d + rank);
    join(rank, program::GroupKind::kModel, dp);
    join(rank, program::GroupKind::kWorld, 0);
  }
}

// Bodies of the last microbatch, per chunk and direction. A single microbatch has no others.
int32_t numLastBodies(const plan::Plan& plan) {
  const bool has = plan.overlapReductions && plan.dp() > 1 && plan.numMicrobatches() > 1;
  return has ? static_cast<int32_t>(plan.virtualStages) : 0;
}

}  // namespace

int32_t lastBackwardBody(const plan::Plan& plan, int32_t chunk) {
  if (numLastBodies(plan) == 0) return backwardBody(chunk);
  return forwardBody(static_cast<int32_t>(plan.virtualStages)) + chunk;
}

int32_t weightsBody(const plan::Plan& plan, int32_t chunk) {
  return forwardBody(static_cast<int32_t>(plan.virtualStages)) + numLastBodies(plan) + chunk;
}

int32_t lastWeightsBody(const plan::Plan& plan, int32_t chunk) {
  return weightsBody(plan, chunk) + numLastBodies(plan);
}

Result<Expansion> expand(const spec::ModelSpec& spec, const plan::Plan& plan,
                         const ExpandOptions& options) {
  TRIREME_RETURN_IF_ERROR(plan::verifyPlan(plan, spec));
  TRIREME_RETURN_IF_ERROR(checkBuildable(plan));
  graph::Graphs own;
  const graph::ModelGraph& graph =
      (options.graphs ? *options.graphs : own)
          .of(spec, plan.training, plan.microbatchSize, plan::paddedVocab(plan, spec));
  SegmentTable segments;
  const ModelCode model = makeModel(graph, plan, segments);

  Expansion result;
  program::Program& program = result.program;
  program.model = spec.name;
  program.tp = static_cast<int32_t>(plan.tp);
  program.pp = static_cast<int32_t>(plan.pp);
  program.dp = static_cast<int32_t>(plan.dp());
  program.virtualStages = static_cast<int32_t>(plan.virtualStages);
  program.numLayers = spec.numLayers;
  program.training = makeTraining(spec, plan);
  program.segments = segments.take();
  result.recomputedOps = segments.takeRecomputedOps();

  const schedule::Schedule schedule = schedule::scheduleFor(plan);
  const auto slots =
      options.tasks ? schedule::assignSlots(schedule) : std::vector<std::vector<int32_t>>{};
  for (int32_t stage = 0; stage < program.pp; ++stage) {
    std::vector<int32_t> slotsPerChunk;
    for (int32_t c = 0; c < program.virtualStages; ++c)
      slotsPerChunk.push_back(schedule::peakLive(schedule, stage, c));
    RoleBuilder builder(model, plan, stage, std::move(slotsPerChunk));
    const bool isInner = stage > 0 && stage + 1 < program.pp;
    builder.build(options.innerBodies || !isInner);
    result.arenas.push_back(builder.use());
    program.roles.push_back(builder.takeRole());
    if (options.tasks)
      program.roles.back().tasks =
          makeTasks(plan, schedule, slots[static_cast<size_t>(stage)], stage);
    TRIREME_CHECK(result.arenas.back().total() == program.roles.back().arenaBytes);
  }
  if (options.tasks) addRanks(plan, program);
  return result;
}

}  // namespace trireme::expand
