// (V1) operand types match their buffers; (V2) every access lies inside the arena.
#include <fmt/format.h>

#include <algorithm>

#include "ir/program/verify_internal.h"

namespace trireme::program::verify {
namespace {

std::string typeName(int64_t elements, DType dtype) {
  return fmt::format("{} x {}", elements, dtypeName(dtype));
}

class OperandCheck {
 public:
  OperandCheck(const Context& context, int32_t role)
      : context_(context), index_(role), role_(context.program.roles[at(role)]) {}

  Status run() {
    for (body_ = 0; body_ < static_cast<int32_t>(role_.bodies.size()); ++body_) {
      const Body& body = role_.bodies[at(body_)];
      for (instruction_ = 0; instruction_ < static_cast<int32_t>(body.instructions.size());
           ++instruction_)
        TRIREME_RETURN_IF_ERROR(check(body.instructions[at(instruction_)]));
    }
    return {};
  }

 private:
  const Buffer& buffer(const Instruction& in, size_t i) const {
    return role_.buffers[at(in.buffers[i])];
  }
  Status error(const std::string& message) const {
    return violation("V1", where(context_, index_, -1, body_, instruction_), message);
  }
  Status expect(const Buffer& buffer, int64_t elements, DType dtype) const {
    if (buffer.elements == elements && buffer.dtype == dtype) return {};
    return error(fmt::format("buffer {} is {}, expected {}", buffer.name,
                             typeName(buffer.elements, buffer.dtype), typeName(elements, dtype)));
  }

  Status check(const Instruction& in) const {
    const Training& training = context_.program.training;
    switch (in.kind) {
      case InstructionKind::kCompute: {
        const Segment& segment = context_.program.segments[at(in.segment)];
        for (size_t i = 0; i < segment.operands.size(); ++i)
          TRIREME_RETURN_IF_ERROR(
              expect(buffer(in, i), segment.operands[i].elements(), segment.operands[i].dtype));
        return {};
      }
      case InstructionKind::kReduceScatter:
        return expect(buffer(in, 0), buffer(in, 1).elements * members(in), buffer(in, 1).dtype);
      case InstructionKind::kAllGather:
        return expect(buffer(in, 1), buffer(in, 0).elements * members(in), buffer(in, 0).dtype);
      case InstructionKind::kLoadBatch:
        for (size_t i = 0; i < 2; ++i)
          TRIREME_RETURN_IF_ERROR(expect(
              buffer(in, i), training.sequenceLength * training.microbatchSize, DType::kI32));
        return {};
      case InstructionKind::kSumSquares:
      case InstructionKind::kUpdateLossScale:
      case InstructionKind::kAdamW: {
        int64_t parameters = 0;
        for (const Parameter& p : role_.parameters)
          parameters =
              std::max(parameters, int64_t{p.logicalIndex} + 1 +
                                       int64_t{p.logicalStride} * std::max(p.numLayers - 1, 0));
        if (buffer(in, 0).elements < parameters || buffer(in, 0).dtype != DType::kF64)
          return error(
              fmt::format("{} is {}, expected f64 for at least {} parameters", buffer(in, 0).name,
                          typeName(buffer(in, 0).elements, buffer(in, 0).dtype), parameters));
        return {};
      }
      default:
        return {};
    }
  }

  int64_t members(const Instruction& in) const {
    const RankInfo& rank = context_.program.ranks[at(context_.roles[at(index_)].first)];
    const int32_t group = rank.group[at(static_cast<int>(in.group))];
    return static_cast<int64_t>(context_.program.groups[at(group)].ranks.size());
  }

  const Context& context_;
  int32_t index_;
  const Role& role_;
  int32_t body_ = 0, instruction_ = 0;
};

// The addresses are linear in each index, so the extremes lie at the ends of the ranges.
class BoundsCheck {
 public:
  BoundsCheck(const Context& context, int32_t role)
      : context_(context), index_(role), role_(context.program.roles[at(role)]) {
    for (const auto& [tp, dp] : context.roles[at(role)].places) {
      tpRange_ = {std::min(tpRange_.begin, int64_t{tp}), std::max(tpRange_.end, int64_t{tp})};
      dpRange_ = {std::min(dpRange_.begin, int64_t{dp}), std::max(dpRange_.end, int64_t{dp})};
    }
  }

  Status run() {
    for (size_t b = 0; b < role_.buffers.size(); ++b)
      TRIREME_RETURN_IF_ERROR(check(role_.buffers[b], {}, {}, -1, -1));
    for (size_t b = 0; b < role_.bodies.size(); ++b) {
      Span slots{INT32_MAX, -1};
      for (const TaskRecord& task : role_.tasks)
        if (task.body == static_cast<int32_t>(b))
          slots = {std::min(slots.begin, int64_t{task.slot}),
                   std::max(slots.end, int64_t{task.slot})};
      if (slots.end >= 0) TRIREME_RETURN_IF_ERROR(checkBody(static_cast<int32_t>(b), slots));
    }
    return {};
  }

 private:
  Status checkBody(int32_t index, Span slots) const {
    const std::vector<Instruction>& list = role_.bodies[at(index)].instructions;
    int32_t repeatEnd = 0, layers = 1;
    for (int32_t i = 0; i < static_cast<int32_t>(list.size()); ++i) {
      const Instruction& in = list[at(i)];
      if (in.kind == InstructionKind::kRepeat) {
        repeatEnd = i + 1 + in.length;
        layers = in.count;
      }
      const Span layerRange{0, i < repeatEnd ? layers - 1 : 0};
      for (int32_t b : in.buffers)
        TRIREME_RETURN_IF_ERROR(check(role_.buffers[at(b)], layerRange, slots, index, i));
    }
    return {};
  }

  // Ranges are inclusive. Body, instruction: that names the buffer, or -1.
  Status check(const Buffer& buffer, Span layers, Span slots, int32_t body,
               int32_t instruction) const {
    __int128 low = buffer.offset, high = buffer.offset + buffer.bytes();
    const auto stretch = [&](int64_t stride, Span range) {
      const __int128 first = static_cast<__int128>(stride) * range.begin;
      const __int128 last = static_cast<__int128>(stride) * range.end;
      low += std::min(first, last);
      high += std::max(first, last);
    };
    stretch(buffer.layerStride, layers);
    stretch(buffer.slotStride, slots);
    stretch(buffer.tpStride, tpRange_);
    stretch(buffer.dpStride, dpRange_);
    if (low >= 0 && high <= role_.arenaBytes) return {};
    return violation(
        "V2", where(context_, index_, -1, body, instruction),
        fmt::format("buffer {} takes bytes {} to {} of an arena of {}", buffer.name,
                    static_cast<double>(low), static_cast<double>(high), role_.arenaBytes));
  }

  const Context& context_;
  int32_t index_;
  const Role& role_;
  Span tpRange_{INT32_MAX, 0}, dpRange_{INT32_MAX, 0};
};

}  // namespace

Status checkOperands(const Context& context) {
  for (size_t r = 0; r < context.roles.size(); ++r)
    if (context.roles[r].first >= 0)
      TRIREME_RETURN_IF_ERROR(OperandCheck(context, static_cast<int32_t>(r)).run());
  return {};
}

Status checkBounds(const Context& context) {
  for (size_t r = 0; r < context.roles.size(); ++r)
    if (context.roles[r].first >= 0)
      TRIREME_RETURN_IF_ERROR(BoundsCheck(context, static_cast<int32_t>(r)).run());
  return {};
}

}  // namespace trireme::program::verify
