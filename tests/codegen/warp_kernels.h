// The kernels of GPUs on the host: threads are fibers, which take turns whenever lanes exchange
// values or a block waits for its threads. Two blocks of three warps do all the work.
#pragma once
#include <vector>

#include "tests/codegen/run_segment.h"

namespace trireme::codegen {

// A segment lowered for warps, but compiled for this host.
class WarpKernels {
 public:
  explicit WarpKernels(const Segment& segment);
  ~WarpKernels();
  WarpKernels(const WarpKernels&) = delete;
  WarpKernels& operator=(const WarpKernels&) = delete;

  // `calls`: of the same segment, compiled for the host. Library calls go to the reference.
  void run(const program::CompiledSegment& calls, const Segment& source, const Memory& memory,
           const program::KernelContext& context) const;

 private:
  void* handle_ = nullptr;
};

}  // namespace trireme::codegen
