// The answer of `trireme plan`: the winner of a search with all that is said about it.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "planner/answer/critical_path.h"
#include "planner/answer/explain.h"
#include "planner/answer/outlook.h"
#include "planner/answer/timeline.h"
#include "planner/query.h"

namespace trireme::planner {

struct Recommendation {
  PlanResult result;
  std::optional<Roomier> roomier;
  Explanation why;
  PlayedPlan played;
  CriticalPath path;               // of what was played
  std::optional<Outlook> outlook;  // asked for
};

struct RecommendOptions {
  bool looksAround = false;  // what binds the answer, which takes ten to thirty searches
  // RunnerUp::simulated: a millisecond each, of Trireme's own programs on large clusters thirty.
  bool playsRunnersUp = false;
  bool tasks = false;  // PlayedPlan::simulation has what timelineOf() needs
  bool trace = false;  // and its events
};

// Of the query's answer. A single change of it that is faster and that the pins leave is the answer
// instead; if that is tight it is searched for once more; and what a look around finds is the
// answer and looked around in turn. `progress` hears how far it is. Errors: those of explain(),
// playPlan(), lookAround() and searchPlan().
Result<Recommendation> recommend(const Query& query, PlanResult result,
                                 const RecommendOptions& options,
                                 const OutlookProgress& progress = {});

// The line of a runner-up that takes less than the answer when both are simulated; else empty.
std::string overtakenLine(const Recommendation& recommendation);
// As report.h. Without `withPath` only the simulated step stands for the critical path.
nlohmann::json toJson(const Recommendation& recommendation, bool withPath);
std::string toText(const Recommendation& recommendation, const Query& query, bool withPath);

}  // namespace trireme::planner
