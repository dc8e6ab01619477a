// An activation is alive from the start of its forward to the end of its backward, of all of it.
#include <algorithm>
#include <vector>

#include "ir/schedule/schedule.h"
#include "ir/schedule/slots.h"

namespace trireme::schedule {
namespace {

using program::Direction;

// Whether the task is the last to read its activation.
bool isLast(const Schedule& schedule, const Task& task) {
  return task.direction == (schedule.splitsBackward ? Direction::kWeights : Direction::kBackward);
}

template <typename Counts>
int32_t peak(const Schedule& schedule, int32_t rank, Counts counts) {
  int32_t live = 0, most = 0;
  for (const Task& task : schedule.order.at(static_cast<size_t>(rank))) {
    if (!counts(task)) continue;
    if (task.direction == Direction::kForward) ++live;
    if (isLast(schedule, task)) --live;
    most = std::max(most, live);
  }
  return most;
}

std::vector<int32_t> assignSlotsOfRank(const Schedule& schedule, const std::vector<Task>& order) {
  const auto numMicrobatches = static_cast<size_t>(schedule.numMicrobatches);
  std::vector<Slots> slotsOfChunk(static_cast<size_t>(schedule.virtualStages));
  std::vector<int32_t> slotOfActivation(slotsOfChunk.size() * numMicrobatches, -1);
  std::vector<int32_t> slots;
  slots.reserve(order.size());
  for (const Task& task : order) {
    Slots& chunk = slotsOfChunk.at(static_cast<size_t>(task.chunk));
    int32_t& slot = slotOfActivation.at(static_cast<size_t>(task.chunk) * numMicrobatches +
                                        static_cast<size_t>(task.microbatch));
    if (task.direction == Direction::kForward)
      slot = chunk.take();
    else if (isLast(schedule, task))
      chunk.giveBack(slot);
    slots.push_back(slot);
  }
  return slots;
}

}  // namespace

int32_t peakLive(const Schedule& schedule, int32_t rank, int32_t chunk) {
  return peak(schedule, rank, [&](const Task& task) { return task.chunk == chunk; });
}

int32_t peakLiveTotal(const Schedule& schedule, int32_t rank) {
  return peak(schedule, rank, [](const Task&) { return true; });
}

std::vector<std::vector<int32_t>> assignSlots(const Schedule& schedule) {
  std::vector<std::vector<int32_t>> slots;
  for (const std::vector<Task>& order : schedule.order)
    slots.push_back(assignSlotsOfRank(schedule, order));
  return slots;
}

}  // namespace trireme::schedule
