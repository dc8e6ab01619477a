// Around the answer: what keeps a faster plan out, and what would change it.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "planner/query.h"

namespace trireme::planner {

// kMost: of a degree. kBatch: that divides badly.
enum class LimitKind : uint8_t { kMemory, kPin, kMost, kRule, kBatch };

// Something without which a plan would be faster than the winner.
struct Limit {
  LimitKind kind = LimitKind::kMemory;
  std::string what;  // "pp" for a pin or a degree, "batch 127", the rejection in full for a rule
  plan::Plan plan;   // the fastest without it; the winner for a rule
  Seconds step;
  Bytes missing;  // kMemory: of that plan
  // kMemory: the faster plan that needs least, and what it misses. No plan faster than the winner
  // that these searches find misses less by more than limitTolerance().
  plan::Plan nearest;
  Seconds nearestStep;
  Bytes nearestMissing;
};
// Of a device with so much memory: a thousandth of it, or a twentieth of what is missing.
Bytes limitTolerance(Bytes memory, Bytes missing);
std::string nameOf(const Limit& limit);  // "the pinned pp", "the limit of pp"

// The query asked again with one thing changed.
struct Sensitivity {
  std::string change;  // "10 % more memory bandwidth"
  double amount = 0;   // that is more: 335; of a batch it may be less
  std::string unit;    // "GB/s", "TFLOP/s", "GiB", "sequences"; of one device where it has one
  plan::Plan plan;     // the best there: of a new search, or the winner as it is
  Seconds step;
  double tokensPerSecond = 0;
  double gain = 0;       // of tokens/s over the winner's: 0.05
  bool samePlan = true;  // but for the training settings
  // What the winner lacks there: faster links have more channels, whose buffers take memory.
  Bytes missing;
};

struct Outlook {
  // A faster plan that fits and obeys the pins, which the search has missed. Nothing else is said
  // then.
  std::optional<CostedPlan> better;
  std::vector<Limit> limits;               // memory, then pins, rules and the batch; empty: nothing
  std::vector<Sensitivity> sensitivities;  // in a fixed order
};

// All bandwidths of the tier, those that were measured too.
void scaleBandwidth(spec::LinkTier& tier, double factor);

// How much of it is done, and what comes next.
using OutlookProgress = std::function<void(double done, const std::string& what)>;

// A batch within a twentieth of the query's that all devices, or more of them than share that, can
// share evenly; 0: none.
int64_t evenBatch(const Query& query);

// Limits: the search without the limit of memory and, if that is faster, searches with ever more of
// it, and bisection, for the nearest faster plan; the search without each pin but `gpus`; the rule
// that leaves devices idle. Sensitivities: 10 % more matmul rate, memory bandwidth, bandwidth of
// each tier of links (with its measured curves), memory; the batch doubled. Each is searched again
// under the same pins and compared with the winner under the change, so that more of anything is
// never slower: estimates are monotone, and the search takes the balanced cut of the new numbers
// only.
//
// Searches around the answer try other cuts beyond the space than its own did, and may come upon a
// faster one: Outlook::better.
//
// `result` is the query's answer. There are ten to thirty searches, each with a tenth of the
// answer's work for cuts that few plans have.
// Errors: those of searchPlan, but that nothing fits.
Result<Outlook> lookAround(const Query& query, const PlanResult& result,
                           const OutlookProgress& progress = {});

// The sensitivities alone: six searches or so.
Result<std::vector<Sensitivity>> sensitivitiesOf(const Query& query, const PlanResult& result,
                                                 const OutlookProgress& progress = {});

}  // namespace trireme::planner
