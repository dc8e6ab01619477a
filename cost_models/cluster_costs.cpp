#include "cost_models/cluster_costs.h"

#include "cost_models/collectives.h"
#include "cost_models/compute.h"

namespace trireme::cost {

Seconds ClusterCosts::compute(const program::Program&, int32_t,
                              const program::Segment& segment) const {
  return segmentTime(segment, cluster_.device, stack_);
}

Seconds ClusterCosts::send(const program::Program& program, int32_t from, int32_t to,
                           Bytes payload) const {
  const auto stageOf = [&](int32_t rank) {
    return program.ranks[static_cast<size_t>(rank)].ppIndex;
  };
  return sendTime(payload, stageLink(stageOf(from), stageOf(to), plan_, cluster_));
}

Seconds ClusterCosts::collective(const program::Program&, const program::Group& group,
                                 program::InstructionKind kind, Bytes payload) const {
  const Levels levels = levelsOf(groupShape(group.kind, plan_), ranksOf(plan_, cluster_), cluster_);
  switch (kind) {
    case program::InstructionKind::kAllReduce:
      return collectiveTime(spec::CollectiveKind::kAllReduce, payload, levels);
    case program::InstructionKind::kReduceScatter:
      return collectiveTime(spec::CollectiveKind::kReduceScatter, payload, levels);
    case program::InstructionKind::kAllGather:
      return collectiveTime(spec::CollectiveKind::kAllGather, payload, levels);
    default:
      return {};
  }
}

Seconds ClusterCosts::local(const program::Program& program, int32_t rank,
                            const program::Instruction& instruction) const {
  const program::RankInfo& info = program.ranks[static_cast<size_t>(rank)];
  return instructionTime(instruction, program.roles[static_cast<size_t>(info.role)],
                         cluster_.device);
}

}  // namespace trireme::cost
