#include "planner/partition/variant_choice.h"

#include <algorithm>

namespace trireme::planner {
namespace {

// Leads an item from a cheaper-to-store option to the next on its convex hull.
struct Step {
  double saved = 0, added = 0;  // cost and size
  size_t item = 0;
  int32_t candidate = 0;  // where it leads
};

// Partial choices share their beginnings.
struct Partial {
  double cost = 0, size = 0;
  int32_t before = -1;
  int32_t pick = 0;
};

}  // namespace

VariantChoice::VariantChoice(const std::vector<std::vector<Option>>& items, double capacity)
    : capacity_(capacity), picks_(items.size()) {
  double smallest = 0, largest = 0;
  for (const std::vector<Option>& options : items) {
    std::vector<Candidate> all;
    for (size_t i = 0; i < options.size(); ++i)
      all.push_back({static_cast<int32_t>(i), options[i].cost, options[i].size});
    std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
      return a.size != b.size ? a.size < b.size : a.cost < b.cost;
    });
    std::vector<Candidate> kept;
    for (const Candidate& candidate : all)
      if (kept.empty() || candidate.cost < kept.back().cost) kept.push_back(candidate);
    smallest += kept.front().size;
    largest += kept.back().size;
    items_.push_back(std::move(kept));
  }
  feasible_ = smallest <= capacity;
  if (!feasible_) return;
  if (largest <= capacity) {
    for (size_t i = 0; i < items_.size(); ++i) {
      upper_ += items_[i].back().cost;
      picks_[i] = items_[i].back().index;
    }
    lower_ = upper_;
    return;
  }
  relax();
}

// Everything starts smallest; steps along the hulls are taken in the order of their worth until one
// does not fit. Part of that one gives the relaxed optimum; without it, and with whatever fits
// behind it, there is a choice.
void VariantChoice::relax() {
  std::vector<Step> steps;
  double size = 0, cost = 0;
  std::vector<int32_t> chosen(items_.size(), 0);
  for (size_t i = 0; i < items_.size(); ++i) {
    const std::vector<Candidate>& item = items_[i];
    size += item[0].size;
    cost += item[0].cost;
    const size_t first = steps.size();
    for (size_t c = 1; c < item.size(); ++c) {
      Step step{item[c - 1].cost - item[c].cost, item[c].size - item[c - 1].size, i,
                static_cast<int32_t>(c)};
      while (steps.size() > first &&
             steps.back().saved * step.added <= step.saved * steps.back().added) {
        step.saved += steps.back().saved;
        step.added += steps.back().added;
        steps.pop_back();
      }
      steps.push_back(step);
    }
  }
  std::stable_sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) {
    return a.saved * b.added > b.saved * a.added;
  });
  bool isFull = false;
  std::vector<bool> isStuck(items_.size(), false);
  for (const Step& step : steps) {
    if (size + step.added > capacity_) {
      if (!isFull) {
        isFull = true;
        price_ = step.saved / step.added;
        lower_ = cost - price_ * (capacity_ - size);
      }
      isStuck[step.item] = true;  // The next steps of the item lead on from here.
    }
    if (isStuck[step.item]) continue;
    size += step.added;
    cost -= step.saved;
    chosen[step.item] = step.candidate;
  }
  upper_ = 0;
  for (size_t i = 0; i < items_.size(); ++i) {
    const Candidate& candidate = items_[i][static_cast<size_t>(chosen[i])];
    upper_ += candidate.cost;
    picks_[i] = candidate.index;
  }
  lower_ = std::min(lower_ * (1 - 1e-13), upper_);
}

Status VariantChoice::solve() {
  constexpr double kTolerance = 1e-12;
  if (!feasible_) return {};
  if (lower_ >= upper_ * (1 - kTolerance)) {
    lower_ = upper_;
    return {};
  }
  // What the items from i on cost at least, each unit of size priced; and how small they can be.
  std::vector<double> restCost(items_.size() + 1), restSize(items_.size() + 1);
  for (size_t i = items_.size(); i-- > 0;) {
    double least = items_[i][0].cost + price_ * items_[i][0].size;
    for (const Candidate& c : items_[i]) least = std::min(least, c.cost + price_ * c.size);
    restCost[i] = restCost[i + 1] + least;
    restSize[i] = restSize[i + 1] + items_[i][0].size;
  }
  const double toBeat = upper_ * (1 - kTolerance);
  std::vector<Partial> all = {{}};
  std::vector<int32_t> current = {0};  // by size, costs falling
  std::vector<Partial> next;
  for (size_t i = 0; i < items_.size(); ++i) {
    next.clear();
    for (const int32_t p : current)
      for (const Candidate& c : items_[i]) {
        const Partial& before = all[static_cast<size_t>(p)];
        const Partial partial{before.cost + c.cost, before.size + c.size, p, c.index};
        if (partial.size + restSize[i + 1] > capacity_) continue;
        if (partial.cost + price_ * (partial.size - capacity_) + restCost[i + 1] > toBeat) continue;
        next.push_back(partial);
      }
    std::sort(next.begin(), next.end(), [](const Partial& a, const Partial& b) {
      return a.size != b.size ? a.size < b.size : a.cost < b.cost;
    });
    current.clear();
    for (const Partial& partial : next)
      if (current.empty() || partial.cost < all[static_cast<size_t>(current.back())].cost) {
        current.push_back(static_cast<int32_t>(all.size()));
        all.push_back(partial);
      }
    if (all.size() > kMaxPartialChoices)
      return resourceExhausted(
          "choosing the variants of one stage takes too many partial choices; merge layers, or "
          "give them fewer variants");
  }
  if (!current.empty() && all[static_cast<size_t>(current.back())].cost < upper_) {
    int32_t at = current.back();
    upper_ = all[static_cast<size_t>(at)].cost;
    for (size_t i = items_.size(); i-- > 0; at = all[static_cast<size_t>(at)].before)
      picks_[i] = all[static_cast<size_t>(at)].pick;
  }
  lower_ = upper_;
  return {};
}

}  // namespace trireme::planner
