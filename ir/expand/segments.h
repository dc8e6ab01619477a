// Cuts a pass at its collectives into segments, each stored once per program. Internal
// to ir/expand.
#pragma once
#include <string>
#include <vector>

#include "ir/expand/lower_block.h"
#include "ir/program/program.h"

namespace trireme::expand {

// A segment on values, or a collective, its start or its join.
struct CodeItem {
  int32_t segment = -1;           // -1: a collective
  std::vector<ValueId> operands;  // of the segment; of a collective: {value} or {from, to}
  program::InstructionKind collective = program::InstructionKind::kAllReduce;
  program::ReduceOp reduce = program::ReduceOp::kSum;
  Overlap overlap = Overlap::kNone;
};

class SegmentTable {
 public:
  // `name`: "layer.forward"; segments get a number behind it.
  std::vector<CodeItem> cut(const LoweredPass& pass, const std::string& name);
  std::vector<program::Segment> take() { return std::move(segments_); }
  // Of every segment, how many ops at its front are recomputed.
  std::vector<int32_t> takeRecomputedOps() { return std::move(recomputedOps_); }
  // Largest kernelWorkspaceBytes of any op so far.
  int64_t workspaceBytes() const { return workspaceBytes_; }

 private:
  CodeItem makeSegment(const LoweredPass& pass, size_t begin, size_t end, const std::string& name);

  std::vector<program::Segment> segments_;
  std::vector<int32_t> recomputedOps_;
  int64_t workspaceBytes_ = 0;
};

}  // namespace trireme::expand
