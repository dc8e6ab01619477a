#include "planner/whatif/answers.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace trireme::planner {
namespace {

// The least by `keyOf` of those that `mayBe`; of equals the first.
template <typename MayBe, typename KeyOf>
std::optional<size_t> leastOf(const std::vector<SweepOutcome>& outcomes, const MayBe& mayBe,
                              const KeyOf& keyOf) {
  std::optional<size_t> best;
  for (size_t i = 0; i < outcomes.size(); ++i)
    if (mayBe(outcomes[i]) && (!best || keyOf(outcomes[i]) < keyOf(outcomes[*best]))) best = i;
  return best;
}

}  // namespace

std::vector<size_t> paretoFront(const std::vector<SweepOutcome>& outcomes) {
  std::vector<size_t> order(outcomes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::tie(outcomes[a].wall, outcomes[a].cost) <
           std::tie(outcomes[b].wall, outcomes[b].cost);
  });
  std::vector<size_t> front;
  for (const size_t i : order)
    if (front.empty() || outcomes[i].cost < outcomes[front.back()].cost) front.push_back(i);
  return front;
}

std::optional<size_t> fewestWithin(const std::vector<SweepOutcome>& outcomes, Seconds deadline) {
  return leastOf(
      outcomes, [&](const SweepOutcome& o) { return o.wall <= deadline; },
      [](const SweepOutcome& o) { return std::tuple(o.gpus, o.cost, o.wall); });
}

std::optional<size_t> cheapestWithin(const std::vector<SweepOutcome>& outcomes, Seconds deadline) {
  return leastOf(
      outcomes, [&](const SweepOutcome& o) { return o.wall <= deadline; },
      [](const SweepOutcome& o) { return std::tuple(o.cost, o.wall); });
}

std::optional<size_t> fastestFor(const std::vector<SweepOutcome>& outcomes, double budget) {
  return leastOf(
      outcomes, [&](const SweepOutcome& o) { return o.cost <= budget; },
      [](const SweepOutcome& o) { return std::tuple(o.wall, o.cost); });
}

}  // namespace trireme::planner
