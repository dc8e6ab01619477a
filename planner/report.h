// Answers as text and as JSON. Nothing here prints.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "planner/check.h"
#include "planner/critical_path.h"
#include "planner/explain.h"
#include "planner/outlook.h"
#include "planner/query.h"
#include "planner/relax.h"

namespace trireme::planner {

// "tp 8, pp 2, dp 4, microbatch 1, interleaved x 3, recompute selective, sequence parallel": what
// is off is not named.
std::string summary(const plan::Plan& plan);

// "13, 12 (x 3)": layers of every stage, those of its chunks joined by '+'.
std::string layersText(const plan::Plan& plan);

struct BreakdownPart {
  std::string name;  // "matrix products", "attention", "tensor parallel", "bubble"...
  Seconds time;
};
// All parts, in this order always; they add up to the step.
std::vector<BreakdownPart> breakdownParts(const cost::Breakdown& breakdown);
// Per cent of their sum, rounded to tenths so that they add up to 100.0: what is lost by rounding
// down goes to those that lost most. All 0 if the sum is.
std::vector<double> percentages(const std::vector<Seconds>& times);

struct MemoryPart {
  std::string name;
  Bytes bytes;
};
std::vector<MemoryPart> memoryParts(const cost::MemoryUse& memory);

// Whether it fits by less than its memory may be off, and of how much it is so. What takes no more
// than certainMemory() is sure to fit: of software that others make, whose peaks are predictions,
// kCertainShare of a device's memory; of Trireme's own programs, exact but for a reserve that is
// put together from other programs' figures, all but kReserveInDoubt of that.
inline constexpr double kCertainShare = 0.93;
inline constexpr double kReserveInDoubt = 0.5;
Bytes certainMemory(const cost::Estimate& estimate);
bool isTight(const cost::Estimate& estimate);
// "peaks are 3 to 7 % off": why it may not fit though it is said to.
std::string doubtText(bool ownPrograms);
// What another plan loses against the winner, and in which part of the step most.
RunnerUp runnerUpOf(const CostedPlan& other, const CostedPlan& winner);

// "63.93 GiB, 61.20 GiB (x 6)": totals of pipeline ranks in order.
std::string stagesText(const std::vector<cost::MemoryUse>& stages);

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
