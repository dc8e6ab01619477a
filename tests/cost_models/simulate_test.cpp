#include "cost_models/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cost_models/play.h"
#include "ir/expand/expand.h"
#include "ir/program/verify.h"
#include "ir/schedule/schedule.h"
#include "tests/support/program_builder.h"
#include "tests/support/small_plan.h"

namespace trireme::cost {
namespace {

using program::InstructionKind;
using program::Program;
using program::Stream;
using testing::buildPipeline;
using testing::gpipeOrder;
using testing::Order;
using testing::PipelineShape;

// A layer's forward takes `forward` and its backward `backward`; the rest is free unless said.
class LayerCosts : public CostProvider {
 public:
  LayerCosts(double forward, double backward) : forward_(forward), backward_(backward) {}
  double sendSeconds = 0, collectiveSeconds = 0, localSeconds = 0;
  double sendsLonger = 0;  // by this share for every rank before either

  Seconds compute(const Program&, int32_t, const program::Segment& segment) const override {
    if (segment.name == "layer.forward") return Seconds(forward_);
    if (segment.name == "layer.backward.0") return Seconds(backward_);
    return Seconds(0);
  }
  Seconds send(const Program&, int32_t from, int32_t to, Bytes) const override {
    return Seconds(sendSeconds * (1 + sendsLonger * (from + to)));
  }
  Seconds collective(const Program&, const program::Group&, InstructionKind, Bytes) const override {
    return Seconds(collectiveSeconds);
  }
  Seconds local(const Program&, int32_t, const program::Instruction&) const override {
    return Seconds(localSeconds);
  }

 private:
  double forward_, backward_;
};

Simulation run(const Program& program, const CostProvider& costs, SimulationOptions options = {}) {
  EXPECT_TRUE(program::verifyProgram(program).ok()) << program::verifyProgram(program).message();
  auto simulation = simulate(program, costs, options);
  EXPECT_TRUE(simulation.has_value()) << simulation.error().message();
  return *simulation;
}

// With one forward 1 / v and one backward 2 / v per chunk and free communication, as published:
// T = m (t_f + t_b) + (p - 1)(t_f + t_b) / v. The times are multiples of 1 / 4 or nearly so.
double pipelineSeconds(int32_t p, int32_t v, int32_t m) {
  const Program program = buildPipeline({1, p, 1, v, 1, m});
  return run(program, LayerCosts(1.0 / v, 2.0 / v)).makespan.count();
}

struct PublishedRow {
  int32_t p, m;
  double v1, v2, v3, v4;
};

class PublishedMakespan : public ::testing::TestWithParam<PublishedRow> {};

TEST_P(PublishedMakespan, IsExact) {
  const PublishedRow row = GetParam();
  EXPECT_DOUBLE_EQ(pipelineSeconds(row.p, 1, row.m), row.v1);
  EXPECT_DOUBLE_EQ(pipelineSeconds(row.p, 2, row.m), row.v2);
  EXPECT_NEAR(pipelineSeconds(row.p, 3, row.m), row.v3, 1e-12 * row.v3);
  EXPECT_DOUBLE_EQ(pipelineSeconds(row.p, 4, row.m), row.v4);
  const Program gpipe = buildPipeline({1, row.p, 1, 1, 1, row.m}, gpipeOrder(row.p, row.m));
  EXPECT_DOUBLE_EQ(run(gpipe, LayerCosts(1, 2)).makespan.count(), row.v1);
}

INSTANTIATE_TEST_SUITE_P(Table, PublishedMakespan,
                         ::testing::Values(PublishedRow{2, 4, 15, 13.5, 13, 12.75},
                                           PublishedRow{4, 4, 21, 16.5, 15, 14.25},
                                           PublishedRow{4, 8, 33, 28.5, 27, 26.25},
                                           PublishedRow{8, 16, 69, 58.5, 55, 53.25},
                                           PublishedRow{8, 64, 213, 202.5, 199, 197.25}));

std::vector<int32_t> peaks(const Simulation& simulation) {
  std::vector<int32_t> peaks;
  for (const RankUse& use : simulation.ranks) peaks.push_back(use.peakLive);
  return peaks;
}

TEST(Simulate, CountsActivationsAlive) {
  const LayerCosts costs(1, 2);
  using V = std::vector<int32_t>;
  EXPECT_EQ(peaks(run(buildPipeline({1, 4, 1, 1, 1, 8}), costs)), (V{4, 3, 2, 1}));
  EXPECT_EQ(peaks(run(buildPipeline({1, 2, 1, 2, 1, 4}), costs)), (V{5, 3}));
  EXPECT_EQ(peaks(run(buildPipeline({1, 4, 1, 2, 1, 4}), costs)), (V{8, 8, 8, 8}));
  EXPECT_EQ(peaks(run(buildPipeline({1, 4, 1, 2, 1, 8}), costs)), (V{11, 9, 7, 5}));
  EXPECT_EQ(peaks(run(buildPipeline({1, 8, 1, 2, 1, 16}), costs)),
            (V{23, 21, 19, 17, 15, 13, 11, 9}));
  EXPECT_EQ(peaks(run(buildPipeline({1, 4, 1, 1, 1, 6}, gpipeOrder(4, 6)), costs)),
            (V{6, 6, 6, 6}));
}

// One layer per virtual stage.
Program splitProgram(plan::ScheduleKind schedule, int32_t stages, int32_t microbatches,
                     int32_t chunks = 1) {
  const spec::ModelSpec model = small::gpt(stages * chunks, 64, 4);
  plan::Plan plan = small::plan(model, small::training(microbatches), 1, stages);
  plan.schedule = schedule;
  plan.virtualStages = chunks;
  plan.layers = plan::evenLayers(model.numLayers, stages, chunks);
  return expand::expand(model, plan)->program;
}

// The tasks of `events` on every rank, in the form of printSchedule.
std::string tasksOf(const std::vector<program::TraceEvent>& events, int32_t numRanks) {
  std::string orders;
  for (int32_t rank = 0; rank < numRanks; ++rank) {
    std::string last;
    for (const program::TraceEvent& e : events) {
      if (e.rank != rank || e.kind != InstructionKind::kCompute || e.chunk < 0) continue;
      const std::string task = schedule::printTask({e.direction, e.chunk, e.microbatch});
      if (task != last) orders += (last.empty() ? "" : " ") + task;
      last = task;
    }
    orders += '\n';
  }
  return orders;
}

class SplitCosts : public LayerCosts {
 public:
  SplitCosts(double forward, double backward, double weights)
      : LayerCosts(0, backward), forward_(forward), weights_(weights) {}
  Seconds compute(const Program& p, int32_t rank, const program::Segment& segment) const override {
    if (segment.name == "layer.forward.0") return Seconds(forward_);
    if (segment.name == "layer.weights.0") return Seconds(weights_);
    return LayerCosts::compute(p, rank, segment);
  }

 private:
  double forward_, weights_;
};

// Compiled programs take what the closed form of ir/schedule/README.md says:
//   H1   m (tf + tb + tw) + (p - 1) max(tf + max(0, tb - tw), tb)
//   H2   m (tf + tb + tw) + (p - 1) max(tf, tf + tb - 2 tw)
// and slots are held until the weights are done.
TEST(Simulate, FillsThePipelineWithGradientsOfWeights) {
  const Program h1 = splitProgram(plan::ScheduleKind::kZeroBubbleH1, 4, 8);
  const Program h2 = splitProgram(plan::ScheduleKind::kZeroBubbleH2, 4, 8);
  const auto seconds = [](const Program& program, double forward, double backward, double weights) {
    return run(program, SplitCosts(forward, backward, weights)).makespan.count();
  };
  EXPECT_DOUBLE_EQ(seconds(h1, 1, 1, 1), 8 * 3 + 3 * 1);
  EXPECT_DOUBLE_EQ(seconds(h1, 1, 2, 1), 8 * 4 + 3 * 2);
  EXPECT_DOUBLE_EQ(seconds(h2, 1, 2, 1), 8 * 4 + 3 * 1);
  EXPECT_EQ(peaks(run(h1, SplitCosts(1, 1, 1))), (std::vector<int32_t>{4, 4, 4, 4}));
  EXPECT_EQ(peaks(run(h2, SplitCosts(1, 1, 1))), (std::vector<int32_t>{7, 7, 7, 7}));
}

// Of the trace that `trireme compile --simulate` writes.
TEST(Simulate, EventsAreInTheOrderOfTheSchedule) {
  struct Case {
    plan::ScheduleKind kind;
    int32_t stages, chunks, microbatches;
  };
  for (const Case& c :
       {Case{plan::ScheduleKind::kGpipe, 4, 1, 8}, Case{plan::ScheduleKind::k1F1B, 4, 1, 8},
        Case{plan::ScheduleKind::k1F1B, 8, 1, 16}, Case{plan::ScheduleKind::kInterleaved, 2, 2, 4},
        Case{plan::ScheduleKind::kInterleaved, 4, 2, 8},
        Case{plan::ScheduleKind::kInterleaved, 8, 2, 16},
        Case{plan::ScheduleKind::kZeroBubbleH1, 3, 1, 8},
        Case{plan::ScheduleKind::kZeroBubbleH2, 4, 1, 8}}) {
    const Program program = splitProgram(c.kind, c.stages, c.microbatches, c.chunks);
    const Simulation s = run(program, SplitCosts(1, 2, 1), {.allRanks = true, .trace = true});
    EXPECT_EQ(tasksOf(s.events, c.stages), schedule::printSchedule(schedule::scheduleFor(
                                               c.kind, c.stages, c.chunks, c.microbatches)));
  }
}

// A message goes into its slot, which the microbatch before must have left. What is played knows
// it.
TEST(Simulate, ReceivesIntoSlotsAsThePlayedScheduleDoes) {
  struct Case {
    plan::ScheduleKind schedule;
    int32_t stages, microbatches, chunks;
  };
  int numLonger = 0;
  for (const Case& c :
       {Case{plan::ScheduleKind::k1F1B, 4, 9, 1}, Case{plan::ScheduleKind::kInterleaved, 3, 9, 2},
        Case{plan::ScheduleKind::kInterleaved, 4, 8, 3},
        Case{plan::ScheduleKind::kZeroBubbleH1, 4, 9, 1},
        Case{plan::ScheduleKind::kZeroBubbleH2, 3, 11, 1}})
    for (const double hop : {0.1, 0.6, 1.7}) {
      Pipeline pipeline;
      pipeline.schedule = c.schedule;
      pipeline.numMicrobatches = c.microbatches;
      for (int32_t i = 0; i < c.stages; ++i)
        pipeline.hops.emplace_back(hop * (1 + 0.2 * (i + (i + 1) % c.stages)));
      const auto chunks = static_cast<size_t>(c.chunks);
      const bool splits = plan::splitsBackward(c.schedule);
      StageTimes times{std::vector(chunks, Seconds(1)), std::vector(chunks, Seconds(1.9)), {}};
      if (splits) times = {{Seconds(1)}, {Seconds(1.1)}, {Seconds(0.8)}};
      pipeline.stages.assign(static_cast<size_t>(c.stages), times);
      SplitCosts costs(1, splits ? 1.1 : 1.9, 0.8);
      costs.sendSeconds = hop;
      costs.sendsLonger = 0.2;
      const Program program = splitProgram(c.schedule, c.stages, c.microbatches, c.chunks);
      const double simulated = run(program, costs).makespan.count();
      const double anywhere = play(pipeline).makespan.count();
      pipeline.receivesIntoSlots = true;
      EXPECT_NEAR(play(pipeline).makespan.count(), simulated, 1e-9)
          << plan::scheduleName(c.schedule) << " " << hop;
      numLonger += simulated > anywhere + 1e-9;
    }
  EXPECT_GT(numLonger, 5);
}

// Two layers of forward 1 and backward 2, each with a reduction of 3 over dp beside what follows:
//   compute  F F | head | B B |          wait
//   reduce                  3 |  3
// Beside: 2 + 2, then 3 and 3 from the first B's end on: 10. One after the other: 2 + 5 + 5 = 12.
class ReducingCosts : public LayerCosts {
 public:
  explicit ReducingCosts(bool overlaps) : LayerCosts(1, 2), overlaps_(overlaps) {}
  Seconds compute(const Program&, int32_t, const program::Segment& segment) const override {
    const bool isLayer = segment.name.starts_with("layer.");
    return Seconds(!isLayer ? 0 : segment.name.starts_with("layer.forward") ? 1 : 2);
  }
  Seconds collective(const Program&, const program::Group&, InstructionKind,
                     Bytes payload) const override {
    const bool isLayer = payload == Bytes(12 * 64 * 64 * 4);  // its matrices, in f32
    return Seconds(isLayer ? 3 : 0);
  }
  bool overlapsReductions() const override { return overlaps_; }

 private:
  bool overlaps_;
};

Program reducingProgram() {
  const spec::ModelSpec model = small::gpt(2, 64, 4);
  plan::Plan plan = small::plan(model, small::training(2), 1, 1, 2);
  plan.overlapReductions = true;
  return expand::expand(model, plan)->program;
}

TEST(Simulate, ReductionsRunBesideTheBackwardWhereTheyCan) {
  const auto data = static_cast<size_t>(program::GroupKind::kDp);
  const Program program = reducingProgram();
  SimulationOptions options;
  options.tasks = options.path = true;
  const Simulation beside = run(program, ReducingCosts(true), options);
  EXPECT_DOUBLE_EQ(beside.makespan.count(), 10);
  EXPECT_DOUBLE_EQ(beside.ranks[0].busy[static_cast<size_t>(Stream::kDpReduce)].count(), 6);
  // The step waits for the last 4 of it; the path is the backward that feeds the first, and both.
  EXPECT_DOUBLE_EQ(beside.tasks[0].back().reduce[data].count(), 4);
  EXPECT_DOUBLE_EQ(beside.tasks[0].back().end.count(), 10);
  Seconds onPath;
  for (const PathItem& item : beside.path) onPath += item.reduce[data];
  EXPECT_DOUBLE_EQ(onPath.count(), 6);

  const Simulation inOrder = run(program, ReducingCosts(false), options);
  EXPECT_DOUBLE_EQ(inOrder.makespan.count(), 12);
  EXPECT_DOUBLE_EQ(inOrder.ranks[0].busy[static_cast<size_t>(Stream::kCompute)].count(), 12);
  EXPECT_DOUBLE_EQ(inOrder.tasks[0].back().reduce[data].count(), 6);
}

// Items follow each other without a gap from 0 to the end, and are the sums of their parts.
TEST(Simulate, CriticalPathHasNoGaps) {
  LayerCosts costs(1.1, 2.3);
  costs.sendSeconds = 0.37;
  costs.collectiveSeconds = 0.21;
  costs.localSeconds = 0.13;
  SimulationOptions options;
  options.path = true;
  for (const testing::PipelineShape& shape : {testing::PipelineShape{1, 1, 1, 1, 2, 3},
                                              {2, 4, 2, 1, 1, 8},
                                              {1, 4, 2, 3, 2, 8},
                                              {2, 2, 1, 2, 1, 2},
                                              {1, 8, 1, 1, 1, 3}}) {
    const Simulation s = run(buildPipeline(shape), costs, options);
    ASSERT_FALSE(s.path.empty());
    Seconds end;
    for (const PathItem& item : s.path) {
      EXPECT_EQ(item.begin, end);
      Seconds sum = item.compute + item.transfer;
      for (const Seconds time : item.reduce) sum += time;
      for (const Seconds time : item.gather) sum += time;
      EXPECT_NEAR(sum.count(), (item.end - item.begin).count(), 1e-9);
      end = item.end;
    }
    EXPECT_EQ(end, s.makespan);
  }
}

// One rank, two layers, three microbatches: 3 * 2 * (1 + 2) = 18, all of it on the compute stream.
TEST(Simulate, OneRankIsTheSumOfItsWork) {
  const Simulation s = run(buildPipeline({1, 1, 1, 1, 2, 3}), LayerCosts(1, 2));
  EXPECT_DOUBLE_EQ(s.makespan.count(), 18);
  EXPECT_DOUBLE_EQ(s.ranks[0].busy[0].count(), 18);
}

// Two ranks, one microbatch, a message takes 0.5 and a stage 1 + 2:
// F 0-1, send 1-1.5, F 1.5-2.5, B 2.5-4.5, send 4.5-5, B 5-7.
TEST(Simulate, AMessageDelaysItsReader) {
  LayerCosts costs(1, 2);
  costs.sendSeconds = 0.5;
  const Simulation s = run(buildPipeline({1, 2, 1, 1, 1, 1}), costs);
  EXPECT_DOUBLE_EQ(s.makespan.count(), 7);
  EXPECT_DOUBLE_EQ(s.ranks[0].busy[static_cast<size_t>(Stream::kSendForward)].count(), 0.5);
  EXPECT_DOUBLE_EQ(s.ranks[1].busy[static_cast<size_t>(Stream::kRecvForward)].count(), 0.5);
}

// GPipe, two ranks, m = 4: sends of 0.5 hide behind forwards of 1. Rank 1 starts at 1.5, computes 4
// F and 4 B until 1.5 + 12 = 13.5; its last gradient takes 0.5 and rank 0's last backward 2: 16.
TEST(Simulate, MessagesOverlapWithCompute) {
  LayerCosts costs(1, 2);
  costs.sendSeconds = 0.5;
  const Program p = buildPipeline({1, 2, 1, 1, 1, 4}, gpipeOrder(2, 4));
  EXPECT_DOUBLE_EQ(run(p, costs).makespan.count(), 16);
}

// Collectives of one layer (tp = 2): forward 1, backward 1; embedding 1; head forward 3, backward
// 1; the step's one over the model. With 0.25 each: 8 * 0.25 on top of 1 + 2.
TEST(Simulate, CollectivesTakeTheirTime) {
  LayerCosts costs(1, 2);
  costs.collectiveSeconds = 0.25;
  EXPECT_DOUBLE_EQ(run(buildPipeline({2, 1, 1, 1, 1, 1}), costs).makespan.count(), 5);
}

// The step's all-reduce over the pipeline starts when its last member arrives: rank 0, after its
// last backward.
TEST(Simulate, ACollectiveWaitsForItsLastMember) {
  LayerCosts costs(1, 2);
  costs.collectiveSeconds = 1;
  const Simulation s = run(buildPipeline({1, 2, 1, 1, 1, 1}), costs, {.trace = true});
  EXPECT_DOUBLE_EQ(s.makespan.count(), 7);
  for (const program::TraceEvent& e : s.events)
    if (e.kind == InstructionKind::kAllReduce) {
      EXPECT_DOUBLE_EQ(e.beginSeconds, 6) << e.rank;
    }
}

// Ranks that cannot be told apart: one per class says as much as all.
TEST(Simulate, RepresentativesStandForAllRanks) {
  LayerCosts costs(1, 2);
  costs.sendSeconds = 0.3;
  costs.collectiveSeconds = 0.1;
  costs.localSeconds = 0.05;
  const Program p = buildPipeline({2, 4, 2, 2, 1, 8, true});
  const Simulation few = run(p, costs), all = run(p, costs, {.allRanks = true});
  EXPECT_EQ(few.ranks.size(), 4u);
  EXPECT_EQ(all.ranks.size(), 16u);
  EXPECT_DOUBLE_EQ(few.makespan.count(), all.makespan.count());
  for (const RankUse& use : few.ranks)
    EXPECT_DOUBLE_EQ(use.busy[0].count(), all.ranks[static_cast<size_t>(use.rank)].busy[0].count());
}

// Slices of one stream follow each other, and their lengths add up to the busy time.
TEST(Simulate, TraceAgreesWithBusyTimes) {
  LayerCosts costs(1, 2);
  costs.sendSeconds = 0.5;
  const Simulation s = run(buildPipeline({1, 4, 1, 1, 2, 8}), costs, {.trace = true});
  for (const RankUse& use : s.ranks)
    for (int stream = 0; stream < program::kNumStreams; ++stream) {
      double end = 0, sum = 0;
      for (const program::TraceEvent& e : s.events) {
        if (e.rank != use.rank || e.stream != static_cast<Stream>(stream)) continue;
        EXPECT_GE(e.beginSeconds, end - 1e-12);
        end = e.endSeconds;
        sum += e.endSeconds - e.beginSeconds;
      }
      EXPECT_NEAR(sum, use.busy[static_cast<size_t>(stream)].count(), 1e-9);
    }
}

TEST(Simulate, ReportsADeadlock) {
  Program p = buildPipeline({1, 2, 1, 1, 1, 4});
  for (program::Role& role : p.roles)
    for (program::Body& body : role.bodies)
      for (program::Instruction& in : body.instructions) in.stream = Stream::kCompute;
  const auto simulation = simulate(p, LayerCosts(1, 2));
  ASSERT_FALSE(simulation.has_value());
  EXPECT_THAT(simulation.error().message(), ::testing::HasSubstr("waits for"));
}

}  // namespace
}  // namespace trireme::cost
