// A rank's share of a Program, resolved once so that executing an instruction looks nothing up:
// addresses of this rank, ranks and groups instead of positions, events and repeats flattened.
#pragma once
#include <cstdint>
#include <vector>

#include "ir/base/status.h"
#include "ir/program/program.h"

namespace trireme::runtime {

// Address of an access: base + layer * layerStride + slot * slotStride.
struct Operand {
  char* base = nullptr;  // null: the program names no buffer here
  int64_t layerStride = 0;
  int64_t slotStride = 0;
  char* at(int32_t layer, int32_t slot) const {
    return base == nullptr ? nullptr : base + layer * layerStride + slot * slotStride;
  }
};

struct FlatInstruction {
  program::InstructionKind kind = program::InstructionKind::kCompute;
  program::Stream stream = program::Stream::kCompute;
  program::GroupKind groupKind = program::GroupKind::kTp;
  program::ReduceOp reduce = program::ReduceOp::kSum;
  DType type = DType::kF32;  // of buffers[0]
  int32_t index = 0;         // in the body, for messages and fault injection
  int32_t segment = -1;
  int32_t group = -1;  // index into Program::groups
  int32_t groupSize = 1;
  int32_t peer = -1;  // rank
  int32_t virtualStage = 0;
  int32_t bucket = -1;
  program::EventRef event;
  int32_t firstOperand = 0;  // into RankProgram::operands
  int32_t numOperands = 0;
  int64_t elements = 0;  // of buffers[0]; of one member's part for scatter and gather
  int64_t bytes = 0;     // payload, as counters.h defines it
};

// A run of instructions of a body: once, or once per layer.
struct Section {
  int32_t begin = 0, end = 0;  // into FlatBody::instructions
  int32_t count = 1;
  bool repeated = false;
  bool reversed = false;
};

struct FlatBody {
  std::vector<FlatInstruction> instructions;
  std::vector<Section> sections;
};

struct RankProgram {
  const program::Program* program = nullptr;
  const program::Role* role = nullptr;
  int32_t rank = 0;
  program::RankInfo info;
  char* arena = nullptr;
  std::vector<FlatBody> bodies;
  std::vector<Operand> operands;
  int32_t maxOperands = 0;
  // Instructions on each stream in one step: how long its queue can become.
  int64_t queued[program::kNumStreams] = {};

  // Address of a role's buffer outside layers and slots; null for -1.
  char* address(int32_t buffer) const;
  // Null: nothing is scaled.
  program::LossScaling* lossScaling() const {
    return reinterpret_cast<program::LossScaling*>(address(role->lossScaling));
  }
};

// `program` and `arena` (Role::arenaBytes) must outlive the result.
// kInvalidArgument: an index is out of range, a repeat is nested or leaves its body, an instruction
// lacks buffers or is on a stream that cannot take it; names role, body and instruction. What
// verifyProgram() proves beyond that is taken for granted.
Result<RankProgram> resolveRank(const program::Program& program, int32_t rank, char* arena);

// "forward of chunk 0, microbatch 3, layer.forward.1 (instruction 5, all_reduce over tp, layer 2)".
std::string describeInstruction(const RankProgram& rank, const program::TaskRecord& task,
                                const FlatInstruction& instruction, int32_t layer);

}  // namespace trireme::runtime
