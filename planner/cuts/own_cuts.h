// Cuts of plans of Trireme's own programs that are faster than those of cutsFor(). `flush` plays
// other plans as well. Internal to planner/.
#pragma once
#include <optional>
#include <vector>

#include "cost_models/play.h"
#include "planner/cuts/all_cuts.h"
#include "planner/cuts/best_cut.h"
#include "planner/cuts/exact_cuts.h"

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
                                const BlockCosts& blocks, cost::FlushPlayer& flush,
                                const std::vector<Ranges>& cuts);

// All cuts with a layer on every chunk, the ones above or not.
struct AllOwnCuts {
  // Estimates of those that fit are at least this; kNoCut: none fits.
  Seconds bound;
  // Of whole layers near what the best would be if they need not be whole (CutRelaxation), and of
  // moves from there: the fastest that fits, by the least that ranks need. None: none was found, or
  // none is faster than asked.
  std::optional<BoundedCut> cut;
};
// Whether it is worth it: without virtual stages the closed form is close, and so are the cuts
// above.
inline bool hasManyCuts(const plan::Plan& plan) {
  return plan.pp > 1 && (plan.virtualStages > 1 || plan::splitsBackward(plan.schedule));
}
// Work for a search, in passes of chunks: some seconds. What is left when it is done has the bound
// of AllCuts alone.
inline constexpr int64_t kMostPassesOfAll = 30'000'000;
// For a single plan; so much at most.
inline constexpr int64_t kMostPassesOfOne = 1'000'000;

// Those of all cuts, or of those into even chunks, with a layer on every chunk that may fit and may
// take less than `enough`, by the least times of stages. `leastOnce`: AllCuts::once(). Takes its
// work off `passes`.
ExactCuts exactOwnCuts(const Query& query, const plan::Plan& plan, const BlockCosts& blocks,
                       cost::FlushPlayer& flush, Spread spread, const cost::OnceTimes& leastOnce,
                       Seconds enough, int64_t& passes);

// What estimates of all cuts that fit take at least, as far as it is worth knowing to tell whether
// any takes less than `enough`; kNoCut: none fits. As allOwnCuts(), without the cut.
Seconds boundOfOwnCuts(const Query& query, const plan::Plan& plan, const BlockCosts& blocks,
                       const AllCuts& cheap, Seconds enough, int64_t& passes);

// `cheap`: of the plan. Cuts that take `enough` or more are of no interest. Takes what it does off
// `passes`, of which there have to be some. Requires hasManyCuts(plan).
AllOwnCuts allOwnCuts(const Query& query, const plan::Plan& plan, const BlockCosts& blocks,
                      cost::FlushPlayer& flush, const AllCuts& cheap, Seconds enough,
                      int64_t& passes);

// Of a cut that does not fit, although the bounds of its memory say so: `beyond`, of every rank,
// is what it needs more than they say. The fastest cut that was found, by moves from this one and
// from the leanest, whose ranks have room for as much beyond their bounds; none if there is none.
std::optional<BoundedCut> refitted(const Query& query, const plan::Plan& cut,
                                   const BlockCosts& blocks, cost::FlushPlayer& flush,
                                   const std::vector<Bytes>& beyond);
// What a plan's ranks, whose memory is known, need beyond their bounds.
std::vector<Bytes> beyondBounds(const Query& query, const plan::Plan& plan,
                                const BlockCosts& blocks, const std::vector<Bytes>& memory);

}  // namespace trireme::planner
