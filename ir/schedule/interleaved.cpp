// Each rank holds v chunks, so the bubble is v times shorter. Microbatches go in groups of p: a
// group visits chunk 0 of all ranks, then chunk 1, ..., before the next group starts. Two stages,
// two chunks, four microbatches (chunk.microbatch):
//
//   rank 0   F0.0 F0.1 F1.0 F1.1 F0.2 B1.0 F0.3 B1.1 F1.2 B0.0 F1.3 B0.1 B1.2 B1.3 B0.2 B0.3
//   rank 1   F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 F0.2 B0.0 F0.3 B0.1 F1.2 B1.2 F1.3 B1.3 B0.2 B0.3
#include <algorithm>

#include "ir/schedule/schedule.h"

namespace trireme::schedule {
namespace {

using program::Direction;

// The k-th forward (backward) of a rank, k in [0, m * v): the same sequence on every rank.
Task virtualMicrobatch(const Schedule& s, Direction direction, int32_t k) {
  const int32_t group = s.stages * s.virtualStages;
  const int32_t chunk = k % group / s.stages;
  return {.direction = direction,
          .chunk = direction == Direction::kForward ? chunk : s.virtualStages - 1 - chunk,
          .microbatch = k / group * s.stages + k % s.stages};
}

// With as many microbatches as stages all forwards come first, as in the published schedule.
int32_t numWarmup(const Schedule& s, int32_t rank) {
  const int32_t all = s.numMicrobatches * s.virtualStages;
  if (s.numMicrobatches == s.stages) return all;
  return std::min(2 * (s.stages - rank - 1) + (s.virtualStages - 1) * s.stages, all);
}

}  // namespace

Schedule interleaved(int32_t stages, int32_t virtualStages, int32_t numMicrobatches) {
  TRIREME_CHECK(stages >= 1 && virtualStages >= 1 && numMicrobatches >= 1);
  TRIREME_CHECK(numMicrobatches % stages == 0);
  Schedule schedule{
      .stages = stages, .virtualStages = virtualStages, .numMicrobatches = numMicrobatches};
  const int32_t all = numMicrobatches * virtualStages;
  for (int32_t rank = 0; rank < stages; ++rank) {
    const int32_t warmup = numWarmup(schedule, rank);
    std::vector<Task> order;
    for (int32_t k = 0; k < warmup; ++k)
      order.push_back(virtualMicrobatch(schedule, Direction::kForward, k));
    for (int32_t k = warmup; k < all; ++k) {
      order.push_back(virtualMicrobatch(schedule, Direction::kForward, k));
      order.push_back(virtualMicrobatch(schedule, Direction::kBackward, k - warmup));
    }
    for (int32_t k = all - warmup; k < all; ++k)
      order.push_back(virtualMicrobatch(schedule, Direction::kBackward, k));
    schedule.order.push_back(std::move(order));
  }
  return schedule;
}

}  // namespace trireme::schedule
