// Chains of passes that hold each other up, of a plan whatever its layers. Internal to planner/.
#pragma once
#include <functional>
#include <vector>

#include "cost_models/pipeline.h"
#include "cost_models/play.h"
#include "planner/cuts/linear_chunks.h"

namespace trireme::planner {

// Those of cost::pipelineTime, but for stalls and slow links; as long as their hops alone. Requires
// more than one stage, and not GPipe.
std::vector<cost::Chain> closedForms(const cost::Pipeline& pipeline);

// With the passes of `pipeline`, and transfers that stop its stages.
Seconds lengthOf(const cost::Chain& chain, const cost::Pipeline& pipeline);

// What a pass of a chunk, counted by stages, takes for one more layer, in s.
using LayerTime = std::function<double(PassKind kind, size_t chunk)>;
// How long a chain is that was `chain.length` with so many layers on every chunk.
LinearRow lineOf(const cost::Chain& chain, const LayerTime& ofLayer,
                 const std::vector<double>& layers);

}  // namespace trireme::planner
