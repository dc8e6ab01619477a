#include "cost_models/task_order.h"

#include <limits>
#include <utility>

#include "ir/base/status.h"

namespace trireme::cost {
namespace {

using program::Direction;
using schedule::Task;

constexpr size_t kTasksToLook = 48;  // of every rank
constexpr uint32_t kNotYet = std::numeric_limits<uint32_t>::max();

class Finder {
 public:
  Finder(const schedule::Schedule& schedule, size_t first, bool intoSlots)
      : schedule_(schedule), first_(first), last_(schedule.order.size() - first - 1) {
    order_.numRanks = last_ + 1;
    order_.chunks = static_cast<size_t>(schedule.virtualStages);
    order_.splitsBackward = schedule.splitsBackward;
    for (size_t stage = first; stage < schedule.order.size(); ++stage)
      numSteps_ += schedule.order[stage].size();
    if (intoSlots) {
      leftBy_ = schedule::slotsLeftBy(schedule);
      order_.sentAfter.reserve(numSteps_);
      for (auto& last : lastSent_) last.assign(order_.numWays(), never());
    }
    places_.assign(order_.numPasses() * static_cast<size_t>(schedule.numMicrobatches), kNotYet);
  }

  // Goes round the ranks, a task on each: neighbours in the order seldom wait for each other, so
  // that a processor overlaps them.
  TaskOrder find() {
    order_.steps.reserve(numSteps_);
    TaskOrder::Look look{0, std::vector<uint32_t>(order_.numRanks, start()),
                         std::vector<double>(order_.numPasses())};
    for (size_t rank = 0; rank <= last_; ++rank)
      for (const Task& task : schedule_.order[first_ + rank]) ++look.left[passOf(rank, task)];
    std::vector<std::vector<uint32_t>> ofRank(order_.numRanks);  // steps, by place in its order
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t rank = 0; rank <= last_; ++rank) moved |= addStep(rank, ofRank[rank], look);
      look.step = order_.steps.size();
      if (moved && (look.step == numSteps_ || look.step >= nextLook()))
        order_.looks.push_back(look);
    }
    TRIREME_CHECK(order_.steps.size() == numSteps_);
    return std::move(order_);
  }

 private:
  struct Input {
    uint32_t step, way;
  };

  size_t nextLook() const {
    return (order_.looks.empty() ? 0 : order_.looks.back().step) + kTasksToLook * order_.numRanks;
  }
  uint32_t start() const { return static_cast<uint32_t>(numSteps_); }
  uint32_t never() const { return start() + 1; }
  size_t passOf(size_t rank, const Task& task) const {
    return order_.passAt(rank, task.direction, static_cast<size_t>(task.chunk));
  }
  uint32_t& placeAt(size_t rank, Direction direction, size_t chunk, int32_t microbatch) {
    return places_[order_.passAt(rank, direction, chunk) *
                       static_cast<size_t>(schedule_.numMicrobatches) +
                   static_cast<size_t>(microbatch)];
  }

  // The rank's next task. False: it has none, or its input is not there.
  bool addStep(size_t rank, std::vector<uint32_t>& ofRank, TaskOrder::Look& look) {
    const std::vector<Task>& tasks = schedule_.order[first_ + rank];
    if (ofRank.size() == tasks.size()) return false;
    const Task& task = tasks[ofRank.size()];
    const Input input = inputOf(rank, task);
    if (input.step == kNotYet) return false;
    const bool waitsForSlot = input.way != TaskOrder::kAtHand && !leftBy_.empty();
    const int32_t leaves = waitsForSlot ? leftBy_[first_ + rank][ofRank.size()] : -1;
    const size_t pass = passOf(rank, task);
    const auto step = static_cast<uint32_t>(order_.steps.size());
    order_.steps.push_back({static_cast<uint32_t>(pass), look.last[rank], input.step,
                            leaves < 0 ? never() : ofRank[static_cast<size_t>(leaves)], input.way,
                            static_cast<uint32_t>(task.microbatch)});
    if (!leftBy_.empty()) order_.sentAfter.push_back(sentBefore(step, task, input.way));
    placeAt(rank, task.direction, static_cast<size_t>(task.chunk), task.microbatch) = step;
    ofRank.push_back(step);
    look.last[rank] = step;
    --look.left[pass];
    return true;
  }

  uint32_t sentBefore(uint32_t step, const Task& task, uint32_t way) {
    if (way == TaskOrder::kAtHand) return never();
    const bool isForward = task.direction == Direction::kForward;
    return std::exchange(lastSent_[isForward ? 0 : 1][way], step);
  }

  // A backward at the turn follows its own forward.
  Input inputOf(size_t rank, const Task& task) {
    const auto chunk = static_cast<size_t>(task.chunk);
    const auto from = [&](size_t of, Direction direction, size_t at) {
      return placeAt(of, direction, at, task.microbatch);
    };
    switch (task.direction) {
      case Direction::kForward:
        if (rank > 0)
          return {from(rank - 1, Direction::kForward, chunk), order_.hopBehind(rank - 1)};
        if (chunk == 0) return {start(), aroundBy(order_.throughForward(0), TaskOrder::kAtHand)};
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
        return {start(), TaskOrder::kAtHand};  // gradients of weights, after the backward
    }
  }
  uint32_t aroundBy(uint32_t through, uint32_t otherwise) const {
    return first_ > 0 ? through : otherwise;
  }
  uint32_t wayAround() const { return last_ > 0 ? order_.hopBehind(last_) : TaskOrder::kAtHand; }

  const schedule::Schedule& schedule_;
  const size_t first_, last_;  // the second counted from the first
  TaskOrder order_;
  size_t numSteps_ = 0;
  std::vector<std::vector<int32_t>> leftBy_;
  std::vector<uint32_t> lastSent_[2];  // forward and backward, by way
  std::vector<uint32_t> places_;       // steps, by pass, microbatch
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
