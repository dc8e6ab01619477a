// Cuts of plans of Trireme's own programs that are faster than those of cutsFor(). Internal to
// planner/.
#pragma once
#include <vector>

#include "planner/best_cut.h"

namespace trireme::planner {

struct BoundedCut {
  Ranges layers;
  Seconds bound;  // cost::estimate takes no less
};

// The cuts of cutsFor() that may fit, each with its schedule played with the least times of stages
// (block_costs.h), which are within a few thousandths of the estimate's; and, where it is faster by
// them, the cut that moves of layers make of the best of these and of some other spreads over the
// chunks (CutPlayer::descend). What is played is limited by passes. Requires no pinned layers.
std::vector<BoundedCut> ownCuts(const Query& query, const plan::Plan& plan,
                                const BlockCosts& blocks, const std::vector<Ranges>& cuts);

}  // namespace trireme::planner
