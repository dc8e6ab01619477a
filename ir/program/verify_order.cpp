// (V3) messages, (V4) collectives, (V5) progress: what the ranks owe each other.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ir/program/play.h"
#include "ir/program/verify_internal.h"

namespace trireme::program::verify {
namespace {

// One end of a message.
struct End {
  int32_t role = -1, task = -1, body = -1, instruction = -1;
  int64_t bytes = 0;
  DType dtype = DType::kF32;
  int32_t peerStage = -1;
  bool found() const { return task >= 0; }
};

// The messages of one pipeline group, by tag.
class MessageCheck {
 public:
  MessageCheck(const Context& context, const Group& group)
      : context_(context),
        program_(context.program),
        group_(group),
        virtualStages_(int64_t{program_.pp} * program_.virtualStages),
        microbatches_(program_.training.numMicrobatches),
        sends_(at((static_cast<int64_t>(Direction::kStep) + 1) * virtualStages_ * microbatches_)),
        receives_(sends_.size()) {}

  Status run() {
    for (int32_t rank : group_.ranks)
      TRIREME_RETURN_IF_ERROR(collect(program_.ranks[at(rank)].role));
    for (size_t tag = 0; tag < sends_.size(); ++tag)
      TRIREME_RETURN_IF_ERROR(match(sends_[tag], receives_[tag]));
    return {};
  }

 private:
  std::string place(const End& end) const {
    return where(context_, end.role, end.task, end.body, end.instruction);
  }

  Status collect(int32_t role) {
    const Role& r = program_.roles[at(role)];
    // Only the few transfers of each body matter.
    std::vector<std::vector<int32_t>> transfers(r.bodies.size());
    for (size_t b = 0; b < r.bodies.size(); ++b)
      forEachInstruction(r.bodies[b], [&](int32_t i, int32_t) {
        const InstructionKind kind = r.bodies[b].instructions[at(i)].kind;
        if (kind == InstructionKind::kSend || kind == InstructionKind::kRecv)
          transfers[b].push_back(i);
      });
    for (size_t t = 0; t < r.tasks.size(); ++t)
      for (int32_t i : transfers[at(r.tasks[t].body)])
        TRIREME_RETURN_IF_ERROR(add(role, static_cast<int32_t>(t), i));
    return {};
  }

  Status add(int32_t role, int32_t t, int32_t i) {
    const Role& r = program_.roles[at(role)];
    const TaskRecord& task = r.tasks[at(t)];
    const Instruction& in = r.bodies[at(task.body)].instructions[at(i)];
    const Buffer& buffer = r.buffers[at(in.buffers[0])];
    const bool send = in.kind == InstructionKind::kSend;
    const End end{role, t, task.body, i, buffer.bytes(), buffer.dtype, in.peerStage};
    if (task.direction == Direction::kWeights)
      return violation("V3", place(end), "no other stage waits for gradients of weights");
    TRIREME_RETURN_IF_ERROR(checkProducer(r, task, in, end));
    const int64_t tag =
        (static_cast<int64_t>(task.direction) * virtualStages_ + in.virtualStage) * microbatches_ +
        task.microbatch;
    End& known = (send ? sends_ : receives_)[at(tag)];
    if (known.found())
      return violation("V3", place(end),
                       fmt::format("the same message is also {} by {}", send ? "sent" : "received",
                                   place(known)));
    known = end;
    return {};
  }

  // Data flows from a virtual stage to its neighbour.
  Status checkProducer(const Role& role, const TaskRecord& task, const Instruction& in,
                       const End& end) const {
    if (task.chunk < 0) return {};
    const int32_t own = role.chunks[at(task.chunk)].virtualStage;
    const int32_t before = task.direction == Direction::kForward ? own - 1 : own + 1;
    const int32_t producer = in.kind == InstructionKind::kSend ? own : before;
    if (in.virtualStage == producer) return {};
    return violation(
        "V3", place(end),
        fmt::format("tagged with virtual stage {}, expected {}", in.virtualStage, producer));
  }

  Status match(const End& send, const End& receive) const {
    if (!send.found() && !receive.found()) return {};
    if (!receive.found()) return violation("V3", place(send), "sends what nobody receives");
    if (!send.found()) return violation("V3", place(receive), "receives what nobody sends");
    if (send.peerStage != program_.roles[at(receive.role)].stage)
      return violation("V3", place(send),
                       fmt::format("sends to pipeline rank {}, but pipeline rank {} receives it",
                                   send.peerStage, program_.roles[at(receive.role)].stage));
    if (receive.peerStage != program_.roles[at(send.role)].stage)
      return violation("V3", place(receive),
                       fmt::format("receives from pipeline rank {}, but pipeline rank {} sends it",
                                   receive.peerStage, program_.roles[at(send.role)].stage));
    if (send.bytes != receive.bytes || send.dtype != receive.dtype)
      return violation("V3", place(send),
                       fmt::format("sends {} bytes of {}, but {} receives {} of {}", send.bytes,
                                   dtypeName(send.dtype), place(receive), receive.bytes,
                                   dtypeName(receive.dtype)));
    return {};
  }

  const Context& context_;
  const Program& program_;
  const Group& group_;
  int64_t virtualStages_, microbatches_;
  std::vector<End> sends_, receives_;  // [direction][virtual stage][microbatch]
};

// What members of a group must agree on.
struct Collective {
  InstructionKind kind;
  Stream stream;
  ReduceOp reduce;
  int64_t elements;  // of the whole tensor
  DType dtype;
  std::array<int32_t, 3> origin;
  bool operator==(const Collective&) const = default;
};

// The bucket whose gradients or parameters a buffer shows; -1: none.
int32_t bucketAt(const Role& role, int32_t buffer) {
  const int64_t offset = role.buffers[at(buffer)].offset;
  for (size_t b = 0; b < role.buckets.size(); ++b)
    for (int32_t part : {role.buckets[b].gradient, role.buckets[b].parameter})
      if (role.buffers[at(part)].offset == offset) return static_cast<int32_t>(b);
  return -1;
}

// What the collective of a body reads, in terms that do not depend on addresses: of a bucket its
// first parameter, and over which groups it is reduced; else the operand of the segment, or the
// kind of the instruction, that has made it.
std::array<int32_t, 3> originOf(const Program& program, const Role& role, const Body& body,
                                int32_t i) {
  const int32_t source = body.instructions[at(i)].buffers[0];
  if (const int32_t bucket = bucketAt(role, source); bucket >= 0) {
    int32_t first = INT32_MAX, groups = 0;
    for (const Parameter& p : role.parameters)
      if (p.bucket == bucket) first = std::min(first, p.logicalIndex);
    for (int32_t k = 0; k < i; ++k) {
      const Instruction& in = body.instructions[at(k)];
      if (isCollective(in.kind) && bucketAt(role, in.buffers[0]) == bucket)
        groups |= 1 << static_cast<int>(in.group);
    }
    return {0, first, groups};
  }
  for (int32_t k = i - 1; k >= 0; --k) {
    const Instruction& in = body.instructions[at(k)];
    const auto found = std::find(in.buffers.begin(), in.buffers.end(), source);
    if (found == in.buffers.end()) continue;
    if (in.kind != InstructionKind::kCompute) return {1, static_cast<int32_t>(in.kind), 0};
    const auto operand = static_cast<int32_t>(found - in.buffers.begin());
    for (const SegmentOp& op : program.segments[at(in.segment)].ops)
      if (std::find(op.outputs.begin(), op.outputs.end(), operand) != op.outputs.end())
        return {2, in.segment, operand};
  }
  return {3, 0, 0};
}

std::string describe(const Collective& c) {
  std::string text =
      fmt::format("{} of {} x {}", instructionName(c.kind), c.elements, dtypeName(c.dtype));
  if (c.stream != Stream::kCompute) text += fmt::format(" on the {} stream", streamName(c.stream));
  return text;
}

struct Issued {
  Collective what;
  int32_t task = 0, body = 0, instruction = 0;
};

std::vector<Issued> collectivesOf(const Program& program, int32_t role, GroupKind kind) {
  const Role& r = program.roles[at(role)];
  std::vector<std::vector<Issued>> ofBody(r.bodies.size());
  for (size_t b = 0; b < r.bodies.size(); ++b)
    forEachInstruction(r.bodies[b], [&](int32_t i, int32_t) {
      const Instruction& in = r.bodies[b].instructions[at(i)];
      if (!isCollective(in.kind) || in.group != kind) return;
      const Buffer& full =
          r.buffers[at(in.buffers[in.kind == InstructionKind::kAllGather ? 1 : 0])];
      ofBody[b].push_back({{in.kind, in.stream, in.reduce, full.elements, full.dtype,
                            originOf(program, r, r.bodies[b], i)},
                           0,
                           static_cast<int32_t>(b),
                           i});
    });
  std::vector<Issued> all;
  for (size_t t = 0; t < r.tasks.size(); ++t)
    for (Issued issued : ofBody[at(r.tasks[t].body)]) {
      issued.task = static_cast<int32_t>(t);
      all.push_back(issued);
    }
  return all;
}

Status compare(const Context& context, GroupKind kind, int32_t firstRole, int32_t secondRole) {
  const std::vector<Issued> first = collectivesOf(context.program, firstRole, kind);
  const std::vector<Issued> second = collectivesOf(context.program, secondRole, kind);
  const auto place = [&](int32_t role, const Issued& issued) {
    return where(context, role, issued.task, issued.body, issued.instruction);
  };
  for (size_t i = 0; i < std::max(first.size(), second.size()); ++i) {
    if (i >= second.size())
      return violation("V4", place(firstRole, first[i]),
                       fmt::format("{} does not take part in {} collective {}",
                                   where(context, secondRole, -1), groupKindName(kind), i));
    if (i >= first.size())
      return violation("V4", place(secondRole, second[i]),
                       fmt::format("{} does not take part in {} collective {}",
                                   where(context, firstRole, -1), groupKindName(kind), i));
    Collective other = second[i].what;
    other.origin = first[i].what.origin;
    if (first[i].what == other && !(first[i].what == second[i].what))
      return violation("V4", place(firstRole, first[i]),
                       fmt::format("{} collective {} is not of what {} gives to it",
                                   groupKindName(kind), i, place(secondRole, second[i])));
    if (!(first[i].what == second[i].what))
      return violation("V4", place(firstRole, first[i]),
                       fmt::format("{} collective {} is {}, but {} issues {}", groupKindName(kind),
                                   i, describe(first[i].what), place(secondRole, second[i]),
                                   describe(second[i].what)));
  }
  return {};
}

}  // namespace

Status checkMessages(const Context& context) {
  std::vector<bool> done(context.symmetry.members.size());
  for (size_t g = 0; g < context.program.groups.size(); ++g) {
    const Group& group = context.program.groups[g];
    const auto groupClass = at(context.symmetry.classOfGroup[g]);
    if (group.kind != GroupKind::kPp || done[groupClass]) continue;
    done[groupClass] = true;
    TRIREME_RETURN_IF_ERROR(MessageCheck(context, group).run());
  }
  return {};
}

// Members of one class issue the same; the others are compared with the first.
Status checkCollectives(const Context& context) {
  std::map<std::array<int32_t, 3>, bool> compared;
  for (size_t g = 0; g < context.program.groups.size(); ++g) {
    const std::vector<int32_t>& members =
        context.symmetry.members[at(context.symmetry.classOfGroup[g])];
    const auto roleOf = [&](int32_t member) {
      return context.program.ranks[at(context.symmetry.representative[at(member)])].role;
    };
    const GroupKind kind = context.program.groups[g].kind;
    for (int32_t member : members) {
      const int32_t first = roleOf(members[0]), second = roleOf(member);
      if (first == second) continue;
      if (!compared.emplace(std::array{static_cast<int32_t>(kind), first, second}, true).second)
        continue;
      TRIREME_RETURN_IF_ERROR(compare(context, kind, first, second));
    }
  }
  return {};
}

Status checkProgress(const Context& context) {
  const auto blocking = blockingKinds(context.program, context.symmetry);
  std::vector<std::vector<Flow>> flows;
  for (int32_t rank : context.symmetry.representative) {
    flows.emplace_back();
    for (const Body& body : context.program.roles[at(context.program.ranks[at(rank)].role)].bodies)
      flows.back().push_back(flowOf(body, blocking));
  }
  Result<Played> played = play(context.program, context.symmetry, flows);
  if (played.has_value()) return {};
  return invalidArgument("(V5) deadlock: " + played.error().message());
}

}  // namespace trireme::program::verify
