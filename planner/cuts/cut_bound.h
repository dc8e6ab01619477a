// Lower bounds of the time of every cut of a plan's layers, for stacks with a description.
#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <tuple>

#include "ir/base/units.h"
#include "planner/cuts/cut_memory.h"
#include "planner/cuts/cut_stages.h"
#include "planner/query.h"
#include "planner/space/block_costs.h"

namespace trireme::planner {

// Lower than CutBound's, but much cheaper: of the times of blocks as they were probed, which are
// without recomputation where the search may recompute some layers alone. Of the plans of one
// group, of which many have the same links and shares. `query` and `blocks` must outlive it.
class QuickBound {
 public:
  QuickBound(const Query& query, const BlockCosts& blocks) : query_(query), blocks_(blocks) {}
  // Requires plan.recomputeLayers 0 or as pinned.
  Seconds of(const plan::Plan& plan);

 private:
  // Of a plan all that sharedOf() depends on, besides the group; transfers may hide behind other
  // chunks alone.
  using Key = std::tuple<plan::StateSharding, int64_t, bool, plan::RankOrder, bool>;
  struct Shared {
    double transfer = 0;  // there and back
    Seconds once;
    double factor = 1;
  };
  Shared sharedOf(const plan::Plan& plan) const;

  const Query& query_;
  const BlockCosts& blocks_;
  std::map<Key, Shared> known_;
};

// What a stage of one layer does at least from the end of its first backward to the end of its last
// one (the fourth path of pipeline.h).
double leastBetween(plan::ScheduleKind kind, int64_t stages, double microbatches,
                    const PassTimes& layer);

// Of a split backward, s.
struct SplitPasses {
  double forward = 0, backward = 0, weights = 0;
};

// Times of blocks that add up to no more than those of stages, s.
struct RelaxedTimes {
  double layer = 0, recomputed = 0;  // the latter of so many layers of a stage:
  double most = std::numeric_limits<double>::infinity();
  double first = 0, last = 0;  // embedding and head
  double sum = 0;              // over the stages, with transfers
  double slowest = 0;          // no cut has a shorter longest stage, without transfers
  double path = 0;  // the longest with virtual stages, without transfers; split, with them
  SplitPasses ofLayer, ofFirst, ofLast;  // where the backward is split: layer, embedding, head

  double layersWithin(double time, double fixed) const;
  double timeOf(double layers, double fixed) const;
};

// Of the closed form, which the estimate never goes below, with the fewest layers that a stage's
// first and last chunk may have.
class CutBound {
 public:
  // The arguments must outlive it; stages.plan.recomputeLayers is read anew at every question.
  CutBound(const CutStages& stages, const CutMemory& memory);

  // Estimates of all cuts are at least this; isRoomy: whatever the memory, also with more layers
  // recomputed. Otherwise requires memory.mayFit().
  Seconds of(bool isRoomy) const;
  RelaxedTimes relaxed(bool isRoomy) const;
  // Of a split backward: a microbatch's way to the end and back, whatever the cut, s.
  double trip() const { return tripOf(ofBlocks()); }

 private:
  struct Held;
  class SplitStages;

  RelaxedTimes ofBlocks() const;
  void setSplit(RelaxedTimes& relaxed) const;
  void addTraffic(RelaxedTimes& relaxed) const;
  double virtualPath(const RelaxedTimes& relaxed, const Held& held, double slowest) const;
  double pathOf(const RelaxedTimes& relaxed) const;
  double tripOf(const RelaxedTimes& relaxed) const;
  double splitPath(const RelaxedTimes& relaxed, bool isRoomy) const;
  int64_t fullest(bool isRoomy) const;
  double withOnce(double path, double perLayer, double parameters, int64_t layers) const;

  const CutStages& stages_;
  const CutMemory& memory_;
  double parameters_[kNumStageKinds];  // without layers
};

}  // namespace trireme::planner
