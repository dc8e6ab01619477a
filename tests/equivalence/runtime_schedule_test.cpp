// The runtime executes the published order and keeps the published number of activations, seen in
// its own trace and counters; and it moves exactly the bytes that the schedule implies.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "ir/schedule/schedule.h"
#include "tests/equivalence/harness.h"
#include "tests/equivalence/plans.h"
#include "tests/support/replay.h"

namespace trireme::equivalence {
namespace {

std::string taskName(const program::TraceEvent& e) {
  return std::string(1, program::directionLetter(e.direction)) + std::to_string(e.chunk) + "." +
         std::to_string(e.microbatch);
}

std::string ordersOf(const std::vector<program::TraceEvent>& events, int32_t rank) {
  std::string order, last;
  for (const auto& e : events) {
    if (e.rank != rank || e.kind != program::InstructionKind::kCompute) continue;
    const std::string task = taskName(e);
    if (task != last) order += (order.empty() ? "" : " ") + task;
    last = task;
  }
  return order;
}

Choices interleavedTwo() {
  Choices c;
  c.pp = 2;
  c.virtualStages = 2;
  c.schedule = plan::ScheduleKind::kInterleaved;
  c.microbatchSize = 2;  // four microbatches
  return c;
}

// Golden order of p = 2, v = 2, m = 4 (Megatron-LM 2021).
TEST(RuntimeTrace, ExecutesTheGoldenInterleavedOrder) {
  const auto model = tinyGpt();
  RunOptions options;
  options.steps = 1;
  options.trace = true;
  const auto result =
      run(model, planFor(interleavedTwo(), model, tinyTraining(spec::Precision::kFp32)), options);
  ASSERT_TRUE(result.has_value()) << result.error().message();
  EXPECT_EQ(ordersOf(result->trace, 0),
            "F0.0 F0.1 F1.0 F1.1 F0.2 B1.0 F0.3 B1.1 F1.2 B0.0 F1.3 B0.1 B1.2 B1.3 B0.2 B0.3");
  EXPECT_EQ(ordersOf(result->trace, 1),
            "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 F0.2 B0.0 F0.3 B0.1 F1.2 B1.2 F1.3 B1.3 B0.2 B0.3");
  EXPECT_EQ(result->counters[0].peakLiveSlots, 5);
  EXPECT_EQ(result->counters[1].peakLiveSlots, 3);
}

// Golden order of zb-h1, p = 3, m = 8: at most three microbatches are in flight on every stage.
TEST(RuntimeTrace, ExecutesTheGoldenZeroBubbleOrder) {
  const auto model = tinyGpt();
  plan::Plan plan = planFor(Choices{.schedule = plan::ScheduleKind::kZeroBubbleH1}, model,
                            tinyTraining(spec::Precision::kFp32));
  plan.pp = 3;
  plan.layers = {{{0, 3}}, {{3, 3}}, {{6, 2}}};
  RunOptions options;
  options.steps = 1;
  options.trace = true;
  const auto result = run(model, plan, options);
  ASSERT_TRUE(result.has_value()) << result.error().message();
  EXPECT_EQ(ordersOf(result->trace, 0),
            "F0.0 F0.1 F0.2 B0.0 W0.0 F0.3 B0.1 W0.1 F0.4 B0.2 W0.2 F0.5 B0.3 W0.3 F0.6 B0.4 W0.4 "
            "F0.7 B0.5 W0.5 B0.6 W0.6 B0.7 W0.7");
  EXPECT_EQ(ordersOf(result->trace, 2),
            "F0.0 B0.0 F0.1 B0.1 F0.2 B0.2 W0.0 F0.3 B0.3 W0.1 F0.4 B0.4 W0.2 F0.5 B0.5 W0.3 F0.6 "
            "B0.6 W0.4 F0.7 B0.7 W0.5 W0.6 W0.7");
  for (const runtime::RankCounters& counters : result->counters)
    EXPECT_EQ(counters.peakLiveSlots, 3);
}

// The generators' orders are compared with the published ones in tests/ir/schedule. Peaks, of rank
// 0 to p - 1, and makespans are those of the published table: m (1 + 2) + (p - 1)(1 + 2) / v for a
// forward of 1 and a backward of 2; of zero-bubble schedules, whose passes take 1 each, m * 3 + (p
// - 1).
struct Played {
  plan::ScheduleKind kind;
  schedule::Schedule expected;
  std::vector<int64_t> peaks;
  double makespan;
};

// What the runtime did, as a schedule: the orders of the ranks, from the trace.
schedule::Schedule tracedSchedule(const std::vector<program::TraceEvent>& events,
                                  const schedule::Schedule& like) {
  schedule::Schedule traced = like;
  for (auto& order : traced.order) order.clear();
  for (const auto& e : events) {
    if (e.kind != program::InstructionKind::kCompute || e.chunk < 0) continue;
    const schedule::Task task{e.direction, e.chunk, e.microbatch};
    auto& order = traced.order[static_cast<size_t>(e.rank)];
    if (order.empty() || order.back() != task) order.push_back(task);
  }
  return traced;
}

void expectPlayed(const Played& played) {
  Choices c;
  c.pp = played.expected.stages;
  c.virtualStages = played.expected.virtualStages;
  c.schedule = played.kind;
  const auto model = tinyGpt(std::max<int64_t>(8, c.pp * c.virtualStages));
  auto training = tinyTraining(spec::Precision::kFp32);
  training.globalBatchSize = played.expected.numMicrobatches;
  SCOPED_TRACE(fmt::format("{} m{}", describe(c), training.globalBatchSize));
  RunOptions options;
  options.steps = 1;
  options.trace = true;
  options.compiled = false;  // the order of tasks is not the kernels'
  const auto result = run(model, planFor(c, model, training), options);
  ASSERT_TRUE(result.has_value()) << result.error().message();
  std::vector<int64_t> peaks;
  for (const runtime::RankCounters& counters : result->counters)
    peaks.push_back(counters.peakLiveSlots);
  const schedule::Schedule traced = tracedSchedule(result->trace, played.expected);
  EXPECT_EQ(schedule::printSchedule(traced), schedule::printSchedule(played.expected));
  EXPECT_EQ(peaks, played.peaks);
  const bool splits = played.expected.splitsBackward;
  EXPECT_DOUBLE_EQ(testing::replaySeconds(
                       traced, splits ? testing::PassTimes{1, 1, 1} : testing::PassTimes{1, 2, 0}),
                   played.makespan);
}

TEST(RuntimeTrace, ExecutesEveryScheduleInItsOrderTimeAndActivations) {
  using schedule::gpipe, schedule::oneForwardOneBackward, schedule::interleaved;
  constexpr auto kGpipe = plan::ScheduleKind::kGpipe, k1F1B = plan::ScheduleKind::k1F1B,
                 kInterleaved = plan::ScheduleKind::kInterleaved;
  for (const Played& played :
       {Played{kGpipe, gpipe(2, 8), {8, 8}, 27}, Played{kGpipe, gpipe(4, 8), {8, 8, 8, 8}, 33},
        Played{k1F1B, oneForwardOneBackward(2, 4), {2, 1}, 15},
        Played{k1F1B, oneForwardOneBackward(2, 8), {2, 1}, 27},
        Played{k1F1B, oneForwardOneBackward(4, 4), {4, 3, 2, 1}, 21},
        Played{k1F1B, oneForwardOneBackward(4, 8), {4, 3, 2, 1}, 33},
        Played{k1F1B, oneForwardOneBackward(8, 16), {8, 7, 6, 5, 4, 3, 2, 1}, 69},
        Played{kInterleaved, interleaved(2, 2, 4), {5, 3}, 13.5},
        Played{kInterleaved, interleaved(2, 4, 8), {9, 7}, 24.75},
        Played{kInterleaved, interleaved(4, 2, 4), {8, 8, 8, 8}, 16.5},
        Played{kInterleaved, interleaved(4, 2, 8), {11, 9, 7, 5}, 28.5},
        Played{kInterleaved, interleaved(8, 2, 16), {23, 21, 19, 17, 15, 13, 11, 9}, 58.5},
        Played{plan::ScheduleKind::kZeroBubbleH1, schedule::zeroBubbleH1(4, 8), {4, 4, 4, 4}, 27},
        Played{plan::ScheduleKind::kZeroBubbleH2, schedule::zeroBubbleH2(4, 8), {7, 7, 7, 7}, 27}})
    expectPlayed(played);
}

const runtime::CommCount& count(const RunResult& result, int rank, program::InstructionKind kind,
                                program::GroupKind group, program::Direction direction) {
  return result.counters[static_cast<size_t>(rank)].at(kind, group, direction);
}

// tp = 4 on 8 layers, one microbatch of 2 x 16 tokens, h = 32, fp32: 17 all-reduces of 4096 bytes
// each way and 3 of 2 * 16 * 4 bytes for the loss; ring all-reduce moves 2 (t - 1) / t of it per
// rank.
TEST(RuntimeCounters, TensorParallelMovesTheExpectedBytes) {
  const auto model = tinyGpt();
  auto training = tinyTraining(spec::Precision::kFp32);
  training.globalBatchSize = 2;
  Choices c;
  c.tp = 4;
  c.microbatchSize = 2;
  RunOptions options;
  options.steps = 1;
  const auto result = run(model, planFor(c, model, training), options);
  ASSERT_TRUE(result.has_value()) << result.error().message();
  using program::Direction, program::GroupKind, program::InstructionKind;
  const auto& forward =
      count(*result, 0, InstructionKind::kAllReduce, GroupKind::kTp, Direction::kForward);
  EXPECT_EQ(forward.calls, 17 + 3);
  EXPECT_EQ(forward.bytes, 17 * 4096 + 3 * 128);
  const auto& backward =
      count(*result, 0, InstructionKind::kAllReduce, GroupKind::kTp, Direction::kBackward);
  EXPECT_EQ(backward.calls, 17);
  EXPECT_EQ(backward.bytes, 17 * 4096);
}

// Scatter-gather: 1 / tp of the bytes between stages in both directions, the same numbers. Eight
// microbatches of 16 tokens of 32, from rank 0 forward and from the first of the second stage, rank
// tp, backward.
TEST(RuntimeCounters, ScatterGatherSendsAShareOfTheBytesAndChangesNoBit) {
  const auto model = tinyGpt();
  const auto training = tinyTraining(spec::Precision::kFp32);
  using program::Direction, program::GroupKind, program::InstructionKind;
  const auto sent = [](const RunResult& r, int64_t rank, Direction direction) {
    return count(r, static_cast<int>(rank), InstructionKind::kSend, GroupKind::kPp, direction);
  };
  for (const int64_t tp : {2, 4}) {
    Choices c;
    c.tp = tp;
    c.pp = 2;
    RunOptions options;
    options.steps = 3;
    const auto plain = run(model, planFor(c, model, training), options);
    c.scatterGather = true;
    const auto scattered = run(model, planFor(c, model, training), options);
    ASSERT_TRUE(plain.has_value() && scattered.has_value());
    for (const auto& [rank, direction] :
         {std::pair{int64_t{0}, Direction::kForward}, std::pair{tp, Direction::kBackward}}) {
      EXPECT_EQ(sent(*plain, rank, direction).calls, 8);
      EXPECT_EQ(sent(*plain, rank, direction).bytes, 8 * 16 * 32 * 4);
      EXPECT_EQ(sent(*scattered, rank, direction).calls, 8);
      EXPECT_EQ(sent(*scattered, rank, direction).bytes, 8 * 16 * 32 * 4 / tp);
    }
    EXPECT_EQ(plain->losses, scattered->losses);
    EXPECT_EQ(compareTensors(plain->parameters, scattered->parameters, {}), "");
  }
}

}  // namespace
}  // namespace trireme::equivalence
