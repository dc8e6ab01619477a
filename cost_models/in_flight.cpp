#include "cost_models/in_flight.h"

#include <algorithm>

namespace trireme::cost {
namespace {

// Of the first k tasks of one direction, those of the chunk that is `position`-th in its order.
int64_t countOf(int64_t position, int64_t k, int64_t p, int64_t v) {
  return k / (p * v) * p + std::clamp<int64_t>(k % (p * v) - position * p, 0, p);
}

std::vector<int64_t> interleavedSlots(int64_t p, int64_t v, int64_t m, int64_t rank) {
  const auto chunks = static_cast<size_t>(v);
  const int64_t warmUp = m == p ? m * v : std::min(2 * (p - rank - 1) + (v - 1) * p, m * v);
  if (warmUp == m * v) return std::vector<int64_t>(chunks, m);
  // Between the places where a run of the chunk's forwards ends and one of its backwards begins,
  // the difference only falls and then rises again: its peaks are there or at the ends.
  const int64_t period = p * v, steady = std::min(m * v - warmUp, period);
  std::vector<int64_t> peak(chunks, 0);
  for (int64_t c = 0; c < v; ++c) {
    const int64_t forwardsEnd = (((c + 1) * p - warmUp - 1) % period + period) % period;
    for (const int64_t i : {int64_t{0}, forwardsEnd, (v - 1 - c) * p, steady - 1}) {
      if (i >= steady) continue;
      int64_t& most = peak[static_cast<size_t>(c)];
      most = std::max(most, countOf(c, warmUp + i + 1, p, v) - countOf(v - 1 - c, i, p, v));
    }
  }
  return peak;
}

}  // namespace

std::vector<int64_t> peakSlots(plan::ScheduleKind kind, int64_t stages, int64_t virtualStages,
                               int64_t numMicrobatches, int64_t rank) {
  switch (kind) {
    case plan::ScheduleKind::kGpipe:
      return {numMicrobatches};
    case plan::ScheduleKind::k1F1B:
      return {std::min(numMicrobatches, stages - rank)};
    case plan::ScheduleKind::kInterleaved:
      return interleavedSlots(stages, virtualStages, numMicrobatches, rank);
  }
  return {};
}

}  // namespace trireme::cost
