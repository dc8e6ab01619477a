#include "cost_models/compute.h"

#include <gtest/gtest.h>

#include "cost_models/estimate.h"
#include "tests/cost_models/small_specs.h"

namespace trireme::cost {
namespace {

using namespace literals;
using program::OpKind;
using program::Segment;

// 10 TFLOP/s at 80 %, 1 TB/s at 50 %, 1 us per launch.
spec::DeviceSpec deviceWithEfficiencies() {
  spec::DeviceSpec device = small::cluster().device;
  device.matmulEfficiency = 0.8;
  device.memoryEfficiency = 0.5;
  return device;
}

// 8 GFLOP at 8 TFLOP/s = 1 ms; 100 MB at 500 GB/s = 0.2 ms.
TEST(KernelTime, IsTheLongerOfProductsAndMemory) {
  EXPECT_NEAR(
      kernelTime({MathFormat::kBf16, Flops(8e9), 100_MB, 1}, deviceWithEfficiencies()).count(),
      1.001e-3, 1e-12);
  EXPECT_NEAR(
      kernelTime({MathFormat::kBf16, Flops(8e8), 100_MB, 1}, deviceWithEfficiencies()).count(),
      0.201e-3, 1e-12);
}

// 8 GFLOP at 10 TFLOP/s * 0.4 = 2 ms.
TEST(KernelTime, FusedAttentionHasItsOwnEfficiency) {
  spec::DeviceSpec slow = deviceWithEfficiencies();
  slow.attentionEfficiency = 0.4;
  const KernelWork work{MathFormat::kBf16, Flops(8e9), 100_MB, 1, true};
  EXPECT_NEAR(kernelTime(work, slow).count(), 2.001e-3, 1e-12);
}

// 8 GFLOP at 5 TFLOP/s * 0.4 = 4 ms in f32, and as ever in bf16.
TEST(KernelTime, SinglePrecisionMayReachAShareOfItsOwn) {
  spec::DeviceSpec slow = deviceWithEfficiencies();
  slow.f32MatmulEfficiency = 0.4;
  EXPECT_NEAR(kernelTime({MathFormat::kF32, Flops(8e9), 100_MB, 1}, slow).count(), 4.001e-3, 1e-12);
  EXPECT_NEAR(kernelTime({MathFormat::kBf16, Flops(8e9), 100_MB, 1}, slow).count(), 1.001e-3,
              1e-12);
}

TEST(KernelTime, CountsEveryLaunch) {
  EXPECT_NEAR(
      kernelTime({MathFormat::kBf16, Flops(0), Bytes(0), 4}, deviceWithEfficiencies()).count(),
      4e-6, 1e-15);
}

Segment chain() {
  // y = gelu(x + bias), z = y + x; y is a temporary.
  Segment segment;
  const std::vector<int64_t> shape = {10, 10, 10};
  segment.operands = {{DType::kBf16, shape},
                      {DType::kBf16, {10}},
                      {DType::kBf16, shape},
                      {DType::kBf16, shape},
                      {DType::kBf16, shape}};
  segment.temporary = {false, false, true, true, false};
  segment.ops = {{OpKind::kBiasAdd, {}, {0, 1}, {2}},
                 {OpKind::kGelu, {}, {2}, {3}},
                 {OpKind::kAdd, {}, {3, 0}, {4}}};
  return segment;
}

// Reads x (2000 B, once although two ops use it) and bias (20 B), writes z (2000 B).
TEST(Kernels, AnElementwiseChainMovesOnlyWhatEntersAndLeaves) {
  const std::vector<KernelWork> kernels = kernelsOf(chain(), {});
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(kernels[0].bytes, Bytes(4020));
  EXPECT_EQ(kernels[0].numLaunches, 1);
}

TEST(Kernels, ATemporaryThatIsReadLaterLeavesTheChain) {
  Segment segment = chain();
  segment.operands.push_back({DType::kF32, {10}});
  segment.temporary.push_back(false);
  segment.ops.push_back({OpKind::kBiasGrad, {}, {3}, {5}});  // not elementwise: reads gelu's result
  const std::vector<KernelWork> kernels = kernelsOf(segment, {});
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[0].bytes, Bytes(6020));
}

// x[4,2,8], w[16,8]: 2 * 8 * 128 = 2048 FLOPs; (64 + 128 + 128) * 2 B.
TEST(Kernels, AMatmulHasItsFlopsAndBytes) {
  Segment segment;
  segment.operands = {
      {DType::kBf16, {4, 2, 8}}, {DType::kBf16, {16, 8}}, {DType::kBf16, {4, 2, 16}}};
  segment.temporary = {false, false, false};
  segment.ops = {{OpKind::kMatmul, {}, {0, 1}, {2}}};
  const std::vector<KernelWork> kernels = kernelsOf(segment, {});
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(kernels[0].flops, Flops(2048));
  EXPECT_EQ(kernels[0].bytes, Bytes(640));
}

// The products of linear layers have the rate of TF32 on a GPU; a host has that of f32. Attention
// is in f32 in any case.
TEST(Kernels, ProductsInTf32HaveItsRate) {
  Segment segment;
  segment.operands = {{DType::kF32, {4, 2, 8}}, {DType::kF32, {16, 8}}, {DType::kF32, {4, 2, 16}}};
  segment.temporary = {false, false, false};
  program::OpAttributes attributes;
  attributes.tf32 = true;
  segment.ops = {{OpKind::kMatmul, attributes, {0, 1}, {2}}};
  const KernelWork work = kernelsOf(segment, {})[0];
  EXPECT_EQ(work.format, MathFormat::kTf32);
  spec::DeviceSpec gpu = deviceWithEfficiencies();
  gpu.matmul = {{MathFormat::kF32, FlopsPerSecond(1e12)},
                {MathFormat::kTf32, FlopsPerSecond(8e12)}};
  const KernelWork large{work.format, Flops(8e9), Bytes(0), 0};
  EXPECT_NEAR(kernelTime(large, gpu).count(), 8e9 / (8e12 * 0.8), 1e-12);
  gpu.kind = spec::DeviceKind::kHost;
  gpu.matmul.pop_back();
  EXPECT_NEAR(kernelTime(large, gpu).count(), 8e9 / (1e12 * 0.8), 1e-12);
  EXPECT_TRUE(checkDevice(gpu, DType::kF16).ok());  // widened to f32
  gpu.kind = spec::DeviceKind::kCuda;
  EXPECT_EQ(gpu.peak(MathFormat::kTf32), nullptr);
  EXPECT_FALSE(checkDevice(gpu, DType::kF16).ok());
}

// A measured time of products in f32 says nothing of those in tf32 on a GPU; a host has no others.
TEST(Kernels, ProductsInTf32HaveMeasuredTimesOfTheirOwn) {
  Segment segment;
  segment.operands = {{DType::kF32, {4, 2, 8}}, {DType::kF32, {16, 8}}, {DType::kF32, {4, 2, 16}}};
  segment.temporary = {false, false, false};
  spec::DeviceSpec gpu = deviceWithEfficiencies();
  gpu.matmul = {{MathFormat::kF32, FlopsPerSecond(1e15)},
                {MathFormat::kTf32, FlopsPerSecond(1e15)}};
  const auto add = [&](const char* kernel, double seconds) {
    spec::KernelTiming timing{kernel, DType::kF32, {}, "m"};
    timing.per[static_cast<size_t>(spec::KernelUnit::kCall)] = Seconds(seconds);
    gpu.kernels.push_back(timing);
  };
  const auto timeOf = [&](OpKind kind, bool tf32) {
    program::OpAttributes attributes;
    attributes.tf32 = tf32;
    const bool forward = kind == OpKind::kMatmul, byWeight = kind == OpKind::kMatmulGradWeight;
    segment.ops = {{kind,
                    attributes,
                    {forward ? 0 : 2, byWeight ? 0 : 1},
                    {forward    ? 2
                     : byWeight ? 1
                                : 0}}};
    return segmentTime(segment, gpu, {}).count();
  };
  add("matmul", 1), add("matmul_grad_input", 2), add("matmul_grad_weight", 3);
  for (const OpKind kind : {OpKind::kMatmul, OpKind::kMatmulGradInput, OpKind::kMatmulGradWeight})
    EXPECT_LT(timeOf(kind, true), 0.1) << program::opName(kind);
  add("matmul_tf32", 0.1), add("matmul_grad_input_tf32", 0.2), add("matmul_grad_weight_tf32", 0.3);
  EXPECT_EQ(timeOf(OpKind::kMatmul, false), 1);
  EXPECT_EQ(timeOf(OpKind::kMatmul, true), 0.1);
  EXPECT_EQ(timeOf(OpKind::kMatmulGradInput, true), 0.2);
  EXPECT_EQ(timeOf(OpKind::kMatmulGradWeight, true), 0.3);
  gpu.kind = spec::DeviceKind::kHost;
  EXPECT_EQ(timeOf(OpKind::kMatmulGradInput, true), 2);
}

// s 8, b 2, 2 groups of 1 head of size 4: context [8,2,2,4], scores 2 * 2 * 8 * 8 = 256 elements.
Segment attention() {
  Segment segment;
  segment.operands = {
      {DType::kBf16, {8, 2, 2, 12}}, {DType::kBf16, {8, 2, 2, 4}}, {DType::kF32, {2, 2, 8}}};
  segment.temporary = {false, false, false};
  program::OpAttributes attributes;
  attributes.headSize = 4;
  attributes.headsPerGroup = 1;
  segment.ops = {{OpKind::kAttention, attributes, {0}, {1, 2}}};
  return segment;
}

// Model FLOPs: 2 products of 2 * 8 * 8 * 4 per head and sequence, 4 of them = 4096; half is masked.
TEST(Kernels, FusedAttentionSkipsTheMaskedHalf) {
  const KernelWork work = kernelsOf(attention(), {})[0];
  EXPECT_EQ(work.flops, Flops(2048));
  EXPECT_EQ(work.numLaunches, 1);
}

// Six passes over 256 scores of 2 B on top of the operands.
TEST(Kernels, UnfusedAttentionMovesTheScores) {
  spec::StackProfile unfused;
  unfused.flashAttention = false;
  const KernelWork fused = kernelsOf(attention(), {})[0];
  const KernelWork work = kernelsOf(attention(), unfused)[0];
  EXPECT_EQ(work.flops, Flops(4096));
  EXPECT_EQ(work.bytes, fused.bytes + Bytes(6 * 256 * 2));
  EXPECT_EQ(work.numLaunches, 4);
}

program::Role roleWithBucket(bool sharded) {
  program::Role role;
  const auto buffer = [&](DType dtype, int64_t elements) {
    program::Buffer b;
    b.dtype = dtype;
    b.elements = elements;
    role.buffers.push_back(b);
    return static_cast<int32_t>(role.buffers.size()) - 1;
  };
  const int64_t own = sharded ? 250 : 1000;
  program::Bucket bucket;
  bucket.elements = 1000;
  bucket.sharded = sharded;
  bucket.parameter = buffer(DType::kBf16, 1000);
  bucket.gradient = buffer(DType::kF32, 1000);
  bucket.master = buffer(DType::kF32, own);
  bucket.moment1 = buffer(DType::kF32, own);
  bucket.moment2 = buffer(DType::kF32, own);
  role.buckets = {bucket};
  return role;
}

Seconds adamTime(bool sharded) {
  program::Instruction step;
  step.kind = program::InstructionKind::kAdamW;
  step.bucket = 0;
  return instructionTime(step, roleWithBucket(sharded), deviceWithEfficiencies());
}

// Per element: gradient 4 read, three states 4 read and written, parameter 2 written = 30 B.
TEST(InstructionTime, AdamWMovesThirtyBytesPerElement) {
  EXPECT_NEAR(adamTime(false).count(), 1e-6 + 30000 / 500e9, 1e-15);
}

TEST(InstructionTime, AdamWWithShardedStateMovesItsPart) {
  EXPECT_NEAR(adamTime(true).count(), 1e-6 + 7500 / 500e9, 1e-15);
}

TEST(CheckDevice, NamesTheMissingPeak) {
  const Status status = checkDevice(deviceWithEfficiencies(), DType::kF64);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("f64"), std::string::npos);
  EXPECT_TRUE(checkDevice(deviceWithEfficiencies(), DType::kBf16).ok());
}

// fp8 keeps tensors in bf16, which the device lacks as well: what was asked for is named.
TEST(CheckCluster, NamesThePrecisionAndWhatTheDeviceHas) {
  spec::ClusterSpec cluster = small::cluster(2, 2);
  cluster.device.name = "T4";
  cluster.device.kind = spec::DeviceKind::kCuda;
  cluster.device.matmul = {{MathFormat::kF32, FlopsPerSecond(8e12)},
                           {MathFormat::kF16, FlopsPerSecond(65e12)}};
  spec::TrainingSpec training;
  training.precision = spec::Precision::kFp8;
  EXPECT_EQ(checkCluster(cluster, training).message(),
            "precision fp8: device T4: no matmul peak for f8, but for f32, f16");
  training.precision = spec::Precision::kBf16;
  EXPECT_EQ(checkCluster(cluster, training).message(),
            "precision bf16: device T4: no matmul peak for bf16, but for f32, f16");
}

// A chain of three ops, then x[4,2,8] w[16,8] and its gradient, then attention.
Segment ofAllKinds() {
  Segment segment = chain();
  const auto append = [&](const Segment& more) {
    const auto first = static_cast<int32_t>(segment.operands.size());
    for (program::SegmentOp op : more.ops) {
      for (auto* operands : {&op.inputs, &op.outputs})
        for (int32_t& operand : *operands) operand += first;
      segment.ops.push_back(op);
    }
    segment.operands.insert(segment.operands.end(), more.operands.begin(), more.operands.end());
    segment.temporary.insert(segment.temporary.end(), more.temporary.begin(), more.temporary.end());
  };
  Segment products;
  products.operands = {
      {DType::kBf16, {4, 2, 8}}, {DType::kBf16, {16, 8}}, {DType::kBf16, {4, 2, 16}}};
  products.temporary = {false, false, false};
  products.ops = {{OpKind::kMatmul, {}, {0, 1}, {2}}, {OpKind::kMatmulGradInput, {}, {2, 1}, {0}}};
  append(products);
  append(attention());
  return segment;
}

TEST(ComputeTime, TellsProductsAndAttentionFromTheRest) {
  const Segment segment = ofAllKinds();
  const spec::DeviceSpec device = deviceWithEfficiencies();
  std::vector<Seconds> kernels;
  for (const KernelWork& work : kernelsOf(segment, {})) kernels.push_back(kernelTime(work, device));
  ASSERT_EQ(kernels.size(), 4u);
  const ComputeTime time = computeTime(segment, 0, device, {});
  EXPECT_EQ(time.total, segmentTime(segment, device, {}));
  EXPECT_NEAR(time.total.count(), (kernels[0] + kernels[1] + kernels[2] + kernels[3]).count(),
              1e-18);
  EXPECT_EQ(time.products, kernels[1] + kernels[2]);
  EXPECT_EQ(time.attention, kernels[3]);
  EXPECT_EQ(time.recomputed, Seconds(0));
}

// Of the chain the first op moves 2000 + 20 + 2000 bytes, the others 2000 + 2000 and three times
// 2000.
TEST(ComputeTime, WhatIsRecomputedIsInNoOtherPart) {
  const Segment segment = ofAllKinds();
  const spec::DeviceSpec device = deviceWithEfficiencies();
  std::vector<Seconds> kernels;
  for (const KernelWork& work : kernelsOf(segment, {})) kernels.push_back(kernelTime(work, device));
  const ComputeTime four = computeTime(segment, 4, device, {});
  EXPECT_EQ(four.recomputed, kernels[0] + kernels[1]);
  EXPECT_EQ(four.products, kernels[2]);
  EXPECT_EQ(four.attention, kernels[3]);
  const ComputeTime one = computeTime(segment, 1, device, {});
  EXPECT_NEAR(one.recomputed / kernels[0], 4020.0 / (4020 + 4000 + 6000), 1e-12);
  EXPECT_EQ(one.products, kernels[1] + kernels[2]);
  EXPECT_EQ(computeTime(segment, 6, device, {}).recomputed, segmentTime(segment, device, {}));
}

}  // namespace
}  // namespace trireme::cost
