// The last stages of a pipeline played alone: what the flush takes at least, whatever the stages
// before them are.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cost_models/pipeline.h"
#include "ir/schedule/schedule.h"

namespace trireme::cost {

// Tasks start as in play() (play.h), but for those of the stages before, [0, first): what comes
// through them takes the passes of its chunk there and nothing else, as if they had no other work.
// The order of tasks and what each waits for do not depend on how long they take, so that the whole
// pipeline takes no less. With first == 0 it is play() itself.
//
// A play is a chain of sums each of which waits for the one before. So several pipelines, which
// differ in the first of these stages alone, are played side by side.
class TailPlayer {
 public:
  static constexpr size_t kLanes = 8;
  struct alignas(kLanes * sizeof(double)) Lanes : std::array<double, kLanes> {};  // s
  using Stages = std::array<const StageTimes*, kLanes>;                           // by lane
  using Behind = std::span<const StageTimes* const>;                              // by stage

  // `least`: no pass of the stages [0, first) takes less; its other stages are not read. Of more
  // than one stage, not with postValidation. `schedule`: its order of tasks.
  TailPlayer(const Pipeline& least, const schedule::Schedule& schedule, size_t first);

  // The stages [first + 1, p) of all plays from now on.
  void setBehind(Behind behind);
  // What flushes take at least, in s. `own`: stage `first`, the first lane not null, null from
  // where there are no more; nothing is said of those. Ends when all take more than `limit`, which
  // is then all that is said.
  Lanes play(const Stages& own, Seconds limit);

  // Tasks played so far, of all lanes together.
  int64_t numPlayed() const { return numPlayed_; }

 private:
  // A task: where its time is, and the steps whose ends it waits for: that of its rank before it,
  // its input's with what that takes to come, and that of what leaves its slot free.
  struct Step {
    uint32_t duration, before, input, slot;
    double latency;
  };
  // After so many steps: the last one of each rank, and how often passes are still to come.
  struct Look {
    size_t step = 0;
    std::vector<uint32_t> last;
    std::vector<double> left;  // as durations_
  };
  class Finder;
  struct Engine;

  void putTimes(size_t rank, size_t lane, const StageTimes& times);
  Lanes known(const Look& look, const Engine& engine) const;

  const size_t numRanks_, chunks_;
  const double flight_, stop_;  // of a transfer, s: beside the rank's work, or as part of it
  const bool usesSlots_, splits_;
  double atEnd_ = 0;  // of the last gradient, through the stages before
  std::vector<Step> steps_;
  std::vector<Look> looks_;       // the last one after all steps
  std::vector<Lanes> durations_;  // of passes, by rank, direction, chunk
  std::vector<Lanes> ends_;       // of steps; and of what was there from the start, or never
  int64_t numPlayed_ = 0;
};

}  // namespace trireme::cost
