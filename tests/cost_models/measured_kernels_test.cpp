#include "cost_models/measured_kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "cost_models/compute.h"
#include "ir/graph/semantics.h"
#include "tests/cost_models/small_specs.h"

namespace trireme::cost {
namespace {

using namespace literals;
using program::OpKind;
using program::SegmentOp;
using spec::KernelUnit;

constexpr auto kHost = spec::DeviceKind::kHost;

double of(const KernelCounts& counts, KernelUnit unit) { return counts[static_cast<size_t>(unit)]; }

TEST(HostKernels, EveryOpHasItsNameAmongThem) {
  const std::vector<std::string>& names = spec::measuredKernelNames();
  ASSERT_EQ(names.size(), static_cast<size_t>(program::kNumOpKinds) + 5);
  for (int kind = 0; kind < program::kNumOpKinds; ++kind)
    EXPECT_EQ(names[static_cast<size_t>(kind)], program::opName(static_cast<OpKind>(kind)));
}

// 6 tokens (s = 3, b = 2), 5 inputs, 7 outputs: 210 products, 30 + 42 + 35 elements, whichever of
// the three is the result.
TEST(CountsOf, AProductAndItsDerivativesHaveTheSame) {
  const program::OperandType x{DType::kF32, {3, 2, 5}}, y{DType::kF32, {3, 2, 7}},
      w{DType::kF32, {7, 5}};
  const KernelCounts forward = countsOf({OpKind::kMatmul, {}, {0, 1}, {2}}, {x, w, y}, kHost);
  EXPECT_EQ(of(forward, KernelUnit::kCall), 1);
  EXPECT_EQ(of(forward, KernelUnit::kProduct), 210);
  EXPECT_EQ(of(forward, KernelUnit::kInput), 30);
  EXPECT_EQ(of(forward, KernelUnit::kOutput), 42);
  EXPECT_EQ(of(forward, KernelUnit::kWeight), 35);
  EXPECT_EQ(countsOf({OpKind::kMatmulGradInput, {}, {0, 1}, {2}}, {y, w, x}, kHost), forward);
  EXPECT_EQ(countsOf({OpKind::kMatmulGradWeight, {}, {0, 1}, {2}}, {y, x, w}, kHost), forward);
}

// s = 300 in blocks of 128: rows 0-127 see 128 columns, 128-255 see 256, 256-299 (44) see 300:
// 16384 + 32768 + 13200 = 62352 scores per head, 6 of which there are (b = 2, 3 heads). d = 4:
// 62352 x 6 x 4 x 2 products forward, x 5 backward.
TEST(CountsOf, AttentionSkipsBlocksAboveTheDiagonal) {
  program::OpAttributes attributes;
  attributes.headSize = 4;
  attributes.headsPerGroup = 1;
  const program::OperandType qkv{DType::kF32, {300, 2, 3, 12}},
      context{DType::kF32, {300, 2, 3, 4}}, lse{DType::kF32, {2, 3, 300}};
  const KernelCounts forward =
      countsOf({OpKind::kAttention, attributes, {0}, {1, 2}}, {qkv, context, lse}, kHost);
  EXPECT_EQ(of(forward, KernelUnit::kScore), 374112);
  EXPECT_EQ(of(forward, KernelUnit::kDroppedScore), 0);
  EXPECT_EQ(of(forward, KernelUnit::kProduct), 374112.0 * 8);
  EXPECT_EQ(of(forward, KernelUnit::kElement), 300 * 2 * 36);
  attributes.probability = 0.1;
  const KernelCounts backward =
      countsOf({OpKind::kAttentionGrad, attributes, {0, 1, 2, 1}, {0}}, {qkv, context, lse}, kHost);
  EXPECT_EQ(of(backward, KernelUnit::kDroppedScore), 374112);
  EXPECT_EQ(of(backward, KernelUnit::kProduct), 374112.0 * 20);
}

// 4 tokens of 8: the table of 1000 rows is looked up, not read.
TEST(CountsOf, ALookupDoesNotReadTheTable) {
  const program::OperandType ids{DType::kI32, {2, 2}}, table{DType::kF32, {1000, 8}},
      y{DType::kF32, {2, 2, 8}};
  const SegmentOp forward{OpKind::kEmbedding, {}, {0, 1}, {2}};
  EXPECT_EQ(of(countsOf(forward, {ids, table, y}, kHost), KernelUnit::kElement), 32);
  EXPECT_EQ(of(countsOf(forward, {ids, table, y}, kHost), KernelUnit::kRow), 4);
  const SegmentOp backward{OpKind::kEmbeddingGrad, {}, {0, 1}, {2}};
  EXPECT_EQ(of(countsOf(backward, {ids, y, table}, kHost), KernelUnit::kElement), 32);
  EXPECT_EQ(kernelType(backward, {ids, y, table}), DType::kF32);
}

// 2 MiB are 2^19 numbers of f32, 2^20 of bf16; the largest operand counts.
TEST(CountsOf, ElementsBeyondTheFirst2MiBAreFar) {
  const auto farOf = [](DType type, int64_t width, spec::DeviceKind device = kHost) {
    const program::OperandType x{type, {1024, 1, width}}, bias{type, {width}};
    return of(countsOf({OpKind::kBiasAdd, {}, {0, 1}, {2}}, {x, bias, x}, device),
              KernelUnit::kFarElement);
  };
  EXPECT_EQ(farOf(DType::kF32, 512), 0);
  EXPECT_EQ(farOf(DType::kF32, 513), 1024);
  EXPECT_EQ(farOf(DType::kBf16, 1024), 0);
  EXPECT_EQ(farOf(DType::kBf16, 1026), 2048);
  EXPECT_EQ(farOf(DType::kBf16, 1026, spec::DeviceKind::kCuda), 0);
}

std::vector<TimedKernel> timesOf(const spec::KernelTiming& truth, std::mt19937& random) {
  std::uniform_real_distribution<double> exponent(0, 5);
  std::vector<TimedKernel> timed;
  for (int i = 0; i < 20; ++i) {
    TimedKernel kernel{truth.kernel, truth.dtype, {}, {}};
    for (size_t u = 0; u < truth.per.size(); ++u)
      if (truth.per[u].count() > 0 || u < 4) kernel.counts[u] = std::pow(10, exponent(random));
    kernel.time = timeOf(truth, kernel.counts);
    timed.push_back(kernel);
  }
  return timed;
}

// Of any times per unit, some of them zero.
TEST(FitKernels, FindsTheTimesThatMadeTheMeasurements) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    spec::KernelTiming truth{"matmul", DType::kF32, {}, ""};
    for (size_t u = 0; u < 5; ++u)
      truth.per[u] =
          Seconds(random() % 3 == 0 ? 0 : (1 + static_cast<double>(random() % 999)) * 1e-10);
    truth.per[3] = Seconds(5e-9);
    const auto fit = fitKernels(timesOf(truth, random));
    ASSERT_TRUE(fit.has_value()) << fit.error().message();
    ASSERT_EQ(fit->kernels.size(), 1u);
    for (size_t u = 0; u < truth.per.size(); ++u)
      EXPECT_NEAR(fit->kernels[0].per[u].count(), truth.per[u].count(),
                  1e-3 * truth.per[u].count() + 1e-15)
          << "unit " << u << ", round " << round;
    EXPECT_LT(fit->meanErrors[0], 1e-3);
  }
}

// Times that fall with the size have no slope that is not negative: the best constant is left.
// Relative least squares of c over 2 s and 1 s: c = (1/2 + 1) / (1/4 + 1) = 1.2 s.
TEST(FitKernels, NoTimeIsNegative) {
  TimedKernel small{"gelu", DType::kF32, {}, Seconds(2)},
      large{"gelu", DType::kF32, {}, Seconds(1)};
  small.counts = {1, 0, 10};
  large.counts = {1, 0, 100};
  const auto fit = fitKernels({small, large});
  ASSERT_TRUE(fit.has_value());
  EXPECT_NEAR(fit->kernels[0].per[0].count(), 1.2, 1e-9);
  EXPECT_EQ(fit->kernels[0].per[2], Seconds(0));
}

TEST(FitKernels, KeepsKernelsAndTypesApart) {
  TimedKernel kernel{"add", DType::kF32, countsOf(100), Seconds(1e-6)};
  TimedKernel other = kernel;
  other.dtype = DType::kBf16;
  other.time = Seconds(2e-6);
  const auto fit = fitKernels({kernel, other, kernel});
  ASSERT_TRUE(fit.has_value());
  ASSERT_EQ(fit->kernels.size(), 2u);
  EXPECT_EQ(fit->numTimed, (std::vector<int>{2, 1}));
  EXPECT_NEAR(fit->kernels[1].per[2].count(), 2e-8, 1e-12);
}

TEST(FitKernels, RefusesTimesThatSayNothing) {
  EXPECT_THAT(fitKernels({{"add", DType::kF32, countsOf(1), Seconds(0)}}).error().message(),
              ::testing::HasSubstr("kernel add: a time of 0 s"));
  TimedKernel one{"add", DType::kF32, {}, Seconds(1)};
  one.counts = {1, 1, 1};
  EXPECT_THAT(fitKernels({one}).error().message(),
              ::testing::HasSubstr("kernel add: 1 times for 3 unknowns"));
}

// Of every op, more sizes than units that its time is a sum over, and at least two with each.
TEST(HostProbes, KnowEveryOp) {
  for (DType type : {DType::kF64, DType::kF32, DType::kBf16}) {
    std::map<OpKind, int> sizes;
    std::map<OpKind, std::map<size_t, int>> units;
    for (const program::Segment& probe : hostProbes(type)) {
      ASSERT_EQ(probe.ops.size(), 1u);
      const SegmentOp& op = probe.ops[0];
      ++sizes[op.kind];
      const KernelCounts counts = countsOf(op, probe.operands, kHost);
      for (size_t u = 0; u < counts.size(); ++u)
        if (counts[u] > 0) ++units[op.kind][u];
      const bool ofStatistics = op.kind == OpKind::kTokenLoss;
      EXPECT_EQ(kernelType(op, probe.operands),
                ofStatistics && type == DType::kBf16 ? DType::kF32 : type);
    }
    EXPECT_EQ(sizes.size(), static_cast<size_t>(program::kNumOpKinds));
    for (const auto& [kind, count] : sizes) {
      EXPECT_GT(count, static_cast<int>(units[kind].size())) << program::opName(kind);
      for (const auto& [unit, ofUnit] : units[kind]) EXPECT_GE(ofUnit, 2) << program::opName(kind);
    }
  }
}

program::Segment gelus() {
  program::Segment segment;
  segment.operands.assign(3, {DType::kBf16, {10, 10, 10}});
  segment.temporary = {false, true, false};
  segment.ops = {{OpKind::kGelu, {}, {0}, {1}}, {OpKind::kGelu, {}, {1}, {2}}};
  return segment;
}

// Two GELUs of 1000 numbers in one kernel. The roofline is 1 us + 4000 B at 1 TB/s = 1.004 us; at
// 2 ns a number, 0.1 us a call they take 2 x 2.1 us. At 0.1 ns a number the roofline is longer.
TEST(SegmentTime, IsNoLessThanWhatWasMeasuredOfItsOps) {
  spec::DeviceSpec device = small::cluster().device;
  EXPECT_NEAR(segmentTime(gelus(), device, {}).count(), 1.004e-6, 1e-12);
  spec::KernelTiming timing{"gelu", DType::kBf16, {}, ""};
  timing.per[static_cast<size_t>(KernelUnit::kCall)] = Seconds(1e-7);
  timing.per[static_cast<size_t>(KernelUnit::kElement)] = Seconds(2e-9);
  device.kernels = {timing};
  EXPECT_NEAR(segmentTime(gelus(), device, {}).count(), 4.2e-6, 1e-12);
  device.kernels[0].per[static_cast<size_t>(KernelUnit::kElement)] = Seconds(1e-10);
  EXPECT_NEAR(segmentTime(gelus(), device, {}).count(), 1.004e-6, 1e-12);
  device.kernels[0].dtype = DType::kF32;
  device.kernels[0].per[static_cast<size_t>(KernelUnit::kElement)] = Seconds(2e-9);
  EXPECT_NEAR(segmentTime(gelus(), device, {}).count(), 1.004e-6, 1e-12);
}

// A bucket of 1000 numbers in f32, all arrays of which are their own: AdamW at 3 ns a number takes
// 3 us, zeroing at 0.1 ns 0.1 us, less than its launch of 1 us and 4 ns.
TEST(InstructionTime, IsNoLessThanWhatWasMeasuredOfTheOptimizer) {
  program::Role role;
  program::Buffer buffer;
  buffer.dtype = DType::kF32;
  buffer.elements = 1000;
  role.buffers.assign(5, buffer);
  program::Bucket bucket;
  bucket.parameter = bucket.master = 0;
  bucket.gradient = 1;
  bucket.moment1 = 2;
  bucket.moment2 = 3;
  role.buckets = {bucket};
  spec::DeviceSpec device = small::cluster().device;
  device.kernels = {{"adamw", DType::kF32, {}, ""}};
  device.kernels[0].per[static_cast<size_t>(KernelUnit::kElement)] = Seconds(3e-9);
  program::Instruction adamw, zero;
  adamw.kind = program::InstructionKind::kAdamW;
  adamw.bucket = 0;
  zero.kind = program::InstructionKind::kZero;
  zero.buffers = {1};
  EXPECT_NEAR(instructionTime(adamw, role, device).count(), 3e-6, 1e-12);
  EXPECT_NEAR(instructionTime(zero, role, device).count(), 1.004e-6, 1e-12);
  device.kind = spec::DeviceKind::kHost;  // puts zeros off
  EXPECT_EQ(instructionTime(zero, role, device), device.launchOverhead);
  EXPECT_NEAR(instructionTime(adamw, role, device).count(), 3e-6, 1e-12);
}

}  // namespace
}  // namespace trireme::cost
