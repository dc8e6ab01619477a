#include "runtime/device/cuda/driver_memory.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/device/cuda/segment_graphs.h"
#include "runtime/device/cuda/segment_steps.h"

namespace trireme::runtime::cuda {
namespace {

int64_t numNodes(const program::Segment& segment, const program::CompiledSegment* compiled) {
  constexpr int64_t kPerOp = 2;
  const std::vector<SegmentStep> steps = stepsOf(segment, compiled);
  if (steps.size() < kMinCapturedSteps) return 0;
  const auto numGenerated = std::count_if(steps.begin(), steps.end(), [](const SegmentStep& step) {
    return step.generated != nullptr;
  });
  return numGenerated + kPerOp * (std::ssize(steps) - numGenerated);
}

}  // namespace

int64_t numGraphNodes(const program::Bundle& bundle, const RankProgram& rank) {
  const std::vector<program::Segment>& segments = bundle.program.segments;
  std::vector<int64_t> ofSegment;
  for (size_t i = 0; i < segments.size(); ++i)
    ofSegment.push_back(
        numNodes(segments[i], bundle.kernels.empty() ? nullptr : &bundle.kernels[i]));
  // The last backward of a chunk calls what the others call.
  std::set<std::tuple<program::Direction, int32_t, int32_t>> captured;  // direction, chunk, slot
  int64_t number = 0;
  for (const program::TaskRecord& task : rank.role->tasks) {
    if (!captured.emplace(task.direction, task.chunk, task.slot).second) continue;
    const FlatBody& body = rank.bodies[static_cast<size_t>(task.body)];
    for (const Section& section : body.sections)
      for (int32_t at = section.begin; at < section.end; ++at) {
        const FlatInstruction& in = body.instructions[static_cast<size_t>(at)];
        if (in.kind == program::InstructionKind::kCompute)
          number += section.count * ofSegment[static_cast<size_t>(in.segment)];
      }
  }
  return number;
}

}  // namespace trireme::runtime::cuda
