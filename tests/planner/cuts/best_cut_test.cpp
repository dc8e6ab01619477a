#include "planner/cuts/best_cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "cost_models/described_memory.h"
#include "cost_models/in_flight.h"
#include "cost_models/play.h"
#include "planner/cuts/cuts.h"
#include "planner/cuts/played_cut.h"
#include "planner/search/frontier.h"
#include "tests/planner/small_query.h"

namespace trireme::planner {
namespace {

using Layers = std::vector<int64_t>;

// Layers that take their time, a head worth several of them, scarce links, few microbatches or
// many, and an optimizer that takes no time or most of it.
Query randomQuery(std::mt19937& random) {
  const auto uniform = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  const int64_t batches[] = {1, 2, 3, 4, 12, 48, 48, 48};
  Query query = smallQuery(64, 2 + static_cast<int64_t>(random() % 9), batches[random() % 8]);
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
  d.ncclConnection = Bytes(d.reserve.count() / 100);
  d.pipelineKeepsWhole = random() % 2 == 0;
  d.postValidation = random() % 4 == 0;
  d.replicaReduction = static_cast<spec::ReplicaReduction>(random() % 3);
  d.bucketBytes = random() % 2 == 0 ? 4 : 0;
  d.autocastBytes = random() % 2 == 0 ? 2 : 0;
  d.keepsGatheredWeights = d.pipelineKeepsWhole;
  d.eagerLayers = d.eagerNorms = d.bucketBytes > 0;
  d.optimizerTraffic *= random() % 3 == 0 ? uniform(0, 20) : 1;
  return query;
}

plan::Plan randomPlan(const Query& query, std::mt19937& random) {
  plan::Plan plan = small::plan(query.model, query.training, 1, 1, 1);
  plan.pp = 1 + static_cast<int64_t>(random() % std::min<uint64_t>(5, query.model.numLayers));
  plan.microbatchSize = 1;
  plan.dpReplicate = plan.pp == 5 ? 1 : int64_t{1} << (random() % 3);
  plan.dpReplicate = std::gcd(plan.dpReplicate, query.training.globalBatchSize);
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
  } else if (random() % 2 == 0) {
    const plan::ScheduleKind kinds[] = {plan::ScheduleKind::kGpipe,
                                        plan::ScheduleKind::kZeroBubbleH1,
                                        plan::ScheduleKind::kZeroBubbleH2};
    plan.schedule = kinds[random() % 3];
  }
  if (random() % 2 == 0) {
    plan.recompute = plan::Recompute::kFull;
    plan.recomputeLayers = static_cast<int64_t>(random() % 3);
  }
  return plan;
}

// Chunks of a stage that differ by one layer at most; those of the embedding and the head may have
// none.
void addBalancedCuts(const Query& query, const plan::Plan& plan, std::vector<Layers> stages,
                     int64_t left, std::vector<Ranges>& cuts) {
  const auto rank = static_cast<int64_t>(stages.size());
  if (rank == plan.pp) {
    if (left == 0) cuts.push_back(rangesFrom(stages));
    return;
  }
  for (int64_t n = 0; n <= left; ++n) {
    Layers counts = spreadOver(n, plan.virtualStages);
    do {
      bool isLegal = true;
      for (size_t c = 0; c < counts.size(); ++c) {
        const bool isEnd = (rank == 0 && c == 0) || (rank + 1 == plan.pp && c + 1 == counts.size());
        isLegal = isLegal && (counts[c] > 0 || isEnd);
      }
      if (!isLegal) continue;
      std::vector<Layers> more = stages;
      more.push_back(counts);
      addBalancedCuts(query, plan, more, left - n, cuts);
    } while (std::next_permutation(counts.begin(), counts.end()));
  }
}

std::vector<Ranges> balancedCuts(const Query& query, const plan::Plan& plan) {
  if (plan.pp == 1) return {plan::evenLayers(query.model.numLayers, 1, 1)};
  std::vector<Ranges> cuts;
  addBalancedCuts(query, plan, {}, query.model.numLayers, cuts);
  return cuts;
}

// 5 layers on 3 chunks.
TEST(SpreadOver, PutsTheRestBehind) {
  EXPECT_EQ(spreadOver(5, 3), (Layers{1, 2, 2}));
  EXPECT_EQ(spreadOver(2, 3), (Layers{0, 1, 1}));
}

// What makes CutSearch's memory that of the leanest cut.
TEST(SpreadOver, NeedsLeastMemoryOfAllSpreads) {
  for (const int64_t p : {2, 3, 5})
    for (const int64_t v : {2, 3, 5})
      for (const int64_t m : {p, 2 * p, 3 * p})
        for (int64_t rank = 0; rank < p; ++rank)
          for (int64_t layers = v; layers < 3 * v; ++layers) {
            Layers counts = spreadOver(layers, v);
            const auto alive = [&] {
              return cost::peakTogether(plan::ScheduleKind::kInterleaved, p, v, m, rank,
                                        std::vector<double>(counts.begin(), counts.end()));
            };
            const double least = alive();
            while (std::next_permutation(counts.begin(), counts.end())) EXPECT_LE(least, alive());
          }
}

struct BestCut {
  std::optional<Seconds> fits;  // the fastest that fits
  Seconds any{1e9};
  Bytes leanest{1e30};
};

BestCut byEnumeration(const Query& query, plan::Plan plan, const CostFunctions& costs,
                      cost::FlushTime flush = cost::pipelineTime) {
  BestCut best;
  for (Ranges& cut : balancedCuts(query, plan)) {
    plan.layers = std::move(cut);
    const auto blocks = costs.blocks(plan);
    const cost::Estimate e = cost::estimateFromBlocks(
        *(*blocks)->described, query.model, plan, query.cluster, query.stack.description, flush);
    best.any = std::min(best.any, e.step);
    best.leanest = std::min(best.leanest, e.memory.total());
    if (e.fits() && (!best.fits || e.step < *best.fits)) best.fits = e.step;
  }
  return best;
}

// Where cuts are played none is below it, and it is near the fastest.
void expectLowest(CutSearch& search, const BestCut& expected) {
  const auto lowest = search.lowest(std::nullopt);
  if (!expected.fits) return;
  ASSERT_TRUE(lowest.has_value());
  EXPECT_LE(lowest->step, *expected.fits * (1 + 1e-12));
  EXPECT_GE(lowest->step, search.bound() * (1 - 1e-9));
  EXPECT_TRUE(search.lowest(*expected.fits * (1 + 1e-9)).has_value());
  EXPECT_FALSE(search.lowest(lowest->step * (1 - 1e-6)).has_value());
  for (const size_t labels : {1, 2}) {  // merged, it is a bound still, of layers that are all there
    const auto merged = search.lowest(std::nullopt, labels);
    ASSERT_TRUE(merged.has_value());
    EXPECT_LE(merged->step, lowest->step * (1 + 1e-12)) << labels;
    EXPECT_EQ(std::accumulate(merged->layers.begin(), merged->layers.end(), int64_t{0}),
              std::accumulate(lowest->layers.begin(), lowest->layers.end(), int64_t{0}));
  }
}

// Light ends. The shortest slowest stage has three of l = p v + 1 layers between stages of two;
// with the head beside three the step may be shorter, as the first stage then has one and its first
// chunk none.
TEST(CutSearch, BoundsKnowThatASlowerStageLeavesOthersWithFewerLayers) {
  for (const int64_t p : {3, 4, 5})
    for (const int64_t v : {2, 3})
      for (const int64_t vocab : {64, 128, 512})
        for (const int64_t groups : {1, 2}) {
          Query query = computeBound(smallQuery(p, p * v + 1, p * groups));
          query.model.vocabSize = vocab;
          query.stack.ownPrograms = false;
          plan::Plan plan = small::plan(query.model, query.training, 1, p, 1);
          plan.microbatchSize = 1;
          plan.schedule = plan::ScheduleKind::kInterleaved;
          plan.virtualStages = v;
          const CostFunctions costs = modelCosts(query);
          const BlockCosts blocks = **costs.blocks(plan);
          SlotTable slots;
          CutSearch search(query, plan, blocks, slots);
          const BestCut best = byEnumeration(query, plan, costs);
          EXPECT_LE(search.roomyBound(), best.any) << p << v << vocab << groups;
          EXPECT_GE(search.roomyBound(), best.any * 0.8) << p << v << vocab << groups;
        }
}

// One rank per stage, the backward split.
plan::Plan splitPlan(const Query& query, plan::ScheduleKind kind, int64_t pp) {
  plan::Plan plan = small::plan(query.model, query.training, 1, pp, 1);
  plan.microbatchSize = 1;
  plan.schedule = kind;
  return plan;
}

// Few microbatches of a split backward: most of a step is a microbatch's way to the end and back,
// whatever the cut.
TEST(CutSearch, BoundsKnowTheWayToTheEndAndBack) {
  for (const plan::ScheduleKind kind :
       {plan::ScheduleKind::kZeroBubbleH1, plan::ScheduleKind::kZeroBubbleH2})
    for (const int64_t p : {3, 4, 5})
      for (const int64_t m : {1, 2, 4}) {
        Query query = computeBound(smallQuery(p, 2 * p, m));
        query.stack.ownPrograms = false;
        const plan::Plan plan = splitPlan(query, kind, p);
        const CostFunctions costs = modelCosts(query);
        const BlockCosts blocks = **costs.blocks(plan);
        SlotTable slots;
        CutSearch search(query, plan, blocks, slots);
        const BestCut best = byEnumeration(query, plan, costs);
        EXPECT_LE(search.roomyBound(), best.any) << p << m;
        EXPECT_GE(search.roomyBound(), best.any * 0.87) << p << m;
        EXPECT_GE(QuickBound(query, blocks).of(plan), best.any * 0.74) << p << m;
      }
}

// Few microbatches, a head as long as some layers and a CPU that sets the pace: many cuts have the
// bound, and moves begin at several.
TEST(FastestPlayed, OfASplitBackwardIsNearTheFastestOfAllCuts) {
  double worst = 1;
  for (const plan::ScheduleKind kind :
       {plan::ScheduleKind::kZeroBubbleH1, plan::ScheduleKind::kZeroBubbleH2})
    for (const int64_t p : {3, 4})
      for (const int64_t m : {1, 3, 6})
        for (const double launch : {0.0, 50e-6})
          for (const int64_t vocab : {128, 2048}) {
            Query query = computeBound(smallQuery(p, 5 * p, m));
            query.stack.ownPrograms = false;
            query.stack.description.postValidation = true;
            query.stack.description.hostLaunch = Seconds(launch);
            query.model.vocabSize = vocab;
            const plan::Plan plan = splitPlan(query, kind, p);
            const CostFunctions costs = modelCosts(query);
            const BlockCosts blocks = **costs.blocks(plan);
            SlotTable slots;
            CutSearch search(query, plan, blocks, slots);
            cost::FlushPlayer flush;
            const PlayedCut found = fastestPlayed(query, plan, blocks, search, flush, std::nullopt);
            ASSERT_TRUE(found.cut.has_value());
            const BestCut best = byEnumeration(query, plan, costs, cost::flushTime);
            EXPECT_LE(found.bound, best.any * (1 + 1e-9)) << p << m;
            worst = std::max(worst, found.cut->step / best.any);
          }
  std::printf("at most %.4f of the fastest\n", worst);
  EXPECT_LT(worst, 1.01);
}

// What plans of a group share is computed once: with transfers that hide between chunks alone, for
// those with virtual stages and those without apart, whichever comes first.
TEST(QuickBound, OfAPlanDependsOnNoOther) {
  Query query = computeBound(smallQuery(4, 16, 8));
  query.stack.ownPrograms = false;
  query.stack.description.hidesBetweenChunks = true;
  query.stack.description.transferExposed = 0.1;
  plan::Plan whole = small::plan(query.model, query.training, 1, 4, 1);
  whole.microbatchSize = 1;
  plan::Plan chunks = whole;
  chunks.schedule = plan::ScheduleKind::kInterleaved;
  chunks.virtualStages = 2;
  chunks.layers = plan::evenLayers(16, 4, 2);
  const CostFunctions costs = modelCosts(query);
  const BlockCosts blocks = **costs.blocks(whole);
  const auto alone = [&](const plan::Plan& plan) { return QuickBound(query, blocks).of(plan); };
  for (const auto& [first, second] : {std::pair(whole, chunks), std::pair(chunks, whole)}) {
    QuickBound both(query, blocks);
    EXPECT_EQ(both.of(first), alone(first));
    EXPECT_EQ(both.of(second), alone(second));
  }
}

TEST(CutSearch, FindsWhatEnumerationOfAllCutsFinds) {
  std::mt19937 random(1);
  int none = 0, tight = 0;
  double loosest = 1, quickest = 0;
  for (int trial = 0; trial < 400; ++trial) {
    Query query = randomQuery(random);
    plan::Plan plan = randomPlan(query, random);
    // Now and then the optimizer's step takes more than the passes.
    if (trial % 3 == 0) query.stack.description.stepGradientBytes = 5 * trial;
    query.stack.description.keepsGatheredWeights = trial % 5 < 2;
    const CostFunctions costs = modelCosts(query);
    const BlockCosts blocks = **costs.blocks(plan);
    const BestCut roomy = byEnumeration(query, plan, costs);
    for (const double memory : {2.0, 1.0 + 1e-6, 0.99}) {
      query.cluster.device.memory = roomy.leanest * memory;
      const BestCut expected = byEnumeration(query, plan, costs);
      SlotTable slots;
      CutSearch search(query, plan, blocks, slots);
      EXPECT_LE(search.roomyBound(), expected.any) << trial;
      if (expected.fits) {
        EXPECT_LE(search.bound(), *expected.fits) << trial;
      }
      // A last stage whose last chunk has no layer is bounded as if its first had none.
      if (plan.virtualStages == 1 || expected.fits) {
        EXPECT_EQ(std::isinf(search.bound().count()), !expected.fits) << trial;
        EXPECT_EQ(search.mayFit(), expected.fits.has_value()) << trial;
      }
      if (plan.recomputeLayers == 0) {
        EXPECT_LE(QuickBound(query, blocks).of(plan), expected.any) << trial;
        quickest = std::max(quickest, QuickBound(query, blocks).of(plan) / expected.any);
      }
      if (expected.fits) loosest = std::min(loosest, search.bound() / *expected.fits);
      plan.layers = search.leanest();
      EXPECT_NEAR(cost::describedMemory({*blocks.described, query.model, plan, query.cluster,
                                         query.stack.description})
                      .total()
                      .count(),
                  expected.leanest.count(), 8)
          << trial;
      if (CutSearch::isPlayed(plan)) {
        expectLowest(search, expected);
        none += !expected.fits;
        continue;
      }
      const auto found = search.best(std::nullopt);
      ASSERT_EQ(found.has_value(), expected.fits.has_value()) << trial;
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
  for (int trial = 0; trial < (TRIREME_SANITIZED ? 100 : 400); ++trial) {
    Query query = randomQuery(random);
    plan::Plan plan = randomPlan(query, random);
    plan.recompute = plan::Recompute::kFull;
    const CostFunctions costs = modelCosts(query);
    const BlockCosts blocks = **costs.blocks(plan);
    plan.recomputeLayers = 0;
    query.cluster.device.memory = byEnumeration(query, plan, costs).leanest * 1.3;
    SlotTable slots;
    CutSearch search(query, plan, blocks, slots);
    const int64_t longest = search.longestChunk();
    const BestCut all = byEnumeration(query, plan, costs);
    Seconds roomy;
    for (int64_t layers = 1; layers <= query.model.numLayers; ++layers) {
      plan.recomputeLayers = layers;
      search.recomputeLayers(layers);
      const BestCut best = byEnumeration(query, plan, costs);
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
  EXPECT_GT(partly, TRIREME_SANITIZED ? 10 : 100);
}

// Where few cuts are as fast as the limit, all are played; where more are, the bound still holds.
TEST(FastestPlayed, FindsWhatEnumerationOfPlayedCutsFinds) {
  std::mt19937 random(3);
  int exact = 0, open = 0, tight = 0, uneven = 0;
  double loosest = 1, slowestShort = 1, slowestLong = 1;
  for (int trial = 0; trial < 1200; ++trial) {
    Query query = randomQuery(random);
    const bool isLong = trial % 5 == 0;  // few cuts can be played
    if (isLong) query.training.globalBatchSize *= 10;
    plan::Plan plan = randomPlan(query, random);
    if (!CutSearch::isPlayed(plan)) continue;
    const CostFunctions costs = modelCosts(query);
    const BlockCosts blocks = **costs.blocks(plan);
    const BestCut roomy = byEnumeration(query, plan, costs, cost::flushTime);
    for (const double memory : {2.0, 1.05}) {
      query.cluster.device.memory = roomy.leanest * memory;
      const BestCut expected = byEnumeration(query, plan, costs, cost::flushTime);
      SlotTable slots;
      cost::FlushPlayer flush;
      CutSearch search(query, plan, blocks, slots);
      const PlayedCut found = fastestPlayed(query, plan, blocks, search, flush, std::nullopt);
      ASSERT_TRUE(expected.fits);
      EXPECT_LE(found.bound, *expected.fits * (1 + 1e-9)) << trial;
      loosest = std::min(loosest, found.bound / *expected.fits);
      if (!found.cut) {  // none of those played fits
        ++open;
        continue;
      }
      plan::Plan whole = plan;
      whole.layers = found.cut->layers;
      const cost::Estimate e =
          cost::estimateFromBlocks(*blocks.described, query.model, whole, query.cluster,
                                   query.stack.description, cost::flushTime);
      EXPECT_TRUE(e.fits()) << trial;
      EXPECT_NEAR(e.step / found.cut->step, 1, 1e-12) << trial;
      whole.recomputeLayers = 0;
      EXPECT_TRUE(plan::verifyPlan(whole, query.model).ok()) << trial;
      double& slowest = isLong ? slowestLong : slowestShort;
      slowest = std::max(slowest, found.cut->step / *expected.fits);
      tight += *expected.fits > roomy.any * 1.001;
      uneven +=
          found.cut->layers != plan::evenLayers(query.model.numLayers, plan.pp, plan.virtualStages);
      if (found.bound >= found.cut->step) {
        EXPECT_LE(found.cut->step, *expected.fits * (1 + 1e-9)) << trial;
        ++exact;
        // Nothing of the space is lost by a limit that allows it.
        const auto again =
            fastestPlayed(query, plan, blocks, search, flush, *expected.fits * (1 + 1e-9));
        EXPECT_TRUE(again.cut.has_value()) << trial;
      } else {
        ++open;
      }
    }
  }
  std::printf(
      "%d exact, %d not; bounds at least %.1f %%, cuts %.2f %% slower at most, of long batches "
      "%.2f %%; memory costs time in %d, %d are uneven\n",
      exact, open, 100 * loosest, 100 * (slowestShort - 1), 100 * (slowestLong - 1), tight, uneven);
  EXPECT_GT(exact, 100);
  EXPECT_GT(open, 0);
  EXPECT_GT(uneven, 50);
  EXPECT_LT(slowestShort, 1.01);
  EXPECT_LT(slowestLong, 1.1);
}

// The fastest of all cuts of the space, whatever the memory, the ends and the recomputation.
TEST(ExactPlayed, IsWhatEnumerationOfAllCutsFinds) {
  std::mt19937 random(8);
  int known = 0, tight = 0, interleaved = 0, uneven = 0;
  for (int trial = 0; trial < (TRIREME_SANITIZED ? 100 : 400); ++trial) {
    Query query = randomQuery(random);
    query.stack.description.postValidation = false;
    const plan::Plan plan = randomPlan(query, random);
    const bool isGpipe = plan.schedule == plan::ScheduleKind::kGpipe;
    if (!CutSearch::isPlayed(plan) || isGpipe || plan.pp == 1) continue;
    const CostFunctions costs = modelCosts(query);
    const BlockCosts blocks = **costs.blocks(plan);
    const BestCut roomy = byEnumeration(query, plan, costs, cost::flushTime);
    for (const double memory : {2.0, 1.05}) {
      query.cluster.device.memory = roomy.leanest * memory;
      const BestCut expected = byEnumeration(query, plan, costs, cost::flushTime);
      ASSERT_TRUE(expected.fits);
      cost::FlushPlayer flush;
      int64_t passes = kMostPassesOfExact;
      const ExactCuts exact = exactPlayed(query, plan, blocks, flush, *expected.fits * 1.1, passes);
      ASSERT_EQ(exact.fastest.size(), 1u) << trial;
      EXPECT_NEAR(exact.fastest.front().step / *expected.fits, 1, 1e-9) << trial;
      EXPECT_EQ(exact.others, exact.fastest.front().step) << trial;
      plan::Plan whole = plan;
      whole.layers = exact.fastest.front().layers;
      EXPECT_TRUE(cost::estimateFromBlocks(*blocks.described, query.model, whole, query.cluster,
                                           query.stack.description, cost::flushTime)
                      .fits());
      const Seconds less = *expected.fits * (1 - 1e-9);
      const ExactCuts none = exactPlayed(query, plan, blocks, flush, less, passes);
      EXPECT_TRUE(none.fastest.empty()) << trial;
      EXPECT_EQ(none.others, less) << trial;
      ++known;
      tight += *expected.fits > roomy.any * 1.001;
      interleaved += plan.virtualStages > 1;
      uneven +=
          whole.layers != plan::evenLayers(query.model.numLayers, plan.pp, plan.virtualStages);
    }
  }
  std::printf("%d plans, memory costs time in %d, %d are interleaved, %d uneven\n", known, tight,
              interleaved, uneven);
  EXPECT_GT(tight, known / 20);
  EXPECT_GT(interleaved, known / 10);
  EXPECT_GT(uneven, known / 4);
}

// Interleaved on tp 1, without data parallelism: `products` slow enough to take all of the time.
struct Interleaved {
  Interleaved(int64_t stages, int64_t chunks, int64_t layers, int64_t vocab, int64_t batch)
      : query(smallQuery(stages, layers, batch)) {
    query.model.vocabSize = vocab;
    query.stack.ownPrograms = false;
    for (spec::PeakRate& peak : query.cluster.device.matmul) peak.rate = peak.rate * 1e-6;
    plan = small::plan(query.model, query.training, 1, stages, 1);
    plan.microbatchSize = 1;
    plan.schedule = plan::ScheduleKind::kInterleaved;
    plan.virtualStages = chunks;
    blocks = **modelCosts(query).blocks(plan);
  }
  Seconds timeOf(const std::vector<int64_t>& layers) const {
    plan::Plan cut = plan;
    cut.layers = pinnedCut(layers, plan);
    return cost::estimateFromBlocks(*blocks.described, query.model, cut, query.cluster,
                                    query.stack.description, cost::flushTime)
        .step;
  }
  // Of cuts that give `left` layers to the virtual stages behind `layers`.
  Seconds fastest(std::vector<int64_t> layers, int64_t left) const {
    const auto rest = static_cast<size_t>(plan.pp * plan.virtualStages) - layers.size();
    if (rest == 1) {
      layers.push_back(left);
      return timeOf(layers);
    }
    Seconds best(std::numeric_limits<double>::infinity());
    const bool isFirst = layers.empty();
    for (int64_t n = isFirst ? 0 : 1; left - n >= static_cast<int64_t>(rest) - 2; ++n) {
      layers.push_back(n);
      best = std::min(best, fastest(layers, left - n));
      layers.pop_back();
    }
    return best;
  }
  PlayedCut played() const {
    SlotTable slots;
    cost::FlushPlayer flush;
    CutSearch search(query, plan, blocks, slots);
    return fastestPlayed(query, plan, blocks, search, flush, std::nullopt);
  }

  Query query;
  plan::Plan plan;
  BlockCosts blocks;
};

// Also where chunks of one stage differ by more than one layer, which is beyond the space: with all
// cuts played, thousands.
TEST(FastestPlayed, IsCloseToAllCuts) {
  for (const auto& [layers, vocab] :
       {std::pair(14, 1024), std::pair(14, 4096), std::pair(17, 2048)}) {
    const Interleaved of(3, 2, layers, vocab, 6);
    const PlayedCut found = of.played();
    ASSERT_TRUE(found.cut);
    const Seconds best = of.fastest({}, layers);
    std::printf("%d layers, vocabulary %d: %.4f of the fastest\n", layers, vocab,
                found.cut->step / best);
    EXPECT_LE(found.cut->step, best * 1.005) << layers << ", " << vocab;
  }
}

// A head that takes as long as two layers is best off alone where other chunks have two layers.
TEST(FastestPlayed, LeavesAHeavyHeadAlone) {
  const Interleaved of(4, 2, 14, 2048, 16);
  const PlayedCut found = of.played();
  ASSERT_TRUE(found.cut);
  EXPECT_EQ(found.cut->layers, pinnedCut({2, 2, 2, 2, 2, 2, 2, 0}, of.plan));
}

// Light ends may be chunks without layers, beside which light layers may be nothing: l = p v + 1 of
// them leave every other stage with no more than the even cut has on its fullest.
TEST(GroupBound, HoldsForCutsWithEmptyEndChunks) {
  double closest = 0;
  for (const int64_t p : {2, 3, 4, 5})
    for (const int64_t layers : {2 * p, 2 * p + 1})
      for (const int64_t vocab : {64, 1024, 65536})
        for (const int64_t groups : {1, 2}) {
          Query query = smallQuery(p, layers, p * groups);
          query.model.vocabSize = vocab;
          query.stack.ownPrograms = false;
          for (spec::PeakRate& peak : query.cluster.device.matmul) peak.rate = peak.rate * 1e-6;
          plan::Plan plan = small::plan(query.model, query.training, 1, p, 1);
          plan.microbatchSize = 1;
          plan.schedule = plan::ScheduleKind::kInterleaved;
          plan.virtualStages = 2;
          const CostFunctions costs = modelCosts(query);
          const BlockCosts blocks = **costs.blocks(plan);
          const Group group{plan.tp,
                            plan.pp,
                            plan.cp,
                            plan.dp(),
                            plan.microbatchSize,
                            plan.recompute,
                            plan.sequenceParallel};
          const BestCut best = byEnumeration(query, plan, costs);
          for (const Work& work : {leastWork(query, group), probedWork(query, blocks)}) {
            const Seconds bound = groupBound(query, group, work);
            EXPECT_LE(bound, best.any) << "p " << p << ", " << layers << " layers, vocabulary of "
                                       << vocab << ", m " << p * groups;
            closest = std::max(closest, bound / best.any);
          }
        }
  std::printf("at most %.2f %% of the fastest\n", 100 * closest);
  EXPECT_GT(closest, 0.9);
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
