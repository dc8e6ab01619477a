#include "planner/answer/critical_path.h"

#include <algorithm>
#include <map>

#include "planner/answer/timeline.h"

namespace trireme::planner {
namespace {

using cost::PathItem;
using program::Direction;
using program::GroupKind;

constexpr std::string_view kPhaseNames[] = {
    "begin",          "pipeline fill",      "steady state",        "other stages",
    "pipeline drain", "gradient reduction", "parameter gathering", "synchronisation",
    "optimizer"};

bool isOfStep(const PathItem& item) { return item.direction == Direction::kStep; }

Seconds sum(const std::array<Seconds, program::kNumGroupKinds>& times) {
  Seconds total;
  for (const Seconds time : times) total += time;
  return total;
}

// The stage of most time in microbatches; of equal ones the first. -1: no microbatches.
int32_t heaviestStage(const std::vector<PathItem>& path) {
  std::map<int32_t, Seconds> times;
  for (const PathItem& item : path)
    if (!isOfStep(item)) times[item.stage] += item.end - item.begin;
  int32_t heaviest = -1;
  for (const auto& [stage, time] : times)
    if (heaviest < 0 || time > times[heaviest]) heaviest = stage;
  return heaviest;
}

Seconds& timeOf(PathPart& part, Direction direction) {
  if (direction == Direction::kForward) return part.forward;
  return direction == Direction::kWeights ? part.weights : part.backward;
}

int64_t& countOf(PathPart& part, Direction direction) {
  if (direction == Direction::kForward) return part.numForward;
  return direction == Direction::kWeights ? part.numWeights : part.numBackward;
}

class Phases {
 public:
  void addMicrobatch(PathPhase phase, const PathItem& item) {
    PathPart& part = at(phase, item.stage);
    const Seconds reduction = item.reduce[static_cast<size_t>(GroupKind::kDp)];
    const Seconds pass = item.end - item.begin - item.transfer - reduction;
    addOnce(PathPhase::kReduction, item.stage, reduction);
    part.transfers += item.transfer;
    if (pass.count() <= 0) return;  // a message alone
    timeOf(part, item.direction) += pass;
    ++countOf(part, item.direction);
    part.tensorParallel += sum(item.reduce) + sum(item.gather) - reduction;
  }
  void addStep(const PathItem& item) {
    const auto data = static_cast<size_t>(GroupKind::kDp);
    const Seconds reduction = item.reduce[data], gathering = item.gather[data];
    const Seconds others = sum(item.reduce) + sum(item.gather) - reduction - gathering;
    addOnce(PathPhase::kReduction, item.stage, reduction);
    addOnce(PathPhase::kGathering, item.stage, gathering);
    addOnce(PathPhase::kSynchronisation, item.stage, others + item.transfer);
    addOnce(PathPhase::kOptimizer, item.stage, item.compute);
  }
  void addOnce(PathPhase phase, int32_t stage, Seconds time) {
    if (time.count() > 0) at(phase, stage).step += time;
  }
  std::vector<PathPart> take() {
    std::vector<PathPart> parts;
    for (auto& [phase, part] : parts_) parts.push_back(std::move(part));
    return parts;
  }

 private:
  PathPart& at(PathPhase phase, int32_t stage) {
    PathPart& part = parts_[phase];
    part.phase = phase;
    if (std::find(part.stages.begin(), part.stages.end(), stage) == part.stages.end())
      part.stages.push_back(stage);
    return part;
  }

  std::map<PathPhase, PathPart> parts_;
};

}  // namespace

std::string_view phaseName(PathPhase phase) { return kPhaseNames[static_cast<size_t>(phase)]; }

CriticalPath phasesOf(const cost::Simulation& simulation, Seconds estimated) {
  const std::vector<PathItem>& path = simulation.path;
  const int32_t heaviest = heaviestStage(path);
  const auto isOnHeaviest = [&](const PathItem& item) {
    return !isOfStep(item) && item.stage == heaviest;
  };
  const auto first = std::find_if(path.begin(), path.end(), isOnHeaviest);
  const auto last = std::find_if(path.rbegin(), path.rend(), isOnHeaviest).base();
  Phases phases;
  for (auto item = path.begin(); item != path.end(); ++item) {
    if (isOfStep(*item) && item < first)
      phases.addOnce(PathPhase::kBegin, item->stage, item->end - item->begin);
    else if (isOfStep(*item))
      phases.addStep(*item);
    else if (item < first)
      phases.addMicrobatch(PathPhase::kFill, *item);
    else if (item >= last)
      phases.addMicrobatch(PathPhase::kDrain, *item);
    else
      phases.addMicrobatch(item->stage == heaviest ? PathPhase::kSteady : PathPhase::kOtherStages,
                           *item);
  }
  return {simulation.makespan, estimated, phases.take()};
}

CriticalPath pathOf(const Query& query, const plan::Plan& plan, const cost::Simulation& simulation,
                    Seconds estimated) {
  CriticalPath path = phasesOf(simulation, estimated);
  path.isAlone = !query.stack.ownPrograms && query.stack.description.postValidation &&
                 plan::splitsBackward(plan.schedule);
  return path;
}

Result<CriticalPath> criticalPath(const Query& query, const plan::Plan& plan, Seconds estimated) {
  cost::SimulationOptions options;
  options.path = true;
  TRIREME_ASSIGN_OR_RETURN(const PlayedPlan played, playPlan(query, plan, options));
  return pathOf(query, plan, played.simulation, estimated);
}

}  // namespace trireme::planner
