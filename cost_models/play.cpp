#include "cost_models/play.h"

#include <algorithm>

#include "ir/schedule/schedule.h"

namespace trireme::cost {
namespace {

using program::Direction;
using schedule::Schedule;
using schedule::Task;

Schedule scheduleOf(const Pipeline& pipeline) {
  return schedule::scheduleFor(pipeline.schedule, static_cast<int32_t>(pipeline.stages.size()),
                               static_cast<int32_t>(pipeline.stages.front().forward.size()),
                               static_cast<int32_t>(pipeline.numMicrobatches));
}

class Player {
 public:
  explicit Player(const Pipeline& pipeline)
      : pipeline_(pipeline),
        schedule_(scheduleOf(pipeline)),
        numStages_(schedule_.order.size()),
        hop_(numStages_ > 1 ? pipeline.hop : Seconds(0)) {
    const size_t passes = numStages_ * static_cast<size_t>(schedule_.virtualStages) *
                          static_cast<size_t>(schedule_.numMicrobatches);
    for (auto& played : played_) played.resize(passes);
    lastOf_.resize(numStages_);
  }

  Simulation run() {
    std::vector<size_t> next(numStages_, 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank < numStages_; ++rank)
        for (; next[rank] < schedule_.order[rank].size(); ++next[rank], moved = true)
          if (!start(rank, schedule_.order[rank][next[rank]])) break;
    }
    const Played* last = nullptr;
    for (const Played* end : lastOf_)
      if (last == nullptr || end->end > last->end) last = end;
    Simulation result;
    result.makespan = last->end;
    for (; last != nullptr; last = last->before) result.path.push_back(itemOf(*last));
    std::reverse(result.path.begin(), result.path.end());
    return result;
  }

 private:
  struct Played {
    Task task;
    int32_t rank = -1;  // not played yet
    Seconds begin, transfer, end;
    const Played* before = nullptr;  // what it waited for
    bool isDone() const { return rank >= 0; }
  };

  static PathItem itemOf(const Played& played) {
    PathItem item;
    item.stage = played.rank;
    item.direction = played.task.direction;
    item.chunk = played.task.chunk;
    item.microbatch = played.task.microbatch;
    item.begin = played.begin;
    item.end = played.end;
    item.transfer = played.transfer;
    item.compute = played.end - played.begin - played.transfer;
    return item;
  }

  Played& at(Direction direction, size_t virtualStage, int32_t microbatch) {
    const size_t index = virtualStage * static_cast<size_t>(schedule_.numMicrobatches) +
                         static_cast<size_t>(microbatch);
    return played_[direction == Direction::kForward ? 0 : 1][index];
  }

  // What hands on the task's input: null if nothing does. A backward at the turn follows its own
  // forward.
  const Played* inputOf(const Task& task, size_t virtualStage) {
    const size_t last = numStages_ * static_cast<size_t>(schedule_.virtualStages) - 1;
    if (task.direction == Direction::kForward)
      return virtualStage == 0 ? nullptr : &at(task.direction, virtualStage - 1, task.microbatch);
    if (virtualStage == last) return &at(Direction::kForward, virtualStage, task.microbatch);
    return &at(task.direction, virtualStage + 1, task.microbatch);
  }

  // False: its input is not there yet.
  bool start(size_t rank, const Task& task) {
    const auto chunk = static_cast<size_t>(task.chunk);
    const size_t virtualStage = chunk * numStages_ + rank;
    const Played* input = inputOf(task, virtualStage);
    if (input != nullptr && !input->isDone()) return false;
    const bool isSent = input != nullptr && input->rank != static_cast<int32_t>(rank);
    const Seconds flight = isSent && pipeline_.overlapTransfers ? hop_ : Seconds(0);
    const Played* previous = lastOf_[rank];
    const Seconds free = previous != nullptr ? previous->end : Seconds(0);
    const bool waits = input != nullptr && input->end + flight > free;

    const StageTimes& times = pipeline_.stages[rank];
    Played& played = at(task.direction, virtualStage, task.microbatch);
    played.task = task;
    played.rank = static_cast<int32_t>(rank);
    played.before = waits ? input : previous;
    played.transfer =
        (waits ? flight : Seconds(0)) + (pipeline_.overlapTransfers ? Seconds(0) : hop_);
    played.begin = waits ? input->end : free;
    played.end =
        played.begin + played.transfer +
        (task.direction == Direction::kForward ? times.forward[chunk] : times.backward[chunk]);
    lastOf_[rank] = &played;
    return true;
  }

  const Pipeline& pipeline_;
  const Schedule schedule_;
  const size_t numStages_;
  const Seconds hop_;
  std::array<std::vector<Played>, 2> played_;  // forward, backward; by virtual stage, microbatch
  std::vector<const Played*> lastOf_;          // by rank
};

}  // namespace

Simulation play(const Pipeline& pipeline) { return Player(pipeline).run(); }

}  // namespace trireme::cost
