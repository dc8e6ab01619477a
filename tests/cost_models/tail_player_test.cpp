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

struct Case {
  Pipeline pipeline;
  schedule::Schedule schedule;
};

// Stages without two times alike, transfers that stop them or do not, slots that are waited for.
Case randomCase(std::mt19937& random) {
  const ScheduleKind kinds[] = {ScheduleKind::k1F1B, ScheduleKind::kInterleaved,
                                ScheduleKind::kZeroBubbleH1, ScheduleKind::kZeroBubbleH2};
  Case c;
  Pipeline& pipeline = c.pipeline;
  pipeline.schedule = kinds[random() % 4];
  const auto stages = static_cast<int32_t>(2 + random() % 4);
  const bool isInterleaved = pipeline.schedule == ScheduleKind::kInterleaved;
  const auto chunks = static_cast<int32_t>(isInterleaved ? 2 + random() % 3 : 1);
  pipeline.numMicrobatches =
      isInterleaved ? stages * static_cast<int32_t>(1 + random() % 4) : 1 + random() % 12;
  pipeline.hop = Seconds(random() % 3 == 0 ? 0 : 0.5);
  pipeline.overlapTransfers = random() % 2 == 0;
  pipeline.receivesIntoSlots = random() % 2 == 0;
  for (int32_t i = 0; i < stages; ++i)
    pipeline.stages.push_back(randomStage(random, static_cast<size_t>(chunks),
                                          plan::splitsBackward(pipeline.schedule), 0.5));
  c.schedule = schedule::scheduleFor(pipeline.schedule, stages, chunks,
                                     static_cast<int32_t>(pipeline.numMicrobatches));
  return c;
}

std::vector<const StageTimes*> behind(const Pipeline& pipeline, size_t first) {
  std::vector<const StageTimes*> stages;
  for (size_t i = first + 1; i < pipeline.stages.size(); ++i) stages.push_back(&pipeline.stages[i]);
  return stages;
}

// Lanes with first stages of their own.
TEST(TailPlayer, OfAllStagesIsTheScheduleThatIsPlayed) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 300; ++trial) {
    Case c = randomCase(random);
    TailPlayer tail(c.pipeline, c.schedule, 0);
    tail.setBehind(behind(c.pipeline, 0));
    std::vector<StageTimes> firsts;
    const StageTimes& like = c.pipeline.stages.front();
    for (size_t lane = 0; lane < TailPlayer::kLanes - 1; ++lane)
      firsts.push_back(randomStage(random, like.forward.size(), !like.weights.empty(), 0.5));
    TailPlayer::Stages own{};
    for (size_t lane = 0; lane < firsts.size(); ++lane) own[lane] = &firsts[lane];
    const TailPlayer::Lanes times = tail.play(own, Seconds(1e9));
    for (size_t lane = 0; lane < firsts.size(); ++lane) {
      c.pipeline.stages.front() = firsts[lane];
      EXPECT_NEAR(times[lane], play(c.pipeline, false).makespan.count(), 1e-9) << trial;
    }
  }
}

// Whatever the stages before take beyond the least.
TEST(TailPlayer, NoPipelineWithSuchATailTakesLess) {
  std::mt19937 random(2);
  double closest = 0, loosest = 1;
  for (int trial = 0; trial < 300; ++trial) {
    Case c = randomCase(random);
    const Pipeline least = c.pipeline;
    for (size_t first = 1; first < c.pipeline.stages.size(); ++first) {
      TailPlayer tail(least, c.schedule, first);
      tail.setBehind(behind(least, first));
      TailPlayer::Stages own{};
      own[0] = &least.stages[first];
      const double bound = tail.play(own, Seconds(1e9))[0];
      for (int more = 0; more < 3; ++more) {
        for (size_t i = 0; more > 0 && i < first; ++i)
          for (auto* times : {&c.pipeline.stages[i].forward, &c.pipeline.stages[i].backward,
                              &c.pipeline.stages[i].weights})
            for (Seconds& time : *times)
              time += Seconds(std::uniform_real_distribution<double>(0, 1)(random));
        const double whole = play(c.pipeline, false).makespan.count();
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
    Case c = randomCase(random);
    c.pipeline.numMicrobatches = 60;
    c.schedule =
        schedule::scheduleFor(c.pipeline.schedule, c.schedule.stages, c.schedule.virtualStages,
                              static_cast<int32_t>(c.pipeline.numMicrobatches));
    TailPlayer tail(c.pipeline, c.schedule, 0);
    tail.setBehind(behind(c.pipeline, 0));
    const StageTimes slower = [&] {
      StageTimes stage = c.pipeline.stages.front();
      for (Seconds& time : stage.forward) time *= 1.5;
      return stage;
    }();
    TailPlayer::Stages own{};
    own[0] = &slower;
    own[1] = &c.pipeline.stages.front();
    const TailPlayer::Lanes times = tail.play(own, Seconds(1e9));
    all += tail.numPlayed();
    // One that does not keeps all going.
    const TailPlayer::Lanes same = tail.play(own, Seconds(times[1] * (1 + 1e-9)));
    EXPECT_EQ(same[0], times[0]) << trial;
    EXPECT_EQ(same[1], times[1]) << trial;
    const int64_t before = tail.numPlayed();
    const double limit = times[1] * 0.9;
    const TailPlayer::Lanes slow = tail.play(own, Seconds(limit));
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
