// The last stages of a pipeline played alone: what the flush takes at least, whatever the stages
// before them are.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cost_models/pipeline.h"
#include "cost_models/task_order.h"

namespace trireme::cost {

// Tasks start as in play() (play.h), but for those of the stages before, [0, first): what comes
// through them takes the passes of its chunk there and nothing else, as if they had no other work.
// The order of tasks and what each waits for do not depend on how long they take, so that the whole
// pipeline takes no less. With first == 0 it is play() itself.
//
// A play is a chain of sums each of which waits for the one before. So several pipelines, which
// differ in these stages alone, are played side by side.
class TailPlayer {
 public:
  static constexpr size_t kLanes = 8;
  struct alignas(kLanes * sizeof(double)) Lanes : std::array<double, kLanes> {};  // s

  // `order`: of the stages from `first` on (FlushPlayer::orderOf). `least`: no pass of the stages
  // [0, first) takes less; its other stages are not read. Not with postValidation.
  TailPlayer(std::shared_ptr<const TaskOrder> order, const Pipeline& least, size_t first);

  // What a stage takes from now on, in one lane or in all. `stage` counts from the first of all.
  void put(size_t stage, size_t lane, const StageTimes& times);
  void put(size_t stage, const StageTimes& times);
  // What flushes take at least in the first lanes, in s; exactly for first == 0. Ends when all of
  // them take more than `limit`, which is then all that is said.
  Lanes play(size_t numLanes, Seconds limit);

  // Tasks played so far, of all lanes together.
  int64_t numPlayed() const { return numPlayed_; }

 private:
  struct Engine;

  Lanes known(const TaskOrder::Look& look, const Engine& engine) const;

  std::shared_ptr<const TaskOrder> order_;
  const size_t first_;
  const double stop_;  // of a transfer that is part of a pass, s
  const bool usesSlots_;
  double longestFlight_ = 0;
  bool inRows_ = false;            // messages may wait for each other
  double atEnd_ = 0;               // of the last gradient, through the stages before
  std::vector<double> flights_;    // of the last hop, by way
  std::vector<double> latencies_;  // of all of it
  std::vector<Lanes> durations_;   // by pass
  std::vector<Lanes> ends_;        // of steps
  std::vector<Lanes> arrivals_;    // of their inputs, where they use slots
  int64_t numPlayed_ = 0;
};

}  // namespace trireme::cost
