#include "ir/spec/stack_on_device.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme::spec {
namespace {

constexpr double kBytesOfF32 = 4;
constexpr double kFusedCapability = 8.0, kCudnnCapability = 9.0;

bool isBefore(double capability, const DeviceSpec& device) {
  return device.computeCapability > 0 && device.computeCapability < capability;
}

// Megatron's fused softmax takes 16 bits as well, but runs on any GPU.
bool isThere(AttentionKind kind, Precision precision, const DeviceSpec& device) {
  if (kind == AttentionKind::kUnfused) return true;
  return byteSize(computeDType(precision)) == 2 &&
         !(isFlash(kind) && isBefore(kFusedCapability, device));
}

}  // namespace

StackDescription descriptionOn(const StackDescription& stack, Precision precision,
                               const DeviceSpec& device) {
  StackDescription used = stack;
  if (!isThere(stack.attention, precision, device))
    used.attention = stack.attentionElsewhere;
  else if (stack.attention == AttentionKind::kCudnn && isBefore(kCudnnCapability, device))
    used.attention = AttentionKind::kFlash2;
  if (precision == Precision::kBf16 && stack.bf16GradientBytes > 0) {
    used.gradientBytes = stack.bf16GradientBytes;
    used.stepGradientBytes = 0;  // which the sums are
  }
  if (precision != Precision::kFp32) return used;
  if (stack.parameterBytes < kBytesOfF32) used.optimizerBytes -= kBytesOfF32;  // the masters
  if (stack.gradientBytes < kBytesOfF32) used.stepGradientBytes = 0;           // not made of others
  for (double* bytes : {&used.parameterBytes, &used.gradientBytes, &used.reducedGradientBytes,
                        &used.gatheredParameterBytes})
    *bytes = std::max(*bytes, kBytesOfF32);
  if (used.logitBytes > 0) used.logitBytes = std::max(used.logitBytes, 2 * kBytesOfF32);
  return used;
}

StackProfile stackOn(StackProfile stack, Precision precision, const DeviceSpec& device) {
  if (stack.ownPrograms) return stack;
  const bool wasFlash = isFlash(stack.description.attention);
  stack.description = descriptionOn(stack.description, precision, device);
  if (wasFlash && !isFlash(stack.description.attention))
    std::erase(stack.choices, StackChoice::kContextParallel);
  return stack;
}

Status checkDevice(const StackProfile& stack, const DeviceSpec& device) {
  if (!stack.ownPrograms && device.kind == DeviceKind::kHost)
    return invalidArgument(fmt::format(
        "stack '{}' runs on GPUs, device {} is a host: nearest: stack 'trireme', whose programs "
        "run there, too",
        stack.name, device.name));
  if (device.computeCapability == 0 || device.computeCapability >= stack.computeCapability)
    return {};
  return invalidArgument(fmt::format(
      "stack '{}' needs GPUs of compute capability {:.1f} or later, device {} has {:.1f}: another "
      "stack (--stack) may run there",
      stack.name, stack.computeCapability, device.name, device.computeCapability));
}

}  // namespace trireme::spec
