#include "planner/best_cut.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "cost_models/described_memory.h"
#include "planner/cuts.h"
#include "tests/planner/small_query.h"

namespace trireme::planner {
namespace {

using Layers = std::vector<int64_t>;

// Layers that take their time, a head worth several of them, scarce links.
Query queryOf(std::mt19937& random) {
  const auto uniform = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  Query query = smallQuery(64, 2 + static_cast<int64_t>(random() % 9), 48);
  query.model.vocabSize = 64 << (random() % 8);
  query.model.tiedEmbeddings = random() % 2 == 0;
  query = computeBound(query);
  for (spec::LinkTier& tier : query.cluster.tiers)
    tier.bandwidth = tier.bandwidth * uniform(0.001, 0.1);
  query.stack.ownPrograms = false;
  spec::StackDescription& d = query.stack.description;
  d.gradientExposed = uniform(0, 1);
  d.gatherExposed = uniform(0, 1);
  d.hostLaunch = Seconds(random() % 2 == 0 ? uniform(0, 1e-3) : 0);
  d.hostExponent = random() % 2 == 0 ? uniform(1, 4) : 0;
  d.fragmentation = uniform(0, 0.1);
  d.reserve = Bytes(uniform(0, 1e6));
  d.pipelineKeepsWhole = random() % 2 == 0;
  return query;
}

plan::Plan planOf(const Query& query, std::mt19937& random) {
  plan::Plan plan = small::plan(query.model, query.training, 1, 1, 1);
  plan.pp = 1 + static_cast<int64_t>(random() % std::min<uint64_t>(5, query.model.numLayers));
  plan.microbatchSize = 1;
  plan.dpReplicate = plan.pp == 5 ? 1 : int64_t{1} << (random() % 3);
  if (random() % 2 == 0 && plan.dp() > 1) {
    std::swap(plan.dpShard, plan.dpReplicate);
    const plan::StateSharding kinds[] = {plan::StateSharding::kOptimizer,
                                         plan::StateSharding::kParameters};
    plan.stateSharding = kinds[random() % 2];
  }
  const int64_t chunks = plan.pp == 1 ? 1 : query.model.numLayers / plan.pp;
  if (chunks > 1 && plan.numMicrobatches() % plan.pp == 0 && random() % 2 == 0) {
    plan.schedule = plan::ScheduleKind::kInterleaved;
    plan.virtualStages = 2 + static_cast<int64_t>(random() % static_cast<uint64_t>(chunks - 1));
  } else if (random() % 3 == 0) {
    plan.schedule = plan::ScheduleKind::kGpipe;
  }
  if (random() % 2 == 0) {
    plan.recompute = plan::Recompute::kFull;
    plan.recomputeLayers = static_cast<int64_t>(random() % 3);
  }
  return plan;
}

void addFamily(const Query& query, const plan::Plan& plan, std::vector<Layers> stages, int64_t left,
               std::vector<Ranges>& cuts) {
  const auto rank = static_cast<int64_t>(stages.size());
  if (rank == plan.pp) {
    if (left == 0) cuts.push_back(rangesFrom(stages));
    return;
  }
  const bool isInner = rank > 0 && rank + 1 < plan.pp;
  for (int64_t n = plan.virtualStages - (isInner ? 0 : 1); n <= left; ++n) {
    std::vector<Layers> more = stages;
    more.push_back(spreadOver(n, plan.virtualStages, rank == 0));
    addFamily(query, plan, more, left - n, cuts);
  }
}

std::vector<Ranges> familyOf(const Query& query, const plan::Plan& plan) {
  std::vector<Ranges> cuts = {plan::evenLayers(query.model.numLayers, plan.pp, plan.virtualStages)};
  if (plan.pp > 1) addFamily(query, plan, {}, query.model.numLayers, cuts);
  return cuts;
}

// 5 layers on 3 chunks: the remainder in front, on the first stage behind.
TEST(SpreadOver, SparesTheEmbeddingAndTheHead) {
  EXPECT_EQ(spreadOver(5, 3, false), (Layers{2, 2, 1}));
  EXPECT_EQ(spreadOver(5, 3, true), (Layers{1, 2, 2}));
  EXPECT_EQ(spreadOver(2, 3, true), (Layers{0, 1, 1}));
}

struct Best {
  std::optional<Seconds> fits;  // the fastest that fits
  Seconds any{1e9};
  Bytes leanest{1e30};
};

Best byEnumeration(const Query& query, plan::Plan plan, const CostFunctions& costs) {
  Best best;
  for (Ranges& cut : familyOf(query, plan)) {
    plan.layers = std::move(cut);
    const auto blocks = costs.blocks(plan);
    const cost::Estimate e =
        cost::estimateFromBlocks(*(*blocks)->described, query.model, plan, query.cluster,
                                 query.stack.description, cost::pipelineTime);
    best.any = std::min(best.any, e.step);
    best.leanest = std::min(best.leanest, e.memory.total());
    if (e.fits() && (!best.fits || e.step < *best.fits)) best.fits = e.step;
  }
  return best;
}

TEST(CutSearch, FindsWhatEnumerationOfAllCutsFinds) {
  std::mt19937 random(1);
  int none = 0, tight = 0;
  double loosest = 1, quickest = 0;
  for (int trial = 0; trial < 400; ++trial) {
    Query query = queryOf(random);
    plan::Plan plan = planOf(query, random);
    const CostFunctions costs = modelCosts(query);
    const BlockCosts blocks = **costs.blocks(plan);
    const Best roomy = byEnumeration(query, plan, costs);
    for (const double memory : {2.0, 1.0 + 1e-6, 0.99}) {
      query.cluster.device.memory = roomy.leanest * memory;
      const Best expected = byEnumeration(query, plan, costs);
      SlotTable slots;
      CutSearch search(query, plan, blocks, slots);
      EXPECT_LE(search.roomyBound(), expected.any) << trial;
      if (expected.fits) {
        EXPECT_LE(search.bound(), *expected.fits) << trial;
      }
      EXPECT_EQ(std::isinf(search.bound().count()), !expected.fits) << trial;
      if (plan.recomputeLayers == 0) {
        EXPECT_LE(quickBound(query, plan, blocks), expected.any) << trial;
        quickest = std::max(quickest, quickBound(query, plan, blocks) / expected.any);
      }
      if (expected.fits) loosest = std::min(loosest, search.bound() / *expected.fits);
      EXPECT_EQ(search.mayFit(), expected.fits.has_value()) << trial;
      const auto found = search.best(std::nullopt);
      ASSERT_EQ(found.has_value(), expected.fits.has_value()) << trial;
      plan.layers = search.leanest();
      EXPECT_NEAR(
          cost::describedMemory(*blocks.described, query.model, plan, query.stack.description)
              .total()
              .count(),
          expected.leanest.count(), 8)
          << trial;
      if (!found) {
        ++none;
        continue;
      }
      EXPECT_NEAR(found->step / *expected.fits, 1, 1e-12) << trial;
      plan.layers = found->layers;
      plan::Plan whole = plan;
      EXPECT_NEAR(cost::estimateFromBlocks(*blocks.described, query.model, whole, query.cluster,
                                           query.stack.description, cost::pipelineTime)
                          .step /
                      found->step,
                  1, 1e-12)
          << trial;
      // What is to be beaten bounds the search, and must not lose the answer.
      EXPECT_TRUE(search.best(*expected.fits * (1 + 1e-9)).has_value()) << trial;
      EXPECT_FALSE(search.best(*expected.fits * (1 - 1e-6)).has_value()) << trial;
      tight += *expected.fits > expected.any * 1.001;
    }
  }
  std::printf("%d times nothing fits, %d times memory costs time; bound at least %.1f %%\n", none,
              tight, 100 * loosest);
  EXPECT_GT(none, 100);
  EXPECT_GT(tight, 50);
  EXPECT_GT(quickest, 0.9);
}

// Every number of recomputed layers from plan.recomputeLayers on.
TEST(CutSearch, BoundsHoldWithMoreRecomputedLayers) {
  std::mt19937 random(2);
  int partly = 0;
  for (int trial = 0; trial < 400; ++trial) {
    Query query = queryOf(random);
    plan::Plan plan = planOf(query, random);
    plan.recompute = plan::Recompute::kFull;
    const CostFunctions costs = modelCosts(query);
    const BlockCosts blocks = **costs.blocks(plan);
    plan.recomputeLayers = 0;
    query.cluster.device.memory = byEnumeration(query, plan, costs).leanest * 1.3;
    SlotTable slots;
    CutSearch search(query, plan, blocks, slots);
    const int64_t longest = search.longestChunk();
    const Best all = byEnumeration(query, plan, costs);
    Seconds roomy;
    for (int64_t layers = 1; layers <= query.model.numLayers; ++layers) {
      plan.recomputeLayers = layers;
      search.recomputeLayers(layers);
      const Best best = byEnumeration(query, plan, costs);
      roomy = std::max(roomy, search.roomyBound());
      EXPECT_LE(roomy, best.any) << trial << ", " << layers;
      if (best.fits) {
        EXPECT_LE(search.bound(), *best.fits) << trial << ", " << layers;
      }
      if (layers >= longest) {
        EXPECT_EQ(best.fits, all.fits) << trial << ", " << layers;
      }
      partly += best.fits && all.fits && *best.fits < *all.fits;
    }
  }
  EXPECT_GT(partly, 100);
}

// A head worth four layers: of 13 layers on 4 stages it leaves 4 or 5 to each of the others, where
// even ones would be 4 + 3 + 3 + 3 and the head.
TEST(CutSearch, LeavesTheHeadsStageFewLayers) {
  Query query = computeBound(smallQuery(4, 13, 64));
  query.stack.ownPrograms = false;
  plan::Plan plan = small::plan(query.model, query.training, 1, 4, 1);
  query.model.vocabSize = 2000;
  const CostFunctions costs = modelCosts(query);
  const BlockCosts blocks = **costs.blocks(plan);
  const double head =
      (blocks.head.forward + blocks.head.backward) / (blocks.layer.forward + blocks.layer.backward);
  EXPECT_NEAR(head, 4, 1);
  SlotTable slots;
  const auto cut = CutSearch(query, plan, blocks, slots).best(std::nullopt);
  ASSERT_TRUE(cut);
  EXPECT_LE(cut->layers.back().front().count, 1);
}

}  // namespace
}  // namespace trireme::planner
