// Three stages, four microbatches (time runs to the right; the program order is the reading order):
//
//   rank 0   F0 F1 F2 F3                   B0 B1 B2 B3
//   rank 1      F0 F1 F2 F3          B0 B1 B2 B3
//   rank 2         F0 F1 F2 F3 B0 B1 B2 B3
#include "ir/schedule/schedule.h"

namespace trireme::schedule {

using program::Direction;

Schedule gpipe(int32_t stages, int32_t numMicrobatches) {
  TRIREME_CHECK(stages >= 1 && numMicrobatches >= 1);
  std::vector<Task> order;
  for (Direction direction : {Direction::kForward, Direction::kBackward})
    for (int32_t i = 0; i < numMicrobatches; ++i) order.push_back({direction, 0, i});
  return {.stages = stages,
          .virtualStages = 1,
          .numMicrobatches = numMicrobatches,
          .order = std::vector<std::vector<Task>>(static_cast<size_t>(stages), order)};
}

}  // namespace trireme::schedule
