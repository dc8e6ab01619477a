// A lower bound of every cut of a plan's layers, from critical paths of the schedule. Dearer and
// mostly closer than AllCuts. Internal to planner/.
#pragma once
#include <cstdint>
#include <vector>

#include "cost_models/play.h"
#include "ir/base/units.h"
#include "planner/cuts/linear_chunks.h"
#include "planner/cuts/linear_program.h"

namespace trireme::planner {

// The order of a pipeline's tasks does not depend on how long they take, so that whatever chains
// of tasks hold each other up for one cut are chains of every other, and no cut takes less than any
// of them: with n_i layers on chunk i, which takes l n_i + fixed_i at every pass,
//   T >= C_k + sum_i w_ki n_i    chain k, w_ki: l times its passes of chunk i
//   sum_i n_i >= L, n_i >= least_i, and for every rank  sum_i a_i n_i <= memory
// The least T of this linear program, n_i not whole, is a lower bound of every cut. Chains are
// found as they are needed (cutting planes, Kelley 1960): a play between the program's solution and
// the best cut so far (Ben-Ameur and Neto 2007) shows another one. So it does of memory, where what
// a rank holds at most depends on which chunks have the layers.
//
// What is returned does not rest on the solver: any weights q_k >= 0 of the chains, of sum 1, and
// any prices u_r >= 0 of memory prove
//   T >= sum q_k C_k - sum u_r memory_r + sum_i least_i y_i + (L - sum_i least_i) min y_i
//   y_i = sum_k q_k w_ki + u_r a_i
// and the solver's are only the best of them.
class CutRelaxation {
 public:
  // Of chunks of more than one stage, and not of GPipe, whose time is a closed form.
  explicit CutRelaxation(LinearChunks chunks);

  struct Result {
    // Flushes of all cuts that fit in memory take at least this; kNoCut: none fits. As true as the
    // chunks are linear.
    Seconds bound;
    std::vector<double> layers;  // of every chunk by stages, not whole; about as fast, and fits
  };
  enum class Goal : uint8_t {
    kBound,    // as long as the bound may grow
    kVerdict,  // as long as it may reach `enough`
  };
  // Flushes are known to take at least `known`, and are of interest if they take less than
  // `enough`. Ends when none does, when the bound cannot grow much more, or to `enough`, or after
  // work like that of about so many passes of chunks, which is taken off.
  Result solve(Seconds known, Seconds enough, int64_t& passes, Goal goal = Goal::kBound);

 private:
  struct Row {
    LinearRow line;
    bool isMemory = false;
  };

  size_t chunkAt(size_t rank, size_t chunk) const { return rank * chunks_ + chunk; }
  void addClosedForms();
  void addTime(LinearRow line);
  void addMemory(LinearRow line);
  bool addMemoryAt(const std::vector<double>& layers);
  double proved(const std::vector<double>& prices, bool ofMemoryAlone = false) const;
  bool mayFit(int64_t& passes);
  bool solveProgram(int64_t& passes);
  std::vector<double> solution() const;  // layers of every chunk
  double knownExcess(const std::vector<double>& layers) const;
  double play(const std::vector<double>& layers);

  LinearChunks linear_;
  const size_t stages_, chunks_, numChunks_;
  const std::vector<double> level_;  // LinearChunks::levelled()
  cost::FlushPlayer player_;
  LinearProgram program_;
  std::vector<Row> rows_;  // of the program, but for the first one
  double unit_ = 1;        // s, that the program counts in
};

}  // namespace trireme::planner
