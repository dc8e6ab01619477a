// Where to cut the layers: ranges for every virtual stage.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/base/units.h"
#include "ir/plan/plan.h"
#include "planner/query.h"
#include "planner/space/block_costs.h"

namespace trireme::planner {

// How long one stage takes for one microbatch, and how many layers fit into it.
struct StageBudget {
  Seconds fixed;           // embedding or head
  int64_t mostLayers = 0;  // by memory
};

// The numbers of layers per stage, each between `least` and the stage's budget, that make the
// longest fixed + layers * perLayer as short as possible. Empty: the budgets do not hold
// `numLayers`.
//
// Exact: layers are alike, so giving the next one to the stage that it leaves shortest is optimal
// (any other assignment can be exchanged towards it without lengthening the longest). Most
// layers are handed out at once, so it takes O(p log p). Of equal stages the last one gets the
// layer: earlier stages hold more microbatches.
std::vector<int64_t> balanceLayers(int64_t numLayers, Seconds perLayer, int64_t least,
                                   const std::vector<StageBudget>& stages);

// The cuts that the search tries for `plan` (its `layers` is ignored): the pinned one, or the even
// one and, where it differs, another. For a stack with a description that is the fastest that fits
// (best_cut.h). For one with programs of its own, whose estimate is an expansion, the one that
// balances time with the embedding's and the head's share under the memory of a device, its layers
// spread evenly over a stage's chunks (where memory holds no such cut, the one whose fullest rank
// is least full: leanestCounts()), and with virtual stages the one that balances these, whatever
// the memory.
std::vector<std::vector<std::vector<plan::LayerRange>>> cutsFor(const Query& query,
                                                                const plan::Plan& plan,
                                                                const BlockCosts& blocks);

// The cut that pins ask for, of plan.pp x plan.virtualStages chunks in the order of the layers.
std::vector<std::vector<plan::LayerRange>> pinnedCut(const std::vector<int64_t>& layers,
                                                     const plan::Plan& plan);

// Whether the chunks of every stage differ by one layer at most.
bool hasEvenChunks(const plan::Plan& plan);

// Ranges from numbers of layers, counts[stage][chunk].
std::vector<std::vector<plan::LayerRange>> rangesFrom(
    const std::vector<std::vector<int64_t>>& counts);

}  // namespace trireme::planner
