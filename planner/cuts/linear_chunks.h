// A plan's passes and memory, linear in the layers of its chunks. Internal to planner/.
#pragma once
#include <functional>
#include <vector>

#include "cost_models/pipeline.h"
#include "planner/cuts/cut_memory.h"
#include "planner/query.h"
#include "planner/space/block_costs.h"

namespace trireme::planner {

// fixed + sum_i perLayer_i n_i, with n_i layers on chunk i, of all chunks by stages.
struct LinearRow {
  std::vector<double> perLayer;
  double fixed = 0;
  double at(const std::vector<double>& layers) const;
};

enum PassKind : size_t { kForwardPass, kBackwardPass, kWeightsPass };
inline constexpr size_t kNumPassKinds = 3;

struct LinearChunks {
  cost::Pipeline pipeline;  // its stages' times are to be set
  double numLayers = 0;
  double ofLayer[kNumPassKinds] = {};        // s, of one more
  std::vector<double> fixed[kNumPassKinds];  // s, without layers; transfers that stop a stage too
  std::vector<double> least;                 // layers that a chunk has
  // What a rank needs beyond its memory, as a share of it. It is convex in the layers: this much at
  // `layers`, and no less than this row says anywhere else.
  std::function<LinearRow(size_t rank, const std::vector<double>& layers)> memoryAt;

  // Whether every rank has memory for so many.
  bool mayHold(const std::vector<double>& layers) const;

  size_t numStages() const { return pipeline.stages.size(); }
  size_t numChunks() const { return least.size(); }
  size_t perStage() const { return numChunks() / numStages(); }
  double ofLayerInAll() const;
  // Of all chunks; each takes as long for a microbatch, but those that have as few layers as they
  // may. Requires a layer that takes time.
  std::vector<double> levelled() const;
  double timeOf(PassKind kind, size_t chunk, double layers) const {
    return fixed[kind][chunk] + ofLayer[kind] * layers;
  }
};

// `plan` without layers, of more than one stage. Of Trireme's own programs: exact for times of
// passes (block_costs.h), a lower bound of memory.
LinearChunks ownChunks(const Query& query, const plan::Plan& plan, const BlockCosts& blocks);

// Of stacks with a description, and a whole backward. Memory but for rounding. Times as about where
// chunks have equally many layers: passes that wait for launches, and layers that are recomputed
// where a chunk has fewer of them than plan.recomputeLayers, make them no more than near.
LinearChunks describedChunks(const Query& query, const plan::Plan& plan, const BlockCosts& blocks,
                             SlotTable& slots);

}  // namespace trireme::planner
