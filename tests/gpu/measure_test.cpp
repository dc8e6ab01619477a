// What `trireme calibrate --gpu` asks a GPU for: on a real one that its numbers can be times.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "runtime/measure/gpu_probes.h"
#include "runtime/measure/measured_gpus.h"
#include "tests/gpu/test_gpu.h"
#include "tests/support/emulated_machine.h"

namespace trireme::runtime {
namespace {

using program::OpKind;

program::Segment product(MathFormat format) {
  return segmentOf({OpKind::kMatmul, operandType(format), ProductShape{40, 80, 96},
                    format == MathFormat::kTf32});
}

// Of heads of 64, which have kernels for tensor cores in 16 bits.
program::Segment attention(OpKind op, DType type, int64_t headsPerGroup) {
  return segmentOf({op, type, AttentionSizes{64, 1, 4, 64, 0, headsPerGroup}});
}

TEST(MeasureGpu, EveryCallTakesTime) {
  gpu::TestGpu test;
  GpuTiming timing;
  timing.repetitions = 3;
  timing.maxCalls = gpu::isRealGpu() ? 1024 : 2;
  auto opened = MeasuredGpus::open(test.apis(), 1, timing);
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  MeasuredGpus& gpus = **opened;
  EXPECT_FALSE(gpus.info().name.empty());
  EXPECT_GT(gpus.info().numMultiprocessors, 0);
  EXPECT_GE(gpus.info().totalBytes, gpus.info().freeBytes);
  std::vector<program::Segment> segments;
  for (const MathFormat format :
       {MathFormat::kBf16, MathFormat::kF16, MathFormat::kF32, MathFormat::kTf32})
    segments.push_back(product(format));
  for (const DType type : {DType::kBf16, DType::kF16, DType::kF32})
    for (const int64_t queries : {1, 4})
      for (const OpKind op : {OpKind::kAttention, OpKind::kAttentionGrad})
        segments.push_back(attention(op, type, queries));
  const Status started = gpus.start(segments, int64_t{8} << 20);
  ASSERT_TRUE(started.ok()) << started.message();
  const auto expectTime = [](const Result<Seconds>& time) {
    ASSERT_TRUE(time.has_value()) << time.error().message();
    EXPECT_GT(time->count(), 0);
    EXPECT_LT(time->count(), 60);
  };
  expectTime(gpus.launch());
  for (size_t i = 0; i < segments.size(); ++i) expectTime(gpus.segment(i));
  for (const GpuStream stream : {GpuStream::kCopy, GpuStream::kSumSquares, GpuStream::kAdamW}) {
    const auto traffic = gpus.stream(stream);
    ASSERT_TRUE(traffic.has_value()) << traffic.error().message();
    expectTime(traffic->time);
    EXPECT_GT(traffic->moved.count(), 0);
  }
}

// Tokens, sequences, heads, heads of keys and values, size of a head.
AttentionSizes shapeOf(const nlohmann::json& sizes) {
  const auto at = [&](size_t i) { return sizes.at(i).get<int64_t>(); };
  return {at(0), at(1), at(2), at(4), 0, at(2) / at(3)};
}

int64_t operandBytes(const program::Segment& segment) {
  int64_t bytes = 0;
  for (const program::OperandType& operand : segment.operands) bytes += operand.bytes();
  return bytes;
}

// For bench/gpu/attention, which reads the lines: in bf16 of each shape, in order. An emulated GPU
// computes nothing here: it has stated rates.
TEST(MeasureGpu, AttentionOfTheEnvironment) {
  const char* text = std::getenv("TRIREME_ATTENTION_OF");
  if (text == nullptr) GTEST_SKIP() << "TRIREME_ATTENTION_OF names no shapes";
  const nlohmann::json shapes = nlohmann::json::parse(text);
  std::vector<program::Segment> segments;
  for (const nlohmann::json& sizes : shapes)
    for (const OpKind op : {OpKind::kAttention, OpKind::kAttentionGrad})
      segments.push_back(segmentOf({op, DType::kBf16, shapeOf(sizes)}));
  int64_t most = 0;
  for (const program::Segment& segment : segments) most = std::max(most, operandBytes(segment));
  gpu::TestGpu test(trireme::testing::emulatedMachine({}));
  auto opened = MeasuredGpus::open(test.apis(), 1, {});
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  MeasuredGpus& gpus = **opened;
  constexpr int64_t kOther = int64_t{256} << 20;  // alignment, and what kernels need beside
  const Status started = gpus.start(segments, 2 * most + kOther);
  ASSERT_TRUE(started.ok()) << started.message();
  ASSERT_TRUE(gpus.warmUp(0).ok());
  for (size_t i = 0; i < segments.size(); i += 2) {
    const Result<Seconds> forward = gpus.segment(i), backward = gpus.segment(i + 1);
    ASSERT_TRUE(forward.has_value() && backward.has_value());
    fmt::print("attention: {{\"forward\": {}, \"backward\": {}}}\n", forward->count(),
               backward->count());
  }
}

}  // namespace
}  // namespace trireme::runtime
