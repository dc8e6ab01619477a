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

// Forwards before the first backward, and how many backwards W is behind.
struct Lead {
  int32_t forwards = 1, backwards = 0;
};

std::vector<Task> orderOf(int32_t numMicrobatches, Lead lead) {
  const int32_t warmup = std::min(lead.forwards, numMicrobatches);
  std::vector<Task> order;
  for (int32_t i = 0; i < warmup; ++i) order.push_back({Direction::kForward, 0, i});
  for (int32_t i = 0; i < numMicrobatches; ++i) {
    order.push_back({Direction::kBackward, 0, i});
    if (i >= lead.backwards) order.push_back({Direction::kWeights, 0, i - lead.backwards});
    if (i + warmup < numMicrobatches) order.push_back({Direction::kForward, 0, i + warmup});
  }
  for (int32_t i = std::max(numMicrobatches - lead.backwards, 0); i < numMicrobatches; ++i)
    order.push_back({Direction::kWeights, 0, i});
  return order;
}

template <typename LeadOf>
Schedule scheduleOf(int32_t stages, int32_t numMicrobatches, LeadOf leadOf) {
  TRIREME_CHECK(stages >= 1 && numMicrobatches >= 1);
  Schedule schedule{.stages = stages,
                    .virtualStages = 1,
                    .numMicrobatches = numMicrobatches,
                    .splitsBackward = true,
                    .order = {}};
  for (int32_t rank = 0; rank < stages; ++rank)
    schedule.order.push_back(orderOf(numMicrobatches, leadOf(rank)));
  return schedule;
}

}  // namespace

Schedule zeroBubbleH1(int32_t stages, int32_t numMicrobatches) {
  return scheduleOf(stages, numMicrobatches,
                    [&](int32_t rank) { return Lead{stages - rank, rank}; });
}

Schedule zeroBubbleH2(int32_t stages, int32_t numMicrobatches) {
  return scheduleOf(stages, numMicrobatches,
                    [&](int32_t rank) { return Lead{2 * (stages - rank) - 1, 2 * rank}; });
}

}  // namespace trireme::schedule
