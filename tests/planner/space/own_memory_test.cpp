// Lower bounds of the memory of Trireme's own programs.
#include "planner/space/own_memory.h"

#include <gtest/gtest.h>

#include "tests/planner/small_query.h"

namespace trireme::planner {
namespace {

// Small enough that activations count, and large enough that alignment does not.
std::vector<Query> queries() {
  std::vector<Query> queries;
  for (const bool isFlash : {true, false}) {
    Query query = smallQuery(8, 9, 16);
    query.model = small::gpt(9, 256, 4);
    query.stack.flashAttention = isFlash;
    queries.push_back(query);
  }
  return queries;
}

TEST(CutFloor, IsBelowEveryCutAndCloseToTheLeanest) {
  for (const Query& query : queries()) {
    const CostFunctions costs = modelCosts(query);
    std::vector<Rejection> rejections;
    double closest = 0;
    for (const Group& group : groupsFor(query, 8, rejections)) {
      if (!hasPlan(query, group)) continue;
      const SharedBlocks blocks = *costs.blocks(planOf(query, group));
      CutFloor floor(query, *blocks);
      forEachPlan(query, group, [&](const plan::Plan& arrangement) {
        const Bytes least = floor.of(arrangement);
        plan::Plan plan = arrangement;
        std::vector<Ranges> cuts = cutsFor(query, arrangement, *blocks);
        const auto chunks = static_cast<size_t>(plan.pp * plan.virtualStages);
        for (size_t longest = 0; longest < chunks; ++longest) {
          std::vector<int64_t> counts(chunks, 1);
          counts[longest] += query.model.numLayers - static_cast<int64_t>(chunks);
          cuts.push_back(pinnedCut(counts, plan));
        }
        for (auto& layers : cuts) {
          plan.layers = std::move(layers);
          const Bytes bound = boundOf(query, plan, *blocks).memory;
          EXPECT_LE(least, bound) << plan::printPlan(plan);
          if (plan.virtualStages > 2) closest = std::max(closest, least / bound);
          if (plan.pp == 1) {  // the only cut
            EXPECT_GT(least, bound * 0.9999);
          }
        }
      });
    }
    EXPECT_GT(closest, 0.9);
  }
}

// Activations are as many times as large as there are samples, but for alignment.
TEST(LeastMemoryBySample, IsCloseToThatOfTheGroup) {
  Query query = smallQuery(8, 9, 64);
  query.model = small::gpt(9, 1024, 4);
  const CostFunctions costs = modelCosts(query);
  std::vector<Rejection> rejections;
  int numLarge = 0;
  for (const Group& group : groupsFor(query, 8, rejections)) {
    if (!hasPlan(query, group) || group.splitsBackward || group.microbatchSize < 8) continue;
    const SharedBlocks ofSample = *costs.blocks(planOf(query, sampleOf(query, group)));
    const Bytes bound = leastMemoryBySample(query, group, *ofSample, leastReserve(query, group));
    const Bytes probed = leastMemory(query, group, **costs.blocks(planOf(query, group)));
    EXPECT_LE(bound, probed);
    EXPECT_GT(bound, probed * 0.98);
    ++numLarge;
  }
  EXPECT_GT(numLarge, 20);
}

TEST(UnprobedMemory, IsBelowThatOfProbedBlocksAndCloseToIt) {
  for (const Query& query : queries()) {
    const CostFunctions costs = modelCosts(query);
    std::vector<Rejection> rejections;
    for (const Group& group : groupsFor(query, 8, rejections)) {
      if (!hasPlan(query, group)) continue;
      const Bytes probed = leastMemory(query, group, **costs.blocks(planOf(query, group)));
      EXPECT_LE(unprobedMemory(query, group, leastReserve(query, group)), probed);
      // But for scores and what else layers keep that are not computed again.
      if (group.recompute == plan::Recompute::kFull && group.microbatchSize == 1) {
        EXPECT_GT(unprobedMemory(query, group, leastReserve(query, group)), probed * 0.9);
      }
    }
  }
}

}  // namespace
}  // namespace trireme::planner
