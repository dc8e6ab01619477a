// How a body unfolds: its executions in issue order, the bytes they touch, their names in messages.
#pragma once
#include <string>

#include "ir/program/program.h"

namespace trireme::program {

// Calls visit(index, layer) for every execution of an instruction but kRepeat, in issue order.
// Requires repeats that stay inside the body and are not nested (V1).
template <typename Visit>
void forEachInstruction(const Body& body, Visit&& visit) {
  const auto size = static_cast<int32_t>(body.instructions.size());
  for (int32_t i = 0; i < size; ++i) {
    const Instruction& instruction = body.instructions[static_cast<size_t>(i)];
    if (instruction.kind != InstructionKind::kRepeat) {
      visit(i, 0);
      continue;
    }
    for (int32_t k = 0; k < instruction.count; ++k)
      for (int32_t j = 1; j <= instruction.length; ++j)
        visit(i + j, instruction.reversed ? instruction.count - 1 - k : k);
    i += instruction.length;
  }
}

// Bytes [begin, end) of the arena.
struct Span {
  int64_t begin = 0;
  int64_t end = 0;
  bool operator==(const Span&) const = default;
};

inline bool overlap(Span a, Span b) { return a.begin < b.end && b.begin < a.end; }
inline bool contains(Span outer, Span inner) {
  return outer.begin <= inner.begin && inner.end <= outer.end;
}

// What picks one instance of a buffer.
struct Place {
  int32_t layer = 0;
  int32_t slot = 0;
  int32_t tpIndex = 0;
  int32_t dpIndex = 0;
};

inline Span spanOf(const Buffer& buffer, const Place& at) {
  const int64_t begin = buffer.offset + at.layer * buffer.layerStride +
                        at.slot * buffer.slotStride + at.tpIndex * buffer.tpStride +
                        at.dpIndex * buffer.dpStride;
  return {begin, begin + buffer.bytes()};
}

// What a stream besides the compute stream is for: messages, or collectives.
inline bool isMessageStream(Stream stream) {
  return stream >= Stream::kRecvForward && stream <= Stream::kSendBackward;
}
inline bool isReduceStream(Stream stream) {
  return stream == Stream::kDpReduce || stream == Stream::kTpReduce;
}

inline bool isMessage(InstructionKind kind) {
  return kind == InstructionKind::kSend || kind == InstructionKind::kRecv;
}
inline bool isCollective(InstructionKind kind) {
  return kind == InstructionKind::kAllReduce || kind == InstructionKind::kReduceScatter ||
         kind == InstructionKind::kAllGather;
}

// Whether the gradients of weights have tasks of their own, behind the backwards.
bool splitsBackward(const Role& role);
// The direction of the last task that uses a microbatch's slot.
inline Direction lastDirection(bool splitsBackward) {
  return splitsBackward ? Direction::kWeights : Direction::kBackward;
}

// Index of the event that `ref` means in a task on `slot`; -1: none.
inline int32_t eventIndex(const EventRef& ref, int32_t slot) {
  return ref.base < 0 ? -1 : ref.base + (ref.perSlot ? slot : 0);
}

// Number of inputs and outputs of an op.
struct Arity {
  int inputs = 0;
  int outputs = 0;
};
Arity arityOf(OpKind kind);
// Whether the op adds to its `output`-th output instead of setting it.
bool isAccumulated(OpKind kind, size_t output);
// Elementwise: an output may take the place of an input that is not read afterwards.
bool mayWriteInPlace(OpKind kind);

// Whether the stream takes instructions of this kind.
bool takes(Stream stream, InstructionKind kind);

std::string_view streamName(Stream stream);           // "compute", "recv_forward", ...
std::string_view groupKindName(GroupKind kind);       // "tp", "dp", "pp", "embedding", ...
std::string_view directionName(Direction direction);  // "forward", "weights", ...
std::string taskName(const TaskRecord& task);         // "F0.3", "B1.2", "step"

}  // namespace trireme::program
