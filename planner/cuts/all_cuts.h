// A lower bound of every cut of a plan's layers, of Trireme's own programs. Internal to planner/.
#pragma once
#include <limits>
#include <vector>

#include "cost_models/pipeline.h"
#include "planner/query.h"
#include "planner/space/block_costs.h"
#include "planner/space/own_memory.h"

namespace trireme::planner {

// What the fastest cut takes where none fits.
inline constexpr Seconds kNoCut(std::numeric_limits<double>::infinity());

// What follows from the closed form (cost::pipelineTime), which the estimate never goes below, for
// the numbers n_r of layers per stage alone. Given the layers of the stages before it, stage r may
// have so many in a time X; too short is an X in which all stages together cannot have all L.
//   1F1B         S_r <= X, whatever the others have. T grows with X = max S_r, stall included.
//   GPipe        f_r <= X, and by itself b_r <= Y.
//   interleaved  m S_r and a layer of the first chunk of every stage before r and of the last
//                chunk of every stage behind.
//   zero bubble  the four paths of stage r. With N layers before it stage r may have n(N) where
//                N + n(N) does not shrink as N grows, so that as many as each may have, from the
//                first stage on, are the most in all.
class AllCuts {
 public:
  // `plan` without layers, of more than one stage. The arguments must outlive it.
  AllCuts(const Query& query, const plan::Plan& plan, const BlockCosts& blocks, CutFloor& floor);

  // Estimates of all cuts that fit in memory are at least this, if every chunk has a layer; beyond
  // `limit` it need not be close, and is known sooner. kNoCut: none fits.
  Seconds bound(Seconds limit = kNoCut) const;
  // The part of it that is done once per step.
  cost::OnceTimes once() const;

 private:
  // Times in s. Of all chunks, without layers, with transfers that stop the stage.
  struct Stage {
    double forward = 0, backward = 0;
    double before = 0, after = 0;  // interleaved: of the other stages
    double most = 0;               // layers, by memory
  };
  // layersIn(time, rank, before): the layers of a stage in a time, given those before it.
  template <typename LayersIn>
  double shortest(const LayersIn& layersIn, double limit) const;
  double flush(double limit) const;
  double gpipe(double limit) const;
  double oneForwardOneBackward(double limit) const;
  double interleaved(double limit) const;
  double zeroBubble(double limit) const;

  const Query& query_;
  const BlockCosts& blocks_;
  plan::Plan plan_;
  const double microbatches_, layers_;
  cost::Hops hops_;
  double forward_, backward_, weights_;  // of a layer, s
  std::vector<Stage> stages_;
};

}  // namespace trireme::planner
