// Timing of work that several ranks do at once, each on its own thread, as in a training step: a
// rank of a busy machine is slower than one that has the machine to itself.
#pragma once
#include <cstdint>
#include <functional>

#include "ir/base/status.h"
#include "ir/base/units.h"
#include "runtime/executor/rank_threads.h"

namespace trireme::runtime {

class MeasuredRanks {
 public:
  // One call of the work that is timed, by one rank. Repeatable.
  using Work = std::function<Status()>;
  // Makes a rank's work, on that rank's thread (so that its memory is near), outside the timing.
  using Prepare = std::function<Result<Work>(int32_t rank)>;

  // Requires numRanks >= 1. `window`: how long each measurement lasts, but for calls that are
  // longer than a third of it: those are made three times.
  MeasuredRanks(int32_t numRanks, Seconds window) : numRanks_(numRanks), window_(window) {}

  // kResourceExhausted: the system gives no more threads.
  Status start() { return threads_.start(numRanks_); }
  int32_t numRanks() const { return numRanks_; }

  // Seconds per call of work that ranks do independently: of each rank the median over the window,
  // and the mean of the ranks. Where ranks share cores, so that one waits while another runs, it is
  // the mean over the window instead of the median. Errors: those of `prepare` and of the work.
  Result<Seconds> independent(const Prepare& prepare);

  // The same for work in which the ranks wait for each other: every rank makes the same number of
  // calls. The median of five rounds.
  Result<Seconds> together(const Prepare& prepare);

 private:
  int32_t numRanks_;
  Seconds window_;
  RankThreads threads_;
};

}  // namespace trireme::runtime
