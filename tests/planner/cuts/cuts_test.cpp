#include "planner/cuts/cuts.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/planner/small_query.h"

namespace trireme::planner {
namespace {

using Layers = std::vector<int64_t>;

Seconds longest(const Layers& layers, const std::vector<StageBudget>& stages) {
  Seconds longest;
  for (size_t i = 0; i < stages.size(); ++i)
    longest = std::max(longest, stages[i].fixed + Seconds(static_cast<double>(layers[i])));
  return longest;
}

// The shortest longest stage over all assignments; nothing if there is none.
std::optional<Seconds> longestByBruteForce(int64_t left, const std::vector<StageBudget>& stages,
                                           Layers& layers) {
  const size_t stage = layers.size();
  if (stage == stages.size()) {
    if (left > 0) return std::nullopt;
    return longest(layers, stages);
  }
  std::optional<Seconds> best;
  for (int64_t n = 1; n <= std::min(left, stages[stage].mostLayers); ++n) {
    layers.push_back(n);
    const auto found = longestByBruteForce(left - n, stages, layers);
    layers.pop_back();
    if (found && (!best || *found < *best)) best = found;
  }
  return best;
}

TEST(BalanceLayers, IsOptimalOnRandomSmallCases) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 300; ++trial) {
    const int64_t numLayers = 1 + static_cast<int64_t>(random() % 10);
    std::vector<StageBudget> stages(1 + random() % 4);
    for (StageBudget& s : stages)
      s = {Seconds(static_cast<double>(random() % 40) / 10), static_cast<int64_t>(random() % 7)};
    const Layers layers = balanceLayers(numLayers, Seconds(1), 1, stages);
    Layers scratch;
    const auto expected = longestByBruteForce(numLayers, stages, scratch);
    ASSERT_EQ(layers.empty(), !expected.has_value());
    if (expected) {
      EXPECT_EQ(longest(layers, stages), *expected);
    }
  }
}

// The definition itself: one layer after the other, to the stage that it leaves shortest.
Layers byGreed(int64_t numLayers, const std::vector<StageBudget>& stages, double perLayer) {
  Layers layers(stages.size(), 1);
  for (const StageBudget& stage : stages)
    if (stage.mostLayers < 1) return {};
  for (int64_t left = numLayers - static_cast<int64_t>(stages.size()); left != 0; --left) {
    if (left < 0) return {};
    std::optional<size_t> best;
    const auto after = [&](size_t i) {
      return stages[i].fixed + Seconds(perLayer) * static_cast<double>(layers[i] + 1);
    };
    for (size_t i = 0; i < stages.size(); ++i)
      if (layers[i] < stages[i].mostLayers && (!best || after(i) <= after(*best))) best = i;
    if (!best) return {};
    ++layers[*best];
  }
  return layers;
}

TEST(BalanceLayers, HandsLayersOutLikeTheGreedyDefinition) {
  std::mt19937 random(2);
  for (int trial = 0; trial < 3000; ++trial) {
    const int64_t numLayers = 1 + static_cast<int64_t>(random() % 200);
    const double perLayer = trial % 2 == 0 ? 1 : 0.1;
    std::vector<StageBudget> stages(1 + random() % 12);
    for (StageBudget& s : stages)
      s = {Seconds(static_cast<double>(random() % 60) / 10), static_cast<int64_t>(random() % 99)};
    for (size_t i = 1; i + 1 < stages.size(); ++i) stages[i].fixed = Seconds(0);  // as in a model
    EXPECT_EQ(balanceLayers(numLayers, Seconds(perLayer), 1, stages),
              byGreed(numLayers, stages, perLayer));
  }
}

// A head worth 2.5 layers: 4 + 4 + 2 gives 4.5 at the end, 4 + 4 + 4 would give 6.5.
TEST(BalanceLayers, TakesLayersFromTheStageWithTheHead) {
  const std::vector<StageBudget> stages = {{Seconds(0), 99}, {Seconds(0), 99}, {Seconds(2.5), 99}};
  EXPECT_EQ(balanceLayers(10, Seconds(1), 1, stages), (Layers{4, 4, 2}));
}

TEST(BalanceLayers, RespectsMemory) {
  const std::vector<StageBudget> stages = {{Seconds(0), 2}, {Seconds(0), 99}};
  EXPECT_EQ(balanceLayers(8, Seconds(1), 1, stages), (Layers{2, 6}));
  EXPECT_TRUE(balanceLayers(8, Seconds(1), 1, {{Seconds(0), 2}, {Seconds(0), 5}}).empty());
}

// 2 stages, 2 chunks: virtual stages 0..3 lie on stages 0 1 0 1.
TEST(RangesFrom, FollowTheVirtualStages) {
  const auto ranges = rangesFrom({{2, 1}, {3, 4}});
  EXPECT_EQ(ranges[0][0], (plan::LayerRange{0, 2}));
  EXPECT_EQ(ranges[1][0], (plan::LayerRange{2, 3}));
  EXPECT_EQ(ranges[0][1], (plan::LayerRange{5, 1}));
  EXPECT_EQ(ranges[1][1], (plan::LayerRange{6, 4}));
}

TEST(CutsFor, AreLegalAndStartWithTheEvenOne) {
  const Query query = smallQuery(4, 7);
  const CostFunctions costs = modelCosts(query);
  for (const plan::Plan& plan : everyPlan(query, 4, costs)) {
    const Status legal = plan::verifyPlan(plan, query.model);
    EXPECT_TRUE(legal.ok()) << legal.message();
  }
}

}  // namespace
}  // namespace trireme::planner
