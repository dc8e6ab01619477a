// (V9) gradients are made, reduced and stepped; the loss is summed.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "ir/program/verify_contents.h"
#include "ir/program/verify_internal.h"

namespace trireme::program::verify {

// The parts of a bucket's buffer whose optimizer state is here.
std::vector<Span> RoleMemory::ownParts(const Bucket& bucket, int32_t buffer) const {
  const Span whole = span(buffer);
  if (!bucket.sharded) return {whole};
  const int64_t piece = (whole.end - whole.begin) / bucket.pieces, part = piece / program_.dp;
  std::vector<Span> parts;
  for (int64_t i = 0; i < bucket.pieces; ++i) {
    const int64_t begin = whole.begin + i * piece + place_.dpIndex * part;
    parts.push_back({begin, begin + part});
  }
  return parts;
}

// Is the accumulator zeroed behind its last use, for the next step?
bool RoleMemory::zeroedAtEnd(Span accumulator) const {
  const TaskRecord& last = role_.tasks.back();
  bool zeroed = false;
  for (const Instruction& in : role_.bodies[at(last.body)].instructions)
    zeroed |= in.kind == InstructionKind::kZero && contains(span(in.buffers[0]), accumulator);
  return zeroed;
}

Status RoleMemory::step() {
  overlay_.clear();
  values_.clear();
  seen_.clear();
  owner_ = Owner::kStep;
  task_ = static_cast<int32_t>(role_.tasks.size()) - 1;
  for (Content& content : reductions_) {
    content.owner = Owner::kBase;
    overlay_.assign(content.written, content);
  }
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
  TRIREME_RETURN_IF_ERROR(checkUsed());
  if (role_.loss < 0) return {};
  TRIREME_ASSIGN_OR_RETURN(const Content sum, read(role_.loss));
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

// Every parameter is read by the passes executed so far and gets a gradient from them.
Status RoleMemory::checkParameters() const {
  const auto covers = [](const IntervalMap<bool>& map, Span bytes) {
    bool all = true;
    map.visit(bytes, [&](Span, const bool* state) { all &= state != nullptr; });
    return all;
  };
  const auto v9 = [&](const std::string& message) {
    return violation("V9", where(context_, index_, -1), message);
  };
  if (role_.loss >= 0 && !covers(accumulated_, span(role_.loss)))
    return v9("no task adds to the loss");
  for (const Parameter& p : role_.parameters) {
    const Bucket& bucket = role_.buckets[at(p.bucket)];
    for (int32_t layer = 0; layer < std::max(p.numLayers, 1); ++layer) {
      const auto of = [&](int32_t buffer) {
        const int64_t width = byteSize(role_.buffers[at(buffer)].dtype);
        const int64_t begin = span(buffer).begin + (p.offset + layer * p.layerStride) * width;
        return Span{begin, begin + p.localElements(program_.tp) * width};
      };
      if (!covers(accumulated_, of(bucket.gradient)))
        return v9(
            fmt::format("parameter {} (layer {}) gets no gradient", p.name, p.firstLayer + layer));
      if (!covers(used_, of(bucket.parameter)))
        return v9(fmt::format("parameter {} (layer {}) is not used", p.name, p.firstLayer + layer));
    }
  }
  return {};
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
Status RoleMemory::checkGradient(const Instruction& in) {
  const Bucket& bucket = role_.buckets[at(in.bucket)];
  for (const Span own : ownParts(bucket, bucket.gradient))
    TRIREME_RETURN_IF_ERROR(checkGradient(bucket, in.bucket, own));
  return {};
}

Status RoleMemory::checkGradient(const Bucket& bucket, int32_t index, Span own) {
  TRIREME_ASSIGN_OR_RETURN(const Content content, read(bucket.gradient, own));
  if (program_.dp > 1 && !(content.reduced & groupBit(GroupKind::kDp)))
    return error("V9", fmt::format("bucket {} is not reduced over dp", bucket.name));
  if (isTied(index) && !(content.reduced & groupBit(GroupKind::kEmbedding)))
    return error("V9",
                 fmt::format("bucket {} is not summed over the stages that share it", bucket.name));
  if (program_.tp == 1) return {};
  const bool summed = content.reduced & groupBit(GroupKind::kTp);
  bool right = true;
  accumulated_.visit(own, [&](Span, const bool* partial) {
    if (partial != nullptr) right &= *partial == summed;
  });
  if (!right)
    return error("V9", fmt::format("bucket {} is {} over tp", bucket.name,
                                   summed ? "complete, but summed" : "not summed"));
  return {};
}

Status RoleMemory::sumSquares(const Instruction& in) {
  TRIREME_RETURN_IF_ERROR(checkGradient(in));
  TRIREME_ASSIGN_OR_RETURN(const Content before, read(in.buffers[0]));
  if (before.reduced && before.reduced != 0xFF)
    return error("V9", "adds squares after they were summed over ranks");
  return write(in, 0);
}

// Squares that hold for all ranks that share parameters.
Status RoleMemory::readNorm(const Instruction& in, bool sharded) {
  TRIREME_ASSIGN_OR_RETURN(const Content norm, read(in.buffers[0]));
  const bool summed = (norm.reduced & groupBit(GroupKind::kWorld)) ||
                      (!sharded && (norm.reduced & groupBit(GroupKind::kModel)));
  if ((program_.tp * program_.pp > 1 || sharded) && !summed)
    return error("V9", "uses squares that are not summed over ranks");
  return {};
}

// All ranks decide alike.
Status RoleMemory::updateLossScale(const Instruction& in) {
  const bool anySharded = std::any_of(role_.buckets.begin(), role_.buckets.end(),
                                      [](const Bucket& bucket) { return bucket.sharded; });
  TRIREME_RETURN_IF_ERROR(readNorm(in, program_.dp > 1 && anySharded));
  return write(contentOf(in.buffers[1]), in, false);
}

Status RoleMemory::adamW(const Instruction& in) {
  TRIREME_RETURN_IF_ERROR(checkGradient(in));
  const Bucket& bucket = role_.buckets[at(in.bucket)];
  TRIREME_RETURN_IF_ERROR(readNorm(in, program_.dp > 1 && bucket.sharded));
  for (int32_t buffer : {bucket.master, bucket.moment1, bucket.moment2}) {
    if (buffer < 0) continue;
    TRIREME_RETURN_IF_ERROR(write(contentOf(buffer), in, false));
  }
  Content own = contentOf(bucket.parameter);
  for (const Span part : ownParts(bucket, bucket.parameter)) {
    own.written = part;
    TRIREME_RETURN_IF_ERROR(write(own, in, false));
  }
  return {};
}

}  // namespace trireme::program::verify
