// The functions of the emulated driver's table that are about graphs (emulated_gpu.h).
#pragma once
#include <functional>
#include <mutex>

#include "tests/support/emulated_gpu.h"

namespace trireme::testing {

struct EmulatedGraphs {
  using Lock = std::lock_guard<std::mutex>;
  static EmulatedGpu& gpu() { return *EmulatedGpu::instance(); }

  // What a launch does, with a copy of its arguments. A fault if no kernel takes such a grid.
  static int kernelWork(const runtime::cuda::KernelNodeParams& params, std::function<void()>& work);

  static int beginCapture(void* stream, int mode);
  static int endCapture(void* stream, void** graph);
  static int captureInfo(void* stream, int* state, uint64_t* id, void** graph, void* const** last,
                         size_t* numLast);
  static int instantiateGraph(void** exec, void* graph, unsigned long long flags);
  static int setKernelNode(void* exec, void* node, const runtime::cuda::KernelNodeParams* params);
  static int uploadGraph(void* exec, void* stream);
  static int launchGraph(void* exec, void* stream);
  static int destroyGraphExec(void* exec);
  static int destroyGraph(void* graph);
};

}  // namespace trireme::testing
