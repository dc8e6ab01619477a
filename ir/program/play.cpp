#include "ir/program/play.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme::program {
namespace {

using Kind = FlowStep::Kind;

// What a step is linked with: the next one on its stream; of a wait the step that it awaits, of a
// message or collective its meeting.
struct Link {
  int32_t next = -1, partner = -1;
};

constexpr double kNotYet = -1;  // begin of what has not arrived at its meeting, end of what is open

struct StreamState {
  int32_t head = -1, tail = -1;
  int32_t last = -1;      // done
  int32_t waitsFor = -1;  // step that the head awaits and that is open
  double freeAt = 0;
};

// A rank that stands for its class. Steps and links are numbered alike.
struct Actor {
  const Role* role = nullptr;
  const std::vector<Flow>* flows = nullptr;  // by body
  std::vector<PlayedStep> steps;
  std::vector<Link> links;
  std::array<StreamState, kNumStreams> streams;
};

struct Guest {
  int32_t actor = -1, node = -1;
};

// The guests of all meetings stand in one list, those of a meeting linked.
struct SeatedGuest {
  Guest guest;
  int32_t next = -1;
};
struct Meeting {
  int32_t first = -1, last = -1;  // of those that will come
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
      : program_(program), symmetry_(symmetry), actors_(index(symmetry.numClasses())) {
    for (size_t a = 0; a < actors_.size(); ++a) {
      actors_[a].role = &program.roles[index(rankOf(static_cast<int32_t>(a)).role)];
      actors_[a].flows = &flows[a];
    }
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
  static const FlowStep& stepOf(const Actor& actor, int32_t node) {
    const PlayedStep& step = actor.steps[index(node)];
    const TaskRecord& task = actor.role->tasks[index(step.task)];
    return (*actor.flows)[index(task.body)].steps[index(step.step)];
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
    Actor& a = actors_[index(actor)];
    const Role& role = *a.role;
    const std::vector<Flow>& flows = *a.flows;
    std::vector<int32_t> signal(index(std::max(role.numEvents, 0)), -1);
    size_t count = 0;
    for (const TaskRecord& task : role.tasks) count += flows[index(task.body)].steps.size();
    a.steps.reserve(count);
    a.links.reserve(count);
    for (size_t t = 0; t < role.tasks.size(); ++t) {
      const TaskRecord& task = role.tasks[t];
      const std::vector<FlowStep>& steps = flows[index(task.body)].steps;
      for (size_t s = 0; s < steps.size(); ++s) {
        const int32_t event = eventIndex(steps[s].event, task.slot);
        int32_t awaited = -1;
        if (steps[s].kind == Kind::kWait) {
          awaited = signal[index(event)];
          if (awaited < 0) continue;
        } else if (steps[s].kind == Kind::kLocal) {
          if (steps[s].seconds <= 0 && event < 0) continue;
        }
        const PlayedStep played{static_cast<int32_t>(t), static_cast<int32_t>(s), kNotYet, kNotYet};
        const int32_t added = append(actor, steps[s], played, awaited);
        if (steps[s].kind != Kind::kWait && event >= 0) signal[index(event)] = added;
      }
    }
  }

  int32_t append(int32_t actor, const FlowStep& step, const PlayedStep& played, int32_t awaited) {
    Actor& a = actors_[index(actor)];
    const auto added = static_cast<int32_t>(a.steps.size());
    Link link{-1, awaited};
    if (meets(step)) {
      const TaskRecord& task = a.role->tasks[index(played.task)];
      const Instruction& instruction =
          a.role->bodies[index(task.body)].instructions[index(step.instruction)];
      link.partner = step.kind == Kind::kCollective ? collectiveOf(actor, instruction)
                                                    : messageOf(actor, task, instruction);
      seat({actor, added}, meetings_[index(link.partner)]);
      double& seconds = meetings_[index(link.partner)].seconds;
      seconds = std::max(seconds, step.seconds);
    }
    StreamState& stream = a.streams[index(static_cast<int>(step.stream))];
    if (stream.tail >= 0) a.links[index(stream.tail)].next = added;
    if (stream.head < 0) stream.head = added;
    stream.tail = added;
    a.steps.push_back(played);
    a.links.push_back(link);
    return added;
  }

  static bool meets(const FlowStep& step) {
    return step.kind != Kind::kLocal && step.kind != Kind::kWait;
  }

  void seat(Guest guest, Meeting& meeting) {
    const auto seat = static_cast<int32_t>(guests_.size());
    guests_.push_back({guest, -1});
    (meeting.first < 0 ? meeting.first : guests_[index(meeting.last)].next) = seat;
    meeting.last = seat;
  }

  // Executes the stream until it has to wait for somebody.
  void advance(int32_t actor, int32_t stream) {
    Actor& a = actors_[index(actor)];
    StreamState& s = a.streams[index(stream)];
    while (s.head >= 0) {
      const FlowStep& step = stepOf(a, s.head);
      const Guest before{actor, s.last};
      if (step.kind == Kind::kWait) {
        const int32_t awaited = a.links[index(s.head)].partner;
        const double end = a.steps[index(awaited)].end;
        if (end == kNotYet) {
          s.waitsFor = awaited;
          return;  // Woken by complete().
        }
        complete(actor, s.head, step, s.freeAt, std::max(s.freeAt, end),
                 end > s.freeAt ? Guest{actor, awaited} : before);
      } else if (step.kind == Kind::kLocal) {
        complete(actor, s.head, step, s.freeAt, s.freeAt + step.seconds, before);
      } else if (!arrive({actor, s.head}, s.freeAt, before)) {
        return;  // Woken by the last guest.
      }
    }
  }

  // Counts a guest in; the last one completes the meeting for all. `before`: where it comes from.
  bool arrive(Guest guest, double now, Guest before) {
    Actor& a = actors_[index(guest.actor)];
    double& begin = a.steps[index(guest.node)].begin;
    if (begin != kNotYet) return false;
    begin = now;
    Meeting& meeting = meetings_[index(a.links[index(guest.node)].partner)];
    if (now > meeting.ready) meeting.cause = before;
    meeting.ready = std::max(meeting.ready, now);
    if (++meeting.arrived < meeting.expected) return false;
    const double end = meeting.ready + meeting.seconds;
    for (int32_t seat = meeting.first; seat >= 0; seat = guests_[index(seat)].next) {
      const auto [actor, node] = guests_[index(seat)].guest;
      const PlayedStep& other = actors_[index(actor)].steps[index(node)];
      if (other.begin == kNotYet || other.end != kNotYet) continue;
      const FlowStep& step = stepOf(actors_[index(actor)], node);
      complete(actor, node, step, meeting.ready, end, meeting.cause);
      work_.push_back({actor, static_cast<int32_t>(step.stream)});
    }
    return true;
  }

  void complete(int32_t actor, int32_t node, const FlowStep& step, double begin, double end,
                Guest cause) {
    Actor& a = actors_[index(actor)];
    PlayedStep& played = a.steps[index(node)];
    StreamState& stream = a.streams[index(static_cast<int>(step.stream))];
    played.begin = begin;
    played.end = end;
    played.causeRank = cause.actor;
    played.causeStep = cause.node;
    stream.freeAt = end;
    stream.last = node;
    stream.head = a.links[index(node)].next;
    seconds_ = std::max(seconds_, end);
    if (step.event.base < 0) return;
    for (int32_t s = 0; s < kNumStreams; ++s) {
      int32_t& waitsFor = a.streams[index(s)].waitsFor;
      if (waitsFor != node) continue;
      waitsFor = -1;
      work_.push_back({actor, s});
    }
  }

  Result<Played> finish() {
    for (int32_t a = 0; a < symmetry_.numClasses(); ++a)
      for (int32_t s = 0; s < kNumStreams; ++s)
        if (actors_[index(a)].streams[index(s)].head >= 0)
          return Error(invalidArgument(describeDeadlock({a, s})));
    Played played;
    played.seconds = seconds_;
    for (Actor& actor : actors_) played.ranks.push_back(std::move(actor.steps));
    return played;
  }

  std::string describe(Place at) const {
    const Actor& actor = actors_[index(at.actor)];
    const FlowStep& step = stepOf(actor, headOf(at));
    const int32_t t = actor.steps[index(headOf(at))].task;
    const Role& role = *actor.role;
    const TaskRecord& task = role.tasks[index(t)];
    const InstructionKind kind =
        role.bodies[index(task.body)].instructions[index(step.instruction)].kind;
    return fmt::format("rank {} task {} ({}) instruction {} ({} on {})",
                       symmetry_.representative[index(at.actor)], t, taskName(task),
                       step.instruction, instructionName(kind), streamName(step.stream));
  }

  int32_t headOf(Place at) const { return actors_[index(at.actor)].streams[index(at.stream)].head; }

  // Whose stream has to move before this one can; actor -1: nobody ever comes.
  Place blockedBy(Place at) const {
    const Actor& actor = actors_[index(at.actor)];
    const int32_t partner = actor.links[index(headOf(at))].partner;
    Guest other{at.actor, partner};
    if (meets(stepOf(actor, headOf(at)))) {
      other = {};
      for (int32_t seat = meetings_[index(partner)].first; seat >= 0;
           seat = guests_[index(seat)].next) {
        const Guest& guest = guests_[index(seat)].guest;
        if (actors_[index(guest.actor)].steps[index(guest.node)].begin == kNotYet) other = guest;
      }
    }
    if (other.actor < 0) return {-1, 0};
    const FlowStep& there = stepOf(actors_[index(other.actor)], other.node);
    return {other.actor, static_cast<int32_t>(there.stream)};
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
  std::vector<Actor> actors_;
  std::vector<Meeting> meetings_;
  std::vector<SeatedGuest> guests_;
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
