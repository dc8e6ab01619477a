#include "ir/spec/stack_on_device.h"

#include <gmock/gmock.h>

namespace trireme::spec {
namespace {

using ::testing::HasSubstr;

DeviceSpec gpu(double capability) {
  DeviceSpec device;
  device.name = "some GPU";
  device.computeCapability = capability;
  return device;
}

// Megatron's mixed precision: 16-bit weights, gradients in f32, masters and two moments.
StackProfile described() {
  StackProfile stack;
  stack.name = "some stack";
  stack.ownPrograms = false;
  stack.choices = {StackChoice::kTensorParallel, StackChoice::kContextParallel};
  stack.description.attention = AttentionKind::kCudnn;
  stack.description.parameterBytes = 2;
  stack.description.gradientBytes = 2;
  stack.description.optimizerBytes = 12;
  stack.description.reducedGradientBytes = 2;
  stack.description.gatheredParameterBytes = 2;
  return stack;
}

// 4 of weights, 4 of gradients, 8 of moments: 16 bytes per parameter, as in PyTorch's AdamW.
TEST(StackOnDevice, Fp32TakesFourBytesAndNoMasters) {
  const StackDescription used = descriptionOn(described().description, Precision::kFp32, gpu(9.0));
  EXPECT_EQ(used.parameterBytes, 4);
  EXPECT_EQ(used.gradientBytes, 4);
  EXPECT_EQ(used.optimizerBytes, 8);
  EXPECT_EQ(used.reducedGradientBytes, 4);
  EXPECT_EQ(used.gatheredParameterBytes, 4);
  EXPECT_EQ(used.attention, AttentionKind::kUnfused);
  EXPECT_EQ(descriptionOn(used, Precision::kFp32, gpu(9.0)), used);
}

// FSDP keeps its parameters in f32 in any case: those are the masters.
TEST(StackOnDevice, MastersThatAreTheParametersStay) {
  StackDescription stack = described().description;
  stack.parameterBytes = 4;
  stack.optimizerBytes = 8;
  EXPECT_EQ(descriptionOn(stack, Precision::kFp32, gpu(9.0)).optimizerBytes, 8);
}

TEST(StackOnDevice, SixteenBitsOnWhatItWasWrittenForAreAsDescribed) {
  for (const Precision precision : {Precision::kBf16, Precision::kFp16, Precision::kFp8})
    for (const double capability : {0.0, 9.0, 10.0})
      EXPECT_EQ(stackOn(described(), precision, gpu(capability)), described());
}

// Transformer Engine's choice; flash-attn's own users have it everywhere.
TEST(StackOnDevice, CudnnsKernelIsTakenFromHopperOn) {
  StackDescription stack = described().description;
  EXPECT_EQ(descriptionOn(stack, Precision::kBf16, gpu(8.0)).attention, AttentionKind::kFlash2);
  EXPECT_EQ(descriptionOn(stack, Precision::kBf16, gpu(8.9)).attention, AttentionKind::kFlash2);
  stack.attention = AttentionKind::kFlash;
  EXPECT_EQ(descriptionOn(stack, Precision::kBf16, gpu(8.0)), stack);
}

// DeepSpeed's optimizer for bf16.
TEST(StackOnDevice, GradientsInBf16MayTakeMore) {
  StackDescription stack = described().description;
  stack.stepGradientBytes = 4;
  stack.bf16GradientBytes = 6;
  EXPECT_EQ(descriptionOn(stack, Precision::kFp16, gpu(9.0)), stack);
  const StackDescription used = descriptionOn(stack, Precision::kBf16, gpu(9.0));
  EXPECT_EQ(used.gradientBytes, 6);
  EXPECT_EQ(used.stepGradientBytes, 0);
  EXPECT_EQ(descriptionOn(used, Precision::kBf16, gpu(9.0)), used);
}

// In fp32 gradients are what the step takes; what it holds of all tensors at once stays.
TEST(StackOnDevice, StepsInFp32MakeNoGradientsOfOthers) {
  StackDescription stack = described().description;
  stack.stepGradientBytes = 4;
  stack.gradientBytes = 2;
  EXPECT_EQ(descriptionOn(stack, Precision::kFp32, gpu(9.0)).stepGradientBytes, 0);
  stack.gradientBytes = 4;
  EXPECT_EQ(descriptionOn(stack, Precision::kFp32, gpu(9.0)).stepGradientBytes, 4);
}

TEST(StackOnDevice, OlderGpusHaveNoFusedAttention) {
  const StackProfile used = stackOn(described(), Precision::kFp16, gpu(7.5));
  EXPECT_EQ(used.description.attention, AttentionKind::kUnfused);
  EXPECT_EQ(used.description.parameterBytes, 2);
  EXPECT_TRUE(used.supports(StackChoice::kTensorParallel));
  EXPECT_FALSE(used.supports(StackChoice::kContextParallel));

  StackProfile torch = described();
  torch.description.attentionElsewhere = AttentionKind::kFlash;
  const StackProfile elsewhere = stackOn(torch, Precision::kFp16, gpu(7.5));
  EXPECT_EQ(elsewhere.description.attention, AttentionKind::kFlash);
  EXPECT_TRUE(elsewhere.supports(StackChoice::kContextParallel));
}

// Megatron's kernel of 2021 runs on a V100, but not in fp32.
TEST(StackOnDevice, TheFusedSoftmaxTakesSixteenBits) {
  StackDescription stack = described().description;
  stack.attention = AttentionKind::kFusedSoftmax;
  EXPECT_EQ(descriptionOn(stack, Precision::kFp16, gpu(7.0)), stack);
  EXPECT_EQ(descriptionOn(stack, Precision::kFp32, gpu(9.0)).attention, AttentionKind::kUnfused);
  stack.attentionElsewhere = AttentionKind::kFusedSoftmax;  // XLA's
  EXPECT_EQ(descriptionOn(stack, Precision::kFp32, gpu(9.0)).attention,
            AttentionKind::kFusedSoftmax);
}

TEST(StackOnDevice, OwnProgramsStay) {
  EXPECT_EQ(stackOn({}, Precision::kFp32, gpu(7.0)), StackProfile());
}

TEST(StackOnDevice, AStackMayNeedNewerGpus) {
  StackProfile stack = described();
  EXPECT_TRUE(checkDevice(stack, gpu(7.0)).ok());
  stack.computeCapability = 10;
  EXPECT_TRUE(checkDevice(stack, gpu(0)).ok());  // not known
  EXPECT_TRUE(checkDevice(stack, gpu(10.3)).ok());
  EXPECT_THAT(checkDevice(stack, gpu(9.0)).message(),
              HasSubstr("stack 'some stack' needs GPUs of compute capability 10.0 or later, device "
                        "some GPU has 9.0: another stack (--stack) may run there"));
}

TEST(StackOnDevice, DescribedProgramsNeedAGpu) {
  DeviceSpec host = gpu(0);
  host.kind = DeviceKind::kHost;
  EXPECT_THAT(
      checkDevice(described(), host).message(),
      HasSubstr("stack 'some stack' runs on GPUs, device some GPU is a host: nearest: stack "
                "'trireme'"));
  EXPECT_TRUE(checkDevice({}, host).ok());
}

}  // namespace
}  // namespace trireme::spec
