#include "tests/support/replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace trireme::testing {

using program::Direction;

// Time is counted in units of 1 / virtualStages, in which a chunk's passes take whole numbers.
double replaySeconds(const schedule::Schedule& s, const PassTimes& times) {
  const int32_t numStages = s.stages * s.virtualStages;
  const auto at = [&](Direction direction, int32_t stage, int32_t microbatch) {
    const int32_t pass = direction == Direction::kForward    ? 0
                         : direction == Direction::kBackward ? 1
                                                             : 2;
    return static_cast<size_t>((pass * numStages + stage) * s.numMicrobatches + microbatch);
  };
  std::vector<int64_t> end(static_cast<size_t>(3 * numStages * s.numMicrobatches), -1);
  std::vector<int64_t> rankFree(s.order.size(), 0);
  std::vector<size_t> next(s.order.size(), 0);
  const auto ready = [&](const schedule::Task& task, int32_t stage) -> int64_t {
    if (task.direction == Direction::kForward)
      return stage > 0 ? end[at(Direction::kForward, stage - 1, task.microbatch)] : 0;
    if (task.direction == Direction::kWeights)
      return end[at(Direction::kBackward, stage, task.microbatch)];
    return stage + 1 < numStages ? end[at(Direction::kBackward, stage + 1, task.microbatch)]
                                 : end[at(Direction::kForward, stage, task.microbatch)];
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t r = 0; r < s.order.size(); ++r)
      for (; next[r] < s.order[r].size(); ++next[r]) {
        const schedule::Task& task = s.order[r][next[r]];
        const int32_t stage = task.chunk * s.stages + static_cast<int32_t>(r);
        const int64_t input = ready(task, stage);
        if (input < 0) break;
        rankFree[r] = std::max(rankFree[r], input) +
                      (task.direction == Direction::kForward    ? times.forward
                       : task.direction == Direction::kBackward ? times.backward
                                                                : times.weights);
        end[at(task.direction, stage, task.microbatch)] = rankFree[r];
        moved = true;
      }
  }
  for (size_t r = 0; r < s.order.size(); ++r) EXPECT_EQ(next[r], s.order[r].size());
  return static_cast<double>(*std::max_element(rankFree.begin(), rankFree.end())) / s.virtualStages;
}

}  // namespace trireme::testing
