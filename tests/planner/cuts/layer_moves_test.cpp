// Chains of cuts that were played, and moves of layers judged by them.
#include "planner/cuts/layer_moves.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "planner/cuts/chains.h"
#include "planner/rounding.h"
#include "tests/planner/cuts/made_up_stages.h"

namespace trireme::planner {
namespace {

double between(std::mt19937& random, double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(random);
}

cost::Pipeline randomPipeline(std::mt19937& random) {
  constexpr plan::ScheduleKind kSchedules[] = {plan::ScheduleKind::k1F1B,
                                               plan::ScheduleKind::kInterleaved,
                                               plan::ScheduleKind::kZeroBubbleH1};
  cost::Pipeline pipeline;
  pipeline.schedule = kSchedules[random() % 3];
  const size_t stages = 2 + random() % 4;
  pipeline.numMicrobatches = static_cast<int64_t>(stages * (1 + random() % 4));
  for (size_t i = 0; i < stages; ++i) pipeline.hops.emplace_back(between(random, 0, 0.2));
  pipeline.overlapTransfers = random() % 2 == 0;
  pipeline.receivesIntoSlots = random() % 2 == 0;
  return pipeline;
}

void setTimes(cost::Pipeline& pipeline, size_t chunks, std::mt19937& random) {
  pipeline.stages.assign(pipeline.hops.size(), {});
  for (cost::StageTimes& stage : pipeline.stages)
    for (size_t c = 0; c < chunks; ++c) {
      stage.forward.emplace_back(between(random, 0.5, 2));
      stage.backward.emplace_back(between(random, 0.5, 2));
      if (plan::splitsBackward(pipeline.schedule))
        stage.weights.emplace_back(between(random, 0.5, 2));
    }
}

// The longest chain of some times is one of all others; those of the closed form count in
// cost::flushTime.
TEST(Chains, AreNoLongerThanAnyFlushAndTheLongestIsAsLong) {
  std::mt19937 random(5);
  cost::FlushPlayer player;
  int numShorter = 0;
  for (int trial = 0; trial < 300; ++trial) {
    cost::Pipeline pipeline = randomPipeline(random);
    const bool isInterleaved = pipeline.schedule == plan::ScheduleKind::kInterleaved;
    const size_t chunks = isInterleaved ? 2 + random() % 2 : 1;
    setTimes(pipeline, chunks, random);
    const cost::Chain played = player.chainOf(pipeline);
    ASSERT_EQ(played.length, player.play(pipeline).makespan);
    cost::Chain withoutPasses = played;  // what hops are of it
    withoutPasses.length = Seconds(0);
    withoutPasses.length = played.length - lengthOf(withoutPasses, pipeline);
    EXPECT_GE(withoutPasses.length.count(), -1e-9);
    std::vector<cost::Chain> chains = closedForms(pipeline);
    chains.push_back(withoutPasses);
    EXPECT_NEAR(lengthOf(chains.back(), pipeline) / played.length, 1, 1e-12);
    for (int times = 0; times < 3; ++times) {
      const double ofPlayed = lengthOf(chains.back(), pipeline) / player.play(pipeline).makespan;
      EXPECT_LE(ofPlayed, 1 + 1e-9) << trial;
      numShorter += ofPlayed < 1 - 1e-9;
      for (const cost::Chain& chain : chains)
        EXPECT_LE(lengthOf(chain, pipeline) / player.timeOf(pipeline), 1 + 1e-9) << trial;
      setTimes(pipeline, chunks, random);
    }
  }
  EXPECT_GT(numShorter, 100);
}

TEST(Chains, LinesAreAsLongAsChainsWithSoManyLayers) {
  std::mt19937 random(6);
  cost::FlushPlayer player;
  MadeUpStages stages(random, 4, 2, false, 0);
  const auto playedWith = [&](const Counts& counts) {
    cost::Pipeline pipeline;
    pipeline.schedule = plan::ScheduleKind::kInterleaved;
    pipeline.numMicrobatches = 8;
    for (size_t rank = 0; rank < counts.size(); ++rank)
      pipeline.stages.push_back(stages.stageOf(rank, counts[rank]).times);
    return pipeline;
  };
  const cost::Pipeline here = playedWith({{3, 2}, {1, 2}, {4, 4}, {2, 2}}),
                       there = playedWith({{1, 2}, {3, 2}, {2, 5}, {4, 1}});
  cost::Chain chain = player.chainOf(here);
  const auto ofLayer = [](PassKind kind, size_t) { return kind == kForwardPass ? 1.0 : 2.0; };
  const LinearRow line = lineOf(chain, ofLayer, {3, 2, 1, 2, 4, 4, 2, 2});
  chain.length = Seconds(0);  // there are no hops
  EXPECT_NEAR(line.at({3, 2, 1, 2, 4, 4, 2, 2}), lengthOf(chain, here).count(), 1e-9);
  EXPECT_NEAR(line.at({1, 2, 3, 2, 2, 5, 4, 1}), lengthOf(chain, there).count(), 1e-9);
}

TEST(OnceWithMoves, IsTheLongestOfAllStagesWithTheLayerMoved) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 50; ++trial) {
    const size_t stages = 1 + random() % 5;
    const cost::OnceTimes ofLayer{Seconds(between(random, 0, 0.3)),
                                  Seconds(between(random, 0, 0.3))};
    std::vector<cost::OnceTimes> once;
    for (size_t i = 0; i < stages; ++i)
      once.push_back({Seconds(between(random, 1, 2)), Seconds(between(random, 1, 2))});
    const OnceWithMoves with(once, ofLayer);
    for (size_t from = 0; from < stages; ++from)
      for (size_t to = 0; to < stages; ++to) {
        std::vector<cost::OnceTimes> moved = once;
        moved[from].reducing -= ofLayer.reducing;
        moved[from].updating -= ofLayer.updating;
        moved[to].reducing += ofLayer.reducing;
        moved[to].updating += ofLayer.updating;
        const double longest =
            std::accumulate(moved.begin(), moved.end(), cost::OnceTimes(), cost::longest)
                .total()
                .count();
        EXPECT_NEAR(with.with(from, to), longest, 1e-12);
        EXPECT_LE(with.least(), longest + 1e-12);
      }
  }
}

// Of few moves all that may help are told, of many the likeliest.
TEST(LayerMoves, AreThoseThatNoChainMakesTooLong) {
  std::mt19937 random(8);
  for (const size_t chunks : {size_t{6}, size_t{40}}) {
    LayerMoves moves;
    std::vector<LinearRow> chains;
    std::vector<double> layers;
    for (size_t i = 0; i < chunks; ++i) layers.push_back(static_cast<double>(1 + random() % 3));
    for (int k = 0; k < 12; ++k) {
      LinearRow chain{{}, between(random, 0, 1)};
      for (size_t i = 0; i < chunks; ++i) chain.perLayer.push_back(between(random, 1, 1.2));
      moves.addChain(chain);
      chains.push_back(chain);
    }
    std::vector<cost::OnceTimes> once;
    for (size_t i = 0; i < chunks / 2; ++i)
      once.push_back({Seconds(between(random, 0, 0.1)), Seconds(0)});
    const OnceWithMoves with(once, {Seconds(0.01), Seconds(0)});
    std::vector<size_t> givers;
    for (size_t i = 0; i < chunks; ++i)
      if (layers[i] > 1) givers.push_back(i);
    const auto timeOf = [&](size_t from, size_t to) {
      double longest = 0;
      for (const LinearRow& chain : chains)
        longest = std::max(longest, chain.at(layers) + chain.perLayer[to] - chain.perLayer[from]);
      return longest + with.with(from / 2, to / 2);
    };
    std::vector<double> all;
    for (const size_t from : givers)
      for (size_t to = 0; to < chunks; ++to)
        if (from != to) all.push_back(timeOf(from, to));
    std::sort(all.begin(), all.end());
    const double enough = all[all.size() * 3 / 4];
    const size_t numFaster = all.size() * 3 / 4;
    const std::vector<LayerMoves::Move> found = moves.from(layers, givers, 2, with, enough);
    ASSERT_EQ(found.size(), std::min<size_t>(numFaster, 256)) << chunks;
    std::vector<double> times;
    for (const LayerMoves::Move& move : found) {
      EXPECT_NEAR(move.time(), timeOf(move.from, move.to), 1e-12);
      times.push_back(move.time());
    }
    std::sort(times.begin(), times.end());
    for (size_t i = 0; i < times.size(); ++i) EXPECT_NEAR(times[i], all[i], 1e-12);

    LinearRow latest{std::vector<double>(chunks, 1.0), 0};
    latest.perLayer[found.front().to] = 10;
    latest.fixed = enough - latest.at(layers) - 1;
    moves.addChain(latest);
    std::vector<LayerMoves::Move> left = found;
    moves.lookAgain(layers, enough, left);
    EXPECT_TRUE(std::none_of(left.begin(), left.end(), [&](const LayerMoves::Move& move) {
      return move.to == found.front().to && move.from != found.front().to;
    }));
    EXPECT_FALSE(left.empty());
  }
}

// With all moves tried that may help there is none left that does.
TEST(CutPlayer, DescendsToACutThatNoMoveOfALayerImproves) {
  std::mt19937 random(9);
  int numBetter = 0;
  for (int trial = 0; trial < 60; ++trial) {
    const bool isSplit = trial % 3 == 0;  // with post-validation
    const size_t stages = 2 + random() % 3, chunks = isSplit ? 1 : 2 + random() % 2;
    cost::Pipeline pipeline;
    pipeline.schedule =
        isSplit ? plan::ScheduleKind::kZeroBubbleH1 : plan::ScheduleKind::kInterleaved;
    pipeline.postValidation = isSplit;
    pipeline.numMicrobatches = static_cast<int64_t>(stages * (1 + random() % 3));
    for (size_t i = 0; i < stages; ++i) pipeline.hops.emplace_back(between(random, 0, 0.1));
    MadeUpStages costs(random, stages, chunks, trial % 2 == 0, 0);
    costs.splitsBackward = isSplit;
    cost::FlushPlayer flush;
    const Counts even(stages, std::vector<int64_t>(chunks, isSplit ? 7 : 4));
    while (costs.most > 2 && costs.fits(0, even[0])) costs.most *= 0.97;
    costs.most *= between(random, 1, 1.5);
    CutPlayer player(costs, flush, pipeline, 1.1, std::nullopt, int64_t{1} << 60);
    if (!player.play(even)) continue;
    const Seconds before = player.best()->step;
    player.descend(1000);
    const Seconds best = player.best()->step;
    numBetter += best < before * 0.999;
    const Counts counts = countsOf(player.best()->layers);
    for (size_t from = 0; from < stages * chunks; ++from)
      for (size_t to = 0; to < stages * chunks; ++to) {
        Counts moved = counts;
        --moved[from / chunks][from % chunks];
        ++moved[to / chunks][to % chunks];
        const bool isEnd = from == 0 || from + 1 == stages * chunks;
        const int64_t least = costs.takesEmptyEnds() && isEnd ? 0 : 1;
        if (from == to || moved[from / chunks][from % chunks] < least || !player.fits(moved))
          continue;
        EXPECT_GE(player.timeOf(moved), best * (1 - 2 * kTie)) << trial;
      }
  }
  EXPECT_GT(numBetter, 20);
}

}  // namespace
}  // namespace trireme::planner
