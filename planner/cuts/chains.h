// Chains of passes that hold each other up, of a plan whatever its layers. Internal to planner/.
#pragma once
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

// How long a chain is that was `chain.length` with so many layers on every chunk, of which each
// takes `ofLayer` at every pass.
LinearRow lineOf(const cost::Chain& chain, const double (&ofLayer)[kNumPassKinds],
                 const std::vector<double>& layers);

}  // namespace trireme::planner
