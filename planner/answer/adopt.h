// An answer that something else than its search has found. Internal to planner/.
#pragma once
#include "planner/query.h"

namespace trireme::planner {

// Makes `faster`, a plan that fits and takes less time than the answer, the answer: the one before
// is a runner-up where its degrees differ. What was proved of the space's plans stays.
void adopt(CostedPlan faster, const Query& query, PlanResult& result);

}  // namespace trireme::planner
