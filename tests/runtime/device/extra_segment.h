// Segments added to the tiny program, on memory of their own behind its arena: what they compute
// changes nothing else.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/program/program.h"

namespace trireme::runtime {

// To the end of the role's forward pass. Operand i begins `offsets[i]` bytes (0, if there are
// fewer) behind a multiple of 256.
inline void addSegment(program::Program& program, program::Role& role, program::Segment segment,
                       const std::vector<int64_t>& offsets = {}) {
  program::Instruction instruction;
  instruction.segment = static_cast<int32_t>(program.segments.size());
  for (size_t i = 0; i < segment.operands.size(); ++i) {
    program::Buffer buffer;
    buffer.name = "extra";
    buffer.dtype = segment.operands[i].dtype;
    buffer.elements = segment.operands[i].elements();
    buffer.offset = (role.arenaBytes + 255) / 256 * 256 + (i < offsets.size() ? offsets[i] : 0);
    role.arenaBytes = buffer.offset + buffer.bytes();
    instruction.buffers.push_back(static_cast<int32_t>(role.buffers.size()));
    role.buffers.push_back(buffer);
  }
  program.segments.push_back(std::move(segment));
  role.bodies[1].instructions.push_back(instruction);
}

}  // namespace trireme::runtime
