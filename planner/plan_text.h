// Plans in words.
#pragma once
#include <string>
#include <vector>

#include "cost_models/estimate.h"
#include "ir/plan/plan.h"

namespace trireme::planner {

// "tp 8, pp 2, dp 4, microbatch 1, interleaved x 3, recompute selective, sequence parallel": what
// is off is not named.
std::string summary(const plan::Plan& plan);

// "13, 12 (x 3)": layers of every stage, those of its chunks joined by '+'.
std::string layersText(const plan::Plan& plan);

// "63.93 GiB, 61.20 GiB (x 6)": totals of pipeline ranks in order.
std::string stagesText(const std::vector<cost::MemoryUse>& stages);

}  // namespace trireme::planner
