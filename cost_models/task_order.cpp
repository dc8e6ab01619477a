#include "cost_models/task_order.h"

#include <limits>
#include <utility>

#include "ir/base/status.h"
#include "ir/program/walk.h"
#include "ir/schedule/slots.h"

namespace trireme::cost {
namespace {

using program::Direction;
using schedule::Task;

constexpr size_t kTasksToLook = 48;  // of every rank
constexpr uint32_t kNotYet = std::numeric_limits<uint32_t>::max();

class Finder {
 public:
  Finder(const schedule::Schedule& schedule, size_t first, bool intoSlots)
      : schedule_(schedule),
        first_(first),
        last_(schedule.order.size() - first - 1),
        numMicrobatches_(static_cast<size_t>(schedule.numMicrobatches)) {
    order_.numRanks = last_ + 1;
    order_.chunks = static_cast<size_t>(schedule.virtualStages);
    order_.splitsBackward = schedule.splitsBackward;
    for (size_t stage = first; stage < schedule.order.size(); ++stage)
      numSteps_ += schedule.order[stage].size();
    if (intoSlots) {
      order_.sentAfter.reserve(numSteps_);
      slots_.resize(order_.numRanks * order_.chunks);
      slotOf_.resize(slots_.size() * numMicrobatches_);
      for (auto& last : lastSent_) last.assign(order_.numWays(), never());
    }
    places_.assign(order_.numPasses() * numMicrobatches_, kNotYet);
    places_.push_back(start());
  }

  // Goes round the ranks, a task on each: neighbours in the order seldom wait for each other, so
  // that a processor overlaps them.
  TaskOrder find() {
    order_.steps.reserve(numSteps_);
    TaskOrder::Look look{0, std::vector<uint32_t>(order_.numRanks, start()),
                         std::vector<double>(order_.numPasses())};
    std::vector<Head> heads;
    for (size_t rank = 0; rank <= last_; ++rank) {
      const std::vector<Task>& tasks = schedule_.order[first_ + rank];
      for (const Task& task : tasks) ++look.left[passOf(rank, task)];
      heads.push_back({tasks.data(), tasks.data() + tasks.size(), {}});
      if (!tasks.empty()) heads.back().input = inputOf(rank, tasks.front());
    }
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank <= last_; ++rank) moved |= addStep(rank, heads[rank], look);
      look.step = order_.steps.size();
      if (moved && (look.step == numSteps_ || look.step >= nextLook()))
        order_.looks.push_back(look);
    }
    TRIREME_CHECK(order_.steps.size() == numSteps_);
    return std::move(order_);
  }

 private:
  struct Input {
    size_t place;  // in places_, of the step that makes it
    uint32_t way;
  };
  // The next task of a rank.
  struct Head {
    const Task *task, *end;
    Input input;
  };
  // Of one chunk of a rank: the activations that are alive, and who left each slot free.
  struct ChunkSlots {
    schedule::Slots slots;
    std::vector<uint32_t> leftBy;  // steps, by slot
  };

  size_t nextLook() const {
    return (order_.looks.empty() ? 0 : order_.looks.back().step) + kTasksToLook * order_.numRanks;
  }
  uint32_t start() const { return static_cast<uint32_t>(numSteps_); }
  uint32_t never() const { return start() + 1; }
  size_t passOf(size_t rank, const Task& task) const {
    return order_.passAt(rank, task.direction, static_cast<size_t>(task.chunk));
  }
  size_t placeOf(size_t pass, int32_t microbatch) const {
    return pass * numMicrobatches_ + static_cast<size_t>(microbatch);
  }
  size_t fromStart() const { return places_.size() - 1; }

  // The rank's next task. False: it has none, or its input is not there.
  bool addStep(size_t rank, Head& head, TaskOrder::Look& look) {
    if (head.task == head.end) return false;
    const uint32_t input = places_[head.input.place];
    if (input == kNotYet) return false;
    const Task& task = *head.task;
    const size_t pass = passOf(rank, task);
    const auto step = static_cast<uint32_t>(order_.steps.size());
    const uint32_t way = head.input.way;
    order_.steps.push_back({static_cast<uint32_t>(pass), look.last[rank], input,
                            slots_.empty() ? never() : slotLeftBy(rank, task, way, step), way,
                            static_cast<uint32_t>(task.microbatch)});
    if (!slots_.empty()) order_.sentAfter.push_back(sentBefore(step, task, way));
    places_[placeOf(pass, task.microbatch)] = step;
    look.last[rank] = step;
    --look.left[pass];
    if (++head.task != head.end) head.input = inputOf(rank, *head.task);
    return true;
  }

  // Of a forward whose input is sent: the step that left its slot free, if that was ever taken.
  uint32_t slotLeftBy(size_t rank, const Task& task, uint32_t way, uint32_t step) {
    const bool isLast = task.direction == program::lastDirection(order_.splitsBackward);
    if (task.direction != Direction::kForward && !isLast) return never();
    const size_t chunk = rank * order_.chunks + static_cast<size_t>(task.chunk);
    auto& [slots, leftBy] = slots_[chunk];
    int32_t& slot = slotOf_[placeOf(chunk, task.microbatch)];
    if (isLast) {
      leftBy[static_cast<size_t>(slot)] = step;
      slots.giveBack(slot);
      return never();
    }
    slot = slots.take();
    if (static_cast<size_t>(slot) == leftBy.size()) leftBy.push_back(never());
    return way == TaskOrder::kAtHand ? never() : leftBy[static_cast<size_t>(slot)];
  }

  uint32_t sentBefore(uint32_t step, const Task& task, uint32_t way) {
    if (way == TaskOrder::kAtHand) return never();
    const bool isForward = task.direction == Direction::kForward;
    return std::exchange(lastSent_[isForward ? 0 : 1][way], step);
  }

  // A backward at the turn follows its own forward.
  Input inputOf(size_t rank, const Task& task) const {
    const auto chunk = static_cast<size_t>(task.chunk);
    const auto from = [&](size_t of, Direction direction, size_t at) {
      return placeOf(order_.passAt(of, direction, at), task.microbatch);
    };
    switch (task.direction) {
      case Direction::kForward:
        if (rank > 0)
          return {from(rank - 1, Direction::kForward, chunk), order_.hopBehind(rank - 1)};
        if (chunk == 0)
          return {fromStart(), aroundBy(order_.throughForward(0), TaskOrder::kAtHand)};
        return {from(last_, Direction::kForward, chunk - 1),
                aroundBy(order_.throughForward(chunk), wayAround())};
      case Direction::kBackward:
        if (rank < last_)
          return {from(rank + 1, Direction::kBackward, chunk), order_.hopBehind(rank)};
        if (chunk + 1 == order_.chunks)
          return {from(last_, Direction::kForward, chunk), TaskOrder::kAtHand};
        return {from(0, Direction::kBackward, chunk + 1),
                aroundBy(order_.throughBackward(chunk + 1), wayAround())};
      default:
        return {fromStart(), TaskOrder::kAtHand};  // gradients of weights, after the backward
    }
  }
  uint32_t aroundBy(uint32_t through, uint32_t otherwise) const {
    return first_ > 0 ? through : otherwise;
  }
  uint32_t wayAround() const { return last_ > 0 ? order_.hopBehind(last_) : TaskOrder::kAtHand; }

  const schedule::Schedule& schedule_;
  const size_t first_, last_;  // the second counted from the first
  const size_t numMicrobatches_;
  TaskOrder order_;
  size_t numSteps_ = 0;
  std::vector<ChunkSlots> slots_;      // by rank and chunk; none: activations need none
  std::vector<int32_t> slotOf_;        // by rank, chunk and microbatch
  std::vector<uint32_t> lastSent_[2];  // forward and backward, by way
  std::vector<uint32_t> places_;       // steps, by pass and microbatch; the last one: start()
};

}  // namespace

TaskOrder::Pass TaskOrder::passOf(uint32_t pass) const {
  constexpr Direction kSides[] = {Direction::kForward, Direction::kBackward, Direction::kWeights};
  return {pass / chunks / kDirections, kSides[pass / chunks % kDirections], pass % chunks};
}

TaskOrder orderTasks(const schedule::Schedule& schedule, size_t first, bool intoSlots) {
  return Finder(schedule, first, intoSlots).find();
}

}  // namespace trireme::cost
