#include "planner/answer/adopt.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "cost_models/topology.h"
#include "planner/parts.h"
#include "planner/search/frontier.h"

namespace trireme::planner {
namespace {

// Runners-up are of other degrees than the winner, fastest first.
void rankAgain(const CostedPlan& before, PlanResult& result) {
  const CostedPlan winner{result.plan, result.estimate};
  const size_t shown = result.runnersUp.size();
  std::vector<RunnerUp> runners = std::move(result.runnersUp);
  result.runnersUp.clear();
  if (degreesOf(before.plan) != degreesOf(winner.plan))
    result.runnersUp.push_back(runnerUpOf(before, winner));
  for (const RunnerUp& runner : runners)
    if (degreesOf(runner.plan) != degreesOf(winner.plan))
      result.runnersUp.push_back(runnerUpOf({runner.plan, runner.estimate}, winner));
  std::stable_sort(result.runnersUp.begin(), result.runnersUp.end(),
                   [](const RunnerUp& a, const RunnerUp& b) { return a.slower < b.slower; });
  result.runnersUp.resize(std::min(result.runnersUp.size(), shown));
}

}  // namespace

void adopt(CostedPlan faster, const Query& query, PlanResult& result) {
  const CostedPlan before{std::move(result.plan), std::move(result.estimate)};
  faster.estimate.memoryAvailable = query.cluster.device.memory;
  result.plan = std::move(faster.plan);
  result.estimate = std::move(faster.estimate);
  result.gpusUsed = result.plan.numRanks();
  result.partlyFilled = cost::partlyFilled(result.plan, query.cluster);
  rankAgain(before, result);
  Certificate& proof = result.certificate;
  const Seconds step = result.estimate.step;
  proof.bound = std::min(proof.bound, step);
  proof.gap = 1 - proof.bound / step;
  if (!proof.boundOfAllCuts) return;
  proof.boundOfAllCuts = std::min(*proof.boundOfAllCuts, step);
  proof.gapOfAllCuts = 1 - *proof.boundOfAllCuts / step;
}

}  // namespace trireme::planner
