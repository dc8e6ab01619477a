#include "cost_models/body_cost.h"

#include <utility>

#include "cost_models/collectives.h"
#include "ir/program/walk.h"

namespace trireme::cost {
namespace {

using program::GroupKind;
using program::Instruction;
using program::InstructionKind;
using program::Stream;
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
  products += other.products;
  attention += other.attention;
  recomputed += other.recomputed;
  for (size_t i = 0; i < reduce.size(); ++i) {
    reduce[i] += other.reduce[i];
    gather[i] += other.gather[i];
  }
  beside += other.beside;
  sentForward += other.sentForward;
  sentBackward += other.sentBackward;
  return *this;
}

BodyCost BodyCost::operator*(double factor) const {
  BodyCost scaled = *this;
  scaled.compute *= factor;
  scaled.products *= factor;
  scaled.attention *= factor;
  scaled.recomputed *= factor;
  for (size_t i = 0; i < reduce.size(); ++i) {
    scaled.reduce[i] *= factor;
    scaled.gather[i] *= factor;
  }
  scaled.beside *= factor;
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
                       const spec::ClusterSpec& cluster, const spec::StackProfile& stack,
                       std::span<const int32_t> recomputedOps)
    : cluster_(cluster) {
  segmentTimes_.reserve(program.segments.size());
  for (size_t i = 0; i < program.segments.size(); ++i)
    segmentTimes_.push_back(computeTime(
        program.segments[i], recomputedOps.empty() ? 0 : recomputedOps[i], cluster.device, stack));
  for (size_t kind = 0; kind < levels_.size(); ++kind)
    levels_[kind] =
        levelsOf(groupShape(static_cast<GroupKind>(kind), plan), ranksOf(plan, cluster), cluster);
}

// One walk through a body.
class BodyWalker::Walk {
 public:
  Walk(const BodyWalker& walker, const program::Role& role, const program::Body& body)
      : walker_(walker),
        role_(role),
        body_(body),
        overlaps_(walker.cluster_.device.kind != spec::DeviceKind::kHost) {}

  WalkedBody take() {
    range(0, body_.instructions.size(), walked_.outside, walked_.backlog, true);
    return std::move(walked_);
  }

 private:
  // Times since the begin of the body or of the iteration.
  struct Clocks {
    Seconds now;     // of the compute stream
    Seconds tensor;  // when the stream of reductions over tp is idle
    std::map<int32_t, Seconds> events;
    bool operator==(const Clocks&) const = default;
  };

  // Instructions [begin, end), every one once; a Repeat's span counts as often as it runs.
  void range(size_t begin, size_t end, BodyCost& into, Backlog& backlog, bool isOutside) {
    for (size_t i = begin; i < end; ++i) {
      const Instruction& instruction = body_.instructions[i];
      if (instruction.kind != InstructionKind::kRepeat) {
        add(instruction, into, backlog);
        continue;
      }
      const size_t inner = i + 1 + static_cast<size_t>(instruction.length);
      repeat(i + 1, inner, instruction.count, isOutside ? walked_.repeated : into, backlog);
      i = inner - 1;
    }
  }

  // Iterations that begin as the one before them did are like it.
  void repeat(size_t begin, size_t end, int64_t count, BodyCost& into, Backlog& backlog) {
    for (int64_t done = 0; done < count;) {
      rebase();
      const Clocks before = clocks_;
      BodyCost once;
      Backlog change;
      range(begin, end, once, change, false);
      rebase();
      const int64_t alike = clocks_ == before ? count - done : 1;
      into += once * static_cast<double>(alike);
      backlog.follow(change.repeated(alike));
      done += alike;
    }
  }

  // What is over by now is left out.
  void rebase() {
    const auto left = [&](Seconds time) { return std::max(time - clocks_.now, Seconds(0)); };
    clocks_.tensor = left(clocks_.tensor);
    std::erase_if(clocks_.events, [&](const auto& e) { return e.second <= clocks_.now; });
    for (auto& [event, time] : clocks_.events) time = left(time);
    clocks_.now = Seconds(0);
  }

  void add(const Instruction& in, BodyCost& into, Backlog& backlog) {
    if (in.kind == InstructionKind::kWait) return wait(in, into, backlog);
    const Seconds time = walker_.durationOf(role_, in);
    if (in.stream == Stream::kDpReduce) {
      into.beside += time;
      backlog.reduce(time);
    } else if (in.stream == Stream::kTpReduce && overlaps_) {
      clocks_.tensor += time;
      signal(in.event, clocks_.tensor);
    } else if (in.kind == InstructionKind::kSend) {
      (in.stream == Stream::kSendForward ? into.sentForward : into.sentBackward) +=
          bufferBytes(role_, in.buffers[0]);
    } else {
      partOf(in, into) += time;
      if (in.kind == InstructionKind::kCompute) addKinds(in, into);
      compute(time, backlog);
      if (in.stream == Stream::kCompute) signal(in.event, clocks_.now);
    }
  }

  static Seconds& partOf(const Instruction& in, BodyCost& into) {
    const auto group = static_cast<size_t>(in.group);
    if (in.kind == InstructionKind::kAllGather) return into.gather[group];
    return program::isCollective(in.kind) ? into.reduce[group] : into.compute;
  }

  void addKinds(const Instruction& in, BodyCost& into) const {
    const ComputeTime& time = walker_.segmentTimes_[static_cast<size_t>(in.segment)];
    into.products += time.products;
    into.attention += time.attention;
    into.recomputed += time.recomputed;
  }

  void compute(Seconds time, Backlog& backlog) {
    clocks_.now += time;
    backlog.compute(time);
  }

  void signal(program::EventRef event, Seconds when) {
    if (event.base >= 0) clocks_.events[event.base] = when;
  }

  void wait(const Instruction& in, BodyCost& into, Backlog& backlog) {
    const auto found = clocks_.events.find(in.event.base);
    const Seconds when = found == clocks_.events.end() ? Seconds(0) : found->second;
    if (in.stream == Stream::kTpReduce) clocks_.tensor = std::max(clocks_.tensor, when);
    if (in.stream != Stream::kCompute) return;
    if (found == clocks_.events.end() && awaitsReductions(in.event)) walked_.atWait = backlog;
    if (when <= clocks_.now) return;
    const Seconds exposed = when - clocks_.now;
    into.reduce[static_cast<size_t>(GroupKind::kTp)] += exposed;
    compute(exposed, backlog);
  }

  // Whether any body signals the event when it has reduced over dp. That of a slot is of messages.
  bool awaitsReductions(program::EventRef event) const {
    if (event.perSlot) return false;
    for (const program::Body& body : role_.bodies)
      for (const Instruction& in : body.instructions)
        if (in.stream == Stream::kDpReduce && in.event == event) return true;
    return false;
  }

  const BodyWalker& walker_;
  const program::Role& role_;
  const program::Body& body_;
  const bool overlaps_;
  WalkedBody walked_;
  Clocks clocks_;
};

WalkedBody BodyWalker::walk(const program::Role& role, const program::Body& body) const {
  return Walk(*this, role, body).take();
}

// Sends and receives take no time of the compute stream.
Seconds BodyWalker::durationOf(const program::Role& role, const Instruction& instruction) const {
  const auto timed = [&](CollectiveKind kind, size_t whole) {
    return collectiveTime(kind, bufferBytes(role, instruction.buffers[whole]),
                          levels(instruction.group));
  };
  switch (instruction.kind) {
    case InstructionKind::kCompute:
      return segmentTimes_[static_cast<size_t>(instruction.segment)].total;
    case InstructionKind::kAllReduce:
      return timed(CollectiveKind::kAllReduce, 0);
    case InstructionKind::kReduceScatter:
      return timed(CollectiveKind::kReduceScatter, 0);
    case InstructionKind::kAllGather:
      return timed(CollectiveKind::kAllGather, 1);
    default:
      return instructionTime(instruction, role, cluster_.device);
  }
}

}  // namespace trireme::cost
