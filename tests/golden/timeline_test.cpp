// Makespans and live activations of the published schedules, from the compiled programs: the
// simulator plays the very instructions that the runtime executes.
//
// With free communication and t_f = 1, t_b = 2 per stage: T = 3 m + 3 (p - 1) / v
// (Narayanan et al., SC 2021, section 2.2). Peaks: GPipe m; 1F1B min(m, p - r); interleaved
// min(m v, 2 (p - r - 1) + (v - 1) p + 1) chunks, or all m v if m = p.
#include <gtest/gtest.h>

#include "cost_models/simulate.h"
#include "ir/expand/expand.h"
#include "tests/support/small_plan.h"

namespace trireme {
namespace {

// One unit per layer forward, two backward, everything else free.
class UnitCosts : public cost::CostProvider {
 public:
  Seconds compute(const program::Program&, int32_t,
                  const program::Segment& segment) const override {
    if (segment.name.starts_with("layer.forward")) return Seconds(1);
    if (segment.name.starts_with("layer.backward")) return Seconds(2);
    return Seconds(0);
  }
  Seconds send(const program::Program&, int32_t, int32_t, Bytes) const override {
    return Seconds(0);
  }
  Seconds collective(const program::Program&, const program::Group&, program::InstructionKind,
                     Bytes) const override {
    return Seconds(0);
  }
  Seconds local(const program::Program&, int32_t, const program::Instruction&) const override {
    return Seconds(0);
  }
};

struct Case {
  plan::ScheduleKind schedule;
  int64_t p, v, m;
};

// v layers per stage, so that a chunk is one layer and a stage's forward takes v units.
expand::Expansion expandCase(const Case& c) {
  const spec::ModelSpec model = small::gpt(c.p * c.v, 8, 1);
  plan::Plan plan = small::plan(model, small::training(c.m, 4), 1, c.p);
  plan.schedule = c.schedule;
  plan.virtualStages = c.v;
  plan.vocabMultiple = 1;
  plan.layers = plan::evenLayers(model.numLayers, c.p, c.v);
  auto expansion = expand::expand(model, plan);
  if (!expansion) throw std::runtime_error(expansion.error().message());
  return std::move(*expansion);
}

cost::Simulation simulateCase(const Case& c) {
  auto simulation = cost::simulate(expandCase(c).program, UnitCosts());
  if (!simulation) throw std::runtime_error(simulation.error().message());
  return std::move(*simulation);
}

constexpr plan::ScheduleKind kKinds[] = {plan::ScheduleKind::kGpipe, plan::ScheduleKind::k1F1B,
                                         plan::ScheduleKind::kInterleaved};

TEST(Timeline, TakesExactlyThePublishedTime) {
  for (auto [p, m] : {std::pair{2, 4}, {4, 4}, {4, 8}, {8, 16}, {8, 64}})
    for (plan::ScheduleKind kind : kKinds)
      for (int v : {1, 2, 3, 4}) {
        if ((kind == plan::ScheduleKind::kInterleaved) != (v > 1)) continue;
        // In units of a v-th: 3 m v + 3 (p - 1).
        EXPECT_EQ(simulateCase({kind, p, v, m}).makespan.count(), 3.0 * m * v + 3.0 * (p - 1))
            << plan::scheduleName(kind) << " p " << p << " m " << m << " v " << v;
      }
}

TEST(Timeline, KeepsExactlyThePublishedActivations) {
  for (auto [p, m] : {std::pair{2, 4}, {4, 4}, {4, 8}, {8, 16}})
    for (plan::ScheduleKind kind : kKinds)
      for (int v : {1, 2}) {
        if ((kind == plan::ScheduleKind::kInterleaved) != (v > 1)) continue;
        const cost::Simulation simulation = simulateCase({kind, p, v, m});
        for (const cost::RankUse& use : simulation.ranks) {
          const int r = use.rank;
          const int expected = kind == plan::ScheduleKind::kGpipe  ? m
                               : kind == plan::ScheduleKind::k1F1B ? std::min(m, p - r)
                               : m == p                            ? m * v
                                        : std::min(m * v, 2 * (p - r - 1) + (v - 1) * p + 1);
          EXPECT_EQ(use.peakLive, expected)
              << plan::scheduleName(kind) << " p " << p << " m " << m << " rank " << r;
        }
      }
}

// The table's own numbers, for p = 8, m = 16: 23, 21, 19, ... chunks.
TEST(Timeline, InterleavedEightStagesKeepTheTabulatedChunks) {
  const cost::Simulation simulation = simulateCase({plan::ScheduleKind::kInterleaved, 8, 2, 16});
  std::vector<int> peaks;
  for (const cost::RankUse& use : simulation.ranks) peaks.push_back(use.peakLive);
  EXPECT_EQ(peaks, (std::vector<int>{23, 21, 19, 17, 15, 13, 11, 9}));
}

}  // namespace
}  // namespace trireme
