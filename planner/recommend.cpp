#include "planner/recommend.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "planner/report.h"

namespace trireme::planner {

namespace {

void setHosts(Outlook& outlook, int64_t devicesPerHost) {
  for (Limit& limit : outlook.limits)
    limit.plan.devicesPerHost = limit.nearest.devicesPerHost = devicesPerHost;
  for (Sensitivity& sensitivity : outlook.sensitivities)
    sensitivity.plan.devicesPerHost = devicesPerHost;
}

Result<Roomier> roomierThan(const PlanResult& tight, const Query& asked) {
  Query query = asked;
  query.cluster.device.memory = tight.estimate.memoryAvailable * kCertainShare;
  query.topK = 1;
  Result<PlanResult> result = searchPlan(query, modelCosts(query));
  if (!result.has_value() && result.error().code() == StatusCode::kInfeasible) return Roomier{};
  if (!result.has_value()) return Error(result.error());
  return Roomier{CostedPlan{std::move(result->plan), std::move(result->estimate)}};
}

}  // namespace

Result<Recommendation> recommend(const Query& query, PlanResult result,
                                 const RecommendOptions& options, const OutlookProgress& progress) {
  Recommendation r;
  r.result = std::move(result);
  TRIREME_ASSIGN_OR_RETURN(r.why, explain(query, r.result));
  if (isTight(r.result.estimate)) {
    if (progress) progress(1, "leaving room in memory");
    TRIREME_ASSIGN_OR_RETURN(r.roomier, roomierThan(r.result, query));
  }
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
  if (options.looksAround) {
    TRIREME_ASSIGN_OR_RETURN(r.outlook, lookAround(query, r.result, progress));
  }
  // Behind all that compares plans of searches, which leave it open.
  r.result.plan.devicesPerHost = query.cluster.devicesPerHost();
  for (RunnerUp& runner : r.result.runnersUp)
    runner.plan.devicesPerHost = r.result.plan.devicesPerHost;
  if (r.roomier && r.roomier->plan)
    r.roomier->plan->plan.devicesPerHost = r.result.plan.devicesPerHost;
  if (r.outlook) setHosts(*r.outlook, r.result.plan.devicesPerHost);
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

std::string toText(const Recommendation& r, const Query& query, bool withPath) {
  return fmt::format("{}{}{}{}{}{}", toText(query), toTable(r.result),
                     r.roomier ? toTable(*r.roomier, r.result) : "",
                     toTable(r.why, r.result.estimate),
                     withPath ? toTable(r.path) : simulatedLine(r.path),
                     r.outlook ? toTable(*r.outlook, r.result) : "");
}

}  // namespace trireme::planner
