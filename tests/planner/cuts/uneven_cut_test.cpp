// Cuts whose chunks of a stage differ by more than one layer, of stacks with a description.
#include <gtest/gtest.h>

#include <cstdio>
#include <random>
#include <stdexcept>

#include "cost_models/described_memory.h"
#include "planner/cuts/linear_chunks.h"
#include "planner/cuts/played_cut.h"
#include "tests/planner/small_query.h"

namespace trireme::planner {
namespace {

// Of four stages with two or three chunks. Activations take most of the memory, compute all time.
struct TightPlan {
  explicit TightPlan(std::mt19937& random)
      : query(computeBound(smallQuery(4, 14 + static_cast<int64_t>(random() % 3),
                                      8 + 4 * static_cast<int64_t>(random() % 3)))) {
    query.cluster = small::cluster(4, 4);
    query.cluster.device.memory = Bytes(1e12);
    query.model.maxSequence = query.training.sequenceLength = 1024;
    query.stack.ownPrograms = false;
    query.stack.choices.push_back(spec::StackChoice::kRecomputeLayers);
    query.stack.description.fragmentation = random() % 2 == 0 ? 0.05 : 0;
    query.pins.tp = query.pins.microbatchSize = 1;
    query.pins.pp = 4;
    query.pins.virtualStages = 2 + static_cast<int64_t>(random() % 2);
    const int kind = static_cast<int>(random() % 3);
    query.pins.recompute = kind == 2 ? plan::Recompute::kFull : plan::Recompute::kNone;
    if (kind == 2) query.pins.recomputeLayers = 1;
    query.pins.scatterGather = false;
    const auto found = searchPlan(query);
    if (!found.has_value()) throw std::runtime_error(found.error().message());
    plan = found->plan;
    costs = modelCosts(query);
    blocks = *costs.blocks(plan);
  }
  Bytes memoryOf(const std::vector<int64_t>& layers, size_t rank) const {
    plan::Plan cut = plan;
    cut.layers = pinnedCut(layers, plan);
    const cost::StageSetting setting(*blocks->described, query.model, cut, query.cluster,
                                     query.stack.description);
    return cost::describedMemoryOf(setting, rank).total();
  }
  size_t numChunks() const { return static_cast<size_t>(plan.pp * plan.virtualStages); }

  Query query;
  plan::Plan plan;
  CostFunctions costs;
  SharedBlocks blocks;
};

// By stages from the order of the layers, in which the plan's cut is pinned.
std::vector<double> byStages(const std::vector<int64_t>& layers, int64_t stages) {
  std::vector<double> chunks;
  for (int64_t rank = 0; rank < stages; ++rank)
    for (size_t i = static_cast<size_t>(rank); i < layers.size(); i += static_cast<size_t>(stages))
      chunks.push_back(static_cast<double>(layers[i]));
  return chunks;
}

std::vector<int64_t> randomLayers(size_t chunks, std::mt19937& random) {
  std::vector<int64_t> layers;
  for (size_t i = 0; i < chunks; ++i) layers.push_back(1 + static_cast<int64_t>(random() % 5));
  return layers;
}

// A rank's line is what it needs there, and below what it needs elsewhere.
TEST(DescribedChunks, MemoryIsThatOfTheEstimateAndConvex) {
  std::mt19937 random(1);
  SlotTable slots;
  double furthest = 0;
  for (int trial = 0; trial < 100; ++trial) {
    TightPlan of(random);
    of.query.cluster.device.memory = Bytes(1e9);
    const LinearChunks chunks = describedChunks(of.query, of.plan, *of.blocks, slots);
    const std::vector<int64_t> here = randomLayers(of.numChunks(), random),
                               there = randomLayers(of.numChunks(), random);
    const std::vector<double> at = byStages(here, of.plan.pp);
    for (size_t rank = 0; rank < chunks.numStages(); ++rank) {
      const LinearRow line = chunks.memoryAt(rank, at);
      EXPECT_NEAR(line.at(at), of.memoryOf(here, rank) / Bytes(1e9) - 1, 1e-8) << trial;
      const double elsewhere = of.memoryOf(there, rank) / Bytes(1e9) - 1;
      EXPECT_LE(line.at(byStages(there, of.plan.pp)), elsewhere + 1e-8) << trial;
      furthest = std::max(furthest, elsewhere - line.at(byStages(there, of.plan.pp)));
    }
    EXPECT_EQ(chunks.mayHold(at), [&] {
      for (size_t rank = 0; rank < chunks.numStages(); ++rank)
        if (of.memoryOf(here, rank) > Bytes(1e9)) return false;
      return true;
    }());
  }
  EXPECT_GT(furthest, 0) << "several moments are the fullest";
}

// A microbatch's passes, with the transfers that stop the stage, of as many layers as are
// recomputed or more.
TEST(DescribedChunks, TimesAreThoseOfTheEstimate) {
  std::mt19937 random(2);
  SlotTable slots;
  for (int trial = 0; trial < 20; ++trial) {
    const TightPlan of(random);
    const LinearChunks chunks = describedChunks(of.query, of.plan, *of.blocks, slots);
    plan::Plan cut = of.plan;
    const std::vector<int64_t> layers = randomLayers(of.numChunks(), random);
    cut.layers = pinnedCut(layers, of.plan);
    const cost::StageSetting setting(*of.blocks->described, of.query.model, cut, of.query.cluster,
                                     of.query.stack.description);
    const std::vector<double> at = byStages(layers, of.plan.pp);
    const double stop =
        cost::transferTime(of.query.model, cut, of.query.cluster, of.query.stack.description)
            .count();
    for (size_t rank = 0, i = 0; rank < chunks.numStages(); ++rank) {
      const cost::StageTimes times = cost::estimateStage(setting, rank).times;
      for (size_t c = 0; c < chunks.perStage(); ++c, ++i) {
        const double forward = times.forward[c].count() + stop;
        EXPECT_NEAR(chunks.timeOf(kForwardPass, i, at[i]), forward, 1e-9 * forward);
        const double backward = times.backward[c].count() + stop;
        EXPECT_NEAR(chunks.timeOf(kBackwardPass, i, at[i]), backward, 1e-9 * backward);
      }
    }
    // Each takes as long, and all layers are there.
    double sum = 0;
    const std::vector<double> level = chunks.levelled();
    const auto takes = [&](size_t i) {
      return chunks.timeOf(kForwardPass, i, level[i]) + chunks.timeOf(kBackwardPass, i, level[i]);
    };
    for (size_t i = 0; i < level.size(); ++i) {
      sum += level[i];
      if (level[i] > chunks.least[i]) {
        EXPECT_NEAR(takes(i), takes(1), 1e-9 * takes(1));
      }
    }
    EXPECT_NEAR(sum, static_cast<double>(of.query.model.numLayers), 1e-6);
  }
}

// With the memory of one cut of all in twenty, in ten...: what the search finds is no slower than
// the best of even chunks, faster where no even ones are fast, and near the fastest of all.
TEST(UnevenCut, TheSearchFindsThoseThatTightMemoryAsksFor) {
  std::mt19937 random(3);
  int answered = 0, faster = 0, onlyUneven = 0, missed = 0, exact = 0;
  double slowest = 1;
  for (int trial = 0; trial < (TRIREME_SANITIZED ? 2 : 24); ++trial) {
    TightPlan of(random);
    struct Cut {
      bool isEven;
      Seconds step;
      Bytes memory;
    };
    std::vector<Cut> cuts;
    std::vector<Bytes> memory;
    for (Ranges& layers : planner::everyCut(of.plan, of.query.model.numLayers)) {
      plan::Plan cut = of.plan;
      cut.layers = std::move(layers);
      const auto estimate = *of.costs.estimate(cut);
      cuts.push_back({hasEvenChunks(cut), estimate.step, estimate.memory.total()});
      memory.push_back(estimate.memory.total());
    }
    std::sort(memory.begin(), memory.end());
    for (const size_t share : {100, 30, 10, 3}) {
      Query query = of.query;
      query.cluster.device.memory = memory[memory.size() / share];
      Seconds fastest = kNoCut, ofEven = kNoCut;
      for (const Cut& cut : cuts) {
        if (cut.memory > query.cluster.device.memory) continue;
        fastest = std::min(fastest, cut.step);
        if (cut.isEven) ofEven = std::min(ofEven, cut.step);
      }
      const auto answer = searchPlan(query);
      if (!answer.has_value()) {
        ++missed;
        continue;
      }
      ++answered;
      EXPECT_TRUE(answer->certificate.ofEvenChunks);
      EXPECT_LE(answer->estimate.step, ofEven * (1 + 1e-9));
      onlyUneven += ofEven == kNoCut;
      faster += answer->estimate.step < ofEven * (1 - 1e-6) && ofEven != kNoCut;
      exact += answer->estimate.step <= fastest * (1 + 1e-9);
      slowest = std::max(slowest, answer->estimate.step / fastest);
    }
  }
  std::printf(
      "%d answers: %d faster than every even cut, %d where no even cut fits, %d the fastest of all "
      "cuts, %.3f times it at most; %d not found\n",
      answered, faster, onlyUneven, exact, slowest, missed);
  EXPECT_GT(answered, 0);
  if (TRIREME_SANITIZED) return;
  EXPECT_GT(faster, answered / 4);
  EXPECT_GT(exact, answered * 3 / 4);
  EXPECT_LT(slowest, 1.1);
  EXPECT_LT(missed, answered / 10);
}

// False: no cut fits.
TEST(UnevenCut, MayHoldUnevenlyIsTrueOfEveryCutThatFits) {
  std::mt19937 random(4);
  int no = 0;
  for (int trial = 0; trial < (TRIREME_SANITIZED ? 4 : 40); ++trial) {
    TightPlan of(random);
    Bytes leanest(1e12);
    for (Ranges& layers : planner::everyCut(of.plan, of.query.model.numLayers)) {
      plan::Plan cut = of.plan;
      cut.layers = std::move(layers);
      leanest = std::min(leanest, (*of.costs.estimate(cut)).memory.total());
    }
    of.query.cluster.device.memory = leanest;
    EXPECT_TRUE(mayHoldUnevenly(of.query, of.plan, *of.blocks)) << trial;
    of.query.cluster.device.memory = leanest * 0.5;
    no += !mayHoldUnevenly(of.query, of.plan, *of.blocks);
  }
  EXPECT_TRUE(TRIREME_SANITIZED || no > 10) << no;
}

}  // namespace
}  // namespace trireme::planner
