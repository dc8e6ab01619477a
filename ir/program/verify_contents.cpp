// (V6) nothing is read before it is written, (V7) nothing is overwritten while it is needed, (V9)
// buckets are reduced and stepped, (V10) partial sums are completed: an abstract execution of a
// role in issue order, in which every byte of the arena knows what it holds. Order between streams
// is (V7) of verify_races.cpp.
//
// A pass (one forward and its backward, of one task or two) is executed once per pair of bodies,
// not once per microbatch: the slots of a chunk are disjoint copies of each other, which is checked
// first.
#include "ir/program/verify_contents.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/program/interval_map.h"
#include "ir/program/verify_internal.h"

namespace trireme::program::verify {

RoleMemory::RoleMemory(const Context& context, int32_t role, int32_t tpIndex, int32_t dpIndex)
    : context_(context), program_(context.program), index_(role), role_(program_.roles[at(role)]) {
  place_.tpIndex = tpIndex;
  place_.dpIndex = dpIndex;
}

Status RoleMemory::error(std::string_view label, const std::string& message) const {
  return violation(label, where(context_, index_, task_, body_, instruction_), message);
}

Span RoleMemory::span(int32_t buffer) const { return spanOf(role_.buffers[at(buffer)], place_); }

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
  TRIREME_RETURN_IF_ERROR(addRegion(role_.lossScaling, Region::kLossScaling, true));
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

Status RoleMemory::pass(const std::vector<int32_t>& tasks) {
  overlay_.clear();
  for (std::vector<Span>* spans : {&exposed_, &written_}) spans->clear();
  for (std::vector<TaskSpan>* spans : {&added_, &reduced_}) spans->clear();
  values_.clear();
  seen_.clear();
  seenByBackward_.clear();
  constexpr Owner kOwners[] = {Owner::kForward, Owner::kBackward, Owner::kWeights};
  for (size_t i = 0; i < tasks.size(); ++i) {
    owner_ = kOwners[i];
    task_ = tasks[i];
    if (owner_ == Owner::kWeights)
      for (const auto& [name, version] : seenByBackward_) seen_[name] = version;
    const TaskRecord& task = role_.tasks[at(task_)];
    TRIREME_RETURN_IF_ERROR(execute(task.body, task.slot));
  }
  return checkUsed();
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
      return write(resultIn(in.buffers[0]), in, false);
    case InstructionKind::kAllReduce:
    case InstructionKind::kReduceScatter:
    case InstructionKind::kAllGather:
      return collective(in);
    case InstructionKind::kLoadBatch:
      if (overlap(span(in.buffers[0]), span(in.buffers[1])))
        return error("V7", fmt::format("loads {} over {}", role_.buffers[at(in.buffers[0])].name,
                                       role_.buffers[at(in.buffers[1])].name));
      TRIREME_RETURN_IF_ERROR(write(in, 0));
      return write(in, 1);
    case InstructionKind::kZero:
      return write(in, 0);
    case InstructionKind::kSumSquares:
      return sumSquares(in);
    case InstructionKind::kAdamW:
      return adamW(in);
    case InstructionKind::kUpdateLossScale:
      return updateLossScale(in);
    case InstructionKind::kRepeat:
    case InstructionKind::kWait:
      return {};
  }
  return {};
}

Status RoleMemory::checkContent(int32_t buffer, Span bytes, Span piece,
                                const Content* content) const {
  const Buffer& b = role_.buffers[at(buffer)];
  const auto here = [&] {
    return fmt::format("{} (bytes {} to {})", b.name, piece.begin, piece.end);
  };
  if (content == nullptr || content->garbage)
    return error("V6", fmt::format("reads {}, which nothing has written", here()));
  if (content->scratch && content->scope != scope_)
    return error("V6", fmt::format("reads {}, where an earlier layer or task has left what it no "
                                   "longer needed",
                                   here()));
  const bool whole = contains(content->written, bytes) || contains(bytes, content->written);
  if (content->dtype != b.dtype || !whole)
    return error("V7", fmt::format("reads {} as {}, but it was overwritten with {} from {} to {}",
                                   here(), dtypeName(b.dtype), dtypeName(content->dtype),
                                   content->written.begin, content->written.end));
  // A name gives what was made under it. What others have made in an earlier scope is taken as it
  // is found, but stays the same from forward to backward, and from there to the weights.
  if (content->buffer < 0 || content->buffer == buffer) return {};
  const auto known = seen_.find({buffer, bytes.begin});
  if (content->scope == scope_ || (known != seen_.end() && content->version > known->second))
    return error("V7", fmt::format("reads {}, which now holds {}", here(),
                                   role_.buffers[at(content->buffer)].name));
  return {};
}

Result<Content> RoleMemory::read(int32_t buffer, std::optional<Span> part) {
  const Span bytes = part.value_or(span(buffer));
  Content common{role_.buffers[at(buffer)].dtype, bytes, owner_};
  common.reduced = 0xFF;
  Status status;
  const auto see = [&](Span piece, const Content* content) {
    if (!status.ok()) return;
    status = checkContent(buffer, bytes, piece, content);
    if (!status.ok()) return;
    if (content->partial) common.partial = true;
    common.reduced &= content->reduced;
    if (content->owner != owner_) common.owner = content->owner;
    if (content->value >= 0) values_[at(content->value)].used = true;
    if (contains(content->written, bytes)) common.written = content->written;
    common.version = std::max(common.version, content->version);
    if (isOfPass(owner_) && isOfPass(content->owner) && content->owner != owner_)
      exposed_.push_back(piece);
  };
  for (auto& [sent, used] : sent_) used |= overlap(sent, bytes);
  overlay_.visit(bytes, [&](Span piece, const Content* content) {
    if (content != nullptr) return see(piece, content);
    base_.visit(piece, see);
  });
  if (!status.ok()) return Error(std::move(status));
  if (owner_ == Owner::kForward) seen_[{buffer, bytes.begin}] = common.version;
  if (owner_ == Owner::kBackward) seenByBackward_[{buffer, bytes.begin}] = common.version;
  return common;
}

// Whether an instruction may write to a kind of persistent state.
bool RoleMemory::mayWrite(const Instruction& in, Region region, bool accumulates) const {
  const bool pass = isOfPass(owner_);
  switch (region) {
    case Region::kParameter:
      return !pass &&
             (in.kind == InstructionKind::kAdamW || in.kind == InstructionKind::kAllGather);
    case Region::kState:
      return in.kind == InstructionKind::kAdamW;
    case Region::kLossScaling:
      return !pass && in.kind == InstructionKind::kUpdateLossScale;
    case Region::kGradient:
    case Region::kLoss:
      if (pass && isCollective(in.kind))
        return region == Region::kGradient && isBackward(owner_) &&
               in.kind != InstructionKind::kAllGather;
      if (pass) return in.kind == InstructionKind::kCompute && accumulates;
      return in.kind == InstructionKind::kZero || in.kind == InstructionKind::kAllReduce ||
             in.kind == InstructionKind::kReduceScatter;
  }
  return false;
}

// What an instruction leaves in a buffer.
Content RoleMemory::contentOf(int32_t buffer) const {
  Content content{role_.buffers[at(buffer)].dtype, span(buffer), owner_};
  content.scratch = role_.buffers[at(buffer)].slotStride == 0;
  content.buffer = buffer;
  content.scope = scope_;
  return content;
}

// The same for what it was issued for.
Content RoleMemory::resultIn(int32_t buffer) {
  Content content = contentOf(buffer);
  content.value = static_cast<int32_t>(values_.size());
  values_.push_back({task_, body_, instruction_, buffer, false});
  return content;
}

// Nothing is computed, received or gathered in vain.
Status RoleMemory::checkUsed() const {
  for (const Value& value : values_)
    if (!value.used && regionAt(span(value.buffer)) == nullptr)
      return violation(
          "V9", where(context_, index_, value.task, value.body, value.instruction),
          fmt::format("makes {}, which nobody uses", role_.buffers[at(value.buffer)].name));
  return {};
}

Status RoleMemory::write(Content content, const Instruction& in, bool accumulates) {
  const Span bytes = content.written;
  Status status;
  bool state = true;
  regions_.visit(bytes, [&](Span, const RegionOf* region) {
    state &= region != nullptr;
    if (region != nullptr && status.ok() && !mayWrite(in, region->region, accumulates))
      status = error("V7", fmt::format("overwrites {}", region->name));
  });
  TRIREME_RETURN_IF_ERROR(std::move(status));
  if (state) {
    content.scratch = false;
    content.buffer = content.value = -1;
  } else {
    written_.push_back(bytes);
    content.version = ++version_;
    seen_[{content.buffer, bytes.begin}] = content.version;
  }
  for (auto& [sent, used] : sent_) used &= !overlap(sent, bytes);
  if (accumulates) TRIREME_RETURN_IF_ERROR(addTo(bytes, content.partial));
  overlay_.assign(bytes, content);
  if (state && isCollective(in.kind) && isBackward(owner_)) {
    reduced_.push_back({bytes, task_});
    reductions_.push_back(content);
  }
  return {};
}

// A sum is not added to any more.
Status RoleMemory::addTo(Span accumulator, bool partial) {
  bool reduced = false;
  overlay_.visit(accumulator, [&](Span, const Content* content) {
    reduced |= content != nullptr && (content->reduced != 0 || content->garbage);
  });
  if (reduced) return error("V9", "adds to what has been reduced over ranks");
  accumulated_.assign(accumulator, partial);
  added_.push_back({accumulator, task_});
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
  TRIREME_ASSIGN_OR_RETURN(const Content content, read(in.buffers[0]));
  if (content.partial)
    return error("V10", fmt::format("sends {} before it is summed over tp", buffer.name));
  if (content.owner != owner_)
    return error("V6", fmt::format("sends {}, which this task has not written", buffer.name));
  const Span sent = span(in.buffers[0]);
  const int64_t expected = content.written.begin + place_.tpIndex * (sent.end - sent.begin);
  if (!(content.written == sent) && sent.begin != expected)
    return error("V7",
                 fmt::format("sends {} from byte {} of the whole, expected {}", buffer.name,
                             sent.begin - content.written.begin, expected - content.written.begin));
  return {};
}

Status RoleMemory::collective(const Instruction& in) {
  const Buffer& source = role_.buffers[at(in.buffers[0])];
  const Span from = span(in.buffers[0]);
  TRIREME_ASSIGN_OR_RETURN(Content content, read(in.buffers[0]));
  const uint8_t bit = groupBit(in.group);
  const bool reduces = in.kind != InstructionKind::kAllGather;
  const size_t members = program_
                             .groups[at(program_.ranks[at(context_.roles[at(index_)].first)]
                                            .group[at(static_cast<int>(in.group))])]
                             .ranks.size();
  if (reduces && (content.reduced & bit) && members > 1)
    return error(
        "V4", fmt::format("{} is already reduced over {}", source.name, groupKindName(in.group)));
  // Gradients, which their last backward may reduce, are of all microbatches.
  const bool pass = isOfPass(owner_);
  const RegionOf* region = regionAt(from);
  const bool isGradient = region != nullptr && region->region == Region::kGradient;
  if (pass && !isGradient && in.group != GroupKind::kTp && members > 1)
    return error("V4", fmt::format("{} of a microbatch over {}: its other members have others",
                                   instructionName(in.kind), groupKindName(in.group)));
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
  Content result = resultIn(target);
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

}  // namespace trireme::program::verify
