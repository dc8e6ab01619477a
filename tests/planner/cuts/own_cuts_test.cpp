#include "planner/cuts/own_cuts.h"

#include <gtest/gtest.h>

#include "ir/spec/load.h"
#include "planner/plan_text.h"
#include "planner/space/own_memory.h"
#include "tests/planner/every_cut.h"

namespace trireme::planner {
namespace {

TEST(OwnCuts, AreAsFastAsTheFastestOfAllCuts) {
  std::mt19937 random(4);
  int moved = 0, few = 0, gpipe = 0, interleaved = 0, exact = 0, all = 0;
  double slowest = 1, loosest = 1;
  for (int trial = 0; trial < (TRIREME_SANITIZED ? 20 : 120); ++trial) {
    const Query query = ownQuery(random);
    plan::Plan plan = ownPlan(query, random);
    const CostFunctions costs = modelCosts(query);
    const BlockCosts blocks = **costs.blocks(plan);
    const auto stepOf = [&](Ranges layers) {
      plan.layers = std::move(layers);
      return costs.estimate(plan)->step;
    };
    Seconds fastest(1e9), ofTwo(1e9), found(1e9);
    for (Ranges& cut : everyCut(plan, query.model.numLayers))
      fastest = std::min(fastest, stepOf(std::move(cut)));
    const std::vector<Ranges> cuts = cutsFor(query, plan, blocks);
    cost::FlushPlayer flush;
    for (const Ranges& cut : cuts) ofTwo = std::min(ofTwo, stepOf(cut));
    for (const BoundedCut& cut : ownCuts(query, plan, blocks, flush, cuts)) {
      const Seconds step = stepOf(cut.layers);
      EXPECT_LE(cut.bound, step) << trial;
      loosest = std::min(loosest, cut.bound / step);
      found = std::min(found, step);
    }
    EXPECT_GE(found, fastest) << trial;
    slowest = std::max(slowest, found / fastest);
    ++all;
    exact += found <= fastest * (1 + 1e-9);
    if (found >= ofTwo * (1 - 1e-6)) continue;
    ++moved;
    few += plan.numMicrobatches() < plan.pp;
    gpipe += plan.schedule == plan::ScheduleKind::kGpipe;
    interleaved += plan.virtualStages > 1;
  }
  std::printf(
      "%d of %d are the fastest, others %.2f %% slower at most; %d beat both cuts (%d with fewer "
      "microbatches than stages, %d gpipe, %d interleaved); bounds at least %.1f %%\n",
      exact, all, 100 * (slowest - 1), moved, few, gpipe, interleaved, 100 * loosest);
  EXPECT_LT(slowest, 1.005);
  EXPECT_GT(exact, all * 9 / 10);
  EXPECT_GT(few, 0);
  EXPECT_GT(gpipe, 0);
  EXPECT_GT(interleaved, 0);
}

bool isEven(const Ranges& cut) {
  for (const auto& stage : cut) {
    const auto [least, most] = std::minmax_element(
        stage.begin(), stage.end(), [](const auto& a, const auto& b) { return a.count < b.count; });
    if (most->count - least->count > 1) return false;
  }
  return true;
}

// By the least times of stages, of all cuts with a layer on every chunk that fit, or of those into
// even chunks.
TEST(ExactOwnCuts, AreThoseThatEnumerationFinds) {
  std::mt19937 random(9);
  int known = 0, several = 0, interleaved = 0, tight = 0, halfway = 0, even = 0;
  for (int trial = 0; trial < (TRIREME_SANITIZED ? 30 : 300); ++trial) {
    Query query = ownQuery(random);
    plan::Plan plan = ownPlan(query, random);
    if (plan.schedule == plan::ScheduleKind::kGpipe) continue;
    const CostFunctions costs = modelCosts(query);
    const BlockCosts blocks = **costs.blocks(plan);
    cost::FlushPlayer flush;
    std::vector<Ranges> cuts = everyCut(plan, query.model.numLayers);
    const Spread spread = trial % 3 == 0 ? Spread::kEven : Spread::kAny;
    if (spread == Spread::kEven)
      even += std::erase_if(cuts, [](const Ranges& cut) { return !isEven(cut); }) > 0;
    if (random() % 2 == 0) {
      Bytes leanest(1e30);
      for (const Ranges& cut : cuts) {
        plan.layers = cut;
        leanest = std::min(leanest, boundOf(query, plan, blocks).memory);
      }
      query.cluster.device.memory = leanest * 1.1;
    }
    std::vector<Seconds> times;
    for (const Ranges& cut : cuts) {
      plan.layers = cut;
      if (boundOf(query, plan, blocks).memory > query.cluster.device.memory) continue;
      cost::Pipeline pipeline = pipelineOf(query, plan, blocks);
      cost::OnceTimes once;
      for (size_t rank = 0; rank < cut.size(); ++rank) {
        StageBound stage = stageBoundOf(query, plan, blocks, rank, stepLinksOf(query, plan));
        pipeline.stages.push_back(std::move(stage.times));
        once = longest(once, stage.once);
      }
      times.push_back(flush.timeOf(pipeline) + once.total());
    }
    tight += times.size() < cuts.size();
    std::sort(times.begin(), times.end());
    ASSERT_FALSE(times.empty());
    plan.layers.clear();
    CutFloor floor(query, blocks);
    const cost::OnceTimes leastOnce = AllCuts(query, plan, blocks, floor).once();
    const Seconds enough = times[times.size() / 2] * (1 + 1e-6);
    int64_t passes = kMostPassesOfExact;
    const ExactCuts exact =
        exactOwnCuts(query, plan, blocks, flush, spread, leastOnce, enough, passes);
    ASSERT_GT(exact.others, Seconds(0)) << trial;  // there are few
    EXPECT_LT(passes, kMostPassesOfExact);
    ++known;
    several += exact.fastest.size() > 1;
    interleaved += plan.virtualStages > 1;
    ASSERT_FALSE(exact.fastest.empty()) << trial;
    for (size_t i = 0; i < exact.fastest.size(); ++i)
      EXPECT_NEAR(exact.fastest[i].step / times[i], 1, 1e-8) << trial;
    const size_t next = exact.fastest.size();
    EXPECT_EQ(exact.others, next < 8 ? enough : exact.fastest.back().step) << trial;
    if (next < times.size()) {
      EXPECT_LE(exact.others, times[next]) << trial;
    }
    // Nothing is faster than the fastest; and with no work allowed nothing is known.
    const ExactCuts none = exactOwnCuts(query, plan, blocks, flush, spread, leastOnce,
                                        times.front() * (1 - 1e-6), passes);
    EXPECT_TRUE(none.fastest.empty()) << trial;
    EXPECT_EQ(none.others, times.front() * (1 - 1e-6)) << trial;
    // What was found before the work ran out is as good.
    const int64_t used = kMostPassesOfExact - passes;
    for (int64_t eighths = 1; eighths < 8; ++eighths) {
      int64_t some = used * eighths / 8;
      const ExactCuts part =
          exactOwnCuts(query, plan, blocks, flush, spread, leastOnce, enough, some);
      halfway += part.others == Seconds(0);
      for (const CutSearch::Cut& cut : part.fastest)
        EXPECT_GE(cut.step, times.front() * (1 - 1e-8)) << trial;
    }
    int64_t nothing = 0;
    EXPECT_EQ(exactOwnCuts(query, plan, blocks, flush, spread, leastOnce, enough, nothing).others,
              Seconds(0));
  }
  std::printf("%d plans, %d with several cuts, %d interleaved, %d whose memory is tight\n", known,
              several, interleaved, tight);
  EXPECT_GT(several, known / 2);
  EXPECT_GT(interleaved, known / 10);
  EXPECT_GT(tight, known / 5);
  EXPECT_GT(halfway, 0);
  if (!TRIREME_SANITIZED) {  // of 30 plans there may be none
    EXPECT_GT(even, 0);
  }
}

// One microbatch: what a cut is worth is the optimizer of its fullest stage, which the head's and
// the embedding's stages share with fewer layers.
TEST(OwnCuts, NoPinnedCutIsFasterThanTheAnswer) {
  Query query = computeBound(smallQuery(4, 8, 1));
  query.cluster = small::cluster(4, 4);
  query.model.vocabSize = 2048;
  query.pins.tp = 1;
  query.pins.pp = 4;
  const auto found = searchPlan(query);
  ASSERT_TRUE(found.has_value());
  EXPECT_NE(found->plan.layers, plan::evenLayers(8, 4, 1));
  const std::vector<Ranges> every = everyCut(found->plan, query.model.numLayers);
  ASSERT_EQ(every.size(), 35u);
  for (const Ranges& cut : every) {
    query.pins.layers.clear();
    for (const auto& stage : cut) query.pins.layers.push_back(stage.front().count);
    const auto pinned = searchPlan(query);
    ASSERT_TRUE(pinned.has_value());
    EXPECT_GE(pinned->estimate.step, found->estimate.step * (1 - 1e-9)) << layersText(pinned->plan);
  }
}

// Of one microbatch the critical path passes all stages alike, of 16 stages the last, with the
// head, steps longest.
TEST(OwnCuts, TheStageThatStepsLongestGivesLayers) {
  Query query = computeBound(smallQuery(16, 48, 1));
  query.model.vocabSize = 4096;
  query.model.tiedEmbeddings = false;
  plan::Plan plan = small::plan(query.model, query.training, 1, 16, 1);
  const BlockCosts blocks = **modelCosts(query).blocks(plan);
  cost::FlushPlayer flush;
  const Ranges even = plan::evenLayers(48, 16, 1);
  const std::vector<BoundedCut> cuts = ownCuts(query, plan, blocks, flush, {even});
  ASSERT_EQ(cuts.size(), 2u);
  EXPECT_EQ(cuts.front().layers, even);
  EXPECT_LT(cuts.back().bound, cuts.front().bound);
  EXPECT_EQ(cuts.back().layers.back().front().count, 1);
}

// The question whose space is the cuts of the plan.
Query onlyCutsOf(Query query, const plan::Plan& plan) {
  query.pins.gpus = plan.numRanks();
  query.pins.tp = plan.tp;
  query.pins.pp = plan.pp;
  query.pins.dp = plan.dp();
  query.pins.microbatchSize = plan.microbatchSize;
  query.pins.virtualStages = plan.virtualStages;
  query.pins.schedule = plan.schedule;
  query.pins.recompute = plan.recompute;
  query.pins.stateSharding = plan.stateSharding;
  query.pins.sequenceParallel = query.pins.scatterGather = query.pins.overlapReductions = false;
  return query;
}

// Of two stages with six chunks each there are too many cuts to look at, of which few are even.
TEST(OwnCuts, WhatIsProvedOfEvenChunksIsSaidByItself) {
  Query query = computeBound(smallQuery(2, 36, 6));
  query.model.vocabSize = 2048;
  plan::Plan plan = small::plan(query.model, query.training, 1, 2, 1);
  plan.microbatchSize = 1;
  plan.schedule = plan::ScheduleKind::kInterleaved;
  plan.virtualStages = 6;
  query = onlyCutsOf(query, plan);
  const auto found = searchPlan(query);
  ASSERT_TRUE(found.has_value()) << found.error().message();
  const Certificate& proof = found->certificate;
  EXPECT_TRUE(proof.ofEvenChunks);
  EXPECT_LE(proof.gap, 1e-9);
  ASSERT_TRUE(proof.boundOfAllCuts.has_value());
  EXPECT_LT(*proof.boundOfAllCuts, proof.bound);
  EXPECT_GT(proof.gapOfAllCuts, 0);
  const CostFunctions costs = modelCosts(query);
  // All even cuts: n layers on the first stage, the longer chunks of either anywhere.
  int64_t numCuts = 0;
  for (int64_t first = 12; first <= 24; ++first)
    for (uint32_t longer = 0; longer < 1u << 12; ++longer) {
      const int64_t ofFirst = std::popcount(longer & 63u), ofLast = std::popcount(longer >> 6);
      if (ofFirst != first % 6 || ofLast != (36 - first) % 6) continue;
      std::vector<std::vector<int64_t>> counts(2, std::vector<int64_t>(6));
      for (uint32_t i = 0; i < 12; ++i)
        counts[i / 6][i % 6] = (i < 6 ? first : 36 - first) / 6 + ((longer >> i) & 1u);
      plan.layers = rangesFrom(counts);
      ++numCuts;
      EXPECT_GE(costs.estimate(plan)->step, proof.bound * (1 - 1e-9)) << layersText(plan);
    }
  EXPECT_GT(numCuts, 1000);
}

// As much memory as some cut needs to the byte, often the leanest: bounds of memory, which lack a
// little, take cuts for ones that fit that do not.
TEST(OwnCuts, ACutIsFoundWhereMemoryIsThatOfTheLeanestToTheByte) {
  std::mt19937 random(21);
  int all = 0, leanest = 0, exact = 0;
  double slowest = 1;
  for (int trial = 0; trial < (TRIREME_SANITIZED ? 10 : 150); ++trial) {
    Query query = ownQuery(random);
    plan::Plan plan = ownPlan(query, random);
    if (plan.virtualStages == 1 && random() % 4 == 0)
      plan.schedule = plan::ScheduleKind::kZeroBubbleH1;
    query.cluster.device.memory = Bytes(1e12);
    query = onlyCutsOf(query, plan);
    const CostFunctions costs = modelCosts(query);
    std::vector<cost::Estimate> every;
    for (Ranges& layers : everyCut(plan, query.model.numLayers)) {
      plan.layers = std::move(layers);
      every.push_back(*costs.estimate(plan));
    }
    const auto memoryOf = [](const cost::Estimate& estimate) { return estimate.memory.total(); };
    const bool isLeanest = random() % 2 == 0;
    Bytes memory = memoryOf(every[random() % every.size()]);
    for (const cost::Estimate& estimate : every)
      if (isLeanest) memory = std::min(memory, memoryOf(estimate));
    query.cluster.device.memory = memory;
    Seconds fastest(1e9);
    for (const cost::Estimate& estimate : every)
      if (memoryOf(estimate) <= memory) fastest = std::min(fastest, estimate.step);
    const auto found = searchPlan(query, modelCosts(query));
    ASSERT_TRUE(found.has_value())
        << trial << ": " << summary(plan) << ", " << found.error().message();
    EXPECT_LE(found->certificate.bound, fastest) << trial;
    ++all;
    leanest += isLeanest;
    exact += found->estimate.step <= fastest * (1 + 1e-9);
    slowest = std::max(slowest, found->estimate.step / fastest);
  }
  std::printf(
      "%d answers, %d of them with the memory of the leanest cut: %d the fastest that fits, "
      "others %.2f %% slower at most\n",
      all, leanest, exact, 100 * (slowest - 1));
  EXPECT_GT(leanest, all / 3);
  EXPECT_GT(exact, all * 9 / 10);
  EXPECT_LT(slowest, 1.05);
}

// Of a GPU, whose reserve is not the same on every rank.
TEST(OwnCuts, ACutOfALargeModelIsFoundWhereMemoryIsThatOfTheLeanestToTheByte) {
  for (const auto& [pp, chunks] : {std::pair{4, 1}, std::pair{8, 1}, std::pair{4, 5}}) {
    Query query;
    query.model = *spec::loadModel("llama3-70b");
    query.cluster = *spec::withNumDevices(*spec::loadCluster("dgx-h100"), 64);
    query.stack = *spec::loadStack("trireme");
    query.training = small::training(64, 4096);
    query.training.precision = spec::Precision::kBf16;
    query.fingerprint = plan::fingerprintOf(query.model);
    plan::Plan plan = small::plan(query.model, query.training, 8, pp, 1);
    plan.dpReplicate = 1;
    plan.dpShard = 64 / (8 * pp);
    plan.stateSharding =
        plan.dpShard > 1 ? plan::StateSharding::kOptimizer : plan::StateSharding::kNone;
    plan.virtualStages = chunks;
    plan.schedule = chunks > 1 ? plan::ScheduleKind::kInterleaved : plan::ScheduleKind::k1F1B;
    plan.microbatchSize = 1;
    query = onlyCutsOf(query, plan);
    const CostFunctions costs = modelCosts(query);
    plan.layers = rangesFrom(leanestCounts(query, plan, **costs.blocks(plan)));
    const auto leanest = costs.estimate(plan);
    ASSERT_TRUE(leanest.has_value()) << leanest.error().message();
    query.cluster.device.memory = leanest->memory.total();
    const auto found = searchPlan(query, costs);
    ASSERT_TRUE(found.has_value()) << summary(plan) << ": " << found.error().message();
    EXPECT_LE(found->estimate.step, leanest->step) << summary(plan);
  }
}

}  // namespace
}  // namespace trireme::planner
