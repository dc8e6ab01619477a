#include "planner/partition/piper_placement.h"

#include <algorithm>

namespace trireme::planner {
namespace {

constexpr double kSlack = 1 + 1e-12;  // Bounds are rounded.

// By the least that its variants take.
bool isTooSlow(const StageShape& shape, int64_t d, double most) {
  return shape.busy + static_cast<double>(d - 1) * shape.sync >
         most * static_cast<double>(d) * kSlack;
}

// Of what takes so much of each, where no stage takes longer than `most`.
double atLeast(double seconds, double most) {
  return seconds > 0 ? seconds / (most * kSlack) : 0;  // `most` may be 0
}

}  // namespace

PiperPlacement::PiperPlacement(const PiperProblem& problem, const DownSets& sets,
                               const PiperCosts& costs, double capacity)
    : problem_(problem), sets_(sets), costs_(costs), capacity_(capacity), labels_(sets.size()) {
  for (int64_t d = 1; d <= std::min(problem.microbatches, problem.devices); ++d)
    if (problem.microbatches % d == 0) divisors_.push_back(d);
}

Result<std::vector<PlacedStage>> PiperPlacement::within(double most) {
  for (std::vector<Label>& labels : labels_) labels.clear();
  labels_[sets_.full()].push_back({});
  for (size_t set = sets_.size(); set-- > 1;) {
    if (labels_[set].empty()) continue;
    for (size_t i = costs_.firstOf(set); i < costs_.firstOf(set + 1); ++i)
      TRIREME_RETURN_IF_ERROR(extend(set, i, most));
  }
  return path();
}

// Keeps `label` if no other is as good in both numbers; throws out those that it beats.
void PiperPlacement::admit(std::vector<Label>& labels, const Label& label) {
  for (const Label& other : labels)
    if (other.devices <= label.devices && other.sumD <= label.sumD) return;
  std::erase_if(labels, [&](const Label& other) {
    return label.devices <= other.devices && label.sumD <= other.sumD;
  });
  labels.push_back(label);
}

// Puts a stage before every label of its end, on as few replicas as do: more are never better for
// those before it.
Status PiperPlacement::extend(size_t set, size_t shapeIndex, double most) {
  const StageShape& shape = costs_.shapes()[shapeIndex];
  const auto from = static_cast<size_t>(shape.from);
  const double restDevices = atLeast(costs_.deviceSeconds(from), most);
  const double restD = atLeast(costs_.replicaSeconds(from), most);
  size_t first = 0;  // Fewer replicas are too slow in any case.
  while (first < divisors_.size() && isTooSlow(shape, divisors_[first], most)) ++first;
  for (size_t l = 0; l < labels_[set].size(); ++l) {
    const Label& label = labels_[set][l];
    for (size_t i = first; i < divisors_.size(); ++i) {
      const int64_t d = divisors_[i];
      const int64_t devices = label.devices + d * shape.tensorDegree;
      const int64_t sumD = label.sumD + d;
      if (static_cast<double>(devices) + restDevices >
              static_cast<double>(problem_.devices) * kSlack ||
          static_cast<double>(sumD) + restD > static_cast<double>(problem_.microbatches) * kSlack)
        break;
      TRIREME_ASSIGN_OR_RETURN(const bool does, isWithin(shapeIndex, i, (sumD + d - 1) / d, most));
      if (!does) continue;
      admit(labels_[from], {devices, sumD, shapeIndex, d, l});
      break;
    }
  }
  return {};
}

Result<bool> PiperPlacement::isWithin(size_t shapeIndex, size_t divisor, int64_t inFlight,
                                      double most) {
  const StageShape& shape = costs_.shapes()[shapeIndex];
  const int64_t d = divisors_[divisor];
  const double budget = most * static_cast<double>(d);
  if (isTooSlow(shape, d, most)) return false;
  if (shape.stored * static_cast<double>(inFlight) + shape.resident > capacity_ * kSlack)
    return false;
  if (budget == kForever) return costs_.leastMemory(shape, inFlight) <= capacity_;
  // Stages < 2^22, divisors < 2^11, microbatches in flight <= devices <= 2^20.
  const uint64_t key =
      (static_cast<uint64_t>(shapeIndex) << 11 | divisor) << 21 | static_cast<uint64_t>(inFlight);
  const auto isOpen = [&](const Bounds& b) { return b.lower <= budget && budget < b.upper; };
  const auto [at, isNew] = known_.emplace(key, Bounds{});
  Bounds& bounds = at->second;
  if (isNew || isOpen(bounds)) {
    VariantChoice choice = costs_.choice(shape, d, inFlight, capacity_);
    bounds =
        choice.feasible() ? Bounds{choice.lower(), choice.upper()} : Bounds{kForever, kForever};
    if (isOpen(bounds)) {
      TRIREME_RETURN_IF_ERROR(choice.solve());
      bounds = {choice.lower(), choice.upper()};
    }
  }
  return bounds.upper <= budget && bounds.upper < kForever;
}

std::vector<PlacedStage> PiperPlacement::path() {
  std::vector<PlacedStage> stages;
  if (labels_[0].empty()) return stages;
  Label label =
      *std::min_element(labels_[0].begin(), labels_[0].end(),
                        [](const Label& a, const Label& b) { return a.devices < b.devices; });
  devicesUsed_ = label.devices;
  while (label.d > 0) {
    stages.push_back({label.shape, label.d, (label.sumD + label.d - 1) / label.d});
    label = labels_[static_cast<size_t>(costs_.shapes()[label.shape].to)][label.before];
  }
  return stages;
}

}  // namespace trireme::planner
