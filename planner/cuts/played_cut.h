// The fastest cut of a plan with virtual stages or a split backward, of stacks with a description.
// Internal to planner/.
#pragma once
#include <optional>
#include <vector>

#include "cost_models/play.h"
#include "planner/cuts/best_cut.h"
#include "planner/cuts/exact_cuts.h"

namespace trireme::planner {

// Of a stack with a description, how little time of cuts beyond the space is looked for, if those
// in it take at least `bound`.
inline Seconds reachOf(const plan::Plan& plan, Seconds bound) {
  constexpr double kBeyond = 0.99;
  return plan.virtualStages > 1 ? bound * kBeyond : bound;
}

struct PlayedCut {
  std::optional<CutSearch::Cut> cut;  // the fastest that was found, but for rounding
  Seconds bound;  // no cut of the space that fits takes less; cut->step if it is the fastest
  std::optional<CutSearch::Cut> slower;  // that was found and takes more than the limit
};

// The estimate plays the schedule of uneven chunks (cost::flushTime), which no dynamic program can:
// what a chunk costs depends on all others. So CutSearch::lowest() bounds all cuts, and
//   where few cuts are below the limit, each is played: exact
//   otherwise those are played that have as many layers per stage as the lowest, each spread in
//   several ways, and the even one
// Cuts beyond the space (best_cut.h) may be faster yet: from the best of those on, and from cuts
// whose last chunk has the head alone or whose chunks take equally long, layers are moved from
// chunk to chunk as long as that helps (CutPlayer::descend). Then `cut` may be below `bound`. What
// is played is limited, by passes, so that a search of a thousand devices takes a tenth of a
// second.
//
// `cut` takes no more than `limit` and fits. Requires CutSearch::isPlayed(plan), no pinned layers,
// plan.recomputeLayers as CutSearch::recomputeLayers() was told. `flush` plays other plans as well.
PlayedCut fastestPlayed(const Query& query, const plan::Plan& plan, const BlockCosts& blocks,
                        CutSearch& cuts, cost::FlushPlayer& flush, std::optional<Seconds> limit);

// The fastest of all cuts of the space, if it takes less than `enough`; takes its work off
// `passes`.
ExactCuts exactPlayed(const Query& query, const plan::Plan& plan, const BlockCosts& blocks,
                      cost::FlushPlayer& flush, Seconds enough, int64_t& passes);

// As fast as plan.layers, or faster by moves of layers from there. Requires virtual stages, no
// pinned layers. None: `plan` does not fit.
std::optional<CutSearch::Cut> polished(const Query& query, const plan::Plan& plan,
                                       const BlockCosts& blocks, cost::FlushPlayer& flush);

// Cuts beyond the space where memory has little room for chunks that take equally long: the first
// ones, whose microbatches wait longest, have few layers and the last ones many. Whole layers near
// what the best would be if they need not be whole (CutRelaxation), and moves from there.
struct UnevenCut {
  bool mayFit = true;                 // some cut, as far as is known
  std::optional<CutSearch::Cut> cut;  // fits, and takes less than `enough`. None: none was found
};
// Work for a search, in passes of chunks: a tenth of a second.
struct UnevenWork {
  int64_t relaxed = 4'000'000;  // where memory has no room for chunks that take equally long
  int64_t played = 1'000'000;   // where it has, but little more
};
// Takes what it does off `work`; where that is used up it does nothing. Requires virtual stages, no
// pinned layers.
UnevenCut unevenCut(const Query& query, const plan::Plan& plan, const BlockCosts& blocks,
                    SlotTable& slots, cost::FlushPlayer& flush, Seconds enough, UnevenWork& work);

}  // namespace trireme::planner
