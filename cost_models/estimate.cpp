#include "cost_models/estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "cost_models/collectives.h"
#include "cost_models/compute.h"
#include "cost_models/described_estimate.h"
#include "cost_models/described_memory.h"
#include "cost_models/formulas.h"
#include "cost_models/play.h"
#include "ir/spec/load.h"
#include "ir/spec/stack_on_device.h"

namespace trireme::cost {
namespace {

using program::GroupKind;

// Chunks go backward from the last to the first. After the last microbatch through one the others
// of its group of p go through the next, and reduce nothing. A split backward is that of the last
// microbatch, B and W, as if no W of others came between them.
Seconds exposedReduction(const StageCost& cost, const std::vector<WalkedBody>& lastBackward,
                         const plan::Plan& plan, const spec::DeviceSpec& device) {
  Seconds all;
  Backlog backward;
  for (size_t chunk = lastBackward.size(); chunk-- > 0;) {
    all += lastBackward[chunk].total().beside;
    if (chunk + 1 < lastBackward.size())
      backward.compute(cost.backward[chunk].total().total() * static_cast<double>(plan.pp - 1));
    backward.follow(lastBackward[chunk].backlog);
  }
  if (device.kind == spec::DeviceKind::kHost) return all;
  const std::optional<Backlog>& atWait = cost.reduction.atWait;
  return atWait ? atWait->after(backward.after(Seconds(0))) : Seconds(0);
}

// The step body's instructions before the first that changes parameters, and those from it on.
std::pair<program::Body, program::Body> atGradientNorm(const program::Body& step) {
  const auto update =
      std::find_if(step.instructions.begin(), step.instructions.end(),
                   [](const auto& in) { return in.kind == program::InstructionKind::kAdamW; });
  std::pair<program::Body, program::Body> parts;
  parts.first.instructions.assign(step.instructions.begin(), update);
  parts.second.instructions.assign(update, step.instructions.end());
  return parts;
}

StageCost stageCost(const BodyWalker& walker, const program::Role& role, const plan::Plan& plan,
                    const spec::DeviceSpec& device) {
  const auto walk = [&](int32_t body) {
    return walker.walk(role, role.bodies[static_cast<size_t>(body)]);
  };
  StageCost cost;
  cost.begin = walk(expand::kBeginBody);
  const auto [reduction, update] = atGradientNorm(role.bodies[expand::kStepBody]);
  cost.reduction = walker.walk(role, reduction);
  cost.update = walker.walk(role, update);
  std::vector<WalkedBody> last;
  for (int32_t chunk = 0; chunk < static_cast<int32_t>(role.chunks.size()); ++chunk) {
    cost.forward.push_back(walk(expand::forwardBody(chunk)));
    cost.backward.push_back(walk(expand::backwardBody(chunk)));
    const int32_t body = expand::lastBackwardBody(plan, chunk);
    last.push_back(body == expand::backwardBody(chunk) ? cost.backward.back() : walk(body));
    if (!plan::splitsBackward(plan.schedule)) continue;
    cost.weights.push_back(walk(expand::weightsBody(plan, chunk)));
    const WalkedBody weights = walk(expand::lastWeightsBody(plan, chunk));
    last.back().outside.beside += weights.total().beside;
    last.back().backlog.follow(weights.backlog);
  }
  cost.exposedReduction = exposedReduction(cost, last, plan, device);
  return cost;
}

// Of the largest message.
std::vector<Seconds> hopsOf(const std::vector<StageCost>& stages, const plan::Plan& plan,
                            const spec::ClusterSpec& cluster) {
  if (stages.size() == 1) return {};
  Bytes largest;
  for (const StageCost& stage : stages)
    for (size_t chunk = 0; chunk < stage.forward.size(); ++chunk)
      largest = std::max({largest, stage.forward[chunk].outside.sentForward,
                          stage.backward[chunk].outside.sentBackward});
  return stageHops(largest, plan, cluster);
}

// What one stage does once per step, or one part of it.
struct StepPart {
  Seconds dataParallel, synchronisation, tensorParallel, optimizer;
  Seconds total() const { return dataParallel + synchronisation + tensorParallel + optimizer; }
};

StepPart stepPart(const BodyCost& once) {
  StepPart part;
  part.optimizer = once.compute;
  part.tensorParallel = once.communication(GroupKind::kTp);
  for (GroupKind kind :
       {GroupKind::kEmbedding, GroupKind::kPp, GroupKind::kModel, GroupKind::kWorld})
    part.synchronisation += once.communication(kind);
  part.dataParallel = once.communication(GroupKind::kDp);
  return part;
}

StepPart reducing(const StageCost& stage) {
  StepPart part = stepPart(stage.reduction.total());
  part.dataParallel += stage.exposedReduction;
  return part;
}

StepPart updating(const StageCost& stage) {
  BodyCost once = stage.begin.total();
  once += stage.update.total();
  return stepPart(once);
}

StepPart longestOf(const std::vector<StageCost>& stages, StepPart (*partOf)(const StageCost&)) {
  StepPart longest;
  for (const StageCost& stage : stages) {
    const StepPart part = partOf(stage);
    if (part.total() > longest.total()) longest = part;
  }
  return longest;
}

// All microbatches on one stage; compute is all elementwise.
Breakdown busyTime(const StageCost& stage, double microbatches) {
  Breakdown busy;
  Seconds forward, backward;
  const auto add = [&](const WalkedBody& body, Seconds& compute) {
    const BodyCost cost = body.total();
    compute += cost.compute * microbatches;
    busy.tensorParallel += (cost.total() - cost.compute) * microbatches;
  };
  for (const WalkedBody& body : stage.forward) add(body, forward);
  for (const auto* bodies : {&stage.backward, &stage.weights})
    for (const WalkedBody& body : *bodies) add(body, backward);
  busy.elementwise = forward + backward;
  return busy;
}

Breakdown::Kinds kindsOf(const StageCost& stage, double microbatches) {
  Breakdown::Kinds kinds;
  for (const auto* bodies : {&stage.forward, &stage.backward, &stage.weights})
    for (const WalkedBody& body : *bodies) {
      const BodyCost cost = body.total() * microbatches;
      kinds.products += cost.products;
      kinds.attention += cost.attention;
      kinds.recomputation += cost.recomputed;
    }
  return kinds;
}

size_t busiestStage(const std::vector<StageCost>& stages) {
  size_t busiest = 0;
  for (size_t i = 1; i < stages.size(); ++i)
    if (stages[i].times().total() > stages[busiest].times().total()) busiest = i;
  return busiest;
}

void fillTimes(const plan::Plan& plan, const spec::StackProfile& stack, FlushPlayer& player,
               Estimate& result) {
  Pipeline pipeline;
  pipeline.schedule = plan.schedule;
  pipeline.numMicrobatches = plan.numMicrobatches();
  pipeline.hops = result.hops;
  pipeline.overlapTransfers = stack.overlapPipelineTransfers;
  pipeline.receivesIntoSlots = true;
  for (const StageCost& stage : result.stages) pipeline.stages.push_back(stage.times());
  const Seconds flush = player.timeOf(pipeline);
  pipeline.hops.clear();
  const Seconds withoutTransfers = player.timeOf(pipeline);

  Breakdown& b = result.breakdown;
  const StageCost& busiest = result.stages[busiestStage(result.stages)];
  const auto microbatches = static_cast<double>(plan.numMicrobatches());
  b = busyTime(busiest, microbatches);
  b.pipeline = flush - withoutTransfers;
  // What is left is waiting; below zero only by rounding.
  b.bubble = std::max(withoutTransfers - (b.elementwise + b.tensorParallel), Seconds(0));
  for (const StepPart& part :
       {longestOf(result.stages, reducing), longestOf(result.stages, updating)}) {
    b.tensorParallel += part.tensorParallel;
    b.dataParallel += part.dataParallel;
    b.synchronisation += part.synchronisation;
    b.optimizer += part.optimizer;
  }
  result.step = b.total();
  b.divideCompute(kindsOf(busiest, microbatches));
}

}  // namespace

void Breakdown::divideCompute(const Kinds& kinds) {
  products = kinds.products;
  attention = kinds.attention;
  recomputation = kinds.recomputation;
  launching = kinds.launching;
  // Below zero only by rounding.
  elementwise =
      std::max(elementwise - (products + attention + recomputation + launching), Seconds(0));
}

StageTimes StageCost::times() const {
  StageTimes times;
  for (const WalkedBody& body : forward) times.forward.push_back(body.total().total());
  for (const WalkedBody& body : backward) times.backward.push_back(body.total().total());
  for (const WalkedBody& body : weights) times.weights.push_back(body.total().total());
  return times;
}

void fillRates(const spec::ModelSpec& model, const plan::Plan& plan,
               const spec::ClusterSpec& cluster, Estimate& result) {
  result.modelFlops = modelFlops(model, plan.training);
  const auto tokens =
      static_cast<double>(plan.training.globalBatchSize * plan.training.sequenceLength);
  result.tokensPerSecond = tokens / result.step.count();
  const FlopsPerSecond peak = cluster.device.peak(spec::linearFormat(plan.training))->rate *
                              static_cast<double>(plan.numRanks());
  result.modelFlopsUtilisation = (result.modelFlops / result.step) / peak;
}

Status checkBatch(const spec::TrainingSpec& training) {
  const int64_t batch = training.globalBatchSize, sequence = training.sequenceLength;
  if (batch <= kMostSamples) return {};
  return invalidArgument(fmt::format(
      "batch {}: estimates are of up to {} samples per step; a batch counts samples (sequences), "
      "not tokens: {} tokens in sequences of {} are {} samples",
      batch, kMostSamples, batch, sequence, std::max<int64_t>(batch / sequence, 1)));
}

Status checkCluster(const spec::ClusterSpec& cluster, const spec::TrainingSpec& training) {
  const MathFormat linear = spec::linearFormat(training);
  const DType compute = spec::computeDType(training.precision);
  const std::string asked = "precision " + spec::precisionText(training);
  // What it multiplies in before what it keeps tensors in, which for fp8 is another.
  if (linear != mathFormatOf(compute) && cluster.device.peak(linear) == nullptr)
    return noPeak(cluster.device, linear).withContext(asked);
  if (const Status status = checkDevice(cluster.device, compute); !status.ok())
    return status.withContext(asked);
  if (cluster.tiers.empty())
    return invalidArgument(fmt::format("cluster {}: no tier of links", cluster.name));
  for (const spec::LinkTier& tier : cluster.tiers)
    if (tier.devices < 1 || tier.bandwidth.count() <= 0)
      return invalidArgument(
          fmt::format("cluster {}: tier {} needs devices and bandwidth", cluster.name, tier.name));
  return {};
}

namespace {

Result<Estimate> estimateExpansion(const expand::Expansion& expansion, const spec::ModelSpec& model,
                                   const plan::Plan& plan, const spec::ClusterSpec& cluster,
                                   const spec::StackProfile& stack, FlushPlayer& player) {
  TRIREME_RETURN_IF_ERROR(checkCluster(cluster, plan.training));
  if (plan.numRanks() > cluster.numDevices)
    return Error(invalidArgument(fmt::format("the plan needs {} devices, cluster {} has {}",
                                             plan.numRanks(), cluster.name, cluster.numDevices)));
  const BodyWalker walker(expansion.program, plan, cluster, stack, expansion.recomputedOps);
  Estimate result;
  for (const program::Role& role : expansion.program.roles)
    result.stages.push_back(stageCost(walker, role, plan, cluster.device));
  result.hops = hopsOf(result.stages, plan, cluster);
  fillTimes(plan, stack, player, result);
  const std::vector<MemoryUse> memories = memoryOfRoles(expansion, plan, model, stack, cluster);
  result.memory = largestOf(memories);
  for (const MemoryUse& memory : memories) result.memoryOfStages.push_back(memory.total());
  result.memoryAvailable = cluster.device.memory;
  result.headroom = cluster.device.headroom;
  fillRates(model, plan, cluster, result);
  return result;
}

}  // namespace

Result<Estimate> estimate(const spec::ModelSpec& model, const plan::Plan& plan,
                          const spec::ClusterSpec& cluster, const spec::StackProfile& stack) {
  FlushPlayer player;
  return estimate(model, plan, cluster, stack, player);
}

Result<Estimate> estimate(const spec::ModelSpec& model, const plan::Plan& plan,
                          const spec::ClusterSpec& cluster, const spec::StackProfile& stack,
                          FlushPlayer& player) {
  TRIREME_RETURN_IF_ERROR(checkBatch(plan.training));
  TRIREME_RETURN_IF_ERROR(spec::checkDevice(stack, cluster.device));
  if (!stack.ownPrograms)
    return estimateDescribed(
        model, plan, cluster,
        spec::descriptionOn(stack.description, plan.training.precision, cluster.device),
        [&](const Pipeline& pipeline) { return player.timeOf(pipeline); });
  expand::ExpandOptions options;
  options.tasks = false;
  TRIREME_ASSIGN_OR_RETURN(const expand::Expansion expansion, expand::expand(model, plan, options));
  return estimateExpansion(expansion, model, plan, cluster, stack, player);
}

Result<std::vector<MemoryUse>> memoryByStage(const spec::ModelSpec& model, const plan::Plan& plan,
                                             const spec::ClusterSpec& cluster,
                                             const spec::StackProfile& stack) {
  std::vector<MemoryUse> stages;
  if (!stack.ownPrograms) {
    TRIREME_RETURN_IF_ERROR(plan::verifyPlan(plan, model));
    TRIREME_RETURN_IF_ERROR(checkCluster(cluster, plan.training));
    const spec::StackDescription used =
        spec::descriptionOn(stack.description, plan.training.precision, cluster.device);
    const DescribedBlocks blocks = describeBlocks(model, plan, cluster, used);
    const StageSetting setting(blocks, model, plan, cluster, used);
    for (size_t stage = 0; stage < plan.layers.size(); ++stage)
      stages.push_back(describedMemoryOf(setting, stage));
    return stages;
  }
  expand::ExpandOptions options;
  options.tasks = false;
  TRIREME_ASSIGN_OR_RETURN(const expand::Expansion expansion, expand::expand(model, plan, options));
  return memoryOfRoles(expansion, plan, model, stack, cluster);
}

}  // namespace trireme::cost
