// What is not the same on two sides of a difference, a line each: "memory 80 GiB -> 141 GB (x
// 1.64)". Numbers that cost nothing are left out.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "ir/plan/plan.h"
#include "planner/query.h"

namespace trireme::planner {

// Of the hardware all that enters the price: of rates those that the query's precision and its
// software's attention use, of tiers those of the same place.
std::vector<std::string> clusterChanges(const Query& before, const Query& after);

// Settings by the keys of stack files, those of described programs only where both are described;
// choices and precisions that one of them has.
std::vector<std::string> stackChanges(const spec::StackProfile& before,
                                      const spec::StackProfile& after);
// All settings that stackChanges looks at, by their keys.
std::vector<std::string_view> stackSettingKeys();

// Choices by the keys of plan files; of the training what the price depends on besides precision,
// sequence and batch.
std::vector<std::string> planChanges(const plan::Plan& before, const plan::Plan& after);

}  // namespace trireme::planner
