// `whatif --diff A B` and `whatif --worth`: one step against another.
#pragma once
#include <string>

#include "cli/inputs.h"
#include "ir/base/status.h"
#include "planner/answer/outlook.h"
#include "planner/whatif/difference.h"
#include "planner/whatif/rows.h"

namespace trireme::cli {

struct CompareOptions {
  QueryOptions question;
  planner::Pins pins;
  std::string before, after;
  std::string report;  // where the page goes; empty: nowhere
  bool json = false;
};

// Prints the difference. Both sides are clusters, stacks or plan files; shipped names come first, a
// file is what it can be read as. Clusters and stacks are planned for with the rest of the
// question; plans are priced on --cluster, each with --stack or, without that, the shipped profile
// that it names. kInvalidArgument: a side is nothing of it, the sides are of two kinds, a plan is
// for another stack than --stack or names none that is shipped, or plans are given choices.
// kInfeasible: a side has no plan that fits.
Result<int> runCompare(const CompareOptions& options);

// Text of at most 100 columns; `what` the sides are: "cluster", "stack", "plan".
std::string toTable(const planner::Difference& difference, const std::string& what);

// kInvalidArgument: there are several points, or several scenarios.
Status checkWorth(const planner::Answers& answers);

// What one more of everything is worth at the only point that was swept, below the table: prints
// it, and writes the page unless `report` is empty. Requires checkWorth.
Result<int> runWorth(const planner::Answers& answers, const std::string& report, bool json);

}  // namespace trireme::cli
