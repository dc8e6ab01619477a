// Finds the plan that finishes a step soonest within memory, and proves it.
#pragma once
#include <functional>
#include <memory>

#include "cost_models/play.h"
#include "ir/base/status.h"
#include "planner/query.h"
#include "planner/space/block_costs.h"

namespace trireme::planner {

// A search takes seconds for as many layers, on any number of devices.
inline constexpr int64_t kMostLayers = 4096;

struct SearchState {
  int64_t numGroups = 0;
  int64_t numGroupsOpened = 0;  // the search may end long before all are
  int64_t numBounded = 0;
  int64_t numCosted = 0;
};
using SearchProgress = std::function<void(const SearchState&)>;

// The fastest plan of the space (space.h, cuts.h) under cost::estimate. Exact: best-first branch
// and bound over admissible bounds, each tighter and dearer than the one before,
//   group       matmul FLOPs of the model at the device's sustained rate, and the pipeline's ramp
//   likened     the same with the times of real layers of a group that recomputes nothing and has
//               the backward whole
//   probed      the same with those of the group, read off a small expansion (block_costs.h)
//   candidate   cost::pipelineTime of those blocks, and the least memory
// For stacks with a description, between the last two,
//   arrangement a plan whose layers are not cut: first what no cut is faster than (QuickBound),
//               then the least of all cuts (best_cut.h). It is opened by finding its fastest cut by
//               the closed form; where layers are recomputed, with as few as fit, and then with
//               more, which leaves the cut more room
// With virtual stages the estimate plays the schedule of uneven chunks (cost::flushTime), which the
// closed form cannot: where there are too many cuts to play, the likely ones are (played_cut.h).
// After the rest all cuts of plans that may be faster are gone through, stage by stage
// (exact_cuts.h); where that is too much the certificate's bound is the closed form's. Where memory
// is tight chunks that differ by more are tried. A node whose bound is above what the answer needs
// is never opened. Of equally fast plans the simplest wins (simplerThan), so the answer does not
// depend on the order of the search.
//
// Plans may leave devices idle. First the largest number of devices that has a legal layout is
// searched; then all smaller ones, of which only groups are opened whose bound beats the answer so
// far. PlanResult says how many devices are idle, and what the most of them would have reached.
//
// kInvalidArgument: a spec is invalid, the model has more than kMostLayers layers, the batch more
//   than cost::kMostSamples samples, or more devices are pinned than there are.
// kInfeasible: no layout obeys the pins (the message names the rule, the numbers and the nearest
//   valid ones), or none fits in memory (it
//   says by how much the best misses, and which single relaxation would fit).
//
// `progress` hears how far the search is, again and again; also of the searches for
// relaxations, which start at 0 again.
Result<PlanResult> searchPlan(const Query& query, const SearchProgress& progress = {});

// Where the search gets its numbers. `blocks` must be the same for plans of one group, and
// boundOf(query, plan, *blocks(plan)) must never exceed estimate(plan). Of Trireme's own programs
// passes take no longer if nothing is recomputed and the backward is whole.
using SharedBlocks = std::shared_ptr<const BlockCosts>;
struct CostFunctions {
  std::function<Result<cost::Estimate>(const plan::Plan&)> estimate;
  std::function<Result<SharedBlocks>(const plan::Plan&)> blocks;
  // What plays share, never null. Copies share it, and what was found for `blocks`: of one thread.
  std::shared_ptr<cost::FlushPlayer> player = std::make_shared<cost::FlushPlayer>();
};
CostFunctions modelCosts(const Query& query);

// The query with what its stack can do in that precision on that device (spec::stackOn). Searches
// answer it.
Query withStackOnDevice(const Query& asked);

// The same with other costs (tests), and without looking for relaxations.
Result<PlanResult> searchPlan(const Query& query, const CostFunctions& costs,
                              const SearchProgress& progress = {});

}  // namespace trireme::planner
