// What to say when nothing fits.
#pragma once
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "planner/query.h"
#include "planner/search.h"

namespace trireme::planner {

// One change of the query after which there is a plan.
struct Relaxation {
  std::string change;  // "microbatch 1 (pinned: 4)", "16 devices"
  plan::Plan plan;
};

// Every pinned choice given up alone, and the least power of two times the devices (up to 64 times)
// that gives a plan. Searches again for each.
std::vector<Relaxation> relaxations(const Query& query, const SearchProgress& progress = {});

// kInfeasible: by how much `leanest`, the plan that needs least memory, misses it.
Status missesMemory(const Query& query, const plan::Plan& leanest, const CostFunctions& costs);

// The same status with the relaxations behind its message.
Status withRelaxations(const Query& query, const Status& status,
                       const SearchProgress& progress = {});

}  // namespace trireme::planner
