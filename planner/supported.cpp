#include "planner/supported.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "ir/expand/buildable.h"

namespace trireme::planner {
namespace {

using plan::Recompute;
using plan::ScheduleKind;
using plan::StateSharding;
using spec::StackChoice;

struct Use {
  bool isUsed;
  StackChoice choice;
  std::string value, nearest;
};

std::vector<Use> usesOf(const plan::Plan& p) {
  const auto degree = [](const char* name, int64_t value, StackChoice choice) {
    return Use{value > 1, choice, fmt::format("{} {}", name, value), fmt::format("{} 1", name)};
  };
  const auto sharding = [&](StateSharding kind, StackChoice choice) {
    return Use{p.stateSharding == kind, choice,
               fmt::format("state sharding {}", plan::stateShardingName(kind)),
               "state sharding none"};
  };
  const auto schedule = [&](ScheduleKind kind, StackChoice choice) {
    return Use{p.schedule == kind, choice, fmt::format("schedule {}", plan::scheduleName(kind)),
               "schedule 1f1b"};
  };
  const auto recompute = [&](Recompute kind, StackChoice choice) {
    return Use{p.recompute == kind, choice, fmt::format("recompute {}", plan::recomputeName(kind)),
               "recompute none"};
  };
  return {
      degree("tp", p.tp, StackChoice::kTensorParallel),
      degree("cp", p.cp, StackChoice::kContextParallel),
      degree("pp", p.pp, StackChoice::kPipeline),
      schedule(ScheduleKind::kGpipe, StackChoice::kGpipe),
      schedule(ScheduleKind::kInterleaved, StackChoice::kInterleaved),
      {p.sequenceParallel, StackChoice::kSequenceParallel, "sequence parallel on", "off"},
      {p.scatterGather, StackChoice::kScatterGather, "scatter-gather on", "off"},
      sharding(StateSharding::kOptimizer, StackChoice::kShardOptimizer),
      sharding(StateSharding::kGradients, StackChoice::kShardGradients),
      sharding(StateSharding::kParameters, StackChoice::kShardParameters),
      {p.stateSharding != StateSharding::kNone && p.dpReplicate > 1, StackChoice::kReplicatedShards,
       fmt::format("sharded state in {} replicas", p.dpReplicate), "1"},
      recompute(Recompute::kSelective, StackChoice::kRecomputeSelective),
      recompute(Recompute::kFull, StackChoice::kRecomputeFull),
      {p.recomputeLayers > 0, StackChoice::kRecomputeLayers,
       fmt::format("recompute of {} layers per virtual stage", p.recomputeLayers),
       "of all layers"}};
}

}  // namespace

Status checkSupported(const plan::Plan& plan, const spec::StackProfile& stack) {
  if (stack.ownPrograms) TRIREME_RETURN_IF_ERROR(expand::checkBuildable(plan));
  for (const Use& use : usesOf(plan))
    if (use.isUsed && !stack.supports(use.choice))
      return invalidArgument(
          fmt::format("stack '{}' has no {}; nearest: {}", stack.name, use.value, use.nearest));
  return {};
}

}  // namespace trireme::planner
