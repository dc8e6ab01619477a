// (V6) nothing is read before it is written, (V7) nothing is overwritten while it is needed, (V9)
// buckets are reduced and stepped, (V10) partial sums are completed: an abstract execution of a
// role in issue order, in which every byte of the arena knows what it holds. Order between streams
// is (V7) of verify_races.cpp.
//
// A pass (one forward and its backward) is executed once per pair of bodies, not once per
// microbatch: the slots of a chunk are disjoint copies of each other, which is checked first.
#include "ir/program/verify_contents.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "ir/program/interval_map.h"
#include "ir/program/verify_internal.h"

namespace trireme::program::verify {

uint8_t groupBit(GroupKind kind) { return static_cast<uint8_t>(1u << static_cast<int>(kind)); }

RoleMemory::RoleMemory(const Context& context, int32_t role, int32_t tpIndex, int32_t dpIndex)
    : context_(context), program_(context.program), index_(role), role_(program_.roles[at(role)]) {
  place_.tpIndex = tpIndex;
  place_.dpIndex = dpIndex;
}

Status RoleMemory::error(std::string_view label, const std::string& message) const {
  return violation(label, where(context_, index_, task_, body_, instruction_), message);
}

Span RoleMemory::span(int32_t buffer) const { return spanOf(role_.buffers[at(buffer)], place_); }

// The part of a bucket's buffer whose optimizer state is here.
Span RoleMemory::ownPart(const Bucket& bucket, int32_t buffer) const {
  Span whole = span(buffer);
  if (!bucket.sharded) return whole;
  const int64_t part = (whole.end - whole.begin) / program_.dp;
  return {whole.begin + place_.dpIndex * part, whole.begin + (place_.dpIndex + 1) * part};
}

// Is the accumulator zeroed behind its last use, for the next step?
bool RoleMemory::zeroedAtEnd(Span accumulator) const {
  const TaskRecord& last = role_.tasks.back();
  bool zeroed = false;
  for (const Instruction& in : role_.bodies[at(last.body)].instructions)
    zeroed |= in.kind == InstructionKind::kZero && contains(span(in.buffers[0]), accumulator);
  return zeroed;
}

Status RoleMemory::addRegion(int32_t buffer, Region region, bool defined) {
  if (buffer < 0) return {};
  const Span bytes = span(buffer);
  bool taken = false;
  regions_.visit(bytes, [&](Span, const RegionOf* other) { taken |= other != nullptr; });
  if (taken)
    return error("V7", fmt::format("{} shares memory with other persistent state",
                                   role_.buffers[at(buffer)].name));
  regions_.assign(bytes, {region, role_.buffers[at(buffer)].name});
  if (defined) base_.assign(bytes, {role_.buffers[at(buffer)].dtype, bytes, Owner::kBase});
  return {};
}

Status RoleMemory::prepare() {
  for (const Bucket& bucket : role_.buckets) {
    TRIREME_RETURN_IF_ERROR(addRegion(bucket.parameter, Region::kParameter, true));
    TRIREME_RETURN_IF_ERROR(
        addRegion(bucket.gradient, Region::kGradient, zeroedAtEnd(span(bucket.gradient))));
    for (int32_t state : {bucket.master, bucket.moment1, bucket.moment2})
      TRIREME_RETURN_IF_ERROR(addRegion(state, Region::kState, true));
  }
  if (role_.loss >= 0)
    TRIREME_RETURN_IF_ERROR(addRegion(role_.loss, Region::kLoss, zeroedAtEnd(span(role_.loss))));
  findWorkspace();
  // The beginning prepares what all other tasks find.
  const TaskRecord& first = role_.tasks.front();
  if (role_.tasks.size() == 1 || first.direction != Direction::kStep) return {};
  std::swap(base_, overlay_);
  owner_ = Owner::kBase;
  task_ = 0;
  TRIREME_RETURN_IF_ERROR(execute(first.body, 0));
  std::swap(base_, overlay_);
  return {};
}

// The workspace is clobbered by every segment; it matters only if it shares memory.
void RoleMemory::findWorkspace() {
  if (role_.workspace < 0 || role_.buffers[at(role_.workspace)].elements == 0) return;
  const Span workspace = span(role_.workspace);
  for (int32_t b = 0; b < static_cast<int32_t>(role_.buffers.size()); ++b) {
    const Buffer& buffer = role_.buffers[at(b)];
    const bool moves =
        buffer.layerStride || buffer.slotStride || buffer.tpStride || buffer.dpStride;
    if (b != role_.workspace &&
        (moves ? buffer.offset < workspace.end : overlap(span(b), workspace)))
      workspaceShared_ |= moves || overlap(span(b), workspace);
  }
}

Status RoleMemory::pass(int32_t forward, int32_t backward) {
  overlay_.clear();
  exposed_.clear();
  written_.clear();
  owner_ = Owner::kForward;
  task_ = forward;
  const TaskRecord& first = role_.tasks[at(forward)];
  TRIREME_RETURN_IF_ERROR(execute(first.body, first.slot));
  owner_ = Owner::kBackward;
  task_ = backward;
  const TaskRecord& second = role_.tasks[at(backward)];
  return execute(second.body, second.slot);
}

Status RoleMemory::step() {
  overlay_.clear();
  owner_ = Owner::kStep;
  task_ = static_cast<int32_t>(role_.tasks.size()) - 1;
  TRIREME_RETURN_IF_ERROR(execute(role_.tasks.back().body, 0));
  instruction_ = -1;
  for (const Bucket& bucket : role_.buckets) {
    bool updated = true;
    overlay_.visit(span(bucket.parameter),
                   [&](Span, const Content* content) { updated &= content != nullptr; });
    if (!updated)
      return error("V9", fmt::format("bucket {}: parameters of other members are not gathered",
                                     bucket.name));
  }
  if (role_.loss < 0) return {};
  const Buffer& loss = role_.buffers[at(role_.loss)];
  TRIREME_ASSIGN_OR_RETURN(const Content sum, read(span(role_.loss), loss.dtype, loss.name));
  const uint8_t expected = program_.dp > 1 ? groupBit(GroupKind::kDp) : 0;
  if ((sum.reduced & ~singleMember()) != expected)
    return error("V9", "the loss is not summed over dp alone");
  return {};
}

// Bits of the groups in which this rank is alone.
uint8_t RoleMemory::singleMember() const {
  uint8_t bits = 0;
  const RankInfo& rank = program_.ranks[at(context_.roles[at(index_)].first)];
  for (size_t kind = 0; kind < kNumGroupKinds; ++kind)
    if (program_.groups[at(rank.group[kind])].ranks.size() == 1)
      bits |= groupBit(static_cast<GroupKind>(kind));
  return bits;
}

// Every parameter gets a gradient from the backwards executed so far.
Status RoleMemory::checkGradients() const {
  if (role_.loss >= 0) {
    bool counted = true;
    accumulated_.visit(span(role_.loss),
                       [&](Span, const bool* added) { counted &= added != nullptr; });
    if (!counted) return violation("V9", where(context_, index_, -1), "no task adds to the loss");
  }
  for (const Parameter& p : role_.parameters) {
    const Bucket& bucket = role_.buckets[at(p.bucket)];
    const Buffer& gradient = role_.buffers[at(bucket.gradient)];
    const int64_t bytes = p.localElements(program_.tp) * byteSize(gradient.dtype);
    for (int32_t layer = 0; layer < std::max(p.numLayers, 1); ++layer) {
      const int64_t begin = span(bucket.gradient).begin +
                            (p.offset + layer * p.layerStride) * byteSize(gradient.dtype);
      bool complete = true;
      accumulated_.visit({begin, begin + bytes},
                         [&](Span, const bool* added) { complete &= added != nullptr; });
      if (!complete)
        return violation(
            "V9", where(context_, index_, -1),
            fmt::format("parameter {} (layer {}) gets no gradient", p.name, p.firstLayer + layer));
    }
  }
  return {};
}

Status RoleMemory::execute(int32_t body, int32_t slot) {
  body_ = body;
  place_.slot = slot;
  const Body& code = role_.bodies[at(body)];
  Status status;
  sent_.clear();
  for (const Instruction& in : code.instructions)
    if (in.kind == InstructionKind::kSend) sent_.push_back({span(in.buffers[0]), false});
  // Scratch carries nothing into a task, from one iteration to the next, or out of a repeat.
  std::vector<bool> forgets(code.instructions.size() + 1);
  for (size_t i = 0; i < code.instructions.size(); ++i)
    if (code.instructions[i].kind == InstructionKind::kRepeat)
      forgets[i + 1] = forgets[i + 1 + at(code.instructions[i].length)] = true;
  ++scope_;
  forEachInstruction(code, [&](int32_t i, int32_t layer) {
    if (!status.ok()) return;
    instruction_ = i;
    scope_ += forgets[at(i)];
    place_.layer = layer;
    status = execute(code.instructions[at(i)]);
  });
  place_ = {0, 0, place_.tpIndex, place_.dpIndex};
  body_ = -1;
  return status;
}

Status RoleMemory::execute(const Instruction& in) {
  switch (in.kind) {
    case InstructionKind::kCompute:
      return compute(in);
    case InstructionKind::kSend:
      return send(in);
    case InstructionKind::kRecv:
      return write(in, 0);
    case InstructionKind::kAllReduce:
    case InstructionKind::kReduceScatter:
    case InstructionKind::kAllGather:
      return collective(in);
    case InstructionKind::kLoadBatch:
      TRIREME_RETURN_IF_ERROR(write(in, 0));
      return write(in, 1);
    case InstructionKind::kZero:
      return write(in, 0);
    case InstructionKind::kSumSquares:
      return sumSquares(in);
    case InstructionKind::kAdamW:
      return adamW(in);
    case InstructionKind::kRepeat:
    case InstructionKind::kWait:
      return {};
  }
  return {};
}

Result<Content> RoleMemory::read(Span bytes, DType dtype, const std::string& name) {
  Content common{dtype, bytes, owner_};
  common.reduced = 0xFF;
  Status status;
  const auto see = [&](Span piece, const Content* content) {
    if (!status.ok()) return;
    if (content == nullptr || content->garbage) {
      status = error("V6", fmt::format("reads {} (bytes {} to {}), which nothing has written", name,
                                       piece.begin, piece.end));
      return;
    }
    if (content->scope != 0 && content->scope != scope_) {
      status = error("V6", fmt::format("reads {} (bytes {} to {}), where an earlier layer or task "
                                       "has left what it no longer needed",
                                       name, piece.begin, piece.end));
      return;
    }
    const bool whole = contains(content->written, bytes) || contains(bytes, content->written);
    if (content->dtype != dtype || !whole) {
      status =
          error("V7", fmt::format("reads {} as {}, but bytes {} to {} were overwritten with {} "
                                  "from {} to {}",
                                  name, dtypeName(dtype), piece.begin, piece.end,
                                  dtypeName(content->dtype), content->written.begin,
                                  content->written.end));
      return;
    }
    if (content->partial) common.partial = true;
    common.reduced &= content->reduced;
    if (content->owner != owner_) common.owner = content->owner;
    if (owner_ == Owner::kBackward && content->owner == Owner::kForward) exposed_.push_back(piece);
  };
  for (auto& [sent, used] : sent_) used |= overlap(sent, bytes);
  overlay_.visit(bytes, [&](Span piece, const Content* content) {
    if (content != nullptr) return see(piece, content);
    base_.visit(piece, see);
  });
  if (!status.ok()) return Error(std::move(status));
  return common;
}

// Whether an instruction may write to a kind of persistent state.
bool RoleMemory::mayWrite(const Instruction& in, Region region, bool accumulates) const {
  const bool pass = owner_ == Owner::kForward || owner_ == Owner::kBackward;
  switch (region) {
    case Region::kParameter:
      return !pass &&
             (in.kind == InstructionKind::kAdamW || in.kind == InstructionKind::kAllGather);
    case Region::kState:
      return in.kind == InstructionKind::kAdamW;
    case Region::kGradient:
    case Region::kLoss:
      if (pass) return in.kind == InstructionKind::kCompute && accumulates;
      return in.kind == InstructionKind::kZero || in.kind == InstructionKind::kAllReduce ||
             in.kind == InstructionKind::kReduceScatter;
  }
  return false;
}

// What an instruction leaves in a buffer. Memory that belongs to no slot is scratch, unless it is
// persistent state.
Content RoleMemory::contentOf(int32_t buffer) const {
  const Buffer& b = role_.buffers[at(buffer)];
  Content content{b.dtype, span(buffer), owner_};
  content.scope = b.slotStride == 0 ? scope_ : 0;
  return content;
}

Status RoleMemory::write(Content content, const Instruction& in, bool accumulates) {
  const Span bytes = content.written;
  Status status;
  bool scratch = false;
  regions_.visit(bytes, [&](Span, const RegionOf* region) {
    scratch |= region == nullptr;
    if (region != nullptr && status.ok() && !mayWrite(in, region->region, accumulates))
      status = error("V7", fmt::format("overwrites {}", region->name));
  });
  TRIREME_RETURN_IF_ERROR(std::move(status));
  if (scratch) written_.push_back(bytes);
  if (!scratch) content.scope = 0;
  for (auto& [sent, used] : sent_) used &= !overlap(sent, bytes);
  if (accumulates) accumulated_.assign(bytes, true);
  overlay_.assign(bytes, content);
  return {};
}

Status RoleMemory::write(const Instruction& in, size_t i) {
  return write(contentOf(in.buffers[i]), in, false);
}

Status RoleMemory::send(const Instruction& in) {
  const Buffer& buffer = role_.buffers[at(in.buffers[0])];
  // What goes to the neighbour is the last word of the task, not something on the way to it.
  for (const auto& [sent, used] : sent_)
    if (used && sent == span(in.buffers[0]))
      return error(
          "V6", fmt::format("sends {}, which is not a result: this task has used it", buffer.name));
  TRIREME_ASSIGN_OR_RETURN(const Content content,
                           read(span(in.buffers[0]), buffer.dtype, buffer.name));
  if (content.partial)
    return error("V10", fmt::format("sends {} before it is summed over tp", buffer.name));
  if (content.owner != owner_)
    return error("V6", fmt::format("sends {}, which this task has not written", buffer.name));
  return {};
}

Status RoleMemory::collective(const Instruction& in) {
  const Buffer& source = role_.buffers[at(in.buffers[0])];
  const Span from = span(in.buffers[0]);
  TRIREME_ASSIGN_OR_RETURN(Content content, read(from, source.dtype, source.name));
  const uint8_t bit = groupBit(in.group);
  const bool reduces = in.kind != InstructionKind::kAllGather;
  const size_t members = program_
                             .groups[at(program_.ranks[at(context_.roles[at(index_)].first)]
                                            .group[at(static_cast<int>(in.group))])]
                             .ranks.size();
  if (reduces && (content.reduced & bit) && members > 1)
    return error(
        "V4", fmt::format("{} is already reduced over {}", source.name, groupKindName(in.group)));
  if (!reduces && content.partial)
    return error("V10", fmt::format("gathers {} before it is summed over tp", source.name));
  const int32_t target = in.buffers[in.kind == InstructionKind::kAllReduce ? 0 : 1];
  const Span to = span(target);
  TRIREME_RETURN_IF_ERROR(checkParts(in, from, to, content));
  if (reduces) content.reduced |= bit;
  if (reduces && in.group == GroupKind::kTp) content.partial = false;
  if (in.kind == InstructionKind::kReduceScatter && overlap(from, to)) {
    // What is left of the input belongs to other members.
    Content rest = contentOf(in.buffers[0]);
    rest.garbage = true;
    TRIREME_RETURN_IF_ERROR(write(rest, in, false));
  }
  Content result = contentOf(target);
  result.reduced = content.reduced;
  result.partial = content.partial;
  return write(result, in, false);
}

// A part lies where its member's index says, and state is gathered and scattered among its own
// kind.
Status RoleMemory::checkParts(const Instruction& in, Span from, Span to,
                              const Content& content) const {
  if (in.kind == InstructionKind::kAllReduce) return {};
  const bool gathers = in.kind == InstructionKind::kAllGather;
  const Span part = gathers ? from : to, whole = gathers ? to : from;
  const int64_t index = in.group == GroupKind::kTp   ? place_.tpIndex
                        : in.group == GroupKind::kDp ? place_.dpIndex
                                                     : -1;
  const int64_t expected = whole.begin + index * (part.end - part.begin);
  if (overlap(part, whole) && index >= 0 && part.begin != expected)
    return error(
        "V7", fmt::format("the part of member {} lies at byte {} of the whole, expected {}", index,
                          part.begin - whole.begin, expected - whole.begin));
  const RegionOf* source = regionAt(from);
  const RegionOf* target = regionAt(to);
  if (source != target)
    return error("V9", fmt::format("moves {} to {}", source ? source->name : "activations",
                                   target ? target->name : "activations"));
  if (gathers && target != nullptr && content.owner != owner_)
    return error("V9", fmt::format("gathers {} before its step", target->name));
  return {};
}

// The persistent state at the first byte; null if it is none.
const RoleMemory::RegionOf* RoleMemory::regionAt(Span bytes) const {
  const RegionOf* found = nullptr;
  regions_.visit({bytes.begin, bytes.begin + 1},
                 [&](Span, const RegionOf* region) { found = region; });
  return found;
}

// A segment sees weights and gradients one parameter at a time, of the layer that it computes.
Status RoleMemory::checkWeights(const Instruction& in, const Segment& segment) const {
  for (size_t i = 0; i < in.buffers.size(); ++i) {
    const RegionOf* region = regionAt(span(in.buffers[i]));
    if (region == nullptr || region->region == Region::kLoss) continue;
    const std::string& name = role_.buffers[at(in.buffers[i])].name;
    int32_t layer = 0;
    const Parameter* p = parameterAt(in.buffers[i], region->region == Region::kGradient, &layer);
    if (p == nullptr)
      return error("V1", fmt::format("{} shows no parameter of {}", name, region->name));
    std::vector<int64_t> dims = p->paddedDims;
    if (p->tpDim >= 0) dims[at(p->tpDim)] /= program_.tp;
    if (dims != segment.operands[i].dims)
      return error("V1",
                   fmt::format("{} shows {} [{}], the segment takes [{}]", name, p->name,
                               fmt::join(dims, ","), fmt::join(segment.operands[i].dims, ",")));
    const int32_t chunk = task_ < 0 ? -1 : role_.tasks[at(task_)].chunk;
    if (p->numLayers > 0 && chunk >= 0 &&
        layer != role_.chunks[at(chunk)].firstLayer + place_.layer)
      return error(
          "V1", fmt::format("{} shows {} of layer {}, the segment computes layer {}", name, p->name,
                            layer, role_.chunks[at(chunk)].firstLayer + place_.layer));
  }
  return {};
}

Status RoleMemory::compute(const Instruction& in) {
  const Segment& segment = program_.segments[at(in.segment)];
  TRIREME_RETURN_IF_ERROR(checkWeights(in, segment));
  TRIREME_RETURN_IF_ERROR(checkSharing(in, segment));
  for (const SegmentOp& op : segment.ops) {
    bool partial = false;
    for (int32_t i : op.inputs) {
      const Buffer& buffer = role_.buffers[at(in.buffers[at(i)])];
      TRIREME_ASSIGN_OR_RETURN(const Content content,
                               read(span(in.buffers[at(i)]), buffer.dtype, buffer.name));
      if (content.partial)
        return error("V10", fmt::format("{} reads {} before it is summed over tp", opName(op.kind),
                                        buffer.name));
    }
    partial = program_.tp > 1 && givesPartial(in, segment, op);
    for (size_t o = 0; o < op.outputs.size(); ++o) {
      const int32_t index = in.buffers[at(op.outputs[o])];
      const Buffer& buffer = role_.buffers[at(index)];
      const bool accumulates = isAccumulated(op.kind, o);
      if (accumulates)
        TRIREME_RETURN_IF_ERROR([&] {
          auto r = read(span(index), buffer.dtype, buffer.name);
          return r ? Status() : r.error();
        }());
      Content content = contentOf(index);
      content.partial = partial;
      TRIREME_RETURN_IF_ERROR(write(content, in, accumulates));
    }
  }
  return {};
}

// Operands of one segment may share memory if the first is dead when the second is written, or if
// an elementwise op writes the second over the first, byte for byte. The workspace belongs to
// nobody.
Status RoleMemory::checkSharing(const Instruction& in, const Segment& segment) {
  const auto n = static_cast<int32_t>(segment.operands.size());
  const auto name = [&](int32_t i) { return role_.buffers[at(in.buffers[at(i)])].name; };
  if (workspaceShared_) {
    const Span workspace = span(role_.workspace);
    for (int32_t i = 0; i < n; ++i)
      if (overlap(span(in.buffers[at(i)]), workspace))
        return error("V7", fmt::format("{} lies in the workspace", name(i)));
    Content garbage{DType::kI32, workspace, owner_};
    garbage.garbage = true;
    overlay_.assign(workspace, garbage);
  }
  for (int32_t i = 0; i < n; ++i)
    for (int32_t j = 0; j < n; ++j) {
      if (i == j || !overlap(span(in.buffers[at(i)]), span(in.buffers[at(j)]))) continue;
      if (!maySucceed(in, segment, i, j))
        return error("V7",
                     fmt::format("{} is overwritten with {} while it is needed", name(i), name(j)));
    }
  return {};
}

bool RoleMemory::maySucceed(const Instruction& in, const Segment& segment, int32_t first,
                            int32_t second) const {
  const auto uses = [](const std::vector<int32_t>& list, int32_t operand) {
    return std::find(list.begin(), list.end(), operand) != list.end();
  };
  const auto numOps = static_cast<int32_t>(segment.ops.size());
  int32_t write = numOps, lastUse = -1, firstUse = numOps;
  for (int32_t o = 0; o < numOps; ++o) {
    const SegmentOp& op = segment.ops[at(o)];
    if (uses(op.outputs, second)) write = std::min(write, o);
    if (!uses(op.inputs, first) && !uses(op.outputs, first)) continue;
    lastUse = o;
    firstUse = std::min(firstUse, o);
  }
  if (write == numOps) return true;  // Never written here.
  // The second is the earlier one of the two: the pair is judged the other way round.
  if (firstUse > write) return true;
  if (lastUse < write) return true;
  const SegmentOp& op = segment.ops[at(write)];
  return lastUse == write && mayWriteInPlace(op.kind) && !uses(op.outputs, first) &&
         span(in.buffers[at(first)]) == span(in.buffers[at(second)]) &&
         role_.buffers[at(in.buffers[at(first)])].dtype ==
             role_.buffers[at(in.buffers[at(second)])].dtype;
}

// The parameter that a buffer shows (or whose gradient), and of which logical layer; null if none.
const Parameter* RoleMemory::parameterAt(int32_t buffer, bool gradient, int32_t* layer) const {
  const Span bytes = span(buffer);
  for (const Parameter& p : role_.parameters) {
    const Bucket& bucket = role_.buckets[at(p.bucket)];
    const int32_t whole = gradient ? bucket.gradient : bucket.parameter;
    const int64_t width = byteSize(role_.buffers[at(whole)].dtype);
    if (p.localElements(program_.tp) * width != bytes.end - bytes.begin) continue;
    const int64_t distance = bytes.begin - span(whole).begin - p.offset * width;
    const int64_t stride = p.layerStride * width;
    const int64_t index = stride > 0 ? distance / stride : 0;
    if (distance != index * stride || index < 0 || index >= std::max(p.numLayers, 1)) continue;
    if (layer != nullptr) *layer = p.firstLayer + static_cast<int32_t>(index);
    return &p;
  }
  return nullptr;
}

// Whether the op contracts a dim that is split over tp: its output is this rank's term of a sum.
bool RoleMemory::givesPartial(const Instruction& in, const Segment& segment,
                              const SegmentOp& op) const {
  const auto dims = [&](int32_t operand) { return segment.operands[at(operand)].dims.size(); };
  switch (op.kind) {
    case OpKind::kEmbedding:
    case OpKind::kLossMax:
    case OpKind::kLossTarget:
    case OpKind::kLossSumExp:
      return op.attributes.widthSharded;
    case OpKind::kMatmul:
    case OpKind::kMatmulGradInput: {
      const Parameter* weight = parameterAt(in.buffers[at(op.inputs[1])], false);
      if (weight == nullptr || weight->tpDim < 0 ||
          weight->paddedDims.size() != dims(op.inputs[1]) || dims(op.inputs[0]) < 2)
        return false;
      // The other operand is [s, b, contracted...].
      const auto contracted = static_cast<int32_t>(dims(op.inputs[0])) - 2;
      const auto rank = static_cast<int32_t>(dims(op.inputs[1]));
      return op.kind == OpKind::kMatmul ? weight->tpDim >= rank - contracted
                                        : weight->tpDim < contracted;
    }
    default:
      return false;
  }
}

// Does another role or this one hold a second copy of one of the bucket's parameters?
bool RoleMemory::isTied(int32_t bucket) const {
  if (program_.pp == 1) return false;
  std::set<int32_t> copies;
  for (const Role& role : program_.roles)
    for (const Parameter& p : role.parameters)
      if (p.copy) copies.insert(p.logicalIndex);
  return std::any_of(role_.parameters.begin(), role_.parameters.end(), [&](const Parameter& p) {
    return p.bucket == bucket && p.numLayers == 0 && copies.count(p.logicalIndex) > 0;
  });
}

// Gradients are complete over everybody who holds a part before they are used.
Result<Content> RoleMemory::readGradient(const Instruction& in) {
  const Bucket& bucket = role_.buckets[at(in.bucket)];
  const Buffer& buffer = role_.buffers[at(bucket.gradient)];
  TRIREME_ASSIGN_OR_RETURN(const Content content,
                           read(ownPart(bucket, bucket.gradient), buffer.dtype, buffer.name));
  if (program_.dp > 1 && !(content.reduced & groupBit(GroupKind::kDp)))
    return Error(error("V9", fmt::format("bucket {} is not reduced over dp", bucket.name)));
  if (isTied(in.bucket) && !(content.reduced & groupBit(GroupKind::kEmbedding)))
    return Error(error(
        "V9", fmt::format("bucket {} is not summed over the stages that share it", bucket.name)));
  return content;
}

Status RoleMemory::sumSquares(const Instruction& in) {
  auto gradient = readGradient(in);
  if (!gradient) return gradient.error();
  const Buffer& squares = role_.buffers[at(in.buffers[0])];
  TRIREME_ASSIGN_OR_RETURN(const Content before,
                           read(span(in.buffers[0]), squares.dtype, squares.name));
  if (before.reduced && before.reduced != 0xFF)
    return error("V9", "adds squares after they were summed over ranks");
  return write(in, 0);
}

Status RoleMemory::adamW(const Instruction& in) {
  auto gradient = readGradient(in);
  if (!gradient) return gradient.error();
  const Bucket& bucket = role_.buckets[at(in.bucket)];
  const Buffer& squares = role_.buffers[at(in.buffers[0])];
  TRIREME_ASSIGN_OR_RETURN(const Content norm,
                           read(span(in.buffers[0]), squares.dtype, squares.name));
  const bool sharded = program_.dp > 1 && bucket.sharded;
  const bool summed = (norm.reduced & groupBit(GroupKind::kWorld)) ||
                      (!sharded && (norm.reduced & groupBit(GroupKind::kModel)));
  if ((program_.tp * program_.pp > 1 || sharded) && !summed)
    return error("V9", "uses squares that are not summed over ranks");
  for (int32_t buffer : {bucket.master, bucket.moment1, bucket.moment2}) {
    if (buffer < 0) continue;
    TRIREME_RETURN_IF_ERROR(write(contentOf(buffer), in, false));
  }
  Content own = contentOf(bucket.parameter);
  own.written = ownPart(bucket, bucket.parameter);
  return write(own, in, false);
}

}  // namespace trireme::program::verify
