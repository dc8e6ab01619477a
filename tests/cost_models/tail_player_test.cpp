#include "cost_models/tail_player.h"

#include <gtest/gtest.h>

#include <random>

#include "cost_models/play.h"

namespace trireme::cost {
namespace {

using plan::ScheduleKind;

StageTimes randomStage(std::mt19937& random, size_t chunks, bool splits, double shortest) {
  const auto time = [&] {
    return Seconds(std::uniform_real_distribution<double>(shortest, 2)(random));
  };
  StageTimes stage;
  for (size_t c = 0; c < chunks; ++c) {
    stage.forward.push_back(time());
    stage.backward.push_back(time());
    if (splits) stage.weights.push_back(time());
  }
  return stage;
}

// Stages without two times alike, transfers that stop them or do not, slots that are waited for.
Pipeline randomPipeline(std::mt19937& random) {
  const ScheduleKind kinds[] = {ScheduleKind::k1F1B, ScheduleKind::kInterleaved,
                                ScheduleKind::kZeroBubbleH1, ScheduleKind::kZeroBubbleH2};
  Pipeline pipeline;
  pipeline.schedule = kinds[random() % 4];
  const auto stages = static_cast<int32_t>(2 + random() % 4);
  const bool isInterleaved = pipeline.schedule == ScheduleKind::kInterleaved;
  const auto chunks = static_cast<int32_t>(isInterleaved ? 2 + random() % 3 : 1);
  pipeline.numMicrobatches =
      isInterleaved ? stages * static_cast<int32_t>(1 + random() % 4) : 1 + random() % 12;
  const double slowest = random() % 3 == 0 ? 0 : 1;
  for (int32_t i = 0; i < stages; ++i)
    pipeline.hops.emplace_back(std::uniform_real_distribution<double>(0, slowest)(random));
  pipeline.overlapTransfers = random() % 2 == 0;
  pipeline.receivesIntoSlots = random() % 2 == 0;
  for (int32_t i = 0; i < stages; ++i)
    pipeline.stages.push_back(randomStage(random, static_cast<size_t>(chunks),
                                          plan::splitsBackward(pipeline.schedule), 0.5));
  return pipeline;
}

// The pipeline's stages from `first` on in all lanes.
TailPlayer tailOf(const Pipeline& pipeline, size_t first) {
  TailPlayer tail(FlushPlayer().orderOf(pipeline, first), pipeline, first);
  for (size_t i = first; i < pipeline.stages.size(); ++i) tail.put(i, pipeline.stages[i]);
  return tail;
}

// To the last bit, every lane with stages of its own.
TEST(TailPlayer, OfAllStagesIsTheScheduleThatIsPlayed) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 300; ++trial) {
    Pipeline pipeline = randomPipeline(random);
    TailPlayer tail = tailOf(pipeline, 0);
    const StageTimes like = pipeline.stages.front();
    std::vector<std::vector<StageTimes>> stages;  // by lane
    for (size_t lane = 0; lane < TailPlayer::kLanes - 1; ++lane) {
      stages.push_back(pipeline.stages);
      for (size_t i = random() % 2; i < pipeline.stages.size(); ++i) {
        stages[lane][i] = randomStage(random, like.forward.size(), !like.weights.empty(), 0.5);
        tail.put(i, lane, stages[lane][i]);
      }
    }
    const TailPlayer::Lanes times = tail.play(stages.size(), Seconds(1e9));
    for (size_t lane = 0; lane < stages.size(); ++lane) {
      pipeline.stages = stages[lane];
      EXPECT_EQ(times[lane], play(pipeline, false).makespan.count()) << trial;
    }
  }
}

// Whatever the stages before take beyond the least.
TEST(TailPlayer, NoPipelineWithSuchATailTakesLess) {
  std::mt19937 random(2);
  double closest = 0, loosest = 1;
  for (int trial = 0; trial < 300; ++trial) {
    Pipeline pipeline = randomPipeline(random);
    const Pipeline least = pipeline;
    for (size_t first = 1; first < pipeline.stages.size(); ++first) {
      const double bound = tailOf(least, first).play(1, Seconds(1e9))[0];
      for (int more = 0; more < 3; ++more) {
        for (size_t i = 0; more > 0 && i < first; ++i)
          for (auto* times : {&pipeline.stages[i].forward, &pipeline.stages[i].backward,
                              &pipeline.stages[i].weights})
            for (Seconds& time : *times)
              time += Seconds(std::uniform_real_distribution<double>(0, 1)(random));
        const double whole = play(pipeline, false).makespan.count();
        EXPECT_LE(bound, whole * (1 + 1e-12)) << trial;
        if (more > 0) continue;
        closest = std::max(closest, bound / whole);
        loosest = std::min(loosest, bound / whole);
      }
    }
  }
  std::printf("the last stages alone take %.1f to %.1f %% of the whole\n", 100 * loosest,
              100 * closest);
  EXPECT_GT(closest, 0.999);  // where they are the busiest
  EXPECT_LT(loosest, 0.9);
}

TEST(TailPlayer, EndsEarlyWhereAllTakeMoreThanTheLimit) {
  std::mt19937 random(3);
  int64_t played = 0, all = 0;
  for (int trial = 0; trial < 100; ++trial) {
    Pipeline pipeline = randomPipeline(random);
    pipeline.numMicrobatches = 60;
    TailPlayer tail = tailOf(pipeline, 0);
    StageTimes slower = pipeline.stages.front();
    for (Seconds& time : slower.forward) time *= 1.5;
    tail.put(0, 0, slower);
    const TailPlayer::Lanes times = tail.play(2, Seconds(1e9));
    all += tail.numPlayed();
    // One that does not keeps all going.
    const TailPlayer::Lanes same = tail.play(2, Seconds(times[1] * (1 + 1e-9)));
    EXPECT_EQ(same[0], times[0]) << trial;
    EXPECT_EQ(same[1], times[1]) << trial;
    const int64_t before = tail.numPlayed();
    const double limit = times[1] * 0.9;
    const TailPlayer::Lanes slow = tail.play(2, Seconds(limit));
    played += tail.numPlayed() - before;
    for (const size_t lane : {0, 1}) {
      EXPECT_GT(slow[lane], limit) << trial;
      EXPECT_LE(slow[lane], times[lane] * (1 + 1e-12)) << trial;
    }
  }
  EXPECT_LT(played, all * 9 / 10);
}

}  // namespace
}  // namespace trireme::cost
