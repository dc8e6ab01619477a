#include "ir/schedule/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace trireme::schedule {

Schedule scheduleFor(plan::ScheduleKind kind, int32_t stages, int32_t virtualStages,
                     int32_t numMicrobatches) {
  switch (kind) {
    case plan::ScheduleKind::kGpipe:
      return gpipe(stages, numMicrobatches);
    case plan::ScheduleKind::k1F1B:
      return oneForwardOneBackward(stages, numMicrobatches);
    case plan::ScheduleKind::kInterleaved:
      return interleaved(stages, virtualStages, numMicrobatches);
    case plan::ScheduleKind::kZeroBubbleH1:
      return zeroBubbleH1(stages, numMicrobatches);
    case plan::ScheduleKind::kZeroBubbleH2:
      return zeroBubbleH2(stages, numMicrobatches);
  }
  checkFailed("kind is a ScheduleKind", __FILE__, __LINE__);
}

Schedule scheduleFor(const plan::Plan& plan) {
  return scheduleFor(plan.schedule, static_cast<int32_t>(plan.pp),
                     static_cast<int32_t>(plan.virtualStages),
                     static_cast<int32_t>(plan.numMicrobatches()));
}

std::string printTask(const Task& task) {
  return fmt::format("{}{}.{}", program::directionLetter(task.direction), task.chunk,
                     task.microbatch);
}

std::string printSchedule(const Schedule& schedule) {
  std::string text;
  for (const std::vector<Task>& order : schedule.order) {
    std::vector<std::string> tasks;
    tasks.reserve(order.size());
    for (const Task& task : order) tasks.push_back(printTask(task));
    text += fmt::format("{}\n", fmt::join(tasks, " "));
  }
  return text;
}

}  // namespace trireme::schedule
