#include "runtime/device/cuda/generated_launch.h"

#include <cstring>

namespace trireme::runtime::cuda {

Result<GeneratedLaunch> GeneratedLaunch::create(const Gpu& gpu, const program::KernelCall& call) {
  GeneratedLaunch launch;
  TRIREME_ASSIGN_OR_RETURN(launch.function_, gpu.generatedKernel(call.symbol));
  launch.extent_ = call.extent;
  launch.warps_ = call.warps;
  launch.operands_ = call.operands;
  launch.parameter_.resize(sizeof(program::KernelContext) + call.operands.size() * sizeof(void*));
  return launch;
}

Status GeneratedLaunch::run(const program::KernelContext& context, void* const* operands,
                            KernelSink& sink) {
  constexpr int64_t kWarp = 32;
  char* to = parameter_.data();
  std::memcpy(to, &context, sizeof(context));
  to += sizeof(context);
  for (int32_t operand : operands_) {
    std::memcpy(to, &operands[operand], sizeof(void*));
    to += sizeof(void*);
  }
  if (warps_ > 1) return sink.put(launchOfBlocks(function_, parameter_.data(), extent_, warps_));
  return sink.put(launchOf(function_, parameter_.data(), extent_ * kWarp));
}

}  // namespace trireme::runtime::cuda
