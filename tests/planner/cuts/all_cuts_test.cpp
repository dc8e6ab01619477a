#include "planner/cuts/all_cuts.h"

#include <gtest/gtest.h>

#include <cmath>

#include "planner/cuts/own_cuts.h"
#include "planner/plan_text.h"
#include "tests/planner/every_cut.h"

namespace trireme::planner {
namespace {

// Zero bubble too, some with replicas whose reductions run beside the backward, and of one in two
// plans so little memory that some cuts do not fit.
struct Instance {
  Query query;
  plan::Plan plan;
  SharedBlocks blocks;
  std::vector<plan::Plan> cuts;  // that fit
  Seconds fastest = kNoCut;      // of these

  explicit Instance(std::mt19937& random) : query(ownQuery(random)), plan(ownPlan(query, random)) {
    query.cluster.device.memory = Bytes(1e12);
    if (plan.virtualStages == 1 && random() % 4 == 0)
      plan.schedule =
          random() % 2 == 0 ? plan::ScheduleKind::kZeroBubbleH1 : plan::ScheduleKind::kZeroBubbleH2;
    if (query.training.globalBatchSize % (2 * plan.pp) == 0 && random() % 2 == 0) {
      plan.dpReplicate = 2;
      plan.overlapReductions = true;
    }
    const CostFunctions costs = modelCosts(query);
    blocks = *costs.blocks(plan);
    std::vector<std::pair<plan::Plan, cost::Estimate>> all;
    for (Ranges& layers : everyCut(plan, query.model.numLayers)) {
      plan::Plan cut = plan;
      cut.layers = std::move(layers);
      all.emplace_back(cut, *costs.estimate(cut));
    }
    if (random() % 2 == 0) {  // as much as some cut takes, or a little less than the leanest
      Bytes leanest(1e12);
      for (const auto& [cut, estimate] : all) leanest = std::min(leanest, estimate.memory.total());
      query.cluster.device.memory =
          random() % 8 == 0 ? leanest * 0.98 : all[random() % all.size()].second.memory.total();
    }
    for (const auto& [cut, estimate] : all) {
      if (estimate.memory.total() > query.cluster.device.memory) continue;
      cuts.push_back(cut);
      fastest = std::min(fastest, estimate.step);
    }
  }
};

// By the closed form, and by critical paths; what comes with them is a cut that fits.
TEST(AllCuts, NoneIsFasterThanTheBounds) {
  std::mt19937 random(11);
  int none = 0, ruledOut = 0, closer = 0, found = 0, best = 0, all = 0;
  double ofClosedForm = 0, ofPaths = 0;
  for (int trial = 0; trial < (TRIREME_SANITIZED ? 40 : 400); ++trial) {
    const Instance instance(random);
    const auto& [query, plan, blocks, cuts, fastest] = instance;
    CutFloor floor(query, *blocks);
    const AllCuts cheap(query, plan, *blocks, floor);
    const Seconds bound = cheap.bound();
    AllOwnCuts own{bound, {}};
    int64_t passes = kMostPassesOfAll;
    cost::FlushPlayer flush;
    if (plan.schedule != plan::ScheduleKind::kGpipe)
      own = allOwnCuts(query, plan, *blocks, flush, cheap, kNoCut, passes);
    // With a limit the same below it, and beyond it where the bound is.
    const Seconds limit = bound * (0.83 + 0.05 * static_cast<double>(random() % 8));
    const Seconds limited = cheap.bound(limit);
    EXPECT_LE(limited, bound * (1 + 1e-6)) << trial;
    EXPECT_GE(limited, std::min(bound * (1 - 1e-6), limit)) << trial;
    EXPECT_EQ(limited > limit, bound > limit) << trial;
    EXPECT_GE(own.bound, bound) << trial;
    // Whether any cut may be faster is told at once, as far as the bound tells it.
    if (plan.schedule != plan::ScheduleKind::kGpipe) {
      const Seconds told =
          boundOfOwnCuts(query, plan, *blocks, cheap, own.bound * 0.999, passes = kMostPassesOfAll);
      EXPECT_GE(told, own.bound * 0.999) << trial;
      EXPECT_LE(told, own.bound * (1 + 1e-4)) << trial;
      EXPECT_LE(boundOfOwnCuts(query, plan, *blocks, cheap, own.bound * 1.01, passes),
                own.bound * (1 + 2e-3));
    }
    EXPECT_GT(passes, 0);
    EXPECT_LE(bound, fastest) << trial << ": " << summary(plan);
    EXPECT_LE(own.bound, fastest) << trial << ": " << summary(plan);
    if (own.cut) {
      plan::Plan cut = plan;
      cut.layers = own.cut->layers;
      const auto estimate = modelCosts(query).estimate(cut);
      ASSERT_TRUE(estimate.has_value()) << estimate.error().message();
      EXPECT_LE(own.cut->bound, estimate->step);
      EXPECT_GE(own.cut->bound, own.bound * (1 - 1e-9));
    }
    if (cuts.empty()) {
      ++none;
      ruledOut += own.bound == kNoCut;
      continue;
    }
    ++all;
    closer += own.bound > bound * (1 + 1e-6);
    ofClosedForm += bound / fastest;
    ofPaths += own.bound / fastest;
    if (!own.cut) continue;
    ++found;
    best += own.cut->bound <= fastest;
  }
  std::printf(
      "%d plans: bounds %.1f and %.1f %% of the fastest cut in the mean, %d closer by paths, which "
      "found %d cuts, %d the fastest; of %d plans of which none fits %d were ruled out\n",
      all, 100 * ofClosedForm / all, 100 * ofPaths / all, closer, found, best, none, ruledOut);
  EXPECT_GT(ofClosedForm / all, 0.93);
  EXPECT_GT(ofPaths / all, 0.95);
  EXPECT_GT(closer, all / 10);
  EXPECT_GT(best, found * 8 / 10);
  EXPECT_GT(ruledOut, none / 2);
}

// Memory for few layers where many microbatches are in flight: chunks of a stage that differ by
// several layers, as no cut that is tried first has them, are what is fastest. Nothing is faster
// than the certificate's bound.
TEST(AllCuts, TheSearchFindsUnevenChunksWhereMemoryIsTight) {
  std::mt19937 random(12);
  int answered = 0, faster = 0, exact = 0;
  for (int trial = 0; trial < (TRIREME_SANITIZED ? 2 : 12); ++trial) {
    Query query = computeBound(smallQuery(4, 11, 8 + 4 * static_cast<int64_t>(random() % 3)));
    query.cluster = small::cluster(4, 4);
    query.model.maxSequence = query.training.sequenceLength = 1024;
    query.pins.tp = query.pins.microbatchSize = 1;
    query.pins.pp = 4;
    query.pins.virtualStages = 2;
    query.pins.recompute = plan::Recompute::kNone;
    query.pins.scatterGather = false;
    const auto roomy = searchPlan(query);
    ASSERT_TRUE(roomy.has_value()) << roomy.error().message();
    const CostFunctions costs = modelCosts(query);
    std::vector<std::pair<Ranges, cost::Estimate>> every;
    for (Ranges& layers : everyCut(roomy->plan, query.model.numLayers)) {
      plan::Plan plan = roomy->plan;
      plan.layers = layers;
      every.emplace_back(std::move(layers), *costs.estimate(plan));
    }
    for (const double room : {0.02, 0.05, 0.1, 0.2, 0.4}) {  // of the cuts have less memory
      std::vector<Bytes> memory;
      for (const auto& [layers, estimate] : every) memory.push_back(estimate.memory.total());
      std::sort(memory.begin(), memory.end());
      query.cluster.device.memory =
          memory[static_cast<size_t>(room * static_cast<double>(memory.size()))];
      const auto answer = searchPlan(query);
      if (!answer.has_value()) continue;
      const std::vector<Ranges> tried = cutsFor(query, roomy->plan, **costs.blocks(roomy->plan));
      Seconds fastest = kNoCut, ofTried = kNoCut;
      for (const auto& [layers, estimate] : every) {
        if (estimate.memory.total() > query.cluster.device.memory) continue;
        fastest = std::min(fastest, estimate.step);
        if (std::find(tried.begin(), tried.end(), layers) != tried.end())
          ofTried = std::min(ofTried, estimate.step);
      }
      ++answered;
      EXPECT_LE(answer->certificate.bound, fastest);
      EXPECT_LE(answer->estimate.step, ofTried);
      EXPECT_LE(answer->estimate.step, fastest * 1.03);
      faster += answer->estimate.step < ofTried * (1 - 1e-6);
      exact += answer->estimate.step <= fastest * (1 + 1e-9);
    }
  }
  std::printf("%d answers: %d faster than every cut that is tried first, %d the fastest of all\n",
              answered, faster, exact);
  EXPECT_GT(answered, TRIREME_SANITIZED ? 0 : 20);
  EXPECT_GT(faster, 0);
  EXPECT_GT(exact, answered / 2);
}

}  // namespace
}  // namespace trireme::planner
