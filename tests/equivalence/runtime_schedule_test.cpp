// The runtime executes the published order and keeps the published number of activations, seen in
// its own trace and counters; and it moves exactly the bytes that the schedule implies.
#include <gtest/gtest.h>

#include "ir/schedule/schedule.h"
#include "tests/equivalence/harness.h"
#include "tests/equivalence/plans.h"

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

// Eight microbatches of a model of 8 layers. The generators' orders are compared
// with the published ones in tests/ir/schedule; peaks are those of the published table, of rank 0
// to p - 1.
struct Played {
  schedule::Schedule expected;
  std::vector<int64_t> peaks;
};

TEST(RuntimeTrace, ExecutesEveryScheduleInItsOrderAndKeepsItsActivations) {
  const auto model = tinyGpt();
  for (const Played& played :
       {Played{schedule::gpipe(2, 8), {8, 8}}, Played{schedule::gpipe(4, 8), {8, 8, 8, 8}},
        Played{schedule::oneForwardOneBackward(2, 8), {2, 1}},
        Played{schedule::oneForwardOneBackward(4, 8), {4, 3, 2, 1}},
        Played{schedule::interleaved(2, 4, 8), {9, 7}},
        Played{schedule::interleaved(4, 2, 8), {11, 9, 7, 5}},
        Played{schedule::zeroBubbleH1(4, 8), {4, 4, 4, 4}},
        Played{schedule::zeroBubbleH2(4, 8), {7, 7, 7, 7}}}) {
    Choices c;
    c.pp = played.expected.stages;
    c.virtualStages = played.expected.virtualStages;
    c.schedule = c.virtualStages > 1        ? plan::ScheduleKind::kInterleaved
                 : played.peaks.back() == 4 ? plan::ScheduleKind::kZeroBubbleH1
                 : played.peaks.back() == 7 ? plan::ScheduleKind::kZeroBubbleH2
                 : played.peaks.back() == 8 ? plan::ScheduleKind::kGpipe
                                            : plan::ScheduleKind::k1F1B;
    SCOPED_TRACE(describe(c));
    RunOptions options;
    options.steps = 1;
    options.trace = true;
    const auto result =
        run(model, planFor(c, model, tinyTraining(spec::Precision::kFp32)), options);
    ASSERT_TRUE(result.has_value()) << result.error().message();
    std::string orders;
    std::vector<int64_t> peaks;
    for (int32_t rank = 0; rank < c.pp; ++rank) {
      orders += ordersOf(result->trace, rank) + "\n";
      peaks.push_back(result->counters[static_cast<size_t>(rank)].peakLiveSlots);
    }
    EXPECT_EQ(orders, schedule::printSchedule(played.expected));
    EXPECT_EQ(peaks, played.peaks);
  }
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

// Scatter-gather: 1 / tp of the bytes between stages, the same numbers.
TEST(RuntimeCounters, ScatterGatherSendsAShareOfTheBytesAndChangesNoBit) {
  const auto model = tinyGpt();
  const auto training = tinyTraining(spec::Precision::kFp32);
  Choices c;
  c.tp = 2;
  c.pp = 2;
  RunOptions options;
  options.steps = 3;
  const auto plain = run(model, planFor(c, model, training), options);
  c.scatterGather = true;
  const auto scattered = run(model, planFor(c, model, training), options);
  ASSERT_TRUE(plain.has_value() && scattered.has_value());
  using program::Direction, program::GroupKind, program::InstructionKind;
  const auto sent = [](const RunResult& r) {
    return count(r, 0, InstructionKind::kSend, GroupKind::kPp, Direction::kForward);
  };
  EXPECT_EQ(sent(*plain).calls, 8);
  EXPECT_EQ(sent(*plain).bytes, 8 * 16 * 32 * 4);
  EXPECT_EQ(sent(*scattered).calls, 8);
  EXPECT_EQ(sent(*scattered).bytes, 8 * 16 * 32 * 4 / 2);
  EXPECT_EQ(plain->losses, scattered->losses);
  EXPECT_EQ(compareTensors(plain->parameters, scattered->parameters, {}), "");
}

}  // namespace
}  // namespace trireme::equivalence
