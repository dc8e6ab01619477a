#include "tests/equivalence/tied_table.h"

#include <algorithm>
#include <stdexcept>

#include "ir/expand/expand.h"

namespace trireme::equivalence {
namespace {

using program::Buffer;
using program::Instruction;
using program::InstructionKind;
using program::OpKind;
using program::Role;

// The operand of a segment that the first op of a kind writes; -1: it has none.
int32_t writtenBy(const program::Segment& segment, OpKind kind) {
  for (const program::SegmentOp& op : segment.ops)
    if (op.kind == kind) return op.outputs[0];
  return -1;
}

int32_t addSum(program::Program& program, const program::OperandType& type) {
  program::Segment sum;
  sum.name = "tied.sum";
  sum.operands = {type, type};
  sum.temporary = {false, false};
  sum.ops = {{OpKind::kAdd, {}, {0, 1}, {0}}};
  program.segments.push_back(std::move(sum));
  return static_cast<int32_t>(program.segments.size()) - 1;
}

Instruction instructionOf(InstructionKind kind, std::vector<int32_t> buffers) {
  Instruction instruction;
  instruction.kind = kind;
  instruction.buffers = std::move(buffers);
  return instruction;
}

}  // namespace

void accumulateUsesApart(program::Program& program) {
  Role& role = program.roles.at(0);
  std::vector<Instruction>& backward =
      role.bodies[static_cast<size_t>(expand::backwardBody(0))].instructions;
  int32_t table = -1;  // the buffer of the embedding's use
  program::OperandType type;
  for (const Instruction& in : backward) {
    if (in.kind != InstructionKind::kCompute) continue;
    const program::Segment& segment = program.segments[static_cast<size_t>(in.segment)];
    const int32_t operand = writtenBy(segment, OpKind::kEmbeddingGrad);
    if (operand < 0) continue;
    table = in.buffers[static_cast<size_t>(operand)];
    type = segment.operands[static_cast<size_t>(operand)];
  }
  if (table < 0) throw std::logic_error("no gradient of the table");

  const auto apart = static_cast<int32_t>(role.buffers.size());
  Buffer buffer = role.buffers[static_cast<size_t>(table)];
  const int64_t shared = buffer.offset;
  buffer.name = "tied.head_gradient";
  buffer.offset = role.arenaBytes;
  role.arenaBytes += (buffer.bytes() + 63) / 64 * 64;
  int redirected = 0;
  for (Instruction& in : backward) {
    if (in.kind != InstructionKind::kCompute) continue;
    const int32_t operand =
        writtenBy(program.segments[static_cast<size_t>(in.segment)], OpKind::kMatmulGradWeight);
    if (operand < 0) continue;
    int32_t& written = in.buffers[static_cast<size_t>(operand)];
    if (role.buffers[static_cast<size_t>(written)].offset != shared) continue;
    written = apart;
    ++redirected;
  }
  if (redirected != 1) throw std::logic_error("the head does not add to the table's gradient");
  role.buffers.push_back(std::move(buffer));

  std::vector<Instruction>& begin =
      role.bodies[static_cast<size_t>(expand::kBeginBody)].instructions;
  begin.push_back(instructionOf(InstructionKind::kZero, {apart}));
  std::vector<Instruction>& step = role.bodies[static_cast<size_t>(expand::kStepBody)].instructions;
  Instruction sum = instructionOf(InstructionKind::kCompute, {table, apart});
  sum.segment = addSum(program, type);
  step.insert(step.begin(), std::move(sum));
}

}  // namespace trireme::equivalence
