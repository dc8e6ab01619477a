// What a segment does, step by step, and which steps may run as one.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/program/bundle.h"

namespace trireme::runtime::cuda {

// An op of the library, or a generated kernel.
struct SegmentStep {
  const program::KernelCall* generated = nullptr;  // null: `op`
  const program::SegmentOp* op = nullptr;
};
// In order. `compiled` null, or without calls: all ops by the library. Both outlive the result.
std::vector<SegmentStep> stepsOf(const program::Segment& segment,
                                 const program::CompiledSegment* compiled);

// Steps that run as one where the first of them stands.
struct MergedSteps {
  std::vector<size_t> steps;           // in order
  std::vector<int32_t> read, written;  // operands, as long as it runs
};

// Whether memory allows it, for a call with these addresses: what is written overlaps neither what
// is read, nor another result, nor anything that the steps between touch, and these leave alone
// what is read.
bool isApart(const MergedSteps& merged, const program::Segment& segment,
             const std::vector<SegmentStep>& steps, const std::vector<void*>& addresses);

}  // namespace trireme::runtime::cuda
