// What each choice of a plan is worth, found by changing that one alone.
#pragma once
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "planner/query.h"
#include "planner/search/search.h"

namespace trireme::planner {

enum class Outcome : uint8_t { kSlower, kFaster, kEqual, kDoesNotFit, kForbidden };

// A plan with one choice changed and everything else, pins included, kept. Other numbers of stages
// or virtual stages get the cut that the search would choose for them (recut.h).
struct Alternative {
  std::string choice;  // "recompute", "schedule", "microbatch"...
  std::string chosen;  // "selective"
  std::string other;   // "none"
  std::string also;    // what has to change with it: "dp 16 and microbatch 2"; mostly empty
  Outcome outcome = Outcome::kSlower;
  Seconds difference;  // of the step, other - chosen; 0 unless both fit
  std::string part;    // the part of the breakdown that changes most
  Seconds partDifference;
  Bytes missing;            // kDoesNotFit: by how much
  bool isExcluded = false;  // by the query's pins and limits
  std::string rule;         // kForbidden: what verifyPlan says
  plan::Plan plan;          // the changed one
};

struct Explanation {
  std::string bottleneck;  // the largest part of the step: "matrix products"
  Bytes slack;             // memory that the fullest rank has left; negative if it has too little
  std::vector<cost::MemoryUse> stages;    // of every pipeline rank
  std::vector<Alternative> alternatives;  // every choice's next values
};

// Which values of a choice: the next on either side (of degrees half and twice), each in the best
// way there is, or any, in every way.
enum class Reach : uint8_t { kNext, kAny };

// The changes of one choice of any legal plan, in a fixed order; those that the stack cannot do are
// left out. Costs a plan each, or its cuts: a dozen, or a hundred. Errors: those of cost::estimate
// but for forbidden plans.
Result<std::vector<Alternative>> singleChanges(const Query& query, const plan::Plan& plan,
                                               const cost::Estimate& chosen,
                                               const CostFunctions& costs, Reach reach);
// Of those of any reach the ones that are faster and fit. What a bound shows not to be is not
// costed; with virtual stages what is not within a hundredth of the bound of cuts of the space, as
// in the search. Requires that the plan fits. Errors: those of singleChanges.
Result<std::vector<Alternative>> fasterChanges(const Query& query, const plan::Plan& plan,
                                               const cost::Estimate& chosen,
                                               const CostFunctions& costs);

// Changes of any legal plan, also of one that does not fit, to the next values. Errors: those of
// singleChanges.
Result<Explanation> explain(const Query& query, const plan::Plan& plan,
                            const cost::Estimate& chosen, const CostFunctions& costs);
// Of the winner of a search. kFaster can only appear for cuts, for other virtual stages whose cut
// leaves the space (played_cut.h), and for plans outside of the query's pins.
Result<Explanation> explain(const Query& query, const PlanResult& result);

// "recompute none instead of selective: 3.20 GiB too much memory", "pp 2 instead of 8, with dp 16:
// as fast".
std::string toLine(const Alternative& alternative);

}  // namespace trireme::planner
