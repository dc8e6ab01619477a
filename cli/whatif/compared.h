// What the two sides of `whatif --diff` are asked, as far as it is the same.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "planner/query.h"

namespace trireme::cli {

// The two lines above a difference, as above a sweep: model, clusters and stacks; precision,
// sequence, batch and devices, of those that are the same on both sides.
std::string comparedQuestion(const planner::Query& before, const planner::Query& after);

// The others, and what differs between clusters and stacks, a line each.
std::vector<std::string> comparedChanges(const planner::Query& before, const planner::Query& after);

// All of one side, in the keys of a sweep's JSON.
nlohmann::json comparedJson(const planner::Query& query);

}  // namespace trireme::cli
