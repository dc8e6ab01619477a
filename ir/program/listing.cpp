#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ir/program/text.h"
#include "ir/program/walk.h"

namespace trireme::program {
namespace {

size_t at(int64_t i) { return static_cast<size_t>(i); }

// "name f32[16,2,32]" of a segment's operand, "%3" if the name is unknown.
std::string typeText(const OperandType& type) {
  return fmt::format("{}[{}]", dtypeName(type.dtype), fmt::join(type.dims, ","));
}

std::string attributeText(const OpAttributes& a) {
  const OpAttributes none;
  std::string text;
  const auto add = [&](bool differs, const std::string& item) {
    if (differs) text += (text.empty() ? " {" : ", ") + item;
  };
  add(a.epsilon != none.epsilon, fmt::format("epsilon={}", a.epsilon));
  add(a.probability != none.probability, fmt::format("p={}", a.probability));
  add(a.stream != none.stream, fmt::format("rng={}", static_cast<uint32_t>(a.stream)));
  add(a.headSize != none.headSize, fmt::format("head={}", a.headSize));
  add(a.headsPerGroup != none.headsPerGroup, fmt::format("heads_per_group={}", a.headsPerGroup));
  add(a.ropeTheta != none.ropeTheta, fmt::format("theta={}", a.ropeTheta));
  add(a.ropeScaling != none.ropeScaling, fmt::format("scaling={}", ropeScalingText(a.ropeScaling)));
  add(a.logicalVocab != none.logicalVocab, fmt::format("vocab={}", a.logicalVocab));
  add(a.scale != none.scale, fmt::format("scale={}", a.scale));
  add(a.sequenceSharded, "sequence_sharded");
  add(a.widthSharded, "width_sharded");
  return text.empty() ? text : text + "}";
}

std::string operandList(const std::vector<int32_t>& operands) {
  std::vector<std::string> names;
  for (int32_t o : operands) names.push_back(fmt::format("%{}", o));
  return fmt::format("{}", fmt::join(names, ", "));
}

void printSegment(const Segment& segment, std::string& out) {
  std::vector<std::string> types;
  for (size_t i = 0; i < segment.operands.size(); ++i)
    types.push_back(
        fmt::format("%{}: {}{}", i, typeText(segment.operands[i]),
                    i < segment.temporary.size() && segment.temporary[i] ? " temp" : ""));
  out += fmt::format("segment {}({})\n", segment.name, fmt::join(types, ", "));
  for (const SegmentOp& op : segment.ops)
    out += fmt::format("  {} = {} {}{}\n", operandList(op.outputs), opName(op.kind),
                       operandList(op.inputs), attributeText(op.attributes));
}

std::string bufferName(const Role& role, int32_t buffer) {
  const bool known = buffer >= 0 && at(buffer) < role.buffers.size();
  return known ? role.buffers[at(buffer)].name : fmt::format("?{}", buffer);
}

std::string eventText(const EventRef& event) {
  if (event.base < 0) return "";
  return fmt::format("e{}{}", event.base, event.perSlot ? "+slot" : "");
}

std::string operandsText(const Program& program, const Role& role, const Instruction& in) {
  std::vector<std::string> names;
  for (int32_t b : in.buffers) names.push_back(bufferName(role, b));
  const std::string list = fmt::format("{}", fmt::join(names, ", "));
  switch (in.kind) {
    case InstructionKind::kCompute: {
      const bool known = in.segment >= 0 && at(in.segment) < program.segments.size();
      return fmt::format("{}({})", known ? program.segments[at(in.segment)].name : "?", list);
    }
    case InstructionKind::kSend:
    case InstructionKind::kRecv:
      return fmt::format("{} {} stage {}, tag virtual stage {}", list,
                         in.kind == InstructionKind::kSend ? "to" : "from", in.peerStage,
                         in.virtualStage);
    case InstructionKind::kAllReduce:
      return fmt::format("{} {} over {}", in.reduce == ReduceOp::kMax ? "max" : "sum", list,
                         groupKindName(in.group));
    case InstructionKind::kReduceScatter:
    case InstructionKind::kAllGather:
      return fmt::format("{} over {}", fmt::join(names, " -> "), groupKindName(in.group));
    case InstructionKind::kSumSquares:
    case InstructionKind::kAdamW: {
      const bool known = in.bucket >= 0 && at(in.bucket) < role.buckets.size();
      return fmt::format("bucket {}, {}", known ? role.buckets[at(in.bucket)].name : "?", list);
    }
    case InstructionKind::kRepeat:
      return fmt::format("{} x {}", in.count, in.reversed ? "(last layer first)" : "");
    case InstructionKind::kWait:
      return eventText(in.event);
    default:
      return list;
  }
}

void printBody(const Program& program, const Role& role, const Body& body, std::string& out) {
  out += fmt::format("  body {}\n", body.name);
  size_t repeatEnd = 0;
  for (size_t i = 0; i < body.instructions.size(); ++i) {
    const Instruction& in = body.instructions[i];
    const bool inside = i < repeatEnd;
    if (in.kind == InstructionKind::kRepeat) repeatEnd = i + 1 + at(std::max(in.length, 0));
    std::string line =
        fmt::format("    {:>3} {:<14} {}{} {}", i, streamName(in.stream), inside ? "  " : "",
                    instructionName(in.kind), operandsText(program, role, in));
    if (in.kind != InstructionKind::kWait && in.event.base >= 0)
      line += " signals " + eventText(in.event);
    while (line.back() == ' ') line.pop_back();
    out += line + "\n";
  }
}

void printBuffers(const Role& role, std::string& out) {
  for (const Buffer& b : role.buffers) {
    out += fmt::format("  buffer {:<40} {:>12} x {:<4} at {}", b.name, b.elements,
                       dtypeName(b.dtype), b.offset);
    const std::pair<const char*, int64_t> strides[] = {
        {"layer", b.layerStride}, {"slot", b.slotStride}, {"tp", b.tpStride}, {"dp", b.dpStride}};
    for (const auto& [name, stride] : strides)
      if (stride != 0) out += fmt::format(" + {} {}", stride, name);
    out += "\n";
  }
}

void printTasks(const Role& role, std::string& out) {
  constexpr size_t kPerLine = 16;
  for (size_t t = 0; t < role.tasks.size(); ++t) {
    out += t % kPerLine == 0 ? (t == 0 ? "  tasks " : "\n        ") : " ";
    const TaskRecord& task = role.tasks[t];
    if (task.direction != Direction::kStep) {
      out += taskName(task);
      continue;
    }
    const bool known = task.body >= 0 && at(task.body) < role.bodies.size();
    out += known ? role.bodies[at(task.body)].name : "step";
  }
  out += "\n";
}

// "0-3,8": ranks as runs.
std::string ranksOf(const Program& program, int32_t role) {
  std::string text;
  for (int32_t r = 0; r < program.numRanks(); ++r) {
    if (program.ranks[at(r)].role != role) continue;
    int32_t last = r;
    while (last + 1 < program.numRanks() && program.ranks[at(last + 1)].role == role) ++last;
    text +=
        (text.empty() ? "" : ",") + (last > r ? fmt::format("{}-{}", r, last) : std::to_string(r));
    r = last;
  }
  return text;
}

void printRole(const Program& program, int32_t index, std::string& out) {
  const Role& role = program.roles[at(index)];
  out += fmt::format("\nrole {} (pipeline rank {}, ranks {}): {} bytes, {} events\n", role.name,
                     role.stage, ranksOf(program, index), role.arenaBytes, role.numEvents);
  for (const Chunk& c : role.chunks)
    out += fmt::format("  chunk of virtual stage {}: layers {} to {}, {} slots{}{}\n",
                       c.virtualStage, c.firstLayer, c.firstLayer + c.numLayers - 1, c.numSlots,
                       c.hasEmbedding ? ", embedding" : "", c.hasHead ? ", head" : "");
  printTasks(role, out);
  for (const Body& body : role.bodies) printBody(program, role, body, out);
  for (const Bucket& b : role.buckets)
    out += fmt::format("  bucket {}: {} elements{}{}{}\n", b.name, b.elements,
                       b.pieces > 1 ? fmt::format(" in {} pieces", b.pieces) : "",
                       b.decay ? ", decay" : "", b.sharded ? ", sharded over dp" : "");
  for (const Parameter& p : role.parameters)
    out += fmt::format(
        "  parameter {:<32} [{}]{} in bucket {} at {}{}\n", p.name, fmt::join(p.dims, ","),
        p.tpDim >= 0 ? fmt::format(" dim {} over tp", p.tpDim) : "", p.bucket, p.offset,
        p.numLayers > 0
            ? fmt::format(", layers {} to {}", p.firstLayer, p.firstLayer + p.numLayers - 1)
            : "");
  printBuffers(role, out);
}

}  // namespace

std::string printListing(const Program& program) {
  std::string out = fmt::format(
      "program {}: tp {} pp {} dp {} virtual stages {}, {} layers, {} microbatches of {}\n",
      program.model, program.tp, program.pp, program.dp, program.virtualStages, program.numLayers,
      program.training.numMicrobatches, program.training.microbatchSize);
  for (int32_t r = 0; r < static_cast<int32_t>(program.roles.size()); ++r)
    printRole(program, r, out);
  out += "\n";
  for (const Segment& segment : program.segments) printSegment(segment, out);
  return out;
}

}  // namespace trireme::program
