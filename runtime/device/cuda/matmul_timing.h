// How fast the algorithms of cuBLASLt are for a product, measured on the GPU.
#pragma once
#include <functional>
#include <vector>

#include "ir/base/units.h"
#include "runtime/device/cuda/gpu.h"
#include "runtime/device/cuda/matmul.h"

namespace trireme::runtime::cuda {

// A product of a rank with the operands of one of its calls, and what divides those of all.
struct MatmulCall {
  Matmul* matmul = nullptr;
  MatmulAlignment alignment;
  std::vector<void*> operands;  // one per operand of the segment
};

struct TimedAlgorithm {
  MatmulAlgorithm algorithm;
  Seconds time;  // the least of a few runs
};

// The fastest of the heuristic's best eight, on `stream`; of equal ones the heuristic's first.
// Blocks; each runs six times, the first of them untimed. The product's result and the workspace
// are overwritten. Nobody else should use the GPU meanwhile.
// occupy: gives the stream work for longer than the host takes to launch the runs; else small
// products would all take as long as that.
// kInternal: cuBLASLt has no algorithm, or a launch failed. Also the errors of the driver and of
// `occupy`.
Result<TimedAlgorithm> timeFastest(const Gpu& gpu, const MatmulCall& call,
                                   const Workspace& workspace, StreamHandle stream,
                                   const std::function<Status()>& occupy);

}  // namespace trireme::runtime::cuda
