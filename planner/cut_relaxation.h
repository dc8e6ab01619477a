// A lower bound of every cut of a plan's layers, from critical paths of the schedule. Dearer and
// mostly closer than AllCuts. Of Trireme's own programs. Internal to planner/.
#pragma once
#include <cstdint>
#include <vector>

#include "cost_models/play.h"
#include "ir/base/units.h"
#include "planner/block_costs.h"
#include "planner/linear_program.h"
#include "planner/query.h"

namespace trireme::planner {

// The order of a pipeline's tasks does not depend on how long they take, so that whatever chains
// of tasks hold each other up for one cut are chains of every other, and no cut takes less than any
// of them: with n_i layers on chunk i, which takes l n_i + fixed_i at every pass,
//   T >= C_k + sum_i w_ki n_i    chain k, w_ki: l times its passes of chunk i
//   sum_i n_i >= L, n_i >= 1, and for every rank  sum_i a_i n_i <= memory
// The least T of this linear program, n_i not whole, is a lower bound of every cut. Chains are
// found as they are needed (cutting planes, Kelley 1960): a play between the program's solution and
// the best cut so far (Ben-Ameur and Neto 2007) shows another one.
//
// What is returned does not rest on the solver: any weights q_k >= 0 of the chains, of sum 1, and
// any prices u_r >= 0 of memory prove
//   T >= sum q_k C_k - sum u_r memory_r + sum_i y_i + (L - chunks) min y_i
//   y_i = sum_k q_k w_ki + u_r a_i
// and the solver's are only the best of them.
class CutRelaxation {
 public:
  // `plan` without layers, of more than one stage and not GPipe, whose time is a closed form. The
  // arguments must outlive it.
  CutRelaxation(const Query& query, const plan::Plan& plan, const BlockCosts& blocks);

  struct Result {
    // Flushes of all cuts that fit in memory take at least this; kNoCut: none fits.
    Seconds bound;
    std::vector<double> layers;  // of every chunk by stages, not whole; about as fast, and fits
  };
  // Flushes are known to take at least `known`, and are of interest if they take less than
  // `enough`. Ends when none does, when the bound cannot grow much more, or after work like that of
  // about so many passes of chunks, which is taken off.
  Result solve(Seconds known, Seconds enough, int64_t& passes);

 private:
  struct Row {
    std::vector<double> perLayer;
    double fixed;
  };
  enum Side : size_t { kForward, kBackward, kWeights };
  using Passes = std::vector<double>;  // of every chunk, by side

  size_t chunkAt(size_t rank, size_t chunk) const { return rank * chunks_ + chunk; }
  Passes noPasses() const { return Passes(3 * numChunks_, 0.0); }
  void addClosedForms();
  void addChain(const Passes& passes, double hops);
  void addTime(Row row);
  void addMemory(const BlockCosts& blocks);
  double proved(const std::vector<double>& weights, const std::vector<double>& prices) const;
  bool mayFit(int64_t& passes);
  bool solveProgram(int64_t& passes);
  std::vector<double> levelled() const;
  double excess(const std::vector<double>& layers) const;
  double play(const std::vector<double>& layers);

  const Query& query_;
  const plan::Plan plan_;
  const size_t stages_, chunks_, numChunks_;
  const double layers_;
  double ofLayer_[3];             // s, by side
  std::vector<double> fixed_[3];  // s, of every chunk
  cost::Pipeline pipeline_;
  cost::FlushPlayer player_;
  LinearProgram program_;
  std::vector<Row> times_, memories_;  // of every chain, of every rank
  double unit_ = 1;                    // s, that the program counts in
};

}  // namespace trireme::planner
