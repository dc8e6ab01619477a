// What `trireme calibrate --gpu` asks a GPU for: on a real one that its numbers can be times.
#include <gtest/gtest.h>

#include "runtime/measure/measured_gpus.h"
#include "tests/gpu/test_gpu.h"

namespace trireme::runtime {
namespace {

using program::OpKind;

program::Segment product(DType type, int64_t tokens) {
  program::Segment segment;
  segment.name = "product";
  segment.operands = {{type, {tokens, 1, 96}}, {type, {80, 96}}, {type, {tokens, 1, 80}}};
  segment.temporary.assign(3, false);
  segment.ops = {{OpKind::kMatmul, {}, {0, 1}, {2}}};
  return segment;
}

// Causal, of heads of 64, which have kernels for tensor cores in bf16.
program::Segment attention(DType type) {
  program::Segment segment;
  segment.name = "attention";
  segment.operands = {{type, {64, 1, 2, 192}}, {type, {64, 1, 2, 64}}, {DType::kF32, {1, 2, 64}}};
  segment.temporary.assign(3, false);
  program::OpAttributes attributes;
  attributes.headSize = 64;
  attributes.headsPerGroup = 1;
  segment.ops = {{OpKind::kAttention, attributes, {0}, {1, 2}}};
  return segment;
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
  const std::vector<program::Segment> segments = {product(DType::kBf16, 40),
                                                  product(DType::kF32, 40), attention(DType::kBf16),
                                                  attention(DType::kF32)};
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

}  // namespace
}  // namespace trireme::runtime
