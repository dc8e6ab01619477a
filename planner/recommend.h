// The answer of `trireme plan`: the winner of a search with all that is said about it.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "planner/critical_path.h"
#include "planner/explain.h"
#include "planner/outlook.h"
#include "planner/query.h"

namespace trireme::planner {

struct Recommendation {
  PlanResult result;
  Explanation why;
  CriticalPath path;
  std::optional<Outlook> outlook;  // asked for
};

// Of the query's answer. `looksAround`: also what binds it, which takes ten to thirty searches;
// `progress` hears of them. Errors: those of explain(), criticalPath() and lookAround().
Result<Recommendation> recommend(const Query& query, PlanResult result, bool looksAround,
                                 const OutlookProgress& progress = {});

// As report.h; the critical path stands with the outlook, else only the simulated step.
nlohmann::json toJson(const Recommendation& recommendation);

}  // namespace trireme::planner
