#include "planner/parts.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace trireme::planner {

std::vector<BreakdownPart> breakdownParts(const cost::Breakdown& b) {
  return {{"matrix products", b.products},
          {"attention", b.attention},
          {"elementwise", b.elementwise},
          {"recomputation", b.recomputation},
          {"launching", b.launching},
          {"tensor parallel", b.tensorParallel},
          {kContextParallel, b.contextParallel},
          {"pipeline transfers", b.pipeline},
          {"bubble", b.bubble},
          {"data parallel", b.dataParallel},
          {"synchronisation", b.synchronisation},
          {"optimizer", b.optimizer}};
}

std::vector<double> percentages(const std::vector<Seconds>& times) {
  Seconds total;
  for (const Seconds time : times) total += time;
  std::vector<double> tenths(times.size(), 0);
  if (!(total.count() > 0)) return tenths;
  std::vector<std::pair<double, size_t>> lost;
  double missing = 1000;
  for (size_t i = 0; i < times.size(); ++i) {
    const double exact = 1000 * (times[i] / total);
    tenths[i] = std::floor(exact);
    missing -= tenths[i];
    lost.emplace_back(tenths[i] - exact, i);
  }
  std::stable_sort(lost.begin(), lost.end());
  for (size_t i = 0; i < lost.size() && missing >= 1; ++i, missing -= 1) ++tenths[lost[i].second];
  for (double& tenth : tenths) tenth /= 10;
  return tenths;
}

std::vector<MemoryPart> memoryParts(const cost::MemoryUse& memory) {
  const auto bytes = [](int64_t n) { return Bytes(static_cast<double>(n)); };
  const expand::ArenaUse& a = memory.arena;
  return {{"parameters", bytes(a.parameters)},
          {"gradients", bytes(a.gradients)},
          {"optimizer", bytes(a.optimizer) + memory.optimizerDifference},
          {"activations", bytes(a.activations) + memory.unfusedAttention},
          {"scratch", bytes(a.scratch)},
          {"workspace", bytes(a.workspace)},
          {"other", bytes(a.other)},
          {"reserve", memory.reserve}};
}

RunnerUp runnerUpOf(const CostedPlan& other, const CostedPlan& winner) {
  RunnerUp runner{
      other.plan, other.estimate, other.estimate.step - winner.estimate.step, "tie", {}};
  const auto mine = breakdownParts(other.estimate.breakdown);
  const auto best = breakdownParts(winner.estimate.breakdown);
  for (size_t i = 0; i < mine.size(); ++i) {
    const Seconds difference = mine[i].time - best[i].time;
    if (runner.slower.count() <= 0 || difference <= runner.lostByAmount) continue;
    runner.lostBy = mine[i].name;
    runner.lostByAmount = difference;
  }
  return runner;
}

}  // namespace trireme::planner
