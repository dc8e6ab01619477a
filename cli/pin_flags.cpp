#include "cli/pin_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "cli/flags.h"

namespace trireme::cli {
namespace {

std::string flagOf(const std::string& prefix, const planner::Degree& degree) {
  std::string flag = prefix + degree.name;
  std::replace(flag.begin(), flag.end(), ' ', '-');
  return flag;
}

}  // namespace

std::vector<CLI::Option*> addPins(CLI::App& app, planner::Pins* pins) {
  const auto numOthers = static_cast<long>(app.get_options().size());
  const std::string degrees = kDegreesGroup;
  addCount(app, "--tp", &pins->tp, "Tensor-parallel degree")->group(degrees);
  addCount(app, "--pp", &pins->pp, "Pipeline stages")->group(degrees);
  addCount(app, "--cp", &pins->cp, "Context-parallel degree: parts of a sequence")->group(degrees);
  addCount(app, "--dp", &pins->dp, "Data-parallel replicas")->group(degrees);
  addCount(app, "--dp-shard", &pins->dpShard, "Replicas that share state among them")
      ->group(degrees);
  addCount(app, "--microbatch", &pins->microbatchSize, "Sequences per microbatch")->group(degrees);
  addCount(app, "--virtual-stages", &pins->virtualStages, "Chunks of layers per pipeline rank")
      ->group(degrees);
  addCounts(app, "--layers", &pins->layers,
            "Layers of stages or, with --pp, chunks; of other stacks ends may be 0", 0)
      ->group(degrees);
  for (const planner::Degree& degree : planner::kDegrees)
    addCount(app, flagOf("--max-", degree), &(pins->*degree.most),
             fmt::format("The most of {}", flagOf("--", degree)))
        ->group(kLimitsGroup);
  const std::string choices = "Choices (default: the planner's)";
  addChoice(app, "--schedule", &pins->schedule, plan::scheduleName,
            plan::ScheduleKind::kZeroBubbleH2, "Order of the microbatches")
      ->group(choices);
  addChoice(app, "--recompute", &pins->recompute, plan::recomputeName, plan::Recompute::kFull,
            "What the backward computes again; full: of all layers")
      ->group(choices);
  addCount(app, "--recompute-layers", &pins->recomputeLayers,
           "Recompute in full the first N layers of every stage or chunk")
      ->group(choices);
  addChoice(app, "--state-sharding", &pins->stateSharding, plan::stateShardingName,
            plan::StateSharding::kParameters, "What replicas share")
      ->group(choices);
  addSwitch(app, "--sequence-parallel", &pins->sequenceParallel, "Shard norms over the sequence")
      ->group(choices);
  addSwitch(app, "--scatter-gather", &pins->scatterGather, "Send 1/tp of each stage border")
      ->group(choices);
  addSwitch(app, "--overlap-reductions", &pins->overlapReductions,
            "Reduce gradients beside the backward")
      ->group(choices);
  addChoice(app, "--rank-order", &pins->rankOrder, plan::rankOrderName, plan::RankOrder::kTpCpPpDp,
            "Neighbours: replicas of a stage, or stages of a replica")
      ->group(choices);
  const std::vector<CLI::Option*> all = app.get_options();
  return {all.begin() + numOthers, all.end()};
}

}  // namespace trireme::cli
