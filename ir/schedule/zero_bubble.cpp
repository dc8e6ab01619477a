// Three stages, five microbatches, H1: in flight are at most three on every rank.
//
//   rank 0   F0 F1 F2 B0 W0 F3 B1 W1 F4 B2 W2 B3 W3 B4 W4
//   rank 1   F0 F1 B0 F2 B1 W0 F3 B2 W1 F4 B3 W2 B4 W3 W4
//   rank 2   F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 F4 B4 W2 W3 W4
#include <algorithm>

#include "ir/schedule/schedule.h"

namespace trireme::schedule {
namespace {

using program::Direction;

std::vector<Task> orderOf(int32_t numMicrobatches, Lead lead) {
  const auto warmup = static_cast<int32_t>(std::min<int64_t>(lead.forwards, numMicrobatches));
  const auto behind = static_cast<int32_t>(std::min<int64_t>(lead.backwards, numMicrobatches));
  std::vector<Task> order;
  for (int32_t i = 0; i < warmup; ++i) order.push_back({Direction::kForward, 0, i});
  for (int32_t i = 0; i < numMicrobatches; ++i) {
    order.push_back({Direction::kBackward, 0, i});
    if (i >= behind) order.push_back({Direction::kWeights, 0, i - behind});
    if (i + warmup < numMicrobatches) order.push_back({Direction::kForward, 0, i + warmup});
  }
  for (int32_t i = numMicrobatches - behind; i < numMicrobatches; ++i)
    order.push_back({Direction::kWeights, 0, i});
  return order;
}

Schedule scheduleOf(plan::ScheduleKind kind, int32_t stages, int32_t numMicrobatches) {
  TRIREME_CHECK(stages >= 1 && numMicrobatches >= 1);
  Schedule schedule{.stages = stages,
                    .virtualStages = 1,
                    .numMicrobatches = numMicrobatches,
                    .splitsBackward = true,
                    .order = {}};
  for (int32_t rank = 0; rank < stages; ++rank)
    schedule.order.push_back(orderOf(numMicrobatches, leadOf(kind, stages, rank)));
  return schedule;
}

}  // namespace

Lead leadOf(plan::ScheduleKind kind, int64_t stages, int64_t rank) {
  TRIREME_CHECK(plan::splitsBackward(kind));
  if (kind == plan::ScheduleKind::kZeroBubbleH1) return {stages - rank, rank};
  return {2 * (stages - rank) - 1, 2 * rank};
}

Schedule zeroBubbleH1(int32_t stages, int32_t numMicrobatches) {
  return scheduleOf(plan::ScheduleKind::kZeroBubbleH1, stages, numMicrobatches);
}

Schedule zeroBubbleH2(int32_t stages, int32_t numMicrobatches) {
  return scheduleOf(plan::ScheduleKind::kZeroBubbleH2, stages, numMicrobatches);
}

}  // namespace trireme::schedule
