#include "planner/cuts/exact_cuts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <random>

#include "tests/planner/cuts/made_up_stages.h"

namespace trireme::planner {
namespace {

// All cuts of the space, whether they fit or not.
void forEachCut(const ExactQuestion& question, bool takesEmptyEnds,
                const std::function<void(const Counts&)>& visit) {
  const auto chunks = static_cast<size_t>(question.virtualStages);
  Counts counts(question.numStages, std::vector<int64_t>(chunks));
  const auto isEven = [](const std::vector<int64_t>& stage) {
    const auto [least, most] = std::minmax_element(stage.begin(), stage.end());
    return *most - *least <= 1;
  };
  std::function<void(size_t, int64_t)> go = [&](size_t at, int64_t left) {
    const size_t rank = at / chunks, chunk = at % chunks;
    if (chunk == 0 && rank > 0 && question.spread == Spread::kEven && !isEven(counts[rank - 1]))
      return;
    if (rank == question.numStages) {
      if (left == 0) visit(counts);
      return;
    }
    const bool isEnd = at == 0 || at + 1 == question.numStages * chunks;
    for (int64_t n = takesEmptyEnds && isEnd ? 0 : 1; n <= left; ++n) {
      counts[rank][chunk] = n;
      go(at + 1, left - n);
    }
  };
  go(0, question.numLayers);
}

// Of stages with dozens of ways to cut them, some of which do not fit, though even ones do.
TEST(ExactCuts, AreTheFastestOfAll) {
  std::mt19937 random(11);
  int tight = 0, several = 0, even = 0;
  for (int trial = 0; trial < (TRIREME_SANITIZED ? 15 : 150); ++trial) {
    ExactQuestion question;
    question.spread = trial % 3 == 0 ? Spread::kEven : Spread::kAny;
    const bool isEven = question.spread == Spread::kEven;
    question.numStages = 2 + random() % 2;
    question.virtualStages = isEven ? 5 : 6 - static_cast<int64_t>(question.numStages);
    const auto chunks = static_cast<int64_t>(question.numStages) * question.virtualStages;
    question.numLayers = chunks + static_cast<int64_t>(2 + random() % 5);
    question.most = 1 + random() % 3;
    question.pipeline.schedule = plan::ScheduleKind::kInterleaved;
    question.pipeline.numMicrobatches =
        static_cast<int64_t>(question.numStages * (1 + random() % 4));
    for (size_t i = 0; i < question.numStages; ++i)
      question.pipeline.hops.emplace_back(std::uniform_real_distribution<double>(0, 0.1)(random));
    question.pipeline.overlapTransfers = random() % 2 == 0;
    MadeUpStages stages(random, question.numStages, static_cast<size_t>(question.virtualStages),
                        isEven);
    stages.most = static_cast<double>(question.numLayers) /
                  static_cast<double>(question.numStages) *
                  std::uniform_real_distribution<double>(0.7, 1.2)(random);
    cost::FlushPlayer flush;
    CutPlayer player(stages, flush, question.pipeline, 1, std::nullopt, int64_t{1} << 60);
    std::vector<Seconds> times;
    size_t numAll = 0;
    forEachCut(question, isEven, [&](const Counts& counts) {
      ++numAll;
      if (player.fits(counts)) times.push_back(player.timeOf(counts));
    });
    std::sort(times.begin(), times.end());
    tight += times.size() < numAll;
    even += isEven;
    if (times.empty()) continue;
    const Seconds enough = times[random() % std::min<size_t>(times.size(), 20)] * (1 + 1e-6);
    question.enough = enough;
    int64_t passes = kMostPassesOfExact;
    const ExactCuts exact = exactCuts(question, player, passes);
    const auto faster =
        static_cast<size_t>(std::lower_bound(times.begin(), times.end(), enough) - times.begin());
    ASSERT_EQ(exact.fastest.size(), std::min(faster, question.most)) << trial;
    for (size_t i = 0; i < exact.fastest.size(); ++i)
      EXPECT_NEAR(exact.fastest[i].step / times[i], 1, 1e-8) << trial;
    EXPECT_EQ(exact.others,
              exact.fastest.size() == question.most ? exact.fastest.back().step : enough)
        << trial;
    several += exact.fastest.size() > 1;
  }
  std::printf("%d with memory that not all cuts fit in, %d with several cuts, %d of even chunks\n",
              tight, several, even);
  EXPECT_GT(tight, 5);
  EXPECT_GT(several, 5);
}

// As many layers as chunks: of Fibonacci's number of beginnings, 1.5e12, one can be ended.
TEST(ExactCuts, OfOneLayerPerChunkAreFoundAtOnce) {
  ExactQuestion question;
  question.spread = Spread::kEven;
  question.numStages = 2;
  question.virtualStages = 60;
  question.numLayers = 120;
  question.pipeline.schedule = plan::ScheduleKind::kInterleaved;
  question.pipeline.numMicrobatches = 2;
  const Counts ones(2, std::vector<int64_t>(60, 1));
  std::mt19937 random(3);
  for (const bool takesEmptyEnds : {false, true}) {
    MadeUpStages stages(random, 2, 60, takesEmptyEnds, 1e-3);
    cost::FlushPlayer flush;
    CutPlayer player(stages, flush, question.pipeline, 1, std::nullopt, int64_t{1} << 60);
    question.enough = player.timeOf(ones) * (1 + 1e-6);
    int64_t passes = kMostPassesOfExact;
    const ExactCuts exact = exactCuts(question, player, passes);
    ASSERT_EQ(exact.fastest.size(), 1u);
    if (!takesEmptyEnds) {
      EXPECT_EQ(countsOf(exact.fastest.front().layers), ones);
    }
  }
}

}  // namespace
}  // namespace trireme::planner
