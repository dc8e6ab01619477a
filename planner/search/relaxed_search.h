// The search as changes of a query need it. Internal to planner/.
#pragma once
#include <cstdint>

#include "planner/query.h"
#include "planner/search/search.h"

namespace trireme::planner {

// What is left out of a search that is asked for no more than its winner.
struct SearchScope {
  bool isAnswer = true;  // says what does not fit, and by how much nothing does
  // The first plan that fits is as good as the fastest.
  bool anyPlan = false;
  int64_t moreThan = 0;  // plans on as many devices or fewer are known not to be
  double effort = 1;     // share of the work for cuts that were not tried when it is over
};

// The winner is that of searchPlan(query, costs), if the scope's promises hold, unless any plan
// will do. Where !scope.isAnswer kInfeasible has no numbers, and the result no rejections.
Result<PlanResult> searchWithin(const Query& query, const SearchScope& scope,
                                const CostFunctions& costs, const SearchProgress& progress);

}  // namespace trireme::planner
