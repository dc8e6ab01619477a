// What a report draws of a step.
#include "planner/answer/timeline.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <tuple>

#include "cost_models/in_flight.h"
#include "planner/answer/critical_path.h"
#include "tests/planner/small_query.h"

namespace trireme::planner {
namespace {

using program::Direction;

cost::SimulationOptions withTasks() {
  cost::SimulationOptions options;
  options.tasks = true;
  return options;
}

// A task of stage 0 that computes for `compute` and then communicates for `communication`.
cost::PathItem task(Direction direction, int32_t microbatch, double begin, double compute,
                    double communication) {
  cost::PathItem item;
  item.direction = direction;
  item.microbatch = microbatch;
  item.begin = Seconds(begin);
  item.end = Seconds(begin + compute + communication);
  item.compute = Seconds(compute);
  item.reduce[0] = Seconds(communication);
  return item;
}

// One stage, `pairs` microbatches, of each F (1 s) and B (2 s, 0.5 s of it communication), and a
// second of idleness before every F.
Timeline alternating(int pairs) {
  Timeline timeline;
  timeline.step = Seconds(4 * pairs);
  StageTimeline& stage = timeline.stages.emplace_back();
  stage.numRanks = 1;
  for (int m = 0; m < pairs; ++m) {
    stage.tasks.push_back(task(Direction::kForward, m, 4 * m + 1, 1, 0));
    stage.tasks.push_back(task(Direction::kBackward, m, 4 * m + 2, 1.5, 0.5));
    stage.memory.push_back({Seconds(4 * m + 1), Bytes(100 + m)});
    stage.memory.push_back({Seconds(4 * m + 4), Bytes(50)});
  }
  return timeline;
}

// What a run measures are such events: of simulated ones, the timeline is that of the tasks.
TEST(Timeline, OfEventsIsThatOfTheirTasks) {
  const Query query = smallQuery(4, 4, 8);
  int64_t count = 0;
  for (const plan::Plan& plan : everyPlan(query, 4, modelCosts(query))) {
    if (plan.pp != 4 || plan.microbatchSize > 1) continue;
    const auto played = playPlan(query, plan, {.trace = true, .tasks = true});
    ASSERT_TRUE(played.has_value()) << played.error().message();
    const auto expected = timelineOf(query, plan, *played);
    // An earlier step, and waiting, leave no trace.
    std::vector<program::TraceEvent> events = played->simulation.events;
    events.push_back({.step = -1, .beginSeconds = -5, .endSeconds = 99});
    events.push_back({.kind = program::InstructionKind::kWait, .endSeconds = 1e-9});
    const Timeline found = timelineOf(played->program, events);
    EXPECT_NEAR(found.step / expected->step, 1, 1e-9);
    ASSERT_EQ(found.stages.size(), 4u);
    for (size_t s = 0; s < 4; ++s) {
      const StageTimeline &a = found.stages[s], &b = expected->stages[s];
      EXPECT_EQ(a.stage, b.stage);
      EXPECT_EQ(a.numRanks, 1);
      ASSERT_EQ(a.tasks.size(), b.tasks.size());
      for (size_t i = 0; i < a.tasks.size(); ++i) {
        EXPECT_EQ(std::tuple(a.tasks[i].direction, a.tasks[i].chunk, a.tasks[i].microbatch),
                  std::tuple(b.tasks[i].direction, b.tasks[i].chunk, b.tasks[i].microbatch));
        EXPECT_NEAR(a.tasks[i].begin.count(), b.tasks[i].begin.count(), 1e-12);
        EXPECT_NEAR(a.tasks[i].end.count(), b.tasks[i].end.count(), 1e-12);
        ++count;
      }
      for (const auto part :
           {&StageTimeline::forward, &StageTimeline::backward, &StageTimeline::communication,
            &StageTimeline::optimizer, &StageTimeline::idle})
        EXPECT_NEAR((a.*part).count(), (b.*part).count(), 1e-9);
    }
  }
  EXPECT_GT(count, 100);
}

TEST(Timeline, StagesAddUpToTheStepOfEveryPlan) {
  int64_t count = 0;
  for (const bool own : {true, false}) {
    Query query = smallQuery(4, 4, 8);
    query.stack.ownPrograms = own;
    for (const plan::Plan& plan : everyPlan(query, 4, modelCosts(query))) {
      if (plan.microbatchSize > 1) continue;  // for speed
      const auto played = playPlan(query, plan, withTasks());
      ASSERT_TRUE(played.has_value()) << played.error().message();
      const auto timeline = timelineOf(query, plan, *played);
      ASSERT_TRUE(timeline.has_value()) << timeline.error().message();
      EXPECT_EQ(static_cast<int64_t>(timeline->stages.size()), plan.pp);
      int64_t ranks = 0;
      for (const StageTimeline& s : timeline->stages) {
        const Seconds total = s.forward + s.backward + s.communication + s.optimizer + s.idle;
        EXPECT_NEAR(total / timeline->step, 1, 1e-9);
        ranks += s.numRanks;
        Seconds end;
        for (const cost::PathItem& task : s.tasks) {
          EXPECT_GE(task.begin.count(), end.count() * (1 - 1e-12)) << "one after the other";
          end = task.end;
        }
        EXPECT_LE(end.count(), timeline->step.count() * (1 + 1e-12));
      }
      EXPECT_EQ(ranks, plan.numRanks());
      ++count;
    }
  }
  EXPECT_GT(count, 20);
}

// The arena has room for peakSlots() of every chunk, so what is in flight reaches it exactly where
// there is one chunk (of several the peaks may be at different times), and ends where it began.
TEST(Timeline, MemoryReachesThePeakOfTheArena) {
  const Query query = smallQuery(4, 4, 8);
  int64_t reached = 0;
  for (const plan::Plan& plan : everyPlan(query, 4, modelCosts(query))) {
    if (plan.microbatchSize > 1) continue;
    const auto played = playPlan(query, plan, withTasks());
    ASSERT_TRUE(played.has_value());
    const auto timeline = timelineOf(query, plan, *played);
    ASSERT_TRUE(timeline.has_value());
    for (const StageTimeline& s : timeline->stages) {
      Bytes most;
      for (const MemoryPoint& point : s.memory) most = std::max(most, point.bytes);
      EXPECT_LE(most.count(), s.peak.count());
      if (plan.virtualStages == 1) {
        EXPECT_DOUBLE_EQ(most.count(), s.peak.count()) << plan::printPlan(plan);
        ++reached;
      }
      EXPECT_DOUBLE_EQ(s.memory.front().bytes.count(), s.memory.back().bytes.count());
      EXPECT_GT(s.memory.front().bytes.count(), 0) << "parameters stay";
    }
  }
  EXPECT_GT(reached, 10);
}

// A stack that is described has an allocator, so its peak is what is alive at once, of all chunks:
// reached whatever the schedule.
TEST(Timeline, MemoryOfADescribedStackReachesItsPeak) {
  Query query = smallQuery(4, 4, 8);
  query.stack.ownPrograms = false;
  int64_t interleaved = 0;
  for (const plan::Plan& plan : everyPlan(query, 4, modelCosts(query))) {
    if (plan.pp == 1 || plan.microbatchSize > 1) continue;
    const auto played = playPlan(query, plan, withTasks());
    const auto timeline = timelineOf(query, plan, *played);
    ASSERT_TRUE(timeline.has_value());
    for (const StageTimeline& s : timeline->stages) {
      Bytes most;
      for (const MemoryPoint& point : s.memory) most = std::max(most, point.bytes);
      EXPECT_NEAR(most / s.peak, 1, 1e-9) << plan::printPlan(plan);
    }
    interleaved += plan.virtualStages > 1 ? 1 : 0;
  }
  EXPECT_GT(interleaved, 3);
}

// Of 1,000 tasks 40 are kept, the first and the last twenty; the others are summed from the begin
// of the first of them to the begin of the first one behind: per microbatch F 1 s, B 1.5 + 0.5 s,
// idle 1 s.
TEST(Timeline, ManyTasksBecomeASumBetweenTheFirstAndTheLast) {
  TimelineLimits limits;
  limits.tasks = 10;
  const nlohmann::json whole = toJson(alternating(50))["stages"][0];
  EXPECT_EQ(whole["tasks"]["begin"].size(), 100u);
  EXPECT_TRUE(whole["between"].is_null());

  const nlohmann::json stage = toJson(alternating(500), limits)["stages"][0];
  EXPECT_EQ(stage["numTasks"], 1000);
  EXPECT_EQ(stage["tasks"]["begin"].size(), 40u) << "at least 40 of each stage";
  // Tasks 20 to 979: F of microbatch 10 at 41 s to F of microbatch 490 at 1961 s.
  const nlohmann::json& between = stage["between"];
  EXPECT_EQ(between["after"], 20);
  EXPECT_EQ(between["numTasks"], 960);
  EXPECT_EQ(between["begin"], 41'000'000'000);
  EXPECT_EQ(between["end"], 1'961'000'000'000);
  EXPECT_EQ(between["forward"], 480'000'000'000);
  EXPECT_EQ(between["backward"], 720'000'000'000);
  EXPECT_EQ(between["communication"], 240'000'000'000);
  EXPECT_EQ(between["idle"], 480'000'000'000);
  EXPECT_EQ(stage["tasks"]["microbatch"][19], 9);
  EXPECT_EQ(stage["tasks"]["microbatch"][20], 490);
}

// 100 points in windows of 200 s / 4: each the most within it. Microbatch m holds 100 + m bytes
// from 4 m + 1 to 4 m + 4: of the first window, up to 50 s, m = 12 is the last.
TEST(Timeline, ManyMemoryPointsBecomeTheMostOfEachWindow) {
  TimelineLimits limits;
  limits.memoryPoints = 4;
  const nlohmann::json memory = toJson(alternating(50), limits)["stages"][0]["memory"];
  EXPECT_EQ(memory["window"], 50'000'000'000);
  EXPECT_EQ(memory["time"], nlohmann::json({0, 50'000'000'000, 100'000'000'000, 150'000'000'000}));
  EXPECT_EQ(memory["bytes"], nlohmann::json({112, 124, 137, 149}));
}

}  // namespace
}  // namespace trireme::planner
