#include "runtime/device/cuda/segment_graphs.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme::runtime::cuda {

size_t SegmentGraphs::Hash::operator()(std::span<void* const> operands) const {
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15;  // 2^64 / golden ratio
  uint64_t hash = 0;
  for (const void* operand : operands)
    hash = ((hash ^ (hash >> 32)) + reinterpret_cast<uintptr_t>(operand)) * kMultiplier;
  return hash ^ (hash >> 32);
}

bool SegmentGraphs::Equal::operator()(std::span<void* const> a, std::span<void* const> b) const {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

SegmentGraphs::SegmentGraphs(const SegmentPlace& place, const program::Segment& segment,
                             std::vector<LaunchStep>& steps, bool enabled)
    : place_(place),
      segment_(&segment),
      steps_(&steps),
      generatedDraw_(std::any_of(segment.ops.begin(), segment.ops.end(), drawsRandom)),
      captures_(enabled && steps.size() >= kMinCapturedSteps) {}

// A generated kernel does not say which ops it is made of.
bool SegmentGraphs::draws(const LaunchStep& step) const {
  if (const auto* op = std::get_if<OpLaunch>(&step)) return op->draws();
  return generatedDraw_ && std::holds_alternative<GeneratedLaunch>(step);
}

Status SegmentGraphs::put(LaunchStep& step, const program::KernelContext& context,
                          void* const* operands, KernelSink& sink) {
  if (const auto* op = std::get_if<OpLaunch>(&step)) return op->run(context, operands, sink);
  if (auto* generated = std::get_if<GeneratedLaunch>(&step))
    return generated->run(context, operands, sink);
  return std::get<std::unique_ptr<Matmul>>(step)->run(operands, place_.workspace, place_.stream);
}

Status SegmentGraphs::run(const program::KernelContext& context, void* const* operands) {
  const std::span<void* const> key(operands, segment_->operands.size());
  if (captures_) {
    if (const auto found = calls_.find(key); found == calls_.end()) {
      calls_[std::vector<void*>(key.begin(), key.end())].context = context;
      hasNewCalls_ = true;
    } else if (found->second.graph != nullptr) {
      return replay(*found->second.graph, context, operands);
    }
  }
  StreamSink sink(*place_.gpu, place_.stream);
  for (LaunchStep& step : *steps_) TRIREME_RETURN_IF_ERROR(put(step, context, operands, sink));
  return {};
}

Status SegmentGraphs::replay(const Graph& graph, const program::KernelContext& context,
                             void* const* operands) {
  Graph::Replacement replacement(graph);
  for (LaunchStep& step : *steps_)
    if (draws(step)) TRIREME_RETURN_IF_ERROR(put(step, context, operands, replacement));
  return graph.launch(place_.stream);
}

Status SegmentGraphs::capture() {
  if (!hasNewCalls_) return {};
  hasNewCalls_ = false;
  for (auto& [operands, call] : calls_) {
    if (call.graph != nullptr) continue;
    Result<std::unique_ptr<Graph>> graph = captureCall(call.context, operands.data());
    if (!graph.has_value())
      return graph.error().withContext(fmt::format(
          "segment {} as a CUDA graph (--no-cuda-graphs runs without)", segment_->name));
    call.graph = *std::move(graph);
  }
  return {};
}

Result<std::unique_ptr<Graph>> SegmentGraphs::captureCall(const program::KernelContext& context,
                                                          void* const* operands) {
  return Graph::capture(*place_.gpu, place_.stream, [&](KernelSink& replaceable) -> Status {
    StreamSink fixed(*place_.gpu, place_.stream);
    for (LaunchStep& step : *steps_)
      TRIREME_RETURN_IF_ERROR(put(step, context, operands,
                                  draws(step) ? replaceable : static_cast<KernelSink&>(fixed)));
    return {};
  });
}

}  // namespace trireme::runtime::cuda
