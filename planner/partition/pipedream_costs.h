// The terms of PipeDream's recurrences (pipedream.h) between down-sets. Internal to
// planner/partition, and not for the verifier, which works everything out from the layers.
#pragma once
#include <cstdint>
#include <vector>

#include "planner/partition/down_sets.h"
#include "planner/partition/pipedream.h"

namespace trireme::planner {

// The only variant of a layer at tensor degree 1.
const spec::ProfileVariant& plainVariant(const spec::ProfileLayer& layer);

// Layers between two down-sets, and how long one component of the level takes for them.
struct StageRange {
  size_t from = 0, to = 0;
  double below = 0;
};

// Seconds and bytes. `level` counts from 0.
class PipedreamCosts {
 public:
  PipedreamCosts(const PipedreamProblem& problem, const DownSets& sets);

  double time(size_t i, size_t j) const { return time_[j] - time_[i]; }
  // A stage that begins a pipeline, and one that does not.
  double firstTime(size_t level, const StageRange& range, int64_t replicas) const;
  double laterTime(size_t level, const StageRange& range, int64_t replicas) const;
  // What a cut costs whoever computes on its sides: 2 a_s / B_k; 0 for kReleased.
  double cutTime(size_t level, size_t split) const;
  // Whether a stage fits whose workers are the last `replicas` of the first m.
  bool fits(size_t level, const StageRange& range, int64_t m, int64_t replicas) const;
  // Workers in one component.
  double workersBelow(size_t level) const;
  double dataParallelTime() const;

 private:
  double syncTime(size_t level, double weights, int64_t replicas) const;

  const PipedreamProblem& problem_;
  std::vector<double> time_, weights_, activations_, border_;  // of every down-set
};

}  // namespace trireme::planner
