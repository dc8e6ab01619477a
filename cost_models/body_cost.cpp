#include "cost_models/body_cost.h"

#include "cost_models/collectives.h"
#include "cost_models/compute.h"

namespace trireme::cost {
namespace {

using program::GroupKind;
using program::Instruction;
using program::InstructionKind;
using spec::CollectiveKind;

Bytes bufferBytes(const program::Role& role, int32_t buffer) {
  return Bytes(static_cast<double>(role.buffers[static_cast<size_t>(buffer)].bytes()));
}

}  // namespace

Seconds BodyCost::total() const {
  Seconds sum = compute;
  for (size_t i = 0; i < reduce.size(); ++i) sum += reduce[i] + gather[i];
  return sum;
}

BodyCost& BodyCost::operator+=(const BodyCost& other) {
  compute += other.compute;
  for (size_t i = 0; i < reduce.size(); ++i) {
    reduce[i] += other.reduce[i];
    gather[i] += other.gather[i];
  }
  sentForward += other.sentForward;
  sentBackward += other.sentBackward;
  return *this;
}

BodyCost BodyCost::operator*(double factor) const {
  BodyCost scaled = *this;
  scaled.compute *= factor;
  for (size_t i = 0; i < reduce.size(); ++i) {
    scaled.reduce[i] *= factor;
    scaled.gather[i] *= factor;
  }
  scaled.sentForward *= factor;
  scaled.sentBackward *= factor;
  return scaled;
}

BodyCost WalkedBody::total() const {
  BodyCost sum = outside;
  sum += repeated;
  return sum;
}

BodyWalker::BodyWalker(const program::Program& program, const plan::Plan& plan,
                       const spec::ClusterSpec& cluster, const spec::StackProfile& stack)
    : cluster_(cluster) {
  segmentTimes_.reserve(program.segments.size());
  for (const program::Segment& segment : program.segments)
    segmentTimes_.push_back(segmentTime(segment, cluster.device, stack));
  for (size_t kind = 0; kind < levels_.size(); ++kind)
    levels_[kind] =
        levelsOf(groupShape(static_cast<GroupKind>(kind), plan), ranksOf(plan), cluster);
}

WalkedBody BodyWalker::walk(const program::Role& role, const program::Body& body) const {
  WalkedBody walked;
  walkRange(role, body, 0, body.instructions.size(), 0, walked);
  return walked;
}

// `times` is 0 outside any Repeat, else how often the range runs.
void BodyWalker::walkRange(const program::Role& role, const program::Body& body, size_t begin,
                           size_t end, double times, WalkedBody& into) const {
  for (size_t i = begin; i < end; ++i) {
    const Instruction& instruction = body.instructions[i];
    if (instruction.kind == InstructionKind::kRepeat) {
      const size_t inner = i + 1 + static_cast<size_t>(instruction.length);
      walkRange(role, body, i + 1, inner, (times == 0 ? 1 : times) * instruction.count, into);
      i = inner - 1;
      continue;
    }
    BodyCost once;
    addInstruction(role, instruction, once);
    if (times == 0)
      into.outside += once;
    else
      into.repeated += once * times;
  }
}

void BodyWalker::addInstruction(const program::Role& role, const Instruction& instruction,
                                BodyCost& into) const {
  const auto group = static_cast<size_t>(instruction.group);
  switch (instruction.kind) {
    case InstructionKind::kCompute:
      into.compute += segmentTimes_[static_cast<size_t>(instruction.segment)];
      break;
    case InstructionKind::kAllReduce:
      into.reduce[group] += collectiveTime(
          CollectiveKind::kAllReduce, bufferBytes(role, instruction.buffers[0]), levels_[group]);
      break;
    case InstructionKind::kReduceScatter:
      into.reduce[group] +=
          collectiveTime(CollectiveKind::kReduceScatter, bufferBytes(role, instruction.buffers[0]),
                         levels_[group]);
      break;
    case InstructionKind::kAllGather:
      into.gather[group] += collectiveTime(
          CollectiveKind::kAllGather, bufferBytes(role, instruction.buffers[1]), levels_[group]);
      break;
    case InstructionKind::kSend:
      (instruction.stream == program::Stream::kSendForward ? into.sentForward
                                                           : into.sentBackward) +=
          bufferBytes(role, instruction.buffers[0]);
      break;
    default:
      into.compute += instructionTime(instruction, role, cluster_.device);
  }
}

}  // namespace trireme::cost
