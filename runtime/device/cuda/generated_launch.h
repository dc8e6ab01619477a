// One call of a kernel that codegen generated for GPUs (program::KernelCall, kernels.ptx).
#pragma once
#include <cstdint>
#include <vector>

#include "ir/program/bundle.h"
#include "runtime/device/cuda/gpu.h"

namespace trireme::runtime::cuda {

class GeneratedLaunch {
 public:
  // kInternal: the GPU's generated kernels have no such symbol.
  static Result<GeneratedLaunch> create(const Gpu& gpu, const program::KernelCall& call);

  // `operands`: one per operand of the segment. `context.tpIndex` is the rank's.
  Status run(const program::KernelContext& context, void* const* operands, KernelSink& sink);

 private:
  FunctionHandle function_ = nullptr;
  int64_t extent_ = 0;
  int32_t warps_ = 1;
  std::vector<int32_t> operands_;
  std::vector<char> parameter_;  // KernelContext, then pointers
};

}  // namespace trireme::runtime::cuda
