#include "ir/spec/stack_on_device.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme::spec {
namespace {

constexpr double kBytesOfF32 = 4;
constexpr double kFusedCapability = 8.0;

// Megatron's fused softmax takes 16 bits as well, but runs on any GPU.
bool isThere(AttentionKind kind, Precision precision, const DeviceSpec& device) {
  if (kind == AttentionKind::kUnfused) return true;
  const bool isOld = device.computeCapability > 0 && device.computeCapability < kFusedCapability;
  return byteSize(computeDType(precision)) == 2 && !(isFlash(kind) && isOld);
}

}  // namespace

StackDescription descriptionOn(const StackDescription& stack, Precision precision,
                               const DeviceSpec& device) {
  StackDescription used = stack;
  if (!isThere(stack.attention, precision, device)) used.attention = stack.attentionElsewhere;
  if (precision != Precision::kFp32) return used;
  if (stack.parameterBytes < kBytesOfF32) used.optimizerBytes -= kBytesOfF32;  // the masters
  for (double* bytes : {&used.parameterBytes, &used.gradientBytes, &used.reducedGradientBytes,
                        &used.gatheredParameterBytes})
    *bytes = std::max(*bytes, kBytesOfF32);
  used.stepGradientBytes = 0;
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
  if (device.computeCapability == 0 || device.computeCapability >= stack.computeCapability)
    return {};
  return invalidArgument(fmt::format(
      "stack '{}' needs GPUs of compute capability {:.1f} or later, device {} has {:.1f}: another "
      "stack (--stack) may run there",
      stack.name, stack.computeCapability, device.name, device.computeCapability));
}

}  // namespace trireme::spec
