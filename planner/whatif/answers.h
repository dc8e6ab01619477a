// What a list of points answers: which is the cheapest in time, the fastest for the money, which
// nothing beats in both.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ir/base/units.h"

namespace trireme::planner {

// A point that has an answer.
struct SweepOutcome {
  int64_t gpus = 0;
  Seconds wall;
  double cost = 0;
};

// Indices of those that no other beats in time without costing more, or in cost without taking
// longer; by increasing time. Of equals the first.
std::vector<size_t> paretoFront(const std::vector<SweepOutcome>& outcomes);

// Within the time, the one of fewest devices; of those the cheapest, then the fastest. None: none
// is within it.
std::optional<size_t> fewestWithin(const std::vector<SweepOutcome>& outcomes, Seconds deadline);
std::optional<size_t> cheapestWithin(const std::vector<SweepOutcome>& outcomes, Seconds deadline);
// Within the money, the fastest; of those the cheapest.
std::optional<size_t> fastestFor(const std::vector<SweepOutcome>& outcomes, double budget);

}  // namespace trireme::planner
