// A segment on a GPU: its launches, one by one or, as soon as they have been captured, as one CUDA
// graph per call.
//
// A rank calls a segment with the same addresses in every step, once per microbatch, layer and
// buffer slot. The first call with some addresses launches one by one, which warms up: the driver
// loads kernels, cuBLASLt chooses algorithms. capture() makes its graph when the step has ended;
// from then on such a call is one launch. Only random keys and the first sample change: they are
// replaced in the launches that draw random numbers, and in no others.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <variant>
#include <vector>

#include "ir/program/bundle.h"
#include "runtime/device/cuda/generated_launch.h"
#include "runtime/device/cuda/graph.h"
#include "runtime/device/cuda/matmul.h"
#include "runtime/device/cuda/op_launch.h"

namespace trireme::runtime::cuda {

using LaunchStep = std::variant<OpLaunch, GeneratedLaunch, std::unique_ptr<Matmul>>;

// Segments of fewer are launched one by one: a graph costs the host about what one launch costs.
inline constexpr size_t kMinCapturedSteps = 3;

// Where the segments of a rank run. The GPU outlives them.
struct SegmentPlace {
  const Gpu* gpu = nullptr;
  StreamHandle stream = nullptr;
  Workspace workspace;
};

class SegmentGraphs {
 public:
  // `segment` and `steps`, which are its launches in order, outlive the result. Without `enabled`
  // nothing is captured.
  SegmentGraphs(const SegmentPlace& place, const program::Segment& segment,
                std::vector<LaunchStep>& steps, bool enabled);

  // Puts a call on the stream. `operands`: one per operand of the segment. kInternal: a launch is
  // refused.
  Status run(const program::KernelContext& context, void* const* operands);
  // Makes the graphs of what run() was called with for the first time since the last capture().
  // Errors: as Graph::capture().
  Status capture();

 private:
  struct Call {
    program::KernelContext context;  // of the first
    std::unique_ptr<Graph> graph;    // null: not captured yet
  };
  // Addresses of all operands, looked up without a copy.
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::span<void* const> operands) const;
  };
  struct Equal {
    using is_transparent = void;
    bool operator()(std::span<void* const> a, std::span<void* const> b) const;
  };

  bool draws(const LaunchStep& step) const;
  Status put(LaunchStep& step, const program::KernelContext& context, void* const* operands,
             KernelSink& sink);
  Status replay(const Graph& graph, const program::KernelContext& context, void* const* operands);
  Result<std::unique_ptr<Graph>> captureCall(const program::KernelContext& context,
                                             void* const* operands);

  SegmentPlace place_;
  const program::Segment* segment_;
  std::vector<LaunchStep>* steps_;
  bool generatedDraw_ = false;  // generated kernels may draw random numbers
  bool captures_ = false;
  std::unordered_map<std::vector<void*>, Call, Hash, Equal> calls_;
  bool hasNewCalls_ = false;
};

}  // namespace trireme::runtime::cuda
