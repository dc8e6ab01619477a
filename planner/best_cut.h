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

// The family of cuts: any number of layers on every stage, spread over its chunks as evenly as
// possible, the first chunks one more; of the first stage, whose first chunk has the embedding to
// do, the last chunks. Every chunk has a layer but those of the embedding and of the head, which
// may have none. Without virtual stages these are all cuts. And the even cut (plan::evenLayers).
//
// With virtual stages other spreads are left out on purpose: the closed form counts of a stage's
// chunks only the first and the last besides their sum, and would have all layers in between.
// Chunks that differ cost more than it says (cost::flushTime), so the search also tries the even
// cut.
std::vector<int64_t> spreadOver(int64_t layers, int64_t chunks, bool firstStage);

// Microbatches in flight (cost::peakTogether), worked out once for all plans of one order. Of every
// rank in turn those of none, one, two... and all of its chunks together, in the order in which
// these get one layer more (spreadOver).
class SlotTable {
 public:
  const std::vector<double>& of(const plan::Plan& plan);

 private:
  using Key = std::tuple<plan::ScheduleKind, int64_t, int64_t, int64_t>;
  std::map<Key, std::vector<double>> known_;
};

// Like CutSearch::bound(), but lower and much cheaper: of the times of blocks as they were probed,
// which are without recomputation where the search may recompute some layers alone. Requires
// plan.recomputeLayers 0.
Seconds quickBound(const Query& query, const plan::Plan& plan, const BlockCosts& blocks);

// Exact under the closed form of cost::estimateDescribed, whose time is made of numbers of single
// stages (cost::estimateStage). Going through the stages, of all ways to hand out so many layers to
// the stages so far, those are kept that no other beats in everything that the time still depends
// on:
//   1F1B, interleaved   the first chunks' passes so far, the longest path that turns at one of
//                       them, and the longest `once`
//   GPipe               the sum of passes, the longest forward, backward and `once`
// How many layers a stage may have is limited by its memory and by the time that there is to beat,
// so that few states are left where the answer is near the bound.
class CutSearch {
 public:
  // `plan` without layers. The arguments must outlive it. Requires blocks.described, no pinned
  // layers.
  CutSearch(const Query& query, const plan::Plan& plan, const BlockCosts& blocks, SlotTable& slots);

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
    Seconds step;  // by the closed form, but for rounding
  };
  // The fastest of those that fit and take no more than `limit`; of equally fast ones the even one,
  // else that with fewer layers on earlier stages, which hold more microbatches. None: there is
  // none.
  std::optional<Cut> best(std::optional<Seconds> limit);
  // plan::evenLayers, if it fits and takes no more than `limit`.
  std::optional<Cut> evenCut(std::optional<Seconds> limit) const;
  // The cut whose fullest rank is least full.
  Ranges leanest() const;

 private:
  enum Kind : size_t { kFirst, kInner, kLast };
  // A stage with so many layers, with the transfers that stop it.
  struct Option {
    double all, first, last;   // passes: of all chunks, of the first, of the last
    double forward, backward;  // of all chunks
    double once;
  };
  struct Label;
  struct Relaxed;

  Kind kindOf(int64_t rank) const;
  int64_t rankOf(Kind kind) const;
  int64_t least(int64_t rank) const;
  void setLayers(int64_t rank, int64_t layers);
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
  Label after(const Label& before, const Option& option) const;
  std::optional<Cut> withLimit(double limit, const Relaxed& relaxed);
  std::vector<int64_t> mostWithin(double limit, const Relaxed& relaxed);
  Ranges rangesOf(const std::vector<int64_t>& layers) const;

  const Query& query_;
  const BlockCosts& blocks_;
  plan::Plan plan_;
  int64_t numLayers_, stages_, chunks_;
  double microbatches_, transfer_, factor_;
  const cost::StageSetting setting_;  // of plan_
  const std::vector<double>& slots_;
  double parameters_[3];  // without layers
  Bytes fixed_[3], perLayer_, kept_, saved_;
  // By memory, with so many layers recomputed: of every rank, but for rounding and exactly; of
  // inner ranks ascending, and the sums of the fewest, so that few looks tell what all may have in
  // a time.
  std::vector<int64_t> most_;
  std::vector<std::optional<int64_t>> fitting_;
  std::vector<double> inner_, innerSums_;
  std::vector<std::optional<Option>> options_[3];
};

}  // namespace trireme::planner
