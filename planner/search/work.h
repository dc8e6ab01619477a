// What a microbatch takes in a group of plans. Internal to planner/.
#pragma once
#include "planner/space/block_costs.h"
#include "planner/space/space.h"

namespace trireme::planner {

// One microbatch forward and backward, without what depends on pp and dp.
struct Work {
  Seconds all;       // on all stages
  Seconds layer;     // of one layer
  PassTimes passes;  // of that layer, each at least; `weights` with all that `backward` leaves out
};

// Known without blocks: products at the sustained rate, and collectives within a layer. Of
// Trireme's own programs that is each layer's products, attention, and of the reductions and
// gathers over tp those that nothing can run beside (ir/expand/README.md says which these are).
// Depends on nothing of the group but its tp, cp, microbatch, kind of recomputation, sequence
// parallelism, overlap and whether it splits the backward.
Work leastWork(const Query& query, const Group& group);
// With the times of real blocks.
Work probedWork(const Query& query, const BlockCosts& blocks);

}  // namespace trireme::planner
