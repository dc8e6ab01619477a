// Scratch bytes that host library kernels may use: part of the arena, so that planner, compiler and
// runtime agree. Depends only on the op and its local shapes.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/program/op.h"

namespace trireme::program {

int64_t hostWorkspaceBytes(const SegmentOp& op, const std::vector<OperandType>& operands);

}  // namespace trireme::program
