// The fastest cut of a plan's layers, for stacks with a description.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "cost_models/described_estimate.h"
#include "ir/plan/plan.h"
#include "planner/block_costs.h"
#include "planner/query.h"

namespace trireme::planner {

using Ranges = std::vector<std::vector<plan::LayerRange>>;  // of a plan's layers

// The cuts of the space: any number of layers on every stage, and chunks of one stage that differ
// by one layer at most. Every chunk has a layer but those of the embedding and of the head, which
// may have none. Without virtual stages these are all cuts.
//
// With them other cuts are left out on purpose: the closed form counts of a stage's chunks only the
// first and the last besides their sum, and would have all layers in between. Chunks that differ
// cost more than it says (cost::flushTime).

// So many layers over the chunks of a stage, the last ones one more: of all ways to spread them so
// evenly the one with the fewest activations, for the last chunks keep theirs for the shortest
// time.
std::vector<int64_t> spreadOver(int64_t layers, int64_t chunks);

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

// Like CutSearch::bound(), but lower and much cheaper: of the times of blocks as they were probed,
// which are without recomputation where the search may recompute some layers alone. Requires
// plan.recomputeLayers 0 or as pinned.
Seconds quickBound(const Query& query, const plan::Plan& plan, const BlockCosts& blocks);

// Exact without virtual stages and with a whole backward, whose time is made of numbers of single
// stages (cost::estimateStage). With them a lower bound of all cuts: the closed form, which the
// estimate never goes below, with the fewest layers that a stage's first and last chunk may have.
//
//  Going through the stages, of all ways to hand out so many layers to
// the stages so far, those are kept that no other beats in everything that the time still depends
// on:
//   1F1B, interleaved   the first chunks' passes so far, the longest path that turns at one of
//                       them, and the longest `once`
//   GPipe               the sum of passes, the longest forward, backward and `once`
//   zero bubble         passes and forwards so far, the longest path that the passes behind
//   lengthen
//                       and the longest that they do not (pipeline.h), and `once`
// How many layers a stage may have is limited by its memory and by the time that there is to beat,
// so that few states are left where the answer is near the bound.
class CutSearch {
 public:
  // `plan` without layers. The arguments must outlive it. Requires blocks.described, no pinned
  // layers.
  CutSearch(const Query& query, const plan::Plan& plan, const BlockCosts& blocks, SlotTable& slots);

  // Whether the closed form is too kind to uneven cuts, so that they have to be played: with
  // virtual stages, and of split backwards.
  static bool isPlayed(const plan::Plan& plan) {
    return plan.virtualStages > 1 || plan::splitsBackward(plan.schedule);
  }

  // Full recomputation of so many layers of every chunk from now on; 0: of all.
  void recomputeLayers(int64_t layers);

  // False: no cut fits. True: one does, but for rounding of bytes.
  bool mayFit() const;
  // Estimates of all cuts that fit are at least this; infinite if none may. Cheap.
  Seconds bound();
  // The same of all cuts, whatever the memory, also with more layers recomputed.
  Seconds roomyBound();
  // No chunk of a cut that fits has more layers: as many recomputed are all.
  int64_t longestChunk() const;

  struct Cut {
    Ranges layers;
    Seconds step;  // but for rounding
  };
  // Where nothing is played. The fastest of those that fit and take no more than `limit`; of
  // equally fast ones the even one, else that with fewer layers on earlier stages, which hold more
  // microbatches. None: there is none.
  std::optional<Cut> best(std::optional<Seconds> limit);

  struct Lowest {
    std::vector<int64_t> layers;  // of every stage
    Seconds step;                 // no cut that fits takes less, but for rounding
  };
  // Otherwise the layers per stage with the least bound. None: no cut that fits takes as
  // little as `limit`.
  std::optional<Lowest> lowest(std::optional<Seconds> limit);
  // The layers per stage of the fastest cut by the closed form with the longer chunks of every
  // stage in front, of the first stage behind, if they took no more memory than behind.
  std::optional<Lowest> inFront(std::optional<Seconds> limit);
  // The most layers of every stage in cuts that fit.
  std::vector<int64_t> mostLayers();
  // The cut whose fullest rank is least full.
  Ranges leanest() const;

 private:
  enum Kind : size_t { kFirst, kInner, kLast };
  // A stage with so many layers, with the transfers that stop it.
  struct Option {
    double all, first, last;   // passes: of all chunks, of the first, of the last
    double forward, backward;  // of all chunks
    double weights;            // of a split backward
    double once;
  };
  struct Label;
  struct Relaxed;

  Kind kindOf(int64_t rank) const;
  int64_t rankOf(Kind kind) const;
  int64_t least(int64_t rank) const;
  void setLayers(int64_t rank, const std::vector<int64_t>& counts);
  Bytes memoryOf(int64_t rank, int64_t layers) const;  // but for rounding to whole bytes
  bool fits(int64_t rank, int64_t layers);
  int64_t mostThatFit(int64_t rank) const;
  void limitByMemory();
  int64_t fitting(int64_t rank);
  const Option& option(int64_t rank, int64_t layers);
  Seconds boundOf(bool isRoomy);
  int64_t fullest(bool isRoomy) const;
  double withOnce(double path, double perLayer, double parameters, int64_t layers) const;
  Relaxed ofBlocks() const;
  Relaxed relaxed(bool isRoomy) const;
  double valueOf(const Label& label) const;
  Label after(const Label& before, const Option& option, int64_t rank) const;
  Label afterSplit(const Label& before, const Option& option, int64_t rank) const;
  double splitPath(const Relaxed& relaxed, double path, bool isRoomy) const;
  Option optionOf(int64_t rank);
  std::optional<Cut> evenCut(std::optional<Seconds> limit) const;
  std::optional<Lowest> withLimit(double limit, const Relaxed& relaxed);
  std::optional<Lowest> within(double most);
  std::vector<int64_t> mostWithin(double limit, const Relaxed& relaxed);
  Ranges rangesOf(const std::vector<int64_t>& layers) const;

  const Query& query_;
  const BlockCosts& blocks_;
  plan::Plan plan_;
  int64_t numLayers_, stages_, chunks_;
  double microbatches_, transfer_, factor_;
  bool isInFront_ = false;            // what options are of
  const cost::StageSetting setting_;  // of plan_
  const std::vector<double>& slots_;
  bool isSplit_ = false, isAhead_ = false;  // backward; with post-validation
  double parameters_[3];                    // without layers
  Bytes fixed_[3], perLayer_, kept_, saved_, forWeights_;
  // By memory, with so many layers recomputed: of every rank, but for rounding and exactly; of
  // inner ranks ascending, and the sums of the fewest, so that few looks tell what all may have in
  // a time.
  std::vector<int64_t> most_;
  std::vector<std::optional<int64_t>> fitting_;
  std::vector<double> inner_, innerSums_;
  std::vector<std::optional<Option>> options_[3];
};

}  // namespace trireme::planner
