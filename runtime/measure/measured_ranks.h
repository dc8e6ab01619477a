// Timing of work that several ranks do at once, each on its own thread, as in a training step: a
// rank of a busy machine is slower than one that has the machine to itself. Of ranks that outnumber
// the cores as many work at once as there are cores, and each gets its turn as often as any other.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>

#include "ir/base/status.h"
#include "ir/base/units.h"
#include "runtime/executor/rank_threads.h"

namespace trireme::runtime {

// Hardware threads, at least 1.
int32_t coresOfThisMachine();

class MeasuredRanks {
 public:
  // One call of the work that is timed, by one rank. Repeatable.
  using Work = std::function<Status()>;
  // Makes a rank's work, on that rank's thread (so that its memory is near), outside the timing.
  using Prepare = std::function<Result<Work>(int32_t rank)>;

  // Requires numRanks >= 1 and numCores >= 1. `window`: how long each measurement lasts, but for
  // calls that are longer than a third of it: those are made three times.
  MeasuredRanks(int32_t numRanks, Seconds window, int32_t numCores = coresOfThisMachine())
      : numRanks_(numRanks), atOnce_(std::min(numRanks, numCores)), window_(window) {}

  // kResourceExhausted: the system gives no more threads.
  Status start() { return threads_.start(numRanks_); }
  int32_t numRanks() const { return numRanks_; }
  // Ranks that do independent work at the same time: one per core at most.
  int32_t atOnce() const { return atOnce_; }
  double turns() const { return static_cast<double>(numRanks_) / atOnce_; }

  // Seconds per call of work that ranks do independently: of each of the first atOnce() ranks the
  // median over the window, their mean, and that times turns(), as a rank waits while others have
  // its core. Errors: those of `prepare` and of the work.
  Result<Seconds> independent(const Prepare& prepare);

  // The same for work in which ranks wait for each other: all take part and make the same number
  // of calls, for turns() windows. The median of five rounds.
  Result<Seconds> together(const Prepare& prepare);

 private:
  int32_t numRanks_, atOnce_;
  Seconds window_;
  RankThreads threads_;
};

}  // namespace trireme::runtime
