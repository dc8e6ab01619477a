// What a step waits for.
#include "planner/answer/critical_path.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "planner/answer/recommend.h"
#include "planner/answer/report.h"
#include "planner/plan_text.h"
#include "tests/planner/small_query.h"
#include "tests/support/program_builder.h"

namespace trireme::planner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A layer's forward takes 1 and its backward 2, on rank 1 `heavier` times as long.
class CostsPerStage : public cost::CostProvider {
 public:
  explicit CostsPerStage(double heavier, double send = 0) : heavier_(heavier), send_(send) {}
  Seconds compute(const program::Program&, int32_t rank,
                  const program::Segment& segment) const override {
    const double times = rank == 1 ? heavier_ : 1;
    if (segment.name == "layer.forward") return Seconds(times);
    return Seconds(segment.name == "layer.backward.0" ? 2 * times : 0);
  }
  Seconds send(const program::Program&, int32_t, int32_t, Bytes) const override {
    return Seconds(send_);
  }
  Seconds collective(const program::Program&, const program::Group&, program::InstructionKind,
                     Bytes) const override {
    return Seconds(0);
  }
  Seconds local(const program::Program&, int32_t, const program::Instruction&) const override {
    return Seconds(0);
  }

 private:
  double heavier_, send_;
};

CriticalPath pathOf(const trireme::testing::PipelineShape& shape, const CostsPerStage& costs) {
  cost::SimulationOptions options;
  options.path = true;
  const auto simulation = cost::simulate(trireme::testing::buildPipeline(shape), costs, options);
  EXPECT_TRUE(simulation.has_value());
  return phasesOf(*simulation, simulation->makespan);
}

const PathPart& part(const CriticalPath& path, PathPhase phase) {
  for (const PathPart& part : path.parts)
    if (part.phase == phase) return part;
  ADD_FAILURE() << phaseName(phase);
  return path.parts.front();
}

// Four even stages, 1F1B, 8 microbatches: F of stages 0 to 2, then stage 3 without a pause, then B
// of stages 2 to 0:  3 + 8 (1 + 2) + 6 = 33.
TEST(CriticalPath, OfAnEvenPipelineIsItsLastStage) {
  const CriticalPath path = pathOf({1, 4, 1, 1, 1, 8}, CostsPerStage(1));
  EXPECT_DOUBLE_EQ(path.simulated.count(), 33);
  ASSERT_EQ(path.parts.size(), 3u);
  const PathPart& fill = part(path, PathPhase::kFill);
  EXPECT_THAT(fill.stages, ElementsAre(0, 1, 2));
  EXPECT_DOUBLE_EQ(fill.total().count(), 3);
  const PathPart& steady = part(path, PathPhase::kSteady);
  EXPECT_THAT(steady.stages, ElementsAre(3));
  EXPECT_EQ(steady.numForward, 8);
  EXPECT_EQ(steady.numBackward, 8);
  EXPECT_DOUBLE_EQ(steady.forward.count(), 8);
  EXPECT_DOUBLE_EQ(steady.backward.count(), 16);
  const PathPart& drain = part(path, PathPhase::kDrain);
  EXPECT_THAT(drain.stages, ElementsAre(2, 1, 0));
  EXPECT_DOUBLE_EQ(drain.total().count(), 6);
}

// Three stages, the middle one twice as slow, 4 microbatches:
//   stage 0  F0 0-1                                                         B3 26-28
//   stage 1  F0 1-3, F1 3-5, -, B0 6-10, F2 10-12, B1 12-16, F3 16-18, B2 18-22, B3 22-26
//   stage 2  F0 3-4, B0 4-6
// Stage 1 waits for the first microbatch to come back, which takes F0 and B0 of stage 2; F1 is in
// nobody's way.
TEST(CriticalPath, LeavesTheSlowestStageWhereItWaits) {
  const CriticalPath path = pathOf({1, 3, 1, 1, 1, 4}, CostsPerStage(2));
  EXPECT_DOUBLE_EQ(path.simulated.count(), 28);
  const PathPart& steady = part(path, PathPhase::kSteady);
  EXPECT_THAT(steady.stages, ElementsAre(1));
  EXPECT_EQ(steady.numForward, 3);
  EXPECT_DOUBLE_EQ(steady.forward.count(), 6);
  EXPECT_DOUBLE_EQ(steady.backward.count(), 16);
  const PathPart& others = part(path, PathPhase::kOtherStages);
  EXPECT_THAT(others.stages, ElementsAre(2));
  EXPECT_DOUBLE_EQ(others.forward.count(), 1);
  EXPECT_DOUBLE_EQ(others.backward.count(), 2);
  EXPECT_DOUBLE_EQ(part(path, PathPhase::kFill).total().count(), 1);
  EXPECT_DOUBLE_EQ(part(path, PathPhase::kDrain).total().count(), 2);
}

// Two stages, one microbatch, messages of 0.5: F 0-1, send, F 1.5-2.5, B 2.5-4.5, send, B 5-7.
TEST(CriticalPath, CountsMessages) {
  const CriticalPath path = pathOf({1, 2, 1, 1, 1, 1}, CostsPerStage(1, 0.5));
  Seconds transfers, forward, backward;
  for (const PathPart& part : path.parts) {
    transfers += part.transfers;
    forward += part.forward;
    backward += part.backward;
  }
  EXPECT_DOUBLE_EQ(transfers.count(), 1);
  EXPECT_DOUBLE_EQ(forward.count(), 2);
  EXPECT_DOUBLE_EQ(backward.count(), 4);
  EXPECT_DOUBLE_EQ(path.simulated.count(), 7);
}

// What runs beside the last backward and holds the step up is no part of a microbatch: a backward
// of 2 s, a reduction of 3 s that it feeds, the step's wait.
TEST(CriticalPath, ReductionsBesideTheBackwardAreReductions) {
  cost::Simulation simulation;
  simulation.makespan = Seconds(6);
  cost::PathItem backward;
  backward.direction = program::Direction::kBackward;
  backward.end = Seconds(5);
  backward.compute = Seconds(2);
  backward.reduce[static_cast<size_t>(program::GroupKind::kDp)] = Seconds(3);
  cost::PathItem step;
  step.direction = program::Direction::kStep;
  step.begin = Seconds(5);
  step.end = Seconds(6);
  step.compute = Seconds(1);
  simulation.path = {backward, step};
  const CriticalPath path = phasesOf(simulation, Seconds(6));
  EXPECT_EQ(part(path, PathPhase::kSteady).backward, Seconds(2));
  EXPECT_EQ(part(path, PathPhase::kSteady).tensorParallel, Seconds(0));
  EXPECT_EQ(part(path, PathPhase::kReduction).total(), Seconds(3));
  EXPECT_EQ(part(path, PathPhase::kOptimizer).total(), Seconds(1));
}

TEST(CriticalPath, PartsAddUpToTheSimulatedStepOfEveryPlan) {
  int64_t count = 0;
  for (const int64_t devices : {1, 4, 6}) {
    const Query query = smallQuery(devices, 6, 12);
    const CostFunctions costs = modelCosts(query);
    const std::vector<plan::Plan> plans = everyPlan(query, devices, costs);
    for (size_t i = 0; i < plans.size(); i += 1 + plans.size() / 100) {
      const Seconds estimated = costs.estimate(plans[i])->step;
      const auto path = criticalPath(query, plans[i], estimated);
      ASSERT_TRUE(path.has_value());
      Seconds sum;
      for (const PathPart& part : path->parts) {
        EXPECT_GT(part.total().count(), 0);
        sum += part.total();
      }
      EXPECT_NEAR(sum / path->simulated, 1, 1e-9) << summary(plans[i]);
      EXPECT_EQ(path->estimated, estimated);
      EXPECT_NEAR(path->simulated / estimated, 1, 0.2) << summary(plans[i]);
      ++count;
    }
  }
  EXPECT_GT(count, 100);
}

TEST(CriticalPath, IsTextAndJson) {
  const Query query = smallQuery(4, 4, 8);
  plan::Plan plan;
  for (const plan::Plan& each : everyPlan(query, 4, modelCosts(query)))
    if (each.pp == 2 && each.dp() == 2) plan = each;
  const auto path = criticalPath(query, plan, modelCosts(query).estimate(plan)->step);
  ASSERT_TRUE(path.has_value());
  const std::string table = toTable(*path);
  EXPECT_THAT(table, HasSubstr("critical path "));
  EXPECT_THAT(table, HasSubstr("the estimate's "));
  EXPECT_THAT(table, HasSubstr("  steady state "));
  EXPECT_THAT(table, HasSubstr("  gradient reduction "));
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  const nlohmann::json json = toJson(*path);
  double seconds = 0, percent = 0;
  for (const nlohmann::json& phase : json.at("phases")) {
    seconds += phase.at("seconds").get<double>();
    percent += phase.at("percent").get<double>();
  }
  EXPECT_NEAR(seconds, json.at("simulatedSeconds").get<double>(), 1e-9 * seconds);
  EXPECT_NEAR(percent, 100, 1e-6);
}

// Every plan of a described stack: the closed form itself without a pipeline; with one, whose ends
// have more to do, no more than a twentieth away.
TEST(CriticalPath, OfOtherPeoplesProgramsPlaysTheSchedule) {
  Query query = smallQuery(6, 6, 12);
  query.stack.ownPrograms = false;
  const CostFunctions costs = modelCosts(query);
  int64_t numWhole = 0, numCut = 0;
  for (const plan::Plan& plan : everyPlan(query, 6, costs)) {
    const Seconds estimated = costs.estimate(plan)->step;
    const auto path = criticalPath(query, plan, estimated);
    ASSERT_TRUE(path.has_value());
    Seconds sum;
    for (const PathPart& part : path->parts) sum += part.total();
    EXPECT_NEAR(sum / path->simulated, 1, 1e-9) << summary(plan);
    const bool isWhole = plan.pp == 1;
    ++(isWhole ? numWhole : numCut);
    EXPECT_NEAR(path->simulated / estimated, 1, isWhole ? 1e-9 : 0.05) << summary(plan);
  }
  EXPECT_GT(numWhole, 10);
  EXPECT_GT(numCut, 10);
}

// W has a count and a time of its own. With post-validation steps follow each other sooner than the
// one that is played says.
TEST(CriticalPath, OfASplitBackwardHasGradientsOfWeights) {
  Query query = computeBound(smallQuery(3, 6, 12));
  query.stack.ownPrograms = false;
  query.pins.schedule = plan::ScheduleKind::kZeroBubbleH2;
  query.pins.pp = 3;
  for (const bool isAhead : {false, true}) {
    query.stack.description.postValidation = isAhead;
    const auto best = searchPlan(query);
    ASSERT_TRUE(best.has_value()) << best.error().message();
    const auto path = criticalPath(query, best->plan, best->estimate.step);
    ASSERT_TRUE(path.has_value());
    const nlohmann::json json = toJson(*path);
    int64_t passes = 0;
    for (const auto& phase : json.at("phases")) passes += phase.at("weightsPasses").get<int64_t>();
    EXPECT_GT(passes, 0);
    EXPECT_THAT(toTable(*path), HasSubstr(" W of"));
    EXPECT_EQ(simulatedLine(*path).find("no other follows") != std::string::npos, isAhead);
    EXPECT_GE(path->simulated, best->estimate.step * (1 - 1e-9));
    EXPECT_EQ(recommend(query, *best, {}).value().path.isAlone, isAhead);
  }
}

}  // namespace
}  // namespace trireme::planner
