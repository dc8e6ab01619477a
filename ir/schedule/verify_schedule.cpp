#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ir/schedule/schedule.h"

namespace trireme::schedule {
namespace {

using program::Direction;

// One flag per (direction, virtual stage, microbatch).
class TaskSet {
 public:
  explicit TaskSet(const Schedule& s)
      : stages_(static_cast<size_t>(s.stages)),
        numMicrobatches_(static_cast<size_t>(s.numMicrobatches)),
        flags_(3 * stages_ * static_cast<size_t>(s.virtualStages) * numMicrobatches_, false) {}

  // std::vector<bool>'s reference: reads and writes one flag.
  auto at(int32_t rank, const Task& task) {
    const size_t stage = static_cast<size_t>(task.chunk) * stages_ + static_cast<size_t>(rank);
    const size_t direction = task.direction == Direction::kForward    ? 0
                             : task.direction == Direction::kBackward ? 1
                                                                      : 2;
    return flags_[3 * (stage * numMicrobatches_ + static_cast<size_t>(task.microbatch)) +
                  direction];
  }

 private:
  size_t stages_, numMicrobatches_;
  std::vector<bool> flags_;
};

bool isKnown(const Schedule& s, const Task& task) {
  return (task.direction == Direction::kForward || task.direction == Direction::kBackward ||
          (task.direction == Direction::kWeights && s.splitsBackward)) &&
         task.chunk >= 0 && task.chunk < s.virtualStages && task.microbatch >= 0 &&
         task.microbatch < s.numMicrobatches;
}

Status checkEachTaskOnce(const Schedule& s) {  // (S1)
  if (s.stages < 1 || s.virtualStages < 1 || s.numMicrobatches < 1)
    return invalidArgument(
        fmt::format("(S1) {} stages, {} virtual stages, {} microbatches: each is at least 1",
                    s.stages, s.virtualStages, s.numMicrobatches));
  if (s.order.size() != static_cast<size_t>(s.stages))
    return invalidArgument(
        fmt::format("(S1) {} ranks have an order, expected {}", s.order.size(), s.stages));
  const size_t expected = (s.splitsBackward ? 3 : 2) * static_cast<size_t>(s.virtualStages) *
                          static_cast<size_t>(s.numMicrobatches);
  TaskSet seen(s);
  for (int32_t rank = 0; rank < s.stages; ++rank) {
    const std::vector<Task>& order = s.order[static_cast<size_t>(rank)];
    for (const Task& task : order) {
      if (!isKnown(s, task))
        return invalidArgument(
            fmt::format("(S1) rank {}: {} is no task of {} chunks and {} microbatches", rank,
                        printTask(task), s.virtualStages, s.numMicrobatches));
      if (seen.at(rank, task))
        return invalidArgument(fmt::format("(S1) rank {}: {} twice", rank, printTask(task)));
      seen.at(rank, task) = true;
    }
    // All known and different: so a wrong number means that some are missing.
    if (order.size() != expected)
      return invalidArgument(
          fmt::format("(S1) rank {}: {} tasks, expected {}", rank, order.size(), expected));
  }
  return {};
}

Status checkPassesFollowEachOther(const Schedule& s) {  // (S3)
  TaskSet done(s);
  for (int32_t rank = 0; rank < s.stages; ++rank)
    for (const Task& task : s.order[static_cast<size_t>(rank)]) {
      const bool isWeights = task.direction == Direction::kWeights;
      const Task before{isWeights ? Direction::kBackward : Direction::kForward, task.chunk,
                        task.microbatch};
      if (task.direction != Direction::kForward && !done.at(rank, before))
        return invalidArgument(fmt::format("(S3) rank {}: {} stands before {}", rank,
                                           printTask(task), printTask(before)));
      done.at(rank, task) = true;
    }
  return {};
}

struct Place {
  int32_t rank = -1;  // -1: none
  Task task;
};

// The task on another virtual stage that makes the input of `task`.
Place producerOf(const Schedule& s, int32_t rank, const Task& task) {
  if (task.direction == Direction::kWeights) return {};
  const int32_t stage = task.chunk * s.stages + rank;
  const int32_t from = task.direction == Direction::kForward ? stage - 1 : stage + 1;
  if (from < 0 || from == s.stages * s.virtualStages) return {};
  return {from % s.stages, {task.direction, from / s.stages, task.microbatch}};
}

Status checkNoCycle(const Schedule& s) {  // (S2): play all ranks until none can move
  TaskSet done(s);
  std::vector<size_t> next(s.order.size(), 0);
  const auto isReady = [&](int32_t rank, const Task& task) {
    const Place producer = producerOf(s, rank, task);
    return producer.rank < 0 || done.at(producer.rank, producer.task);
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (int32_t rank = 0; rank < s.stages; ++rank) {
      const std::vector<Task>& order = s.order[static_cast<size_t>(rank)];
      for (size_t& i = next[static_cast<size_t>(rank)]; i < order.size() && isReady(rank, order[i]);
           ++i) {
        done.at(rank, order[i]) = true;
        moved = true;
      }
    }
  }
  std::vector<std::string> waits;
  for (int32_t rank = 0; rank < s.stages; ++rank) {
    const std::vector<Task>& order = s.order[static_cast<size_t>(rank)];
    if (next[static_cast<size_t>(rank)] == order.size()) continue;
    const Task& task = order[next[static_cast<size_t>(rank)]];
    const Place producer = producerOf(s, rank, task);
    waits.push_back(fmt::format("{} of rank {} for {} of rank {}", printTask(task), rank,
                                printTask(producer.task), producer.rank));
  }
  if (waits.empty()) return {};
  return invalidArgument(
      fmt::format("(S2) the ranks wait for each other: {}", fmt::join(waits, "; ")));
}

}  // namespace

Status verifySchedule(const Schedule& schedule) {
  TRIREME_RETURN_IF_ERROR(checkEachTaskOnce(schedule));
  TRIREME_RETURN_IF_ERROR(checkPassesFollowEachOther(schedule));
  return checkNoCycle(schedule);
}

}  // namespace trireme::schedule
