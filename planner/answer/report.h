// Answers as text and as JSON. Nothing here prints.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "planner/answer/check.h"
#include "planner/answer/critical_path.h"
#include "planner/answer/explain.h"
#include "planner/answer/outlook.h"
#include "planner/query.h"
#include "planner/search/relax.h"

namespace trireme::planner {

// The winner is none of the plans that are bounded.
bool isBeyond(const PlanResult& result);

// Why the plan leaves devices idle; empty if it does not.
std::string idleReason(const PlanResult& result);

// What was asked: model, cluster, training.
std::string toText(const Query& query);

// All in lines of at most 100 columns.
// The answer: plan, layers, time, memory, runners-up, the certificate in one line and what it rests
// on.
std::string toTable(const PlanResult& result);
// Where the time goes, memory of every stage, what every single change is worth.
std::string toTable(const Explanation& explanation, const cost::Estimate& estimate);
// A checked plan: the plan itself, the verdict, the explanation.
std::string toTable(const PlanCheck& check, const spec::ClusterSpec& cluster);
// The plan that is sure to fit, and what it costs.
std::string toTable(const Roomier& roomier, const PlanResult& tight);
// What binds the winner, and what would change it.
std::string toTable(const Outlook& outlook, const PlanResult& result);
// The simulated step beside the estimate, and where the critical path goes.
std::string toTable(const CriticalPath& path);
// The simulated step alone.
std::string simulatedLine(const CriticalPath& path);

// Everything, in SI units (seconds, bytes), keys in lower camel case. `plan` is the plan's own text
// form as a string, so that it has one format only.
nlohmann::json toJson(const cost::Estimate& estimate);
nlohmann::json toJson(const PlanResult& result);
nlohmann::json toJson(const Roomier& roomier);  // null: there is none
nlohmann::json toJson(const PlanCheck& check);
nlohmann::json toJson(const Outlook& outlook);
nlohmann::json toJson(const CriticalPath& path);
nlohmann::json toJson(const Shortfall& shortfall);
nlohmann::json toJson(const Alternative& alternative);
nlohmann::json stagesJson(const std::vector<cost::MemoryUse>& stages);  // bytes of each

}  // namespace trireme::planner
