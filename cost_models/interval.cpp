#include "cost_models/interval.h"

#include <algorithm>
#include <cmath>

namespace trireme::cost {
namespace {

constexpr double kLockstepDoubt = 0.6, kCollectiveDoubt = 3;  // of all else's

}  // namespace

std::optional<Interval> intervalOf(const Estimate& estimate, int64_t tp,
                                   const spec::StackDescription& stack) {
  const double faster = stack.fasterRuns, slower = stack.slowerRuns;
  if (faster == 0 && slower == 0) return std::nullopt;
  const double lockstep = std::log2(static_cast<double>(tp)) * std::min(1.0, estimate.hostPace);
  const double collectives =
      (estimate.breakdown.tensorParallel + estimate.breakdown.contextParallel) / estimate.step;
  const double width = 1 + kLockstepDoubt * lockstep + kCollectiveDoubt * collectives;
  const TimeRange own{estimate.step * (1 - std::min(1.0, width * faster)),
                      estimate.step * (1 + width * slower)};
  Interval interval{own, std::nullopt};
  if (stack.fasterElsewhere > 0 || stack.slowerElsewhere > 0)
    interval.ofOthers = {std::min(own.low, estimate.step * (1 - stack.fasterElsewhere)),
                         std::max(own.high, estimate.step * (1 + stack.slowerElsewhere))};
  return interval;
}

}  // namespace trireme::cost
