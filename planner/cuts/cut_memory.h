// How many layers the stages of a plan may have within memory, for stacks with a description.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "ir/base/units.h"
#include "planner/cuts/cut_stages.h"

namespace trireme::planner {

// Microbatches in flight (cost::peakOfLast), worked out once for all plans of one order. Of every
// rank in turn those of none, one, two... and all of its chunks together, from the last to the
// first.
class SlotTable {
 public:
  const std::vector<double>& of(const plan::Plan& plan);

 private:
  using Key = std::tuple<plan::ScheduleKind, int64_t, int64_t, int64_t>;
  std::map<Key, std::vector<double>> known_;
};

// Chunks of a stage differ by one layer at most. Sums of bytes are of four parts, each of which the
// estimate rounds to whole bytes: what is "but for rounding" is never too few layers.
class CutMemory {
 public:
  // The arguments must outlive it.
  CutMemory(CutStages& stages, const BlockCosts& blocks, SlotTable& slots);

  // Anew, after stages.plan.recomputeLayers has changed.
  void limit();

  Bytes of(int64_t rank, int64_t layers) const;  // but for rounding
  // What that is made of before the optimizer's step, of chunks with any numbers of layers n_c,
  // where of chunk c a_c microbatches are alive when most is: fixed + sum_c n_c perLayer
  //   + sum_c a_c (n_c kept - min(n_c, recomputed) saved). Of a backward that is whole.
  struct Parts {
    Bytes fixed, perLayer, kept, saved;
    double recomputed = 0;
  };
  Parts parts(int64_t rank) const;
  Bytes available() const { return available_; }  // for all, and for rounding
  // Layers that fit, -1: not even none. But for rounding:
  const std::vector<int64_t>& most() const { return most_; }
  int64_t fitting(int64_t rank);  // exactly
  // All inner stages together, each with so many layers at most; but for rounding.
  double ofInner(double layers) const;
  const std::vector<double>& mostOfInner() const { return inner_; }  // ascending

  // False: no cut fits. True: one does, but for rounding.
  bool mayFit() const;
  // Some stage has no room for more than an equal share of the layers.
  bool isTight() const;
  // No chunk of a cut that fits has more layers.
  int64_t longestChunk() const;
  // The layers per stage of the cut whose fullest rank is least full.
  std::vector<int64_t> leanest() const;

 private:
  int64_t mostThatFit(int64_t rank) const;
  Bytes inPasses(int64_t rank, int64_t layers) const;  // before the optimizer's step
  int64_t recomputedOfChunk() const;
  bool fits(int64_t rank, int64_t layers);

  CutStages& stages_;
  const std::vector<double>& slots_;
  const bool hasStep_;  // the optimizer's step takes memory of its own
  Bytes available_;
  Bytes fixed_[kNumStageKinds], fixedState_[kNumStageKinds];  // without layers; state alone
  double parameters_[kNumStageKinds] = {}, parametersOfLayer_ = 0;
  double padding_ = 1;  // by fragmentation
  // Of a layer: state; what one microbatch keeps, what recomputing saves of that, what the
  // gradients of weights wait for.
  Bytes perLayer_, perLayerAtStep_, kept_, saved_, forWeights_;
  std::vector<int64_t> most_;
  std::vector<std::optional<int64_t>> fitting_;
  std::vector<double> inner_, innerSums_;  // sums of the fewest, so that few looks tell ofInner()
};

}  // namespace trireme::planner
