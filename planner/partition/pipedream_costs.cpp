#include "planner/partition/pipedream_costs.h"

#include <algorithm>

namespace trireme::planner {

const spec::ProfileVariant& plainVariant(const spec::ProfileLayer& layer) {
  return *std::find_if(layer.variants.begin(), layer.variants.end(),
                       [](const spec::ProfileVariant& v) { return v.tensorDegree == 1; });
}

PipedreamCosts::PipedreamCosts(const PipedreamProblem& problem, const DownSets& sets)
    : problem_(problem),
      time_(sets.size()),
      weights_(sets.size()),
      activations_(sets.size()),
      border_(borderBytes(problem.profile, sets)) {
  for (size_t set = 0; set < sets.size(); ++set)
    for (size_t i = 0; i < problem.profile.layers.size(); ++i) {
      if (!sets.contains(set, static_cast<int32_t>(i))) continue;
      const spec::ProfileLayer& layer = problem.profile.layers[i];
      const spec::ProfileVariant& variant = plainVariant(layer);
      time_[set] += variant.time().count();
      weights_[set] += variant.weights.count();
      activations_[set] += layer.activation.value_or(Bytes(0)).count();
    }
}

double PipedreamCosts::syncTime(size_t level, double weights, int64_t replicas) const {
  const double bandwidth = problem_.levels[level].bandwidth.count();
  const auto r = static_cast<double>(replicas);
  if (problem_.form == PipedreamForm::kHierarchical) return 2 * (r - 1) * weights / bandwidth;
  return 4 * (r - 1) * weights / (r * bandwidth);
}

double PipedreamCosts::firstTime(size_t level, const StageRange& range, int64_t replicas) const {
  const double sync = syncTime(level, weights_[range.to] - weights_[range.from], replicas);
  const auto r = static_cast<double>(replicas);
  if (problem_.form != PipedreamForm::kReleased) return std::max(range.below, sync) / r;
  const double shared = level == 0 ? 1 : static_cast<double>(problem_.levels[level - 1].components);
  return (range.below + sync / shared) / r;
}

double PipedreamCosts::laterTime(size_t level, const StageRange& range, int64_t replicas) const {
  if (problem_.form != PipedreamForm::kReleased)
    return std::max(firstTime(level, range, replicas), cutTime(level, range.from));
  const double sync = syncTime(level, weights_[range.to] - weights_[range.from], replicas);
  const auto r = static_cast<double>(replicas);
  const double computing = (range.below + sync) / r;
  if (!problem_.countTransfers) return computing;
  // Nothing crosses the border of all layers.
  const double crossing = std::max(border_[range.from], border_[range.to]);
  return std::max(computing, 2 * crossing / (problem_.levels[level].bandwidth.count() * r));
}

double PipedreamCosts::cutTime(size_t level, size_t split) const {
  if (problem_.form == PipedreamForm::kReleased) return 0;
  return 2 * border_[split] / problem_.levels[level].bandwidth.count();
}

bool PipedreamCosts::fits(size_t level, const StageRange& range, int64_t m,
                          int64_t replicas) const {
  if (!problem_.memory) return true;
  const int64_t behind = problem_.levels[level].components - m;
  const auto versions = static_cast<double>((behind + replicas - 1) / replicas);
  const double bytes =
      activations_[range.to] - activations_[range.from] + weights_[range.to] - weights_[range.from];
  return versions * bytes <= problem_.memory->count();
}

double PipedreamCosts::workersBelow(size_t level) const {
  double workers = 1;
  for (size_t k = 0; k < level; ++k) workers *= static_cast<double>(problem_.levels[k].components);
  return workers;
}

double PipedreamCosts::dataParallelTime() const {
  StageRange all{0, time_.size() - 1, time_.back()};
  for (size_t k = 0; k < problem_.levels.size(); ++k)
    all.below = firstTime(k, all, problem_.levels[k].components);
  return all.below;
}

}  // namespace trireme::planner
