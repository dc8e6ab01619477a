// What stages between down-sets cost in Piper's problem (piper.h). Internal to planner/partition.
#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "planner/partition/down_sets.h"
#include "planner/partition/piper.h"
#include "planner/partition/variant_choice.h"

namespace trireme::planner {

// A stage of the layers between two down-sets at one tensor degree. Its time on d replicas, times
// d, is a sum over layers of  busy + (d - 1) sync  of their variants (seconds), its memory with y
// microbatches in flight a sum of  stored y + resident  (bytes). Here the sums of the least of
// each, which bound every choice of variants from below.
struct StageShape {
  int32_t from = 0, to = 0;
  int64_t tensorDegree = 1;
  double busy = 0, sync = 0;
  double stored = 0, resident = 0;
};

class PiperCosts {
 public:
  // kResourceExhausted: too many stages.
  static Result<PiperCosts> of(const PiperProblem& problem, const DownSets& sets);

  // Stages that end with down-set `to`: shapes()[i] for i in [firstOf(to), firstOf(to + 1)).
  const std::vector<StageShape>& shapes() const { return shapes_; }
  size_t firstOf(size_t to) const { return first_[to]; }
  // Lower bounds, in seconds, of  time x devices  and of  time x replicas  summed over stages that
  // make up the down-set.
  double deviceSeconds(size_t set) const { return deviceSeconds_[set]; }
  double replicaSeconds(size_t set) const { return replicaSeconds_[set]; }

  // The choice of variants on d replicas with y microbatches in flight and `capacity` bytes: costs
  // are time x d. Items are the layers, options their variants of the tensor degree, in the order
  // of the profile.
  VariantChoice choice(const StageShape& shape, int64_t d, int64_t y, double capacity) const;
  // The least capacity with which there is a choice.
  double leastMemory(const StageShape& shape, int64_t y) const;
  // Index into the variants of a layer of its option `pick` at the tensor degree.
  int32_t variantOf(int32_t layer, int64_t tensorDegree, int32_t pick) const;

 private:
  struct Terms {
    double busy = 0, sync = 0, stored = 0, resident = 0;
  };
  PiperCosts(const PiperProblem& problem, const DownSets& sets);
  Status addShapes(size_t to);
  // Terms of every variant of `layer` at the degree, in a stage between the sets.
  void termsOf(int32_t layer, const StageShape& shape, std::vector<Terms>* out) const;

  const PiperProblem& problem_;
  const DownSets& sets_;
  std::vector<int64_t> degrees_;
  std::vector<std::vector<int32_t>> edgesOf_;  // of every layer
  std::vector<StageShape> shapes_;
  std::vector<size_t> first_;
  std::vector<double> deviceSeconds_, replicaSeconds_;
};

}  // namespace trireme::planner
