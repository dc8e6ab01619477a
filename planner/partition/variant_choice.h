// One option per item, as cheap as possible within a capacity: the multiple-choice knapsack problem
// inside Piper's partitioning (layers and their variants, time and memory).
#pragma once
#include <cstdint>
#include <vector>

#include "ir/base/status.h"

namespace trireme::planner {

struct Option {
  double cost = 0;
  double size = 0;
};

// The instance, and what is known of its answer: cheap bounds at once, the answer on demand.
class VariantChoice {
 public:
  // Items with at least one option each; costs and sizes are finite and not negative.
  // O(options log options).
  VariantChoice(const std::vector<std::vector<Option>>& items, double capacity);

  // Whether any choice fits.
  bool feasible() const { return feasible_; }
  // lower() <= cost of the cheapest choice that fits <= upper(), which picks() has. The lower bound
  // is that of the linear relaxation (Sinha and Zoltners, 1979); the upper one its rounding.
  // Requires feasible().
  double lower() const { return lower_; }
  double upper() const { return upper_; }
  // Index of an option per item.
  const std::vector<int32_t>& picks() const { return picks_; }

  // Closes the bounds, to 1e-12 of the cost. Exact: dynamic programming over items, which keeps of
  // every two partial choices the one that is neither larger nor dearer, and drops what the
  // relaxation shows to be no better than upper(). O(items x distinct sizes): few where items are
  // alike, exponential in the worst case.
  //
  // kResourceExhausted: more than kMaxPartialChoices partial choices.
  Status solve();

  static constexpr size_t kMaxPartialChoices = 4'000'000;

 private:
  struct Candidate {  // An option that is neither larger nor dearer than another of its item.
    int32_t index = 0;
    double cost = 0, size = 0;
  };
  void relax();

  std::vector<std::vector<Candidate>> items_;  // by size, costs falling
  double capacity_ = 0;
  bool feasible_ = false;
  double lower_ = 0, upper_ = 0;
  double price_ = 0;  // of a unit of size, at the relaxed optimum
  std::vector<int32_t> picks_;
};

}  // namespace trireme::planner
