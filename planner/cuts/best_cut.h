// The fastest cut of a plan's layers, for stacks with a description.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "ir/base/units.h"
#include "ir/plan/plan.h"
#include "planner/cuts/cut_bound.h"
#include "planner/cuts/cut_memory.h"
#include "planner/cuts/cut_stages.h"
#include "planner/query.h"
#include "planner/space/block_costs.h"

namespace trireme::planner {

// The cuts of the space: any number of layers on every stage, and chunks of one stage that differ
// by one layer at most. Every chunk has a layer but those of the embedding and of the head, which
// may have none. Without virtual stages these are all cuts.
//
// With them other cuts are left out on purpose: the closed form counts of a stage's chunks only the
// first and the last besides their sum, and would have all layers in between. Chunks that differ
// cost more than it says (cost::flushTime). Some are tried nevertheless (played_cut.h).

// Exact without virtual stages and with a whole backward, whose time is made of numbers of single
// stages (cost::estimateStage). With them a lower bound of all cuts: the closed form, which the
// estimate never goes below, with the fewest layers that a stage's first and last chunk may have.
//
// Going through the stages, of all ways to hand out so many layers to the stages so far, those are
// kept that no other beats in everything that the time still depends on:
//   1F1B, interleaved   the first chunks' passes so far, the longest path that turns at one of
//                       them, and the longest `once`
//   GPipe               the sum of passes, the longest forward, backward and `once`
//   zero bubble         passes and forwards so far, the longest path that the passes behind
//                       lengthen, the longest that they do not (pipeline.h), and `once`
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
  bool mayFit() const { return memory_.mayFit(); }
  // Whether some stage has no memory for more than an equal share of the layers.
  bool isTight() const { return memory_.isTight(); }
  // Estimates of all cuts that fit are at least this; infinite if none may. Cheap.
  Seconds bound();
  // The same of all cuts, whatever the memory, also with more layers recomputed.
  Seconds roomyBound() const { return bound_.of(true); }
  // No chunk of a cut that fits has more layers: as many recomputed are all.
  int64_t longestChunk() const { return memory_.longestChunk(); }

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
  // Of how many ways to have so many layers on the first stages the search keeps track, each better
  // than all others in some respect; more are merged. Split backwards have thousands.
  static constexpr size_t kMostLabels = 24;
  // Otherwise the layers per stage with the least bound; where labels were merged, of a cut that is
  // about as fast. None: no cut that fits takes as little as `limit`. `mostLabels`: at least 1.
  std::optional<Lowest> lowest(std::optional<Seconds> limit, size_t mostLabels = kMostLabels);
  // Of a split backward, by its first three paths. The fourth is as long for many cuts, among which
  // these tell more.
  std::optional<Lowest> lowestByStages(std::optional<Seconds> limit);
  // The layers per stage of the fastest cut by the closed form with the longer chunks of every
  // stage in front, of the first stage behind, if they took no more memory than behind.
  std::optional<Lowest> inFront(std::optional<Seconds> limit);
  // The most layers of every stage in cuts that fit.
  std::vector<int64_t> mostLayers();
  // The cut whose fullest rank is least full.
  Ranges leanest() const { return rangesOf(memory_.leanest(), stages_.chunks); }

 private:
  // A stage with so many layers, with the transfers that stop it.
  struct Option {
    double all, first, last;   // passes: of all chunks, of the first, of the last
    double forward, backward;  // of all chunks
    double weights;            // of a split backward
    cost::OnceTimes once;
  };
  struct Label;
  struct LabelTable;

  const Option& option(int64_t rank, int64_t layers);
  Option optionOf(int64_t rank);
  double valueOf(const Label& label, double rest = 0) const;
  Label after(const Label& before, const Option& option, int64_t rank) const;
  Label afterSplit(const Label& before, const Option& option, int64_t rank) const;
  std::optional<Cut> evenCut(std::optional<Seconds> limit) const;
  std::optional<Lowest> within(double most);
  double restOf(int64_t rank, int64_t layers, const RelaxedTimes& relaxed) const;
  bool label(const std::vector<int64_t>& most, int64_t slack, double limit,
             const RelaxedTimes& relaxed, LabelTable& table);
  std::optional<Lowest> withLimit(double limit, const RelaxedTimes& relaxed);
  std::vector<int64_t> mostWithin(double limit, const RelaxedTimes& relaxed);

  CutStages stages_;
  CutMemory memory_;
  CutBound bound_;
  size_t mostLabels_ = kMostLabels;  // of cuts that are played, which need but a bound
  bool isInFront_ = false;           // what options are of
  bool knowsTrip_ = true;
  double trip_ = 0;  // CutBound::trip(), of a split backward
  std::vector<std::optional<Option>> options_[kNumStageKinds];
};

}  // namespace trireme::planner
