#include "runtime/measure/gpu_measurements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "ir/base/version.h"
#include "tests/support/emulated_machine.h"
#include "tests/support/emulated_nccl.h"

namespace trireme::runtime {
namespace {

using program::OpKind;
using ::testing::HasSubstr;
using trireme::testing::EmulatedGpu;
using trireme::testing::emulatedMachine;
using trireme::testing::EmulatedNccl;
using trireme::testing::EmulatedRates;

constexpr double kGiB = 1 << 30;

// Products and attention, more sizes than units.
TEST(GpuProbes, AreProductsAndAttentionThatFit) {
  for (MathFormat format : {MathFormat::kF32, MathFormat::kBf16, MathFormat::kF16}) {
    std::map<OpKind, int> sizes;
    for (const GpuProbe& probe : gpuProbes(format, Bytes(kGiB))) {
      EXPECT_EQ(formatOf(probe), format);
      ++sizes[probe.op];
      const program::Segment segment = segmentOf(probe);
      ASSERT_EQ(segment.ops.size(), 1u);
      EXPECT_EQ(segment.ops[0].kind, probe.op);
    }
    EXPECT_EQ(sizes.size(), 5u);
    for (OpKind kind : {OpKind::kMatmul, OpKind::kMatmulGradInput, OpKind::kMatmulGradWeight,
                        OpKind::kAttention, OpKind::kAttentionGrad})
      EXPECT_GE(sizes[kind], 20) << program::opName(kind);
  }
  const auto few = gpuProbes(MathFormat::kF32, Bytes(64e6));
  EXPECT_FALSE(few.empty());
  EXPECT_LT(few.size(), gpuProbes(MathFormat::kF32, Bytes(kGiB)).size() / 2);
  for (const GpuProbe& probe : few) {
    int64_t bytes = 0;
    for (const program::OperandType& operand : segmentOf(probe).operands) bytes += operand.bytes();
    EXPECT_LE(bytes, 64000000);
  }
}

// Only products are in tf32: of factors in f32, which cuBLASLt rounds.
TEST(GpuProbes, InTf32AreProducts) {
  const auto probes = gpuProbes(MathFormat::kTf32, Bytes(kGiB));
  ASSERT_GT(probes.size(), 60u);
  for (const GpuProbe& probe : probes) {
    EXPECT_EQ(formatOf(probe), MathFormat::kTf32);
    const program::Segment segment = segmentOf(probe);
    ASSERT_EQ(segment.ops.size(), 1u);
    EXPECT_TRUE(segment.ops[0].attributes.tf32);
    for (const program::OperandType& operand : segment.operands)
      EXPECT_EQ(operand.dtype, DType::kF32);
  }
  for (const GpuProbe& probe : gpuProbes(MathFormat::kF32, Bytes(kGiB)))
    EXPECT_FALSE(segmentOf(probe).ops[0].attributes.tf32);
}

// The steps of bench/gpu: GPT-2 124M has 32 sequences of 1024 tokens and 12 heads of 64, and a
// vocabulary padded to 50304; Llama 1B 8 of 2048, and 32 heads of which 4 share keys and values.
TEST(GpuProbes, AreThoseOfTheBenchmarkedSteps) {
  constexpr double kHalfOfTheMemory = 6 * kGiB;  // of GpuMeasureOptions
  for (MathFormat format : {MathFormat::kBf16, MathFormat::kF16}) {
    const DType type = operandType(format);
    const auto probes = gpuProbes(format, Bytes(kHalfOfTheMemory));
    const auto has = [&](OpKind op, const auto& shape) {
      return std::find(probes.begin(), probes.end(), GpuProbe{op, type, shape}) != probes.end();
    };
    for (const OpKind op : {OpKind::kMatmul, OpKind::kMatmulGradInput, OpKind::kMatmulGradWeight})
      for (const ProductShape& shape : {ProductShape{32768, 2304, 768},
                                        {32768, 50304, 768},
                                        {8192, 6400, 1600},
                                        {16384, 128256, 2048}})
        EXPECT_TRUE(has(op, shape)) << program::opName(op) << " of " << shape.outputs;
    for (const OpKind op : {OpKind::kAttention, OpKind::kAttentionGrad})
      for (const AttentionSizes& shape : {AttentionSizes{1024, 32, 12, 64},
                                          {1024, 16, 16, 64},
                                          {1024, 8, 25, 64},
                                          {2048, 8, 32, 64, 0, 4},
                                          {2048, 8, 32, 64, 0.1, 4}})
        EXPECT_TRUE(has(op, shape)) << program::opName(op) << " of " << shape.heads;
  }
}

// 32 queries on 8 heads of keys and values: 8 groups of 4 queries, a key and a value of 64.
TEST(GpuProbes, HeadsOfAGroupShareKeysAndValues) {
  const program::Segment segment =
      segmentOf({OpKind::kAttention, DType::kBf16, AttentionSizes{256, 2, 32, 64, 0, 4}});
  EXPECT_EQ(segment.operands[0].dims, (std::vector<int64_t>{256, 2, 8, 384}));
  EXPECT_EQ(segment.operands[1].dims, (std::vector<int64_t>{256, 2, 8, 256}));
  EXPECT_EQ(segment.operands[2].dims, (std::vector<int64_t>{2, 32, 256}));
  EXPECT_EQ(segment.ops[0].attributes.headsPerGroup, 4);
}

class TakeMeasurements : public ::testing::Test {
 protected:
  Result<GpuMeasurements> take(int numGpus) {
    machine.numDevices = numGpus;
    EmulatedGpu gpu(machine);
    EmulatedNccl nccl;
    cuda::Apis apis = gpu.apis();
    apis.nccl = &nccl.api();
    auto gpus = MeasuredGpus::open(apis, numGpus, {});
    if (!gpus.has_value()) return Error(gpus.error());
    GpuMeasureOptions options;
    options.date = "2026-11-21";
    options.mostMemory = int64_t{96} << 20;
    options.leastMemory = int64_t{16} << 20;
    options.formats = {MathFormat::kBf16};
    options.progress = [this](double done, const std::string& what) {
      EXPECT_GE(done, lastProgress);
      EXPECT_LE(done, 1);
      EXPECT_FALSE(what.empty());
      lastProgress = done;
    };
    return takeMeasurements(**gpus, options);
  }

  EmulatedRates rates;
  trireme::testing::EmulatedGpuOptions machine = emulatedMachine(rates);
  double lastProgress = 0;
};

// 256 x 1024 x 1024 products of two FLOPs, first of all: 2.7 us at 200 TFLOP/s, after a launch
// of 2.
TEST_F(TakeMeasurements, OfOneGpuAreKernelsAndMemory) {
  const auto taken = take(1);
  ASSERT_TRUE(taken.has_value()) << taken.error().message();
  EXPECT_EQ(taken->date, "2026-11-21");
  EXPECT_EQ(taken->version, kVersion);
  EXPECT_EQ(taken->gpu.name, "Emulated GPU");
  EXPECT_EQ(taken->numGpus, 1);
  EXPECT_NEAR(taken->launch.count(), 2e-6, 1e-9);
  ASSERT_GT(taken->kernels.size(), 40u);
  const GpuMeasurements::Kernel& first = taken->kernels.front();
  EXPECT_EQ(first.probe, (GpuProbe{OpKind::kMatmul, DType::kBf16, ProductShape{256, 1024, 1024}}));
  EXPECT_NEAR(first.time.count(), 2e-6 + 2.0 * 256 * 1024 * 1024 / 200e12, 1e-8);
  ASSERT_EQ(taken->streams.size(), 3u);
  for (const GpuMeasurements::Stream& stream : taken->streams)
    EXPECT_NEAR((stream.moved / stream.time).count() / rates.memory, 1, 0.01);
  EXPECT_TRUE(taken->transfers.empty());
  EXPECT_GT(lastProgress, 0.9);
}

// Among 2 and among 4, three collectives of 1 KiB, 4 KiB...; then a message.
TEST_F(TakeMeasurements, OfSeveralGpusAreTransfersToo) {
  const auto taken = take(4);
  ASSERT_TRUE(taken.has_value()) << taken.error().message();
  const auto& transfers = taken->transfers;
  ASSERT_EQ((transfers.size() - 1) % 6, 0u);
  const size_t numSizes = (transfers.size() - 1) / 6;
  ASSERT_GT(numSizes, 2u);
  for (size_t i = 0; i + 1 < transfers.size(); ++i) {
    EXPECT_EQ(transfers[i].group, i / numSizes < 3 ? 2 : 4);
    EXPECT_EQ(transfers[i].exchange, kMeasuredCollectives[i / numSizes % 3]);
    EXPECT_EQ(transfers[i].bytes, int64_t{1024} << 2 * (i % numSizes));
    EXPECT_GT(transfers[i].time.count(), 0);
  }
  EXPECT_EQ(transfers.back().exchange, Exchange::kSend);
  EXPECT_NEAR(static_cast<double>(transfers.back().bytes) / transfers.back().time.count() / 80e9, 1,
              0.01);
}

TEST_F(TakeMeasurements, TooLittleMemoryIsRefusedWithTheNeed) {
  machine.memoryBytes = int64_t{16} << 20;
  const auto refused = take(1);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message(),
              HasSubstr("at least 16.00 MiB of Emulated GPU, of which 16.00 MiB are free"));
}

// A line per time; numbers keep all their digits.
TEST(PrintMeasurements, IsALinePerTime) {
  GpuMeasurements m;
  m.date = "2026-11-21";
  m.version = "0.1.0";
  m.gpu = {"NVIDIA H100 80GB HBM3", 90, 132, 13000, 85017493504, 84000000000};
  m.numGpus = 2;
  m.launch = Seconds(2.1e-6);
  m.kernels = {
      {{OpKind::kMatmul, DType::kBf16, ProductShape{1, 2, 3}}, Seconds(1.0 / 3)},
      {{OpKind::kMatmul, DType::kF32, ProductShape{1, 2, 3}, true}, Seconds(0.25)},
      {{OpKind::kAttention, DType::kF32, AttentionSizes{4, 5, 6, 7, 0.1, 3}}, Seconds(0.5)}};
  m.streams = {{GpuStream::kSumSquares, Bytes(4096), Seconds(1e-8)}};
  m.transfers = {{Exchange::kAllReduce, 2, 1024, Seconds(1e-5)}};
  EXPECT_EQ(printMeasurements(m), R"({
  "format": "trireme GPU measurements",
  "version": 2,
  "date": "2026-11-21",
  "trireme": "0.1.0",
  "gpu": {"name":"NVIDIA H100 80GB HBM3","capability":90,"multiprocessors":132,"driverVersion":13000,"totalBytes":85017493504,"freeBytes":84000000000},
  "numGpus": 2,
  "launchSeconds": 2.1e-06,
  "kernels": [
    {"op":"matmul","type":"bf16","tokens":1,"outputs":2,"inputs":3,"seconds":0.3333333333333333},
    {"op":"matmul","type":"tf32","tokens":1,"outputs":2,"inputs":3,"seconds":0.25},
    {"op":"attention","type":"f32","sequence":4,"batch":5,"heads":6,"headSize":7,"dropout":0.1,"headsPerGroup":3,"seconds":0.5}
  ],
  "streams": [
    {"stream":"sum of squares","bytes":4096.0,"seconds":1e-08}
  ],
  "transfers": [
    {"exchange":"all-reduce","group":2,"bytes":1024,"seconds":1e-05}
  ]
}
)");
}

}  // namespace
}  // namespace trireme::runtime
