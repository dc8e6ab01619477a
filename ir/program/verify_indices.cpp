// (V1): everything that is named exists. Runs first: the other checks index without asking.
#include <fmt/format.h>

#include <algorithm>

#include "ir/program/verify_internal.h"

namespace trireme::program::verify {
namespace {

// Limits far beyond any program, so that no later sum or product overflows.
constexpr int64_t kMaxNumber = int64_t{1} << 50;
constexpr int32_t kMaxCount = 1 << 24;
constexpr int32_t kMaxLayers = 1 << 16;

template <typename... Args>
Status v1(fmt::format_string<Args...> format, Args&&... args) {
  return invalidArgument("(V1) " + fmt::format(format, std::forward<Args>(args)...));
}

bool inRange(int64_t i, size_t size) { return i >= 0 && i < static_cast<int64_t>(size); }
bool small(int64_t number) { return number >= -kMaxNumber && number <= kMaxNumber; }

// Elements of the type, or -1 if a dim is negative or the product too large.
int64_t safeElements(const OperandType& type) {
  int64_t product = 1;
  for (int64_t dim : type.dims) {
    if (dim < 0 || dim > kMaxNumber) return -1;
    if (dim != 0 && product > kMaxNumber / dim) return -1;
    product *= dim;
  }
  return product;
}

Status checkSegment(const Segment& segment) {
  if (segment.temporary.size() != segment.operands.size())
    return v1("segment {}: {} operands but {} temporary flags", segment.name,
              segment.operands.size(), segment.temporary.size());
  for (const OperandType& type : segment.operands)
    if (safeElements(type) < 0)
      return v1("segment {}: operand has an impossible shape", segment.name);
  for (size_t o = 0; o < segment.ops.size(); ++o) {
    const SegmentOp& op = segment.ops[o];
    if (static_cast<int>(op.kind) >= kNumOpKinds)
      return v1("segment {} op {}: unknown kind {}", segment.name, o, static_cast<int>(op.kind));
    const Arity arity = arityOf(op.kind);
    if (op.inputs.size() != at(arity.inputs) || op.outputs.size() != at(arity.outputs))
      return v1("segment {} op {} ({}): {} inputs and {} outputs, expected {} and {}", segment.name,
                o, opName(op.kind), op.inputs.size(), op.outputs.size(), arity.inputs,
                arity.outputs);
    for (const std::vector<int32_t>* list : {&op.inputs, &op.outputs})
      for (int32_t i : *list)
        if (!inRange(i, segment.operands.size()))
          return v1("segment {} op {} ({}): operand {} of {}", segment.name, o, opName(op.kind), i,
                    segment.operands.size());
    const DType factor = segment.operands[at(op.inputs[0])].dtype;
    if (op.attributes.tf32 && factor != DType::kF32)
      return v1("segment {} op {} ({}): tf32 with factors in {}, expected f32", segment.name, o,
                opName(op.kind), dtypeName(factor));
  }
  return {};
}

// Number of entries of Instruction::buffers; -1: one per operand of the segment.
int numBuffers(InstructionKind kind) {
  switch (kind) {
    case InstructionKind::kCompute:
      return -1;
    case InstructionKind::kReduceScatter:
    case InstructionKind::kAllGather:
    case InstructionKind::kLoadBatch:
    case InstructionKind::kUpdateLossScale:
      return 2;
    case InstructionKind::kRepeat:
    case InstructionKind::kWait:
      return 0;
    default:
      return 1;
  }
}

class BodyCheck {
 public:
  BodyCheck(const Program& program, const Role& role, const Body& body)
      : program_(program), role_(role), body_(body) {}

  Status run() {
    int32_t repeatEnd = 0;
    for (int32_t i = 0; i < static_cast<int32_t>(body_.instructions.size()); ++i) {
      const Instruction& in = body_.instructions[at(i)];
      if (static_cast<int>(in.kind) >= kNumInstructionKinds ||
          static_cast<int>(in.stream) >= kNumStreams ||
          static_cast<int>(in.group) >= kNumGroupKinds ||
          static_cast<int>(in.reduce) > static_cast<int>(ReduceOp::kMax))
        return error(i, "unknown kind, stream, group or reduction");
      if (in.kind == InstructionKind::kRepeat) {
        TRIREME_RETURN_IF_ERROR(checkRepeat(i, in, repeatEnd));
        repeatEnd = i + 1 + in.length;
      }
      if (!takes(in.stream, in.kind))
        return error(i, fmt::format("the {} stream takes only {} and waits", streamName(in.stream),
                                    isMessageStream(in.stream) ? "messages" : "collectives"));
      // So that no two groups of one stream wait for each other in different orders.
      const GroupKind expected = in.stream == Stream::kDpReduce ? GroupKind::kDp : GroupKind::kTp;
      if (isReduceStream(in.stream) && isCollective(in.kind) && in.group != expected)
        return error(i, fmt::format("the {} stream takes only collectives over {}",
                                    streamName(in.stream), groupKindName(expected)));
      TRIREME_RETURN_IF_ERROR(checkInstruction(i, in));
    }
    return {};
  }

 private:
  Status error(int32_t i, const std::string& message) const {
    return v1("role {} body {} instruction {} ({}): {}", role_.name, body_.name, i,
              instructionName(body_.instructions[at(i)].kind), message);
  }

  Status checkRepeat(int32_t i, const Instruction& in, int32_t repeatEnd) const {
    const int64_t left = static_cast<int64_t>(body_.instructions.size()) - i - 1;
    if (i < repeatEnd) return error(i, "repeats cannot be nested");
    if (in.length < 1 || in.length > left)
      return error(i,
                   fmt::format("repeats {} instructions of the {} that follow", in.length, left));
    const int64_t most = std::max<int64_t>(program_.numLayers, 1);
    if (in.count < 1 || in.count > most)
      return error(i, fmt::format("repeats {} times, expected 1 to {}", in.count, most));
    return {};
  }

  Status checkInstruction(int32_t i, const Instruction& in) const {
    size_t expected = at(std::max(numBuffers(in.kind), 0));
    if (in.kind == InstructionKind::kCompute) {
      if (!inRange(in.segment, program_.segments.size()))
        return error(i, fmt::format("segment {} of {}", in.segment, program_.segments.size()));
      expected = program_.segments[at(in.segment)].operands.size();
    }
    if (in.buffers.size() != expected)
      return error(i, fmt::format("{} buffers, expected {}", in.buffers.size(), expected));
    for (int32_t b : in.buffers)
      if (!inRange(b, role_.buffers.size()))
        return error(i, fmt::format("buffer {} of {}", b, role_.buffers.size()));
    if (in.event.base >= role_.numEvents)
      return error(i, fmt::format("event {} of {}", in.event.base, role_.numEvents));
    switch (in.kind) {
      case InstructionKind::kSend:
      case InstructionKind::kRecv:
        if (in.peerStage < 0 || in.peerStage >= program_.pp)
          return error(i, fmt::format("pipeline rank {} of {}", in.peerStage, program_.pp));
        if (in.virtualStage < 0 || in.virtualStage >= int64_t{program_.pp} * program_.virtualStages)
          return error(i, fmt::format("virtual stage {} of {}", in.virtualStage,
                                      int64_t{program_.pp} * program_.virtualStages));
        break;
      case InstructionKind::kSumSquares:
      case InstructionKind::kAdamW:
        if (!inRange(in.bucket, role_.buckets.size()))
          return error(i, fmt::format("bucket {} of {}", in.bucket, role_.buckets.size()));
        break;
      case InstructionKind::kWait:
        if (in.event.base < 0) return error(i, "awaits no event");
        break;
      case InstructionKind::kUpdateLossScale:
        if (in.buffers[1] != role_.lossScaling)
          return error(i, fmt::format("updates buffer {}, the loss scaling is {}", in.buffers[1],
                                      role_.lossScaling));
        break;
      default:
        break;
    }
    return {};
  }

  const Program& program_;
  const Role& role_;
  const Body& body_;
};

Status checkBuffer(const Role& role, int32_t index, bool optional, const char* what) {
  if (optional && index == -1) return {};
  if (inRange(index, role.buffers.size())) return {};
  return v1("role {}: {} is buffer {} of {}", role.name, what, index, role.buffers.size());
}

// f16 needs its loss scaled; nothing else has it.
Status checkLossScaling(const Training& training, const Role& role) {
  TRIREME_RETURN_IF_ERROR(
      checkBuffer(role, role.lossScaling, !training.scalesLoss(), "loss scaling"));
  if (role.lossScaling < 0) return {};
  if (!training.scalesLoss())
    return v1("role {}: the loss is scaled in {}", role.name, dtypeName(training.computeDType));
  const Buffer& buffer = role.buffers[at(role.lossScaling)];
  if (buffer.elements != kLossScalingElements || buffer.dtype != DType::kF64)
    return v1("role {}: loss scaling is {} x {}, expected {} x f64", role.name, buffer.elements,
              dtypeName(buffer.dtype), kLossScalingElements);
  return {};
}

Status checkBuckets(const Program& program, const Role& role) {
  for (const Bucket& bucket : role.buckets) {
    if (bucket.elements < 0 || !small(bucket.elements))
      return v1("role {} bucket {}: {} elements", role.name, bucket.name, bucket.elements);
    if (bucket.pieces < 1 || bucket.elements % bucket.pieces != 0)
      return v1("role {} bucket {}: {} elements do not divide into {} pieces", role.name,
                bucket.name, bucket.elements, bucket.pieces);
    if (bucket.sharded && bucket.elements / bucket.pieces % program.dp != 0)
      return v1("role {} bucket {}: {} elements do not divide over {} replicas", role.name,
                bucket.name, bucket.elements / bucket.pieces, program.dp);
    const int64_t own = bucket.sharded ? bucket.elements / program.dp : bucket.elements;
    const Training& training = program.training;
    const struct {
      int32_t buffer;
      int64_t elements;
      DType dtype;
      const char* name;
    } parts[] = {{bucket.parameter, bucket.elements, training.computeDType, "parameter"},
                 {bucket.gradient, bucket.elements, training.stateDType, "gradient"},
                 {bucket.master, own, training.stateDType, "master"},
                 {bucket.moment1, own, training.stateDType, "moment1"},
                 {bucket.moment2, own, training.stateDType, "moment2"}};
    for (const auto& part : parts) {
      const bool optional = part.buffer == -1 && &part == &parts[2];
      if (optional && training.computeDType == training.stateDType) continue;
      TRIREME_RETURN_IF_ERROR(checkBuffer(role, part.buffer, false, part.name));
      const Buffer& buffer = role.buffers[at(part.buffer)];
      if (buffer.elements != part.elements || buffer.dtype != part.dtype)
        return v1("role {} bucket {}: {} is {} x {}, expected {} x {}", role.name, bucket.name,
                  part.name, buffer.elements, dtypeName(buffer.dtype), part.elements,
                  dtypeName(part.dtype));
    }
  }
  return {};
}

Status checkParameters(const Program& program, const Role& role) {
  for (const Parameter& p : role.parameters) {
    const auto bad = [&](const std::string& message) {
      return v1("role {} parameter {}: {}", role.name, p.name, message);
    };
    if (!inRange(p.bucket, role.buckets.size())) return bad("no such bucket");
    if (p.dims.size() != p.paddedDims.size() || p.tpDim >= static_cast<int64_t>(p.dims.size()) ||
        p.tpDim < -1)
      return bad("dims do not agree");
    if (safeElements({DType::kF32, p.paddedDims}) < 0) return bad("impossible shape");
    for (size_t i = 0; i < p.dims.size(); ++i)
      if (p.dims[i] < 0 || p.dims[i] > p.paddedDims[i]) return bad("larger than its padded shape");
    if (p.tpDim >= 0 && p.paddedDims[at(p.tpDim)] % program.tp != 0)
      return bad(fmt::format("dim {} does not divide over {} tensor ranks", p.tpDim, program.tp));
    if (p.numLayers < 0 || p.numLayers > kMaxLayers || !small(p.offset) || !small(p.layerStride))
      return bad("impossible place");
    const int64_t layers = std::max(p.numLayers, 1);
    const int64_t last = p.offset + (layers - 1) * p.layerStride + p.localElements(program.tp);
    if (p.offset < 0 || p.layerStride < 0 || last > role.buckets[at(p.bucket)].elements)
      return bad("reaches beyond its bucket");
    const Bucket& bucket = role.buckets[at(p.bucket)];
    const int64_t piece = std::max<int64_t>(bucket.elements / bucket.pieces, 1);
    for (int64_t layer = 0; layer < layers && bucket.pieces > 1; ++layer) {
      const int64_t begin = p.offset + layer * p.layerStride;
      if (begin % piece + p.localElements(program.tp) > piece)
        return bad(fmt::format("layer {} reaches beyond its piece of the bucket", layer));
    }
    if (p.logicalIndex < 0 || p.logicalStride < 0) return bad("negative logical index");
  }
  return {};
}

Status checkTaskRecords(const Role& role) {
  for (size_t t = 0; t < role.tasks.size(); ++t) {
    const TaskRecord& task = role.tasks[t];
    const auto bad = [&](const std::string& message) {
      return v1("role {} task {} ({}): {}", role.name, t, taskName(task), message);
    };
    if (static_cast<int>(task.direction) > static_cast<int>(Direction::kWeights))
      return bad("unknown direction");
    if (!inRange(task.body, role.bodies.size())) return bad("no such body");
    if (task.microbatch < 0 || task.microbatch > kMaxCount) return bad("impossible microbatch");
    const bool step = task.direction == Direction::kStep;
    if (step && task.chunk == -1 && task.slot == 0 && task.microbatch == 0) continue;
    if (step || !inRange(task.chunk, role.chunks.size())) return bad("no such chunk");
    const int32_t numSlots = role.chunks[at(task.chunk)].numSlots;
    if (!inRange(task.slot, at(std::max(numSlots, 0))))
      return bad(fmt::format("slot {} of {}", task.slot, numSlots));
  }
  // Events of the slots of the tasks.
  for (size_t b = 0; b < role.bodies.size(); ++b) {
    int32_t lastSlot = 0;
    for (const TaskRecord& task : role.tasks)
      if (task.body == static_cast<int32_t>(b)) lastSlot = std::max(lastSlot, task.slot);
    for (size_t i = 0; i < role.bodies[b].instructions.size(); ++i) {
      const EventRef& event = role.bodies[b].instructions[i].event;
      if (eventIndex(event, lastSlot) >= role.numEvents)
        return v1("role {} body {} instruction {}: event {} of slot {}, the role has {}", role.name,
                  role.bodies[b].name, i, event.base, lastSlot, role.numEvents);
    }
  }
  return {};
}

Status checkRole(const Program& program, const Role& role) {
  if (role.stage < 0 || role.stage >= program.pp || !small(role.arenaBytes) ||
      role.arenaBytes < 0 || role.numEvents < 0 || role.numEvents > kMaxCount / 4)
    return v1("role {}: impossible stage, arena or number of events", role.name);
  for (const Buffer& b : role.buffers) {
    if (static_cast<int>(b.dtype) > static_cast<int>(DType::kI32) || b.elements < 0 ||
        b.elements > kMaxNumber / 16 || b.offset < 0 || !small(b.offset) || !small(b.layerStride) ||
        !small(b.slotStride) || !small(b.tpStride) || !small(b.dpStride))
      return v1("role {} buffer {}: impossible type or place", role.name, b.name);
  }
  for (const Chunk& c : role.chunks)
    if (c.numSlots < 0 || c.numSlots > kMaxCount || c.numLayers < 0 || c.numLayers > kMaxLayers)
      return v1("role {}: chunk with {} slots and {} layers", role.name, c.numSlots, c.numLayers);
  TRIREME_RETURN_IF_ERROR(checkBuffer(role, role.loss, true, "loss"));
  TRIREME_RETURN_IF_ERROR(checkBuffer(role, role.squares, true, "squares"));
  TRIREME_RETURN_IF_ERROR(checkBuffer(role, role.workspace, true, "workspace"));
  TRIREME_RETURN_IF_ERROR(checkLossScaling(program.training, role));
  TRIREME_RETURN_IF_ERROR(checkBuckets(program, role));
  TRIREME_RETURN_IF_ERROR(checkParameters(program, role));
  for (const Body& body : role.bodies)
    TRIREME_RETURN_IF_ERROR(BodyCheck(program, role, body).run());
  return checkTaskRecords(role);
}

// Whether ranks with places `a` and `b` belong to one group of `kind`.
bool together(GroupKind kind, const Program& program, const RankInfo& a, const RankInfo& b) {
  const bool tp = a.tpIndex == b.tpIndex, dp = a.dpIndex == b.dpIndex, pp = a.ppIndex == b.ppIndex;
  const auto atEnd = [&](const RankInfo& r) {
    return r.ppIndex == 0 || r.ppIndex == program.pp - 1;
  };
  switch (kind) {
    case GroupKind::kTp:
      return pp && dp;
    case GroupKind::kDp:
      return pp && tp;
    case GroupKind::kPp:
      return tp && dp;
    case GroupKind::kEmbedding:
      return tp && dp && (pp || (atEnd(a) && atEnd(b)));
    case GroupKind::kModel:
      return dp;
    case GroupKind::kWorld:
      return true;
  }
  return false;
}

// Size of the group of `kind` that `rank` belongs to. Inner stages are alone in theirs of
// kEmbedding.
int64_t groupSize(GroupKind kind, const Program& program, const RankInfo& rank) {
  const int64_t tp = program.tp, dp = program.dp, pp = program.pp;
  switch (kind) {
    case GroupKind::kTp:
      return tp;
    case GroupKind::kDp:
      return dp;
    case GroupKind::kPp:
      return pp;
    case GroupKind::kEmbedding:
      return pp > 1 && (rank.ppIndex == 0 || rank.ppIndex == pp - 1) ? 2 : 1;
    case GroupKind::kModel:
      return tp * pp;
    case GroupKind::kWorld:
      return tp * pp * dp;
  }
  return 0;
}

// Position that the index of a rank asks for in a group of `kind`; -1: any.
int32_t position(GroupKind kind, const RankInfo& rank) {
  switch (kind) {
    case GroupKind::kTp:
      return rank.tpIndex;
    case GroupKind::kDp:
      return rank.dpIndex;
    case GroupKind::kPp:
      return rank.ppIndex;
    default:
      return -1;
  }
}

Status checkGroups(const Program& program) {
  for (size_t g = 0; g < program.groups.size(); ++g) {
    const Group& group = program.groups[g];
    const auto kind = static_cast<size_t>(group.kind);
    if (kind >= kNumGroupKinds) return v1("group {}: unknown kind", g);
    const std::string name = fmt::format("group {} ({})", g, groupKindName(group.kind));
    if (group.ranks.empty()) return v1("{}: no members", name);
    std::vector<int32_t> sorted = group.ranks;
    std::sort(sorted.begin(), sorted.end());
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
      return v1("{}: a rank twice", name);
    for (size_t i = 0; i < group.ranks.size(); ++i) {
      const int32_t rank = group.ranks[i];
      if (!inRange(rank, program.ranks.size())) return v1("{}: rank {}", name, rank);
      const RankInfo& info = program.ranks[at(rank)];
      if (static_cast<int64_t>(group.ranks.size()) != groupSize(group.kind, program, info))
        return v1("{}: {} members, expected {}", name, group.ranks.size(),
                  groupSize(group.kind, program, info));
      if (info.group[kind] != static_cast<int32_t>(g))
        return v1("{}: rank {} is in group {} of that kind", name, rank, info.group[kind]);
      if (!together(group.kind, program, info, program.ranks[at(group.ranks[0])]))
        return v1("{}: rank {} does not belong there", name, rank);
      const int32_t expected = position(group.kind, info);
      if (expected >= 0 && expected != static_cast<int32_t>(i))
        return v1("{}: rank {} is member {}, expected {}", name, rank, i, expected);
    }
  }
  return {};
}

Status checkRanks(const Program& program) {
  std::vector<bool> seen(program.ranks.size());
  for (int32_t r = 0; r < program.numRanks(); ++r) {
    const RankInfo& rank = program.ranks[at(r)];
    if (!inRange(rank.role, program.roles.size())) return v1("rank {}: role {}", r, rank.role);
    if (!inRange(rank.tpIndex, at(program.tp)) || !inRange(rank.dpIndex, at(program.dp)) ||
        !inRange(rank.ppIndex, at(program.pp)))
      return v1("rank {}: impossible position", r);
    if (program.roles[at(rank.role)].stage != rank.ppIndex)
      return v1("rank {}: pipeline rank {} plays a role of pipeline rank {}", r, rank.ppIndex,
                program.roles[at(rank.role)].stage);
    const int64_t place =
        rank.tpIndex + int64_t{program.tp} * (rank.dpIndex + int64_t{program.dp} * rank.ppIndex);
    if (seen[at(place)]) return v1("rank {}: its position is taken", r);
    seen[at(place)] = true;
    for (size_t kind = 0; kind < kNumGroupKinds; ++kind) {
      const int32_t group = rank.group[kind];
      if (!inRange(group, program.groups.size()) ||
          program.groups[at(group)].kind != static_cast<GroupKind>(kind))
        return v1("rank {}: no {} group", r, groupKindName(static_cast<GroupKind>(kind)));
      const std::vector<int32_t>& members = program.groups[at(group)].ranks;
      if (std::find(members.begin(), members.end(), r) == members.end())
        return v1("rank {}: not a member of its {} group", r,
                  groupKindName(static_cast<GroupKind>(kind)));
    }
  }
  return {};
}

Status checkUseOf(const Role& role) {
  std::vector<bool> used(role.buffers.size());
  const auto use = [&](int32_t buffer) {
    if (buffer >= 0) used[at(buffer)] = true;
  };
  for (int32_t b : {role.loss, role.squares, role.workspace, role.lossScaling}) use(b);
  for (const Bucket& b : role.buckets)
    for (int32_t buffer : {b.parameter, b.gradient, b.master, b.moment1, b.moment2}) use(buffer);
  for (const Body& body : role.bodies)
    for (const Instruction& in : body.instructions)
      for (int32_t buffer : in.buffers) use(buffer);
  const auto idle = std::find(used.begin(), used.end(), false);
  if (idle == used.end()) return {};
  return v1("role {}: nothing uses buffer {}", role.name,
            role.buffers[at(idle - used.begin())].name);
}

}  // namespace

Status checkIndices(const Program& program) {
  const Training& t = program.training;
  if (program.tp < 1 || program.pp < 1 || program.dp < 1 || program.virtualStages < 1 ||
      program.tp > kMaxCount || program.pp > kMaxCount || program.dp > kMaxCount ||
      program.virtualStages > kMaxLayers || program.numLayers < 0 || program.numLayers > kMaxLayers)
    return v1("program: impossible degrees or number of layers");
  const __int128 ranks = static_cast<__int128>(program.tp) * program.pp * program.dp;
  if (ranks != static_cast<__int128>(program.ranks.size()))
    return v1("program: {} ranks, expected tp {} x pp {} x dp {}", program.ranks.size(), program.tp,
              program.pp, program.dp);
  if (t.numMicrobatches < 1 || t.numMicrobatches > kMaxCount || t.microbatchSize < 0 ||
      t.microbatchSize > kMaxCount || t.sequenceLength < 0 || t.sequenceLength > kMaxCount ||
      static_cast<int>(t.computeDType) > static_cast<int>(DType::kI32) ||
      static_cast<int>(t.stateDType) > static_cast<int>(DType::kI32))
    return v1("program: impossible training settings");
  if (t.globalBatchSize != program.dp * t.numMicrobatches * t.microbatchSize)
    return v1("program: batch of {} is not {} replicas x {} microbatches x {}", t.globalBatchSize,
              program.dp, t.numMicrobatches, t.microbatchSize);
  for (const Segment& segment : program.segments) TRIREME_RETURN_IF_ERROR(checkSegment(segment));
  for (const Role& role : program.roles) TRIREME_RETURN_IF_ERROR(checkRole(program, role));
  TRIREME_RETURN_IF_ERROR(checkGroups(program));
  return checkRanks(program);
}

// What has a place is used: otherwise something was left out.
Status checkUse(const Context& context) {
  for (const RoleRanks& ranks : context.roles)
    if (ranks.first >= 0)
      TRIREME_RETURN_IF_ERROR(
          checkUseOf(context.program.roles[at(context.program.ranks[at(ranks.first)].role)]));
  return {};
}

}  // namespace trireme::program::verify
