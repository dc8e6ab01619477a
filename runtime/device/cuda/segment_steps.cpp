#include "runtime/device/cuda/segment_steps.h"

#include <algorithm>

namespace trireme::runtime::cuda {
namespace {

using program::Segment;

struct Range {
  uintptr_t begin = 0, end = 0;
  bool overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
};

class Places {
 public:
  Places(const Segment& segment, const std::vector<void*>& addresses)
      : segment_(segment), addresses_(addresses) {}

  bool anyOverlap(const std::vector<int32_t>& some, const std::vector<int32_t>& others) const {
    for (const int32_t a : some)
      for (const int32_t b : others)
        if (rangeOf(a).overlaps(rangeOf(b))) return true;
    return false;
  }
  bool overlapEachOther(const std::vector<int32_t>& operands) const {
    for (size_t i = 0; i < operands.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (rangeOf(operands[i]).overlaps(rangeOf(operands[j]))) return true;
    return false;
  }

 private:
  Range rangeOf(int32_t operand) const {
    const auto i = static_cast<size_t>(operand);
    const auto begin = reinterpret_cast<uintptr_t>(addresses_[i]);
    return {begin, begin + static_cast<uintptr_t>(segment_.operands[i].bytes())};
  }

  const Segment& segment_;
  const std::vector<void*>& addresses_;
};

}  // namespace

std::vector<SegmentStep> stepsOf(const Segment& segment, const program::CompiledSegment* compiled) {
  std::vector<SegmentStep> steps;
  if (compiled == nullptr || compiled->calls.empty()) {
    for (const program::SegmentOp& op : segment.ops) steps.push_back({nullptr, &op});
    return steps;
  }
  for (const program::KernelCall& call : compiled->calls)
    if (call.kind == program::KernelCallKind::kGenerated)
      steps.push_back({&call, nullptr});
    else
      steps.push_back({nullptr, &call.op});
  return steps;
}

bool isApart(const MergedSteps& merged, const Segment& segment,
             const std::vector<SegmentStep>& steps, const std::vector<void*>& addresses) {
  const Places places(segment, addresses);
  const auto& [own, read, written] = merged;
  if (places.anyOverlap(written, read) || places.overlapEachOther(written)) return false;
  for (size_t i = own.front(); i < own.back(); ++i) {
    if (std::find(own.begin(), own.end(), i) != own.end()) continue;
    const SegmentStep& step = steps[i];
    const bool isLibrary = step.op != nullptr;
    const std::vector<int32_t>& outputs = isLibrary ? step.op->outputs : step.generated->operands;
    if (places.anyOverlap(written, outputs) || places.anyOverlap(read, outputs)) return false;
    if (isLibrary && places.anyOverlap(written, step.op->inputs)) return false;
  }
  return true;
}

}  // namespace trireme::runtime::cuda
