#include "cost_models/play.h"

#include <algorithm>
#include <array>

namespace trireme::cost {
namespace {

using program::Direction;
using schedule::Schedule;
using schedule::Task;

constexpr Seconds kNotPlayed(-1);

class Player {
 public:
  Player(const Pipeline& pipeline, const PlayOrder& order)
      : pipeline_(pipeline),
        schedule_(order.schedule),
        leftBy_(order.leftBy),
        numStages_(schedule_.order.size()),
        hop_(numStages_ > 1 ? pipeline.hop : Seconds(0)),
        flight_(pipeline.overlapTransfers ? hop_ : Seconds(0)),
        stop_(pipeline.overlapTransfers ? Seconds(0) : hop_) {
    const size_t passes = numStages_ * static_cast<size_t>(schedule_.virtualStages) *
                          static_cast<size_t>(schedule_.numMicrobatches);
    for (auto& ends : ends_) ends.assign(passes, kNotPlayed);
    usesSlots_ = !leftBy_.empty() && flight_.count() > 0;
  }

  // The end of the last task.
  Seconds run() {
    std::vector<size_t> next(numStages_, 0);
    std::vector<Seconds> free(numStages_);
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank < numStages_; ++rank) {
        const std::vector<Task>& order = schedule_.order[rank];
        for (; next[rank] < order.size(); ++next[rank], moved = true) {
          const Task& task = order[next[rank]];
          Input input = producerOf(rank, task);
          if (input.end == kNotPlayed) break;
          if (usesSlots_) input = intoSlot(rank, next[rank], input);
          free[rank] = std::max(free[rank], input.arrival()) + duration(rank, task);
          endOf(rank, task) = free[rank];
        }
      }
    }
    return *std::max_element(free.begin(), free.end());
  }

  // After run(): the chain of tasks that held each other up, from the first to the last.
  std::vector<PathItem> path() {
    std::array<std::vector<size_t>, 3> places;  // in the order of their ranks
    for (auto& place : places) place.resize(ends_[0].size());
    size_t rank = 0;
    for (size_t r = 0; r < numStages_; ++r) {
      const std::vector<Task>& order = schedule_.order[r];
      for (size_t i = 0; i < order.size(); ++i)
        places[side(order[i].direction)][indexOf(r, order[i])] = i;
      if (endOf(r, order.back()) > endOf(rank, schedule_.order[rank].back())) rank = r;
    }
    std::vector<PathItem> items;
    for (size_t place = schedule_.order[rank].size();;) {
      if (place-- == 0) break;
      const Task& task = schedule_.order[rank][place];
      const Input input = inputOf(rank, place);
      const Seconds free = place == 0 ? Seconds(0) : endOf(rank, schedule_.order[rank][place - 1]);
      const bool waits = input.arrival() > free;
      items.push_back(itemOf(rank, task, waits ? input.end : free,
                             (waits ? input.flight : Seconds(0)) + stopOf(task)));
      if (!waits) continue;
      rank = input.rank;
      place = places[side(input.direction)][input.index] + 1;
    }
    std::reverse(items.begin(), items.end());
    return items;
  }

  // After run(): what each stage is busy with, in order.
  std::vector<std::vector<PathItem>> tasks() {
    std::vector<std::vector<PathItem>> tasks(numStages_);
    for (size_t rank = 0; rank < numStages_; ++rank)
      for (const Task& task : schedule_.order[rank])
        tasks[rank].push_back(
            itemOf(rank, task, endOf(rank, task) - duration(rank, task), stopOf(task)));
    return tasks;
  }

 private:
  // What hands on a task's input, and when. Without one it is there from the start.
  struct Input {
    Seconds end, flight;
    size_t rank = 0, index = 0;
    Direction direction = Direction::kForward;
    Seconds arrival() const { return end + flight; }
  };

  static size_t side(Direction direction) {
    return direction == Direction::kForward ? 0 : direction == Direction::kBackward ? 1 : 2;
  }
  size_t indexOf(size_t rank, const Task& task) const {
    return (static_cast<size_t>(task.chunk) * numStages_ + rank) *
               static_cast<size_t>(schedule_.numMicrobatches) +
           static_cast<size_t>(task.microbatch);
  }
  Seconds& endOf(size_t rank, const Task& task) {
    return ends_[side(task.direction)][indexOf(rank, task)];
  }
  Seconds duration(size_t rank, const Task& task) const {
    const StageTimes& times = pipeline_.stages[rank];
    const auto chunk = static_cast<size_t>(task.chunk);
    if (task.direction == Direction::kWeights) return times.weights[chunk];
    return (task.direction == Direction::kForward ? times.forward : times.backward)[chunk] + stop_;
  }

  // Of its transfers, without overlap.
  Seconds stopOf(const Task& task) const {
    return task.direction == Direction::kWeights ? Seconds(0) : stop_;
  }

  Input inputOf(size_t rank, size_t place) const {
    const Input input = producerOf(rank, schedule_.order[rank][place]);
    return usesSlots_ ? intoSlot(rank, place, input) : input;
  }

  // The task that leaves its slot free for the input, if that is later than what hands it on.
  Input intoSlot(size_t rank, size_t place, const Input& input) const {
    const int32_t before = leftBy_[rank][place];
    if (before < 0 || input.flight.count() == 0) return input;
    const Task& last = schedule_.order[rank][static_cast<size_t>(before)];
    const Seconds free = ends_[side(last.direction)][indexOf(rank, last)];
    if (free <= input.end) return input;
    return {free, flight_, rank, indexOf(rank, last), last.direction};
  }

  // A backward at the turn follows its own forward.
  Input producerOf(size_t rank, const Task& task) const {
    const auto microbatches = static_cast<size_t>(schedule_.numMicrobatches);
    if (task.direction == Direction::kWeights) return {};  // after the backward on its rank
    const size_t index = indexOf(rank, task), size = ends_[0].size();
    const bool isForward = task.direction == Direction::kForward;
    if (isForward && index < microbatches) return {};
    const bool turns = !isForward && index + microbatches >= size;
    Input input;
    input.index = turns ? index : isForward ? index - microbatches : index + microbatches;
    input.rank = input.index / microbatches % numStages_;
    input.direction = turns ? Direction::kForward : task.direction;
    input.end = ends_[side(input.direction)][input.index];
    if (input.rank != rank) input.flight = flight_;
    return input;
  }

  PathItem itemOf(size_t rank, const Task& task, Seconds begin, Seconds transfer) {
    PathItem item;
    item.stage = static_cast<int32_t>(rank);
    item.direction = task.direction;
    item.chunk = task.chunk;
    item.microbatch = task.microbatch;
    item.begin = begin;
    item.end = endOf(rank, task);
    item.transfer = transfer;
    item.compute = item.end - item.begin - item.transfer;
    return item;
  }

  const Pipeline& pipeline_;
  const Schedule& schedule_;
  const std::vector<std::vector<int32_t>>& leftBy_;
  const size_t numStages_;
  const Seconds hop_, flight_, stop_;  // in flight beside the rank's work, or stopping it
  bool usesSlots_ = false;
  // Forward, backward, weights; by virtual stage, microbatch.
  std::array<std::vector<Seconds>, 3> ends_;
};

bool isEven(const std::vector<Seconds>& times, Seconds time) {
  return std::all_of(times.begin(), times.end(), [&](Seconds t) { return t == time; });
}

bool isEven(const Pipeline& pipeline) {
  const StageTimes& first = pipeline.stages.front();
  return std::all_of(pipeline.stages.begin(), pipeline.stages.end(), [&](const StageTimes& stage) {
    return isEven(stage.forward, first.forward.front()) &&
           isEven(stage.backward, first.backward.front());
  });
}

// Where pipelineTime is exact.
bool isClosed(const Pipeline& pipeline) {
  if (plan::splitsBackward(pipeline.schedule)) return false;
  return pipeline.schedule == plan::ScheduleKind::kGpipe || isEven(pipeline);
}

PlayOrder orderOf(const Pipeline& pipeline, Schedule schedule) {
  PlayOrder order{std::move(schedule), {}};
  if (pipeline.receivesIntoSlots) order.leftBy = schedule::slotsLeftBy(order.schedule);
  return order;
}

// The same tasks again, of as many microbatches more.
Schedule twice(const Schedule& once) {
  Schedule both = once;
  both.numMicrobatches *= 2;
  for (size_t rank = 0; rank < both.order.size(); ++rank)
    for (Task task : once.order[rank]) {
      task.microbatch += once.numMicrobatches;
      both.order[rank].push_back(task);
    }
  return both;
}

}  // namespace

PlayOrder orderOf(const Pipeline& pipeline) {
  return orderOf(pipeline, schedule::scheduleFor(
                               pipeline.schedule, static_cast<int32_t>(pipeline.stages.size()),
                               static_cast<int32_t>(pipeline.stages.front().forward.size()),
                               static_cast<int32_t>(pipeline.numMicrobatches)));
}

Simulation play(const Pipeline& pipeline, bool keepsTasks) {
  return play(pipeline, orderOf(pipeline), keepsTasks);
}

Simulation play(const Pipeline& pipeline, const PlayOrder& order, bool keepsTasks) {
  Player player(pipeline, order);
  Simulation result;
  result.makespan = player.run();
  result.path = player.path();
  if (keepsTasks) result.tasks = player.tasks();
  return result;
}

Seconds flushTime(const Pipeline& pipeline) {
  return isClosed(pipeline) ? pipelineTime(pipeline) : flushTime(pipeline, orderOf(pipeline));
}

Seconds flushTime(const Pipeline& pipeline, const PlayOrder& order) {
  const Seconds closedForm = pipelineTime(pipeline);
  if (isClosed(pipeline)) return closedForm;
  const Seconds alone = Player(pipeline, order).run();
  if (!pipeline.postValidation) return std::max(closedForm, alone);
  const PlayOrder both = orderOf(pipeline, twice(order.schedule));
  return std::max(closedForm, Player(pipeline, both).run() - alone);
}

}  // namespace trireme::cost
