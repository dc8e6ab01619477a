#include "runtime/measure/measure.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace trireme::runtime {
namespace {

constexpr Seconds kWindow(1e-3);

TEST(MeasuredRanks, WorkThatSleepsTakesAsLong) {
  MeasuredRanks ranks(2, kWindow);
  ASSERT_TRUE(ranks.start().ok());
  const auto time = ranks.independent([](int32_t) -> Result<MeasuredRanks::Work> {
    return [] {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      return Status();
    };
  });
  ASSERT_TRUE(time.has_value());
  EXPECT_GE(time->count(), 2e-3);
}

// Two at once, and each of the eight has a core for a quarter of the time.
TEST(MeasuredRanks, RanksThatShareCoresTakeTurns) {
  MeasuredRanks ranks(8, kWindow, 2);
  ASSERT_TRUE(ranks.start().ok());
  EXPECT_EQ(ranks.atOnce(), 2);
  std::atomic<int> prepared{0};
  const auto time = ranks.independent([&](int32_t) -> Result<MeasuredRanks::Work> {
    ++prepared;
    return [] {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      return Status();
    };
  });
  ASSERT_TRUE(time.has_value());
  EXPECT_EQ(prepared, 2);
  EXPECT_GE(time->count(), 8e-3);
}

TEST(MeasuredRanks, EveryRankPreparesItsOwnWorkOnItsOwnThread) {
  MeasuredRanks ranks(3, kWindow, 3);
  ASSERT_TRUE(ranks.start().ok());
  std::atomic<int> prepared{0}, wrongThread{0};
  const auto time = ranks.independent([&](int32_t) -> Result<MeasuredRanks::Work> {
    ++prepared;
    return [&, mine = std::this_thread::get_id()] {
      wrongThread += mine != std::this_thread::get_id();
      return Status();
    };
  });
  ASSERT_TRUE(time.has_value());
  EXPECT_EQ(prepared, 3);
  EXPECT_EQ(wrongThread, 0);
}

TEST(MeasuredRanks, TogetherAllRanksMakeAsManyCalls) {
  MeasuredRanks ranks(3, kWindow);
  ASSERT_TRUE(ranks.start().ok());
  std::array<std::atomic<int64_t>, 3> calls{};
  const auto time = ranks.together([&](int32_t rank) -> Result<MeasuredRanks::Work> {
    return [&calls, rank] {
      ++calls[static_cast<size_t>(rank)];
      return Status();
    };
  });
  ASSERT_TRUE(time.has_value());
  EXPECT_GT(calls[0], 0);
  EXPECT_EQ(calls[0], calls[1]);
  EXPECT_EQ(calls[0], calls[2]);
}

TEST(MeasuredRanks, TheErrorOfARankIsTheResult) {
  MeasuredRanks ranks(2, kWindow);
  ASSERT_TRUE(ranks.start().ok());
  const auto refused = ranks.independent([](int32_t rank) -> Result<MeasuredRanks::Work> {
    if (rank == 1) return Error(resourceExhausted("no memory"));
    return [] { return Status(); };
  });
  EXPECT_EQ(refused.error().message(), "no memory");
  const auto failed = ranks.together(
      [](int32_t) -> Result<MeasuredRanks::Work> { return [] { return unavailable("gone"); }; });
  EXPECT_EQ(failed.error().message(), "gone");
}

// A product that the library computes; a bundle without kernels runs op by op.
TEST(MeasureSegment, RunsTheSegment) {
  program::Bundle bundle;
  program::Segment segment;
  segment.operands = {{DType::kF32, {8, 1, 16}}, {DType::kF32, {4, 16}}, {DType::kF32, {8, 1, 4}}};
  segment.temporary = {false, false, false};
  segment.ops = {{program::OpKind::kMatmul, {}, {0, 1}, {2}}};
  bundle.program.segments = {segment};
  const auto code = SegmentCode::load(bundle, false);
  ASSERT_TRUE(code.has_value());
  MeasuredRanks ranks(2, kWindow);
  ASSERT_TRUE(ranks.start().ok());
  std::vector<OperandMemory> memory(2);
  for (const int64_t most : {1, 4096, 1 << 20}) {
    const auto time = measureSegment(ranks, bundle, *code, 0, most, memory);
    ASSERT_TRUE(time.has_value()) << time.error().message();
    EXPECT_GT(time->count(), 0);
  }
}

TEST(MeasureMemory, EveryWorkTakesTime) {
  MeasuredRanks ranks(2, kWindow);
  ASSERT_TRUE(ranks.start().ok());
  for (MemoryWork work :
       {MemoryWork::kTriad, MemoryWork::kZero, MemoryWork::kSumSquares, MemoryWork::kAdamW})
    for (DType type : {DType::kF32, DType::kF64}) {
      const auto time = measureMemory(ranks, work, type, 4096);
      ASSERT_TRUE(time.has_value()) << time.error().message();
      EXPECT_GT(time->count(), 0);
    }
  EXPECT_EQ(measureMemory(ranks, MemoryWork::kZero, DType::kBf16, 16).error().code(),
            StatusCode::kInvalidArgument);
}

// All groups at once, of any size that divides the ranks; pairs leave an odd rank out.
TEST(MeasureExchange, EveryExchangeTakesTime) {
  MeasuredRanks ranks(4, kWindow);
  ASSERT_TRUE(ranks.start().ok());
  for (Exchange exchange : {Exchange::kAllReduce, Exchange::kAllGather, Exchange::kReduceScatter})
    for (int32_t group : {2, 4}) {
      const auto time = measureExchange(ranks, exchange, group, 1024);
      ASSERT_TRUE(time.has_value()) << time.error().message();
      EXPECT_GT(time->count(), 0);
    }
  MeasuredRanks three(3, kWindow);
  ASSERT_TRUE(three.start().ok());
  for (int64_t bytes : {64, 65536}) {
    const auto time = measureExchange(three, Exchange::kSend, 2, bytes);
    ASSERT_TRUE(time.has_value()) << time.error().message();
    EXPECT_GT(time->count(), 0);
  }
}

}  // namespace
}  // namespace trireme::runtime
