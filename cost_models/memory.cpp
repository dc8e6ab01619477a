#include "cost_models/memory.h"

#include <algorithm>
#include <limits>

#include "cost_models/topology.h"
#include "ir/program/gpu_memory.h"

namespace trireme::cost {
namespace {

Bytes unfusedAttentionBytes(const program::Role& role, const plan::Plan& plan,
                            const spec::ModelSpec& model) {
  const Bytes perLayer = unfusedScoresBytes(plan, model);
  if (plan.recompute != plan::Recompute::kNone) return perLayer;
  int64_t layersInFlight = 0;
  for (const program::Chunk& chunk : role.chunks)
    layersInFlight += int64_t{chunk.numLayers} * chunk.numSlots;
  return perLayer * static_cast<double>(layersInFlight);
}

}  // namespace

Bytes unfusedScoresBytes(const plan::Plan& plan, const spec::ModelSpec& model) {
  const int64_t s = plan.training.sequenceLength;
  const int64_t element = byteSize(spec::computeDType(plan.training.precision));
  const int64_t perScore = plan.training.attentionDropout > 0 ? 2 * element + 1 : element;
  return Bytes(
      static_cast<double>(perScore * plan.microbatchSize * s * s * (model.numHeads / plan.tp)));
}

Bytes reserveOf(const program::Program& program, const program::Role& role, const plan::Plan& plan,
                const spec::StackProfile& stack, const spec::ClusterSpec& cluster) {
  if (cluster.device.kind != spec::DeviceKind::kCuda) return stack.fixedReserve;
  double connections = 0;
  if (stack.ncclConnection.count() > 0)
    for (const program::RoleClique& clique : program::cliquesOf(program, role)) {
      const spec::LinkTier& tier =
          innermostTierOf(groupShape(clique.group, plan), ranksOf(plan, cluster), cluster);
      connections += program::ncclConnections(clique.lane, program::channelsOver(tier.bandwidth));
    }
  return stack.fixedReserve + stack.gpuReserve + stack.ncclConnection * connections;
}

double leastConnections(int64_t tp, int64_t pp, int64_t dp, const spec::ClusterSpec& cluster) {
  using program::Lane;
  int64_t channels = std::numeric_limits<int64_t>::max();
  for (const spec::LinkTier& tier : cluster.tiers)
    channels = std::min(channels, program::channelsOver(tier.bandwidth));
  double connections = 0;
  const auto add = [&](Lane lane) { connections += program::ncclConnections(lane, channels); };
  if (tp > 1) add(Lane::kCollectives);
  if (dp > 1) add(Lane::kDpReductions);
  if (pp > 1) add(Lane::kForward);
  if (pp > 1) add(Lane::kBackward);
  return connections;
}

Bytes leastReserve(const plan::Plan& plan, const spec::StackProfile& stack,
                   const spec::ClusterSpec& cluster) {
  if (cluster.device.kind != spec::DeviceKind::kCuda) return stack.fixedReserve;
  using program::GroupKind;
  using program::Lane;
  const Ranks ranks = ranksOf(plan, cluster);
  double connections = 0;
  const auto add = [&](GroupKind group, std::initializer_list<Lane> lanes) {
    const spec::LinkTier& tier = innermostTierOf(groupShape(group, plan), ranks, cluster);
    const int64_t channels = program::channelsOver(tier.bandwidth);
    for (const Lane lane : lanes) connections += program::ncclConnections(lane, channels);
  };
  const bool isSharded = plan.stateSharding == plan::StateSharding::kOptimizer;
  if (stack.ncclConnection.count() > 0) {
    if (plan.tp > 1) add(GroupKind::kTp, {Lane::kCollectives});
    // A split backward leaves them nothing to run beside.
    if (plan.tp > 1 && plan.overlapReductions && !plan::splitsBackward(plan.schedule))
      add(GroupKind::kTp, {Lane::kTpReductions});
    if (plan.dp() > 1) add(GroupKind::kDp, {Lane::kCollectives});
    if (plan.dp() > 1 && plan.overlapReductions) add(GroupKind::kDp, {Lane::kDpReductions});
    if (plan.tp * plan.pp > 1 || (isSharded && plan.dp() > 1))
      add(isSharded ? GroupKind::kWorld : GroupKind::kModel, {Lane::kNorms});
    if (plan.pp > 1) add(GroupKind::kPp, {Lane::kForward, Lane::kBackward});
    if (plan.virtualStages > 1) add(GroupKind::kPp, {Lane::kForward, Lane::kBackward});
  }
  return stack.fixedReserve + stack.gpuReserve + stack.ncclConnection * connections;
}

MemoryUse memoryOf(const expand::Expansion& expansion, size_t role, const plan::Plan& plan,
                   const spec::ModelSpec& model, const spec::StackProfile& stack,
                   const spec::ClusterSpec& cluster) {
  const program::Role& code = expansion.program.roles[role];
  MemoryUse use;
  use.stage = code.stage;
  use.arena = expansion.arenas[role];
  use.reserve = reserveOf(expansion.program, code, plan, stack, cluster);
  if (stack.optimizerBytesPerParameter > 0) {
    double elements = 0;
    for (const program::Bucket& bucket : code.buckets)
      elements += static_cast<double>(bucket.elements) /
                  (bucket.sharded ? static_cast<double>(plan.dp()) : 1.0);
    use.optimizerDifference = Bytes(stack.optimizerBytesPerParameter * elements -
                                    static_cast<double>(use.arena.optimizer));
  }
  if (!stack.flashAttention) use.unfusedAttention = unfusedAttentionBytes(code, plan, model);
  const bool keepsScores = !stack.flashAttention && plan.recompute == plan::Recompute::kNone;
  for (size_t c = 0; c < code.chunks.size(); ++c) {
    Bytes kept(static_cast<double>(use.arena.slotBytes[c]));
    if (keepsScores)
      kept += unfusedScoresBytes(plan, model) * static_cast<double>(code.chunks[c].numLayers);
    use.perMicrobatch.push_back(kept);
    if (plan::splitsBackward(plan.schedule)) use.forWeights.push_back(kept);
    use.inFlight += kept * static_cast<double>(code.chunks[c].numSlots);
  }
  return use;
}

std::vector<MemoryUse> memoryOfRoles(const expand::Expansion& expansion, const plan::Plan& plan,
                                     const spec::ModelSpec& model, const spec::StackProfile& stack,
                                     const spec::ClusterSpec& cluster) {
  std::vector<MemoryUse> memories;
  for (size_t role = 0; role < expansion.program.roles.size(); ++role)
    memories.push_back(memoryOf(expansion, role, plan, model, stack, cluster));
  return memories;
}

const MemoryUse& largestOf(const std::vector<MemoryUse>& memories) {
  return *std::max_element(memories.begin(), memories.end(),
                           [](const auto& a, const auto& b) { return a.total() < b.total(); });
}

}  // namespace trireme::cost
