#include "ir/program/play.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme::program {
namespace {

using Kind = FlowStep::Kind;

// Steps of one rank, linked by stream. A meeting is a message or a collective.
struct Node {
  int32_t task = 0, step = 0;
  int32_t next = -1;     // on the same stream
  int32_t awaited = -1;  // kWait: node whose end is awaited
  int32_t meeting = -1;  // kSend, kRecv, kCollective
  double begin = 0, end = 0;
  int32_t causeActor = -1, causeNode = -1;
  bool arrived = false;  // at the meeting
  bool done = false;
};

struct StreamState {
  int32_t head = -1, tail = -1;
  int32_t last = -1;  // done
  double freeAt = 0;
};

struct Actor {
  std::vector<Node> nodes;
  std::array<StreamState, kNumStreams> streams;
};

struct Guest {
  int32_t actor = -1, node = -1;
};

struct Meeting {
  std::vector<Guest> guests;  // all that will come
  int32_t expected = 2;
  int32_t arrived = 0;
  double ready = 0, seconds = 0;
  Guest cause;  // what the last guest came from
};

size_t index(int64_t i) { return static_cast<size_t>(i); }

class Player {
 public:
  Player(const Program& program, const Symmetry& symmetry,
         const std::vector<std::vector<Flow>>& flows)
      : program_(program),
        symmetry_(symmetry),
        flows_(flows),
        actors_(index(symmetry.numClasses())) {
    countMessages();
  }

  Result<Played> run() {
    for (int32_t a = 0; a < symmetry_.numClasses(); ++a) issue(a);
    for (int32_t a = 0; a < symmetry_.numClasses(); ++a)
      for (int32_t s = 0; s < kNumStreams; ++s) work_.push_back({a, s});
    while (!work_.empty()) {
      const auto [actor, stream] = work_.back();
      work_.pop_back();
      advance(actor, stream);
    }
    return finish();
  }

 private:
  struct Place {
    int32_t actor, stream;
  };

  const RankInfo& rankOf(int32_t actor) const {
    return program_.ranks[index(symmetry_.representative[index(actor)])];
  }
  const Role& roleOf(int32_t actor) const { return program_.roles[index(rankOf(actor).role)]; }
  const FlowStep& stepOf(int32_t actor, const Node& node) const {
    const RankInfo& rank = rankOf(actor);
    const TaskRecord& task = program_.roles[index(rank.role)].tasks[index(node.task)];
    return flows_[index(actor)][index(task.body)].steps[index(node.step)];
  }

  // Messages are numbered densely: (pipeline group class, direction, virtual stage, microbatch).
  void countMessages() {
    virtualStages_ = int64_t{program_.pp} * program_.virtualStages;
    for (const Role& role : program_.roles)
      for (const TaskRecord& task : role.tasks)
        microbatches_ = std::max<int64_t>(microbatches_, task.microbatch + 1);
    pipelineOfGroupClass_.assign(symmetry_.members.size(), -1);
    sequence_.resize(actors_.size());
    collectives_.resize(symmetry_.members.size());
  }

  int32_t messageOf(int32_t actor, const TaskRecord& task, const Instruction& instruction) {
    const int32_t group = rankOf(actor).group[index(static_cast<int>(GroupKind::kPp))];
    int32_t& pipeline = pipelineOfGroupClass_[index(symmetry_.classOfGroup[index(group)])];
    if (pipeline < 0) {
      pipeline = numPipelines_++;
      messages_.resize(index(numPipelines_ * 3 * virtualStages_ * microbatches_), -1);
    }
    const int64_t place = ((pipeline * 3 + static_cast<int64_t>(task.direction)) * virtualStages_ +
                           instruction.virtualStage) *
                              microbatches_ +
                          task.microbatch;
    int32_t& meeting = messages_[index(place)];
    if (meeting < 0) meeting = newMeeting(2);
    return meeting;
  }

  int32_t collectiveOf(int32_t actor, const Instruction& instruction) {
    const int32_t group = rankOf(actor).group[index(static_cast<int>(instruction.group))];
    const int32_t groupClass = symmetry_.classOfGroup[index(group)];
    std::vector<int32_t>& counters = sequence_[index(actor)];
    counters.resize(symmetry_.members.size());
    const auto sequence = index(counters[index(groupClass)]++);
    std::vector<int32_t>& meetings = collectives_[index(groupClass)];
    if (sequence >= meetings.size())
      meetings.push_back(
          newMeeting(static_cast<int32_t>(symmetry_.members[index(groupClass)].size())));
    return meetings[sequence];
  }

  int32_t newMeeting(int32_t expected) {
    meetings_.emplace_back();
    meetings_.back().expected = expected;
    return static_cast<int32_t>(meetings_.size()) - 1;
  }

  // Unfolds the tasks of one rank and resolves its events: a wait awaits the latest issued signal.
  void issue(int32_t actor) {
    const Role& role = roleOf(actor);
    const std::vector<Flow>& flows = flows_[index(actor)];
    std::vector<int32_t> signal(index(std::max(role.numEvents, 0)), -1);
    size_t count = 0;
    for (const TaskRecord& task : role.tasks) count += flows[index(task.body)].steps.size();
    actors_[index(actor)].nodes.reserve(count);
    for (size_t t = 0; t < role.tasks.size(); ++t) {
      const TaskRecord& task = role.tasks[t];
      const std::vector<FlowStep>& steps = flows[index(task.body)].steps;
      for (size_t s = 0; s < steps.size(); ++s) {
        const int32_t event = eventIndex(steps[s].event, task.slot);
        Node node{static_cast<int32_t>(t), static_cast<int32_t>(s)};
        if (steps[s].kind == Kind::kWait) {
          node.awaited = signal[index(event)];
          if (node.awaited < 0) continue;
        } else if (steps[s].kind == Kind::kLocal) {
          if (steps[s].seconds <= 0 && event < 0) continue;
        }
        const int32_t added = append(actor, steps[s], task, node);
        if (steps[s].kind != Kind::kWait && event >= 0) signal[index(event)] = added;
      }
    }
  }

  int32_t append(int32_t actor, const FlowStep& step, const TaskRecord& task, Node node) {
    Actor& a = actors_[index(actor)];
    const auto added = static_cast<int32_t>(a.nodes.size());
    if (step.kind != Kind::kLocal && step.kind != Kind::kWait) {
      const Instruction& instruction =
          roleOf(actor).bodies[index(task.body)].instructions[index(step.instruction)];
      node.meeting = step.kind == Kind::kCollective ? collectiveOf(actor, instruction)
                                                    : messageOf(actor, task, instruction);
      Meeting& meeting = meetings_[index(node.meeting)];
      meeting.guests.push_back({actor, added});
      meeting.seconds = std::max(meeting.seconds, step.seconds);
    }
    StreamState& stream = a.streams[index(static_cast<int>(step.stream))];
    if (stream.tail >= 0) a.nodes[index(stream.tail)].next = added;
    if (stream.head < 0) stream.head = added;
    stream.tail = added;
    a.nodes.push_back(node);
    return added;
  }

  // Executes the stream until it has to wait for somebody.
  void advance(int32_t actor, int32_t stream) {
    Actor& a = actors_[index(actor)];
    StreamState& s = a.streams[index(stream)];
    while (s.head >= 0) {
      Node& node = a.nodes[index(s.head)];
      const FlowStep& step = stepOf(actor, node);
      const Guest before{actor, s.last};
      if (node.awaited >= 0) {
        const Node& awaited = a.nodes[index(node.awaited)];
        if (!awaited.done) return;  // Woken by complete().
        const bool isHeld = awaited.end > s.freeAt;
        complete(actor, s.head, s.freeAt, std::max(s.freeAt, awaited.end),
                 isHeld ? Guest{actor, node.awaited} : before);
      } else if (node.meeting < 0) {
        complete(actor, s.head, s.freeAt, s.freeAt + step.seconds, before);
      } else if (!arrive(node, s.freeAt, before)) {
        return;  // Woken by the last guest.
      }
    }
  }

  // Counts a guest in; the last one completes the meeting for all. `before`: where it comes from.
  bool arrive(Node& node, double now, Guest before) {
    if (node.arrived) return false;
    node.arrived = true;
    Meeting& meeting = meetings_[index(node.meeting)];
    if (now > meeting.ready) meeting.cause = before;
    meeting.ready = std::max(meeting.ready, now);
    if (++meeting.arrived < meeting.expected) return false;
    const double end = meeting.ready + meeting.seconds;
    for (const Guest& guest : meeting.guests) {
      const Node& other = actors_[index(guest.actor)].nodes[index(guest.node)];
      if (!other.arrived || other.done) continue;
      const FlowStep& step = stepOf(guest.actor, other);
      complete(guest.actor, guest.node, meeting.ready, end, meeting.cause);
      work_.push_back({guest.actor, static_cast<int32_t>(step.stream)});
    }
    return true;
  }

  void complete(int32_t actor, int32_t nodeIndex, double begin, double end, Guest cause) {
    Actor& a = actors_[index(actor)];
    Node& node = a.nodes[index(nodeIndex)];
    const FlowStep& step = stepOf(actor, node);
    StreamState& stream = a.streams[index(static_cast<int>(step.stream))];
    node.begin = begin;
    node.end = end;
    node.causeActor = cause.actor;
    node.causeNode = cause.node;
    node.done = true;
    stream.freeAt = end;
    stream.last = nodeIndex;
    stream.head = node.next;
    seconds_ = std::max(seconds_, end);
    if (step.event.base < 0) return;
    for (int32_t s = 0; s < kNumStreams; ++s) {
      const int32_t head = a.streams[index(s)].head;
      if (head >= 0 && a.nodes[index(head)].awaited == nodeIndex) work_.push_back({actor, s});
    }
  }

  Result<Played> finish() {
    for (int32_t a = 0; a < symmetry_.numClasses(); ++a)
      for (int32_t s = 0; s < kNumStreams; ++s)
        if (actors_[index(a)].streams[index(s)].head >= 0)
          return Error(invalidArgument(describeDeadlock({a, s})));
    Played played;
    played.seconds = seconds_;
    played.ranks.resize(actors_.size());
    for (size_t a = 0; a < actors_.size(); ++a) {
      played.ranks[a].reserve(actors_[a].nodes.size());
      for (const Node& node : actors_[a].nodes)
        played.ranks[a].push_back(
            {node.task, node.step, node.begin, node.end, node.causeActor, node.causeNode});
    }
    return played;
  }

  std::string describe(Place at) const {
    const Node& node = actors_[index(at.actor)].nodes[index(headOf(at))];
    const FlowStep& step = stepOf(at.actor, node);
    const Role& role = roleOf(at.actor);
    const TaskRecord& task = role.tasks[index(node.task)];
    const InstructionKind kind =
        role.bodies[index(task.body)].instructions[index(step.instruction)].kind;
    return fmt::format("rank {} task {} ({}) instruction {} ({} on {})",
                       symmetry_.representative[index(at.actor)], node.task, taskName(task),
                       step.instruction, instructionName(kind), streamName(step.stream));
  }

  int32_t headOf(Place at) const { return actors_[index(at.actor)].streams[index(at.stream)].head; }

  // Whose stream has to move before this one can; actor -1: nobody ever comes.
  Place blockedBy(Place at) const {
    const Node& node = actors_[index(at.actor)].nodes[index(headOf(at))];
    Guest other{at.actor, node.awaited};
    if (node.meeting >= 0) {
      other = {};
      for (const Guest& guest : meetings_[index(node.meeting)].guests) {
        if (!actors_[index(guest.actor)].nodes[index(guest.node)].arrived) other = guest;
      }
    }
    if (other.actor < 0) return {-1, 0};
    const Node& there = actors_[index(other.actor)].nodes[index(other.node)];
    return {other.actor, static_cast<int32_t>(stepOf(other.actor, there).stream)};
  }

  std::string describeDeadlock(Place at) const {
    std::string chain = describe(at);
    std::vector<Place> seen{at};
    while (true) {
      at = blockedBy(at);
      if (at.actor < 0) return chain + " waits for a partner that never comes";
      chain += " waits for " + describe(at);
      const bool closed = std::any_of(seen.begin(), seen.end(), [&](const Place& p) {
        return p.actor == at.actor && p.stream == at.stream;
      });
      if (closed) return chain;
      seen.push_back(at);
    }
  }

  const Program& program_;
  const Symmetry& symmetry_;
  const std::vector<std::vector<Flow>>& flows_;
  std::vector<Actor> actors_;
  std::vector<Meeting> meetings_;
  int64_t virtualStages_ = 0, microbatches_ = 1;
  int32_t numPipelines_ = 0;
  std::vector<int32_t> pipelineOfGroupClass_;
  std::vector<int32_t> messages_;                  // meeting of each message; -1: none yet
  std::vector<std::vector<int32_t>> collectives_;  // [class of groups][sequence number]
  std::vector<std::vector<int32_t>> sequence_;     // [actor][class of groups]
  std::vector<Place> work_;                        // streams that may be able to move
  double seconds_ = 0;
};

}  // namespace

std::array<bool, kNumGroupKinds> blockingKinds(const Program& program, const Symmetry& symmetry) {
  std::array<bool, kNumGroupKinds> blocking{};
  for (size_t g = 0; g < program.groups.size(); ++g)
    if (symmetry.members[index(symmetry.classOfGroup[g])].size() > 1)
      blocking[index(static_cast<int>(program.groups[g].kind))] = true;
  return blocking;
}

Flow flowOf(const Body& body, const std::array<bool, kNumGroupKinds>& blocking) {
  Flow flow;
  std::array<std::vector<FlowPart>, kNumStreams> pending;
  const auto flush = [&](Stream stream, EventRef event) {
    std::vector<FlowPart>& parts = pending[index(static_cast<int>(stream))];
    if (parts.empty()) return;
    FlowStep step{Kind::kLocal, stream, parts.back().instruction, parts.back().layer, event};
    step.firstPart = static_cast<int32_t>(flow.parts.size());
    step.numParts = static_cast<int32_t>(parts.size());
    flow.parts.insert(flow.parts.end(), parts.begin(), parts.end());
    flow.steps.push_back(step);
    parts.clear();
  };
  forEachInstruction(body, [&](int32_t i, int32_t layer) {
    const Instruction& in = body.instructions[index(i)];
    Kind kind = Kind::kLocal;
    if (in.kind == InstructionKind::kWait) kind = Kind::kWait;
    if (in.kind == InstructionKind::kSend) kind = Kind::kSend;
    if (in.kind == InstructionKind::kRecv) kind = Kind::kRecv;
    if (isCollective(in.kind) && blocking[index(static_cast<int>(in.group))])
      kind = Kind::kCollective;
    if (kind != Kind::kLocal) {
      flush(in.stream, {});
      flow.steps.push_back({kind, in.stream, i, layer, in.event});
      return;
    }
    pending[index(static_cast<int>(in.stream))].push_back({i, layer});
    if (in.event.base >= 0) flush(in.stream, in.event);
  });
  for (int s = 0; s < kNumStreams; ++s) flush(static_cast<Stream>(s), {});
  return flow;
}

Result<Played> play(const Program& program, const Symmetry& symmetry,
                    const std::vector<std::vector<Flow>>& flows) {
  return Player(program, symmetry, flows).run();
}

}  // namespace trireme::program
