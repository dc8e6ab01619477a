// Finds the plan that finishes a step soonest within memory, and proves it.
#pragma once
#include <functional>

#include "ir/base/status.h"
#include "planner/block_costs.h"
#include "planner/query.h"

namespace trireme::planner {

// The fastest plan of the space (space.h, cuts.h) under cost::estimate. Exact: best-first branch
// and bound over three admissible bounds, each tighter and dearer than the one before,
//   group       matmul FLOPs of the model at the device's sustained rate, and the pipeline's ramp
//   probed      the same with the times of real layers, read off a small expansion (block_costs.h)
//   candidate   cost::pipelineTime of those blocks, and the least memory
// A node whose bound is above what the answer needs is never opened. Of equally fast plans the
// simplest wins (simplerThan), so the answer does not depend on the order of the search.
//
// All devices are used; if no legal layout has as many, the largest number that has one, and
// PlanResult::gpusUsed says so.
//
// kInvalidArgument: a spec is invalid, or more devices are pinned than there are.
// kInfeasible: no layout obeys the pins (the message names the rule, the numbers and the nearest
//   valid ones), or none fits in memory (it
//   says by how much the best misses, and which single relaxation would fit).
Result<PlanResult> searchPlan(const Query& query);

// Where the search gets its numbers. `blocks` must be the same for plans of one group, and
// boundOf(query, plan, blocks(plan)) must never exceed estimate(plan).
struct CostFunctions {
  std::function<Result<cost::Estimate>(const plan::Plan&)> estimate;
  std::function<Result<BlockCosts>(const plan::Plan&)> blocks;
};
CostFunctions modelCosts(const Query& query);

// The same with other costs (tests), and without looking for relaxations.
Result<PlanResult> searchPlan(const Query& query, const CostFunctions& costs);

}  // namespace trireme::planner
