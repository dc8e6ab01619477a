// Three stages, four microbatches; rank r warms up with min(p - 1 - r, m) forwards:
//
//   rank 0   F0 F1 F2 B0 F3 B1 B2 B3
//   rank 1   F0 F1 B0 F2 B1 F3 B2 B3
//   rank 2   F0 B0 F1 B1 F2 B2 F3 B3
#include <algorithm>

#include "ir/schedule/schedule.h"

namespace trireme::schedule {

using program::Direction;

Schedule oneForwardOneBackward(int32_t stages, int32_t numMicrobatches) {
  TRIREME_CHECK(stages >= 1 && numMicrobatches >= 1);
  Schedule schedule{.stages = stages, .virtualStages = 1, .numMicrobatches = numMicrobatches};
  for (int32_t rank = 0; rank < stages; ++rank) {
    const int32_t warmup = std::min(stages - 1 - rank, numMicrobatches);
    std::vector<Task>& order = schedule.order.emplace_back();
    for (int32_t i = 0; i < warmup; ++i) order.push_back({Direction::kForward, 0, i});
    for (int32_t i = warmup; i < numMicrobatches; ++i) {
      order.push_back({Direction::kForward, 0, i});
      order.push_back({Direction::kBackward, 0, i - warmup});
    }
    for (int32_t i = numMicrobatches - warmup; i < numMicrobatches; ++i)
      order.push_back({Direction::kBackward, 0, i});
  }
  return schedule;
}

}  // namespace trireme::schedule
