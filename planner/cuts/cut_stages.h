// The stages of a plan that is still to be cut, for stacks with a description.
#pragma once
#include <cstdint>
#include <iterator>
#include <vector>

#include "cost_models/described_estimate.h"
#include "ir/plan/plan.h"
#include "planner/query.h"
#include "planner/space/block_costs.h"

namespace trireme::planner {

using Ranges = std::vector<std::vector<plan::LayerRange>>;  // of a plan's layers

// So many layers over the chunks of a stage, the last ones one more: of all ways to spread them so
// evenly the one with the fewest activations, for the last chunks keep theirs for the shortest
// time.
std::vector<int64_t> spreadOver(int64_t layers, int64_t chunks);
// The same, but that the last stage's last chunk is the one without a layer, where one is.
std::vector<int64_t> spreadOver(int64_t layers, int64_t chunks, int64_t rank);
// A plan's layers, of so many on every stage.
Ranges rangesOf(const std::vector<int64_t>& layers, int64_t chunks);

// Inner stages differ in nothing but their neighbours.
enum StageKind : size_t { kFirst, kInner, kLast };
inline constexpr StageKind kStageKinds[] = {kFirst, kInner, kLast};
inline constexpr size_t kNumStageKinds = std::size(kStageKinds);

// A plan whose stages get their layers one at a time, when they are looked at, and what all looks
// share.
struct CutStages {
  // `whole` without layers: chunks of none on one stage of each kind. The arguments must outlive
  // it. Requires blocks.described.
  CutStages(const Query& query, const plan::Plan& whole, const BlockCosts& blocks);
  CutStages(const CutStages&) = delete;
  CutStages& operator=(const CutStages&) = delete;

  StageKind kindOf(int64_t rank) const;
  // Where a plan has fewer stages than kinds, the next best.
  int64_t rankOf(StageKind kind) const;
  // Every chunk has a layer but those of the embedding and of the head.
  int64_t least(int64_t rank) const;
  void setLayers(int64_t rank, const std::vector<int64_t>& counts);  // of its chunks
  cost::Pipeline pipeline() const;                                   // but for the stages

  const Query& query;
  const cost::DescribedBlocks& blocks;
  plan::Plan plan;
  const cost::StageSetting setting;  // of `plan`
  const int64_t numLayers, count, chunks;
  const double microbatches;
  const double transfer;  // s, what is felt of one
  const double factor;    // cost::stepFactor()
  const bool isSplit;     // the backward
  const bool isAhead;     // split, with post-validation
};

}  // namespace trireme::planner
