#include "planner/plan_text.h"

#include <fmt/format.h>

#include <utility>

#include "ir/base/format.h"

namespace trireme::planner {
namespace {

// Equal neighbours once: "13, 12 (x 3)".
std::string joinRuns(const std::vector<std::string>& parts) {
  std::string text;
  for (size_t i = 0; i < parts.size();) {
    size_t end = i;
    while (end < parts.size() && parts[end] == parts[i]) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", parts[i]);
    if (end - i > 1) text += fmt::format(" (x {})", end - i);
    i = end;
  }
  return text;
}

}  // namespace

std::string summary(const plan::Plan& plan) {
  std::string text = fmt::format("tp {}, pp {}, ", plan.tp, plan.pp);
  if (plan.cp > 1) text += fmt::format("cp {}, ", plan.cp);
  text += fmt::format("dp {}, microbatch {}, {}", plan.dp(), plan.microbatchSize,
                      plan::scheduleName(plan.schedule));
  if (plan.virtualStages > 1) text += fmt::format(" x {}", plan.virtualStages);
  if (plan.recompute != plan::Recompute::kNone)
    text += fmt::format(", recompute {}", plan::recomputeName(plan.recompute));
  if (plan.recomputeLayers > 0)
    text += fmt::format(" of {} layer{} per virtual stage", plan.recomputeLayers,
                        plan.recomputeLayers == 1 ? "" : "s");
  if (plan.stateSharding != plan::StateSharding::kNone)
    text += fmt::format(", sharded {}", plan::stateShardingName(plan.stateSharding));
  if (plan.stateSharding != plan::StateSharding::kNone && plan.dpReplicate > 1)
    text += fmt::format(" in {} replicas", plan.dpReplicate);
  if (plan.sequenceParallel) text += ", sequence parallel";
  if (plan.scatterGather) text += ", scatter-gather";
  if (plan.overlapReductions) text += ", overlapped reductions";
  if (plan.rankOrder != plan::RankOrder::kTpCpDpPp)
    text += fmt::format(", rank order {}", plan::rankOrderName(plan.rankOrder));
  return text;
}

std::string layersText(const plan::Plan& plan) {
  std::vector<std::string> stages;
  for (const auto& stage : plan.layers) {
    std::string text;
    for (const plan::LayerRange& range : stage)
      text += (text.empty() ? "" : "+") + fmt::format("{}", range.count);
    stages.push_back(std::move(text));
  }
  return joinRuns(stages);
}

std::string stagesText(const std::vector<cost::MemoryUse>& stages) {
  std::vector<std::string> totals;
  for (const cost::MemoryUse& use : stages) totals.push_back(formatBytes(use.total()));
  return joinRuns(totals);
}

}  // namespace trireme::planner
