#include "planner/answer/recommend.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "ir/base/format.h"
#include "planner/answer/adopt.h"
#include "planner/answer/report.h"
#include "planner/answer/table_lines.h"
#include "planner/certainty.h"
#include "planner/parts.h"
#include "planner/plan_text.h"
#include "planner/search/search.h"

namespace trireme::planner {

namespace {

// What follows from an answer's single changes is looked at so often.
constexpr int kMostAdopted = 4;

// That the pins leave; nullptr: none is faster.
const Alternative* fastestOf(const std::vector<Alternative>& alternatives) {
  const Alternative* fastest = nullptr;
  for (const Alternative& a : alternatives)
    if (a.outcome == Outcome::kFaster && !a.isExcluded &&
        (fastest == nullptr || a.difference < fastest->difference))
      fastest = &a;
  return fastest;
}

// Cuts beyond the space are tried of the plans that may win, so that what one choice makes of the
// winner may have a faster one: if none that the explanation names, then any, as `--check` looks.
Status adoptFromWhy(const Query& asked, Recommendation& r) {
  const Query query = withStackOnDevice(asked);
  const CostFunctions costs = modelCosts(query);
  for (int tries = 0; tries < kMostAdopted; ++tries) {
    const Alternative* fastest = fastestOf(r.why.alternatives);
    std::vector<Alternative> any;
    if (fastest == nullptr && !query.stack.ownPrograms) {
      TRIREME_ASSIGN_OR_RETURN(any, fasterChanges(query, r.result.plan, r.result.estimate, costs));
      fastest = fastestOf(any);
    }
    if (fastest == nullptr) return {};
    CostedPlan faster{fastest->plan, {}};
    TRIREME_ASSIGN_OR_RETURN(faster.estimate, costs.estimate(faster.plan));
    if (!faster.estimate.fits() || faster.estimate.step >= r.result.estimate.step) return {};
    adopt(std::move(faster), query, r.result);
    TRIREME_ASSIGN_OR_RETURN(r.why, explain(query, r.result));
  }
  return {};
}

// Uneven cuts are tried where memory is tight alone, so that with less of it a faster plan may come
// out.
Result<Roomier> roomierThan(const PlanResult& tight, const Query& asked) {
  Query query = asked;
  query.cluster.device.memory = certainMemory(tight.estimate);
  query.topK = 1;
  Result<PlanResult> result = searchPlan(query, modelCosts(query));
  if (!result.has_value() && result.error().code() == StatusCode::kInfeasible) return Roomier{};
  if (!result.has_value()) return Error(result.error());
  return Roomier{CostedPlan{std::move(result->plan), std::move(result->estimate)}};
}

// The explanation of the answer, and what it or a search that leaves room finds better than it.
Status improve(const Query& query, const OutlookProgress& progress, Recommendation& r) {
  TRIREME_ASSIGN_OR_RETURN(r.why, explain(query, r.result));
  TRIREME_RETURN_IF_ERROR(adoptFromWhy(query, r));
  r.roomier.reset();
  if (!isTight(r.result.estimate)) return {};
  if (progress) progress(1, "leaving room in memory");
  TRIREME_ASSIGN_OR_RETURN(Roomier roomier, roomierThan(r.result, query));
  if (!roomier.plan || roomier.plan->estimate.step >= r.result.estimate.step) {
    r.roomier = std::move(roomier);
    return {};
  }
  adopt(*std::move(roomier.plan), query, r.result);
  TRIREME_ASSIGN_OR_RETURN(r.why, explain(query, r.result));
  return {};
}

// What a look around comes upon that the search has missed is the answer.
Status lookAround(const Query& query, const OutlookProgress& progress, Recommendation& r) {
  for (;;) {
    TRIREME_ASSIGN_OR_RETURN(Outlook outlook, planner::lookAround(query, r.result, progress));
    if (!outlook.better) {
      r.outlook = std::move(outlook);
      return {};
    }
    adopt(*std::move(outlook.better), query, r.result);
    TRIREME_RETURN_IF_ERROR(improve(query, progress, r));
  }
}

}  // namespace

Result<Recommendation> recommend(const Query& query, PlanResult result,
                                 const RecommendOptions& options, const OutlookProgress& progress) {
  Recommendation r;
  r.result = std::move(result);
  TRIREME_RETURN_IF_ERROR(improve(query, progress, r));
  if (options.looksAround) TRIREME_RETURN_IF_ERROR(lookAround(query, progress, r));
  if (progress) progress(1, "simulating the step");
  cost::SimulationOptions simulation;
  simulation.path = true;
  simulation.tasks = options.tasks;
  simulation.trace = options.trace;
  TRIREME_ASSIGN_OR_RETURN(r.played, playPlan(query, r.result.plan, simulation));
  r.path = pathOf(query, r.result.plan, r.played.simulation, r.result.estimate.step);
  if (options.playsRunnersUp)
    for (RunnerUp& runner : r.result.runnersUp) {
      if (progress) progress(1, "simulating the runners-up");
      TRIREME_ASSIGN_OR_RETURN(const PlayedPlan played, playPlan(query, runner.plan, {}));
      runner.simulated = played.simulation.makespan;
    }
  return r;
}

nlohmann::json toJson(const Recommendation& r, bool withPath) {
  nlohmann::json json = toJson(r.result);
  if (r.roomier) json["roomier"] = toJson(*r.roomier);
  for (const Alternative& alternative : r.why.alternatives)
    json["why"].push_back(toLine(alternative));
  json["stageBytes"] = stagesJson(r.why.stages);
  json["simulatedSeconds"] = r.path.simulated.count();
  if (r.outlook) json["outlook"] = toJson(*r.outlook);
  if (withPath) json["criticalPath"] = toJson(r.path);
  return json;
}

// Where task by task a runner-up is the faster one: by how much, for what counts is the estimate.
std::string overtakenLine(const Recommendation& r) {
  constexpr double kTold = 0.002;
  const RunnerUp* fastest = nullptr;
  for (const RunnerUp& runner : r.result.runnersUp)
    if (runner.simulated && (fastest == nullptr || *runner.simulated < *fastest->simulated))
      fastest = &runner;
  std::string out;
  if (fastest == nullptr || *fastest->simulated >= r.path.simulated * (1 - kTold)) return out;
  appendField(out, "",
              fmt::format("task by task a runner-up takes {:.1f} % less, {}: {}; plans are ordered "
                          "by their estimates",
                          100 * (1 - *fastest->simulated / r.path.simulated),
                          formatSeconds(*fastest->simulated), summary(fastest->plan)));
  return out;
}

// Where devices stay idle, not for a pin, and a look around has not said so.
std::string batchLine(const Recommendation& r, const Query& query) {
  const int64_t devices = query.pins.gpus.value_or(query.cluster.numDevices);
  const int64_t near = evenBatch(query);
  std::string out;
  Pins none;
  none.gpus = query.pins.gpus;
  if (r.outlook || near == 0 || query.pins != none || r.result.plan.numRanks() == devices)
    return out;
  appendField(out, "batch",
              fmt::format("{} sequences instead of {} are shared evenly by more of the {} devices: "
                          "--explain says what that brings",
                          near, query.training.globalBatchSize, devices));
  return out;
}

std::string toText(const Recommendation& r, const Query& query, bool withPath) {
  return fmt::format("{}{}{}{}{}{}{}{}", toText(query), toTable(r.result), batchLine(r, query),
                     r.roomier ? toTable(*r.roomier, r.result) : "",
                     toTable(r.why, r.result.estimate),
                     withPath ? toTable(r.path) : simulatedLine(r.path), overtakenLine(r),
                     r.outlook ? toTable(*r.outlook, r.result) : "");
}

}  // namespace trireme::planner
