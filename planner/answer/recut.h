// A plan with the cut that a search would choose for it.
#pragma once
#include "ir/base/status.h"
#include "planner/search/search.h"

namespace trireme::planner {

struct Recut {
  plan::Plan plan;
  cost::Estimate estimate;
};

// The fastest that fits of the cuts that the search tries for a plan like this (`layers` is
// ignored, pinned ones too): without virtual stages, for a stack with a description, of all; else
// of the likely ones (played_cut.h, own_cuts.h). If none fits, the one that lacks least memory. Of
// plan.recomputeLayers as many as the cut has. Requires that the plan is legal with some cut.
// Errors: those of the cost functions.
Result<Recut> fastestCut(const Query& query, const plan::Plan& plan, const CostFunctions& costs);

}  // namespace trireme::planner
