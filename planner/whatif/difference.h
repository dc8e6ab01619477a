// Two steps side by side: which parts changed, by how much, and whether the plan or what it runs on
// made the difference.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "planner/query.h"

namespace trireme::planner {

// A plan on what it runs on, priced.
struct Side {
  std::string name;
  plan::Plan plan;
  cost::Estimate estimate;
};

struct DifferencePart {
  std::string name;
  Seconds before, after;
  // after - before in units of the difference, rounded so that all parts add up to the whole.
  int64_t change = 0;
};

struct Difference {
  Side before, after;
  Seconds unit;                       // the whole is at most 1e6 of them, and at least 1 ns each
  std::vector<DifferencePart> parts;  // all of the breakdown, in its order
  int64_t change = 0;                 // of the step, in units; the sum of those of parts
  // The plan of `before` on what `after` runs on: until there the hardware or the software made the
  // difference, from there on the plan. None: it cannot be had there, or two plans were compared.
  std::optional<Seconds> samePlan;
  // Why it cannot: "is not possible after: stack 'alpa' has no cp 2; nearest: cp 1" or "does not
  // fit after: 3.20 GiB too much memory". Empty otherwise.
  std::string noSamePlan;
};

Difference differenceOf(Side before, Side after);

// The best plan of each query, and the first one's under the second. Errors: those of searchPlan,
// with the side's name.
Result<Difference> compareQueries(const std::string& beforeName, const Query& before,
                                  const std::string& afterName, const Query& after);

// Whole numbers next to the values whose sum is the sum of the values, rounded: what rounding down
// loses goes to those that lost most. Finite values of up to 1e15.
std::vector<int64_t> roundedToSum(const std::vector<double>& values);

}  // namespace trireme::planner
