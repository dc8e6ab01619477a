#include "planner/recommend.h"

#include <nlohmann/json.hpp>

#include "planner/report.h"

namespace trireme::planner {

Result<Recommendation> recommend(const Query& query, PlanResult result, bool looksAround,
                                 const OutlookProgress& progress) {
  Recommendation r;
  r.result = std::move(result);
  TRIREME_ASSIGN_OR_RETURN(r.why, explain(query, r.result));
  if (progress) progress(1, "simulating the step");
  TRIREME_ASSIGN_OR_RETURN(r.path, criticalPath(query, r.result.plan, r.result.estimate.step));
  if (looksAround) {
    TRIREME_ASSIGN_OR_RETURN(r.outlook, lookAround(query, r.result, progress));
  }
  return r;
}

nlohmann::json toJson(const Recommendation& r) {
  nlohmann::json json = toJson(r.result);
  for (const Alternative& alternative : r.why.alternatives)
    json["why"].push_back(toLine(alternative));
  json["stageBytes"] = stagesJson(r.why.stages);
  json["simulatedSeconds"] = r.path.simulated.count();
  if (r.outlook) {
    json["outlook"] = toJson(*r.outlook);
    json["criticalPath"] = toJson(r.path);
  }
  return json;
}

}  // namespace trireme::planner
