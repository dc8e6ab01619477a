#include "ir/schedule/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace trireme::schedule {

Schedule scheduleFor(const plan::Plan& plan) {
  const auto stages = static_cast<int32_t>(plan.pp);
  const auto numMicrobatches = static_cast<int32_t>(plan.numMicrobatches());
  switch (plan.schedule) {
    case plan::ScheduleKind::kGpipe:
      return gpipe(stages, numMicrobatches);
    case plan::ScheduleKind::k1F1B:
      return oneForwardOneBackward(stages, numMicrobatches);
    case plan::ScheduleKind::kInterleaved:
      return interleaved(stages, static_cast<int32_t>(plan.virtualStages), numMicrobatches);
  }
  checkFailed("plan.schedule is a ScheduleKind", __FILE__, __LINE__);
}

std::string printTask(const Task& task) {
  const char direction = task.direction == program::Direction::kForward    ? 'F'
                         : task.direction == program::Direction::kBackward ? 'B'
                                                                           : 'S';
  return fmt::format("{}{}.{}", direction, task.chunk, task.microbatch);
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
