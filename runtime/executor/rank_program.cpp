#include "runtime/executor/rank_program.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/program/walk.h"

namespace trireme::runtime {
namespace {

using program::Instruction;
using program::InstructionKind;
using program::isCollective;
using program::isMessage;

template <typename Container>
bool contains(const Container& container, int64_t index) {
  return index >= 0 && index < static_cast<int64_t>(container.size());
}

size_t buffersNeeded(InstructionKind kind) {
  switch (kind) {
    case InstructionKind::kCompute:
    case InstructionKind::kRepeat:
    case InstructionKind::kWait:
      return 0;
    case InstructionKind::kReduceScatter:
    case InstructionKind::kAllGather:
    case InstructionKind::kLoadBatch:
    case InstructionKind::kUpdateLossScale:
      return 2;
    default:
      return 1;
  }
}

// Turns one body of one role into a FlatBody, instruction by instruction.
class Flattener {
 public:
  explicit Flattener(RankProgram& out) : out_(out) {}

  Status flatten(const program::Body& body, FlatBody& flat) {
    const auto& code = body.instructions;
    for (size_t i = 0; i < code.size();) {
      Section section;
      section.begin = static_cast<int32_t>(flat.instructions.size());
      size_t end = i + 1;
      if (code[i].kind == InstructionKind::kRepeat) {
        if (code[i].length < 0 || code[i].count < 0 ||
            static_cast<size_t>(code[i].length) > code.size() - i - 1)
          return fault(body, i, "repeat leaves its body");
        section.count = code[i].count;
        section.repeated = true;
        section.reversed = code[i].reversed;
        end += static_cast<size_t>(code[i].length);
        ++i;
      } else {
        while (end < code.size() && code[end].kind != InstructionKind::kRepeat) ++end;
      }
      for (; i < end; ++i) TRIREME_RETURN_IF_ERROR(append(body, i, flat));
      section.end = static_cast<int32_t>(flat.instructions.size());
      flat.sections.push_back(section);
    }
    return {};
  }

 private:
  Status fault(const program::Body& body, size_t index, std::string_view what) const {
    return invalidArgument(fmt::format("role {}, body {}, instruction {} ({}): {}", out_.role->name,
                                       body.name, index,
                                       instructionName(body.instructions[index].kind), what));
  }

  const program::Buffer& bufferOf(const Instruction& in, size_t i) const {
    return out_.role->buffers[static_cast<size_t>(in.buffers[i])];
  }

  // kInvalidArgument with the reason only.
  Status check(const Instruction& in) const {
    const program::Program& program = *out_.program;
    const program::Role& role = *out_.role;
    if (in.kind == InstructionKind::kRepeat) return invalidArgument("repeats cannot be nested");
    if (in.buffers.size() < buffersNeeded(in.kind)) return invalidArgument("too few buffers");
    for (int32_t buffer : in.buffers)
      if (buffer != -1 && !contains(role.buffers, buffer))
        return invalidArgument(fmt::format("no buffer {}", buffer));
    if (in.kind == InstructionKind::kCompute) {
      if (!contains(program.segments, in.segment))
        return invalidArgument(fmt::format("no segment {}", in.segment));
      if (in.buffers.size() != program.segments[static_cast<size_t>(in.segment)].operands.size())
        return invalidArgument("number of buffers differs from the segment's operands");
    } else if (in.kind != InstructionKind::kLoadBatch) {
      for (size_t i = 0; i < buffersNeeded(in.kind); ++i)
        if (in.buffers[i] < 0) return invalidArgument("a buffer is missing");
    }
    if (in.kind == InstructionKind::kLoadBatch) {
      const int64_t tokens = program.training.sequenceLength * program.training.microbatchSize;
      for (size_t i = 0; i < 2; ++i)
        if (in.buffers[i] >= 0 &&
            (bufferOf(in, i).elements != tokens || bufferOf(in, i).dtype != DType::kI32))
          return invalidArgument(fmt::format("needs buffers of {} i32", tokens));
    }
    if (!takes(in.stream, in.kind))
      return invalidArgument(
          fmt::format("the {} stream takes no such instruction", streamName(in.stream)));
    if (isMessage(in.kind) && peerRank(program, out_.rank, in.peerStage) < 0)
      return invalidArgument(fmt::format("no pipeline rank {}", in.peerStage));
    if ((in.kind == InstructionKind::kSumSquares || in.kind == InstructionKind::kAdamW) &&
        !contains(role.buckets, in.bucket))
      return invalidArgument(fmt::format("no bucket {}", in.bucket));
    if (in.kind == InstructionKind::kWait && in.event.base < 0)
      return invalidArgument("waits for no event");
    if (in.event.base >= out_.role->numEvents)
      return invalidArgument(fmt::format("no event {}", in.event.base));
    return {};
  }

  Status append(const program::Body& body, size_t index, FlatBody& flat) {
    const Instruction& in = body.instructions[index];
    if (Status status = check(in); !status.ok()) return fault(body, index, status.message());
    FlatInstruction out;
    out.kind = in.kind;
    out.stream = in.stream;
    out.groupKind = isMessage(in.kind) ? program::GroupKind::kPp : in.group;
    out.reduce = in.reduce;
    out.index = static_cast<int32_t>(index);
    out.segment = in.segment;
    out.virtualStage = in.virtualStage;
    out.bucket = in.bucket;
    out.event = in.event;
    if (isMessage(in.kind)) out.peer = peerRank(*out_.program, out_.rank, in.peerStage);
    appendOperands(in, out);
    if (!in.buffers.empty() && in.buffers[0] >= 0) {
      const program::Buffer& first = out_.role->buffers[static_cast<size_t>(in.buffers[0])];
      out.type = first.dtype;
      out.elements = first.elements;
      out.bytes = first.bytes();
    }
    if (isCollective(in.kind))
      if (Status status = resolveCollective(in, out); !status.ok())
        return fault(body, index, status.message());
    flat.instructions.push_back(out);
    return {};
  }

  void appendOperands(const Instruction& in, FlatInstruction& out) {
    out.firstOperand = static_cast<int32_t>(out_.operands.size());
    out.numOperands = static_cast<int32_t>(in.buffers.size());
    out_.maxOperands = std::max(out_.maxOperands, out.numOperands);
    for (int32_t index : in.buffers) {
      Operand operand;
      if (index >= 0) {
        const program::Buffer& buffer = out_.role->buffers[static_cast<size_t>(index)];
        operand = {out_.address(index), buffer.layerStride, buffer.slotStride};
      }
      out_.operands.push_back(operand);
    }
  }

  Status resolveCollective(const Instruction& in, FlatInstruction& out) const {
    out.group = out_.info.group[static_cast<size_t>(in.group)];
    if (!contains(out_.program->groups, out.group)) return invalidArgument("no such group");
    const auto& ranks = out_.program->groups[static_cast<size_t>(out.group)].ranks;
    out.groupSize = static_cast<int32_t>(ranks.size());
    if (std::find(ranks.begin(), ranks.end(), out_.rank) == ranks.end())
      return invalidArgument("the rank is not a member of the group");
    if (in.kind == InstructionKind::kAllReduce) return {};
    const auto& second = out_.role->buffers[static_cast<size_t>(in.buffers[1])];
    const bool scatter = in.kind == InstructionKind::kReduceScatter;
    const int64_t all = scatter ? out.elements : second.elements;
    const int64_t mine = scatter ? second.elements : out.elements;
    if (second.dtype != out.type || all != mine * out.groupSize)
      return invalidArgument(
          fmt::format("{} elements do not divide into {} parts of {}", all, out.groupSize, mine));
    out.elements = mine;
    out.bytes = all * byteSize(out.type);
    return {};
  }

  RankProgram& out_;
};

Status checkBuckets(const program::Role& role) {
  for (const program::Bucket& bucket : role.buckets)
    if (bucket.pieces < 1 || bucket.elements % bucket.pieces != 0)
      return invalidArgument(fmt::format("role {}, bucket {}: {} elements in {} pieces", role.name,
                                         bucket.name, bucket.elements, bucket.pieces));
  return {};
}

Status checkTasks(const program::Role& role) {
  for (const program::TaskRecord& task : role.tasks) {
    if (!contains(role.bodies, task.body))
      return invalidArgument(fmt::format("role {}: no body {}", role.name, task.body));
    if (task.direction != program::Direction::kStep && !contains(role.chunks, task.chunk))
      return invalidArgument(fmt::format("role {}: no chunk {}", role.name, task.chunk));
    if (task.chunk >= 0 &&
        (task.slot < 0 ||
         task.slot >= std::max(1, role.chunks[static_cast<size_t>(task.chunk)].numSlots)))
      return invalidArgument(fmt::format("role {}: no slot {}", role.name, task.slot));
  }
  return {};
}

void countQueued(RankProgram& out) {
  for (const program::TaskRecord& task : out.role->tasks) {
    const FlatBody& body = out.bodies[static_cast<size_t>(task.body)];
    for (const Section& section : body.sections)
      for (int32_t i = section.begin; i < section.end; ++i)
        out.queued[static_cast<size_t>(body.instructions[static_cast<size_t>(i)].stream)] +=
            section.count;
  }
}

}  // namespace

char* RankProgram::address(int32_t buffer) const {
  if (buffer < 0) return nullptr;
  const program::Buffer& b = role->buffers[static_cast<size_t>(buffer)];
  return arena + b.offset + info.tpIndex * b.tpStride + info.dpIndex * b.dpStride;
}

Result<RankProgram> resolveRank(const program::Program& program, int32_t rank, char* arena) {
  RankProgram out;
  out.program = &program;
  out.rank = rank;
  out.info = program.ranks[static_cast<size_t>(rank)];
  if (!contains(program.roles, out.info.role))
    return Error(invalidArgument(fmt::format("rank {}: no role {}", rank, out.info.role)));
  out.role = &program.roles[static_cast<size_t>(out.info.role)];
  out.arena = arena;
  TRIREME_RETURN_IF_ERROR(checkBuckets(*out.role));
  TRIREME_RETURN_IF_ERROR(checkTasks(*out.role));
  for (const program::Body& body : out.role->bodies)
    TRIREME_RETURN_IF_ERROR(Flattener(out).flatten(body, out.bodies.emplace_back()));
  countQueued(out);
  return out;
}

std::string describeInstruction(const RankProgram& rank, const program::TaskRecord& task,
                                const FlatInstruction& instruction, int32_t layer) {
  std::string what(instructionName(instruction.kind));
  if (isCollective(instruction.kind))
    what += fmt::format(" over {}", program::groupKindName(instruction.groupKind));
  if (instruction.segment >= 0)
    what += " " + rank.program->segments[static_cast<size_t>(instruction.segment)].name;
  if (layer >= 0) what += fmt::format(", layer {}", layer);
  const auto& body = rank.role->bodies[static_cast<size_t>(task.body)].name;
  std::string where(program::directionName(task.direction));
  if (task.chunk >= 0)
    where += fmt::format(" of chunk {}, microbatch {}", task.chunk, task.microbatch);
  return fmt::format("{}, {} instruction {} ({})", where, body, instruction.index, what);
}

}  // namespace trireme::runtime
