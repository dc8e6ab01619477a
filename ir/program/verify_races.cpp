// (V7) between streams: accesses of overlapping bytes from two streams, one of them a write, are
// ordered by events. A vector clock per stream says what has surely completed.
//
// All but a few accesses are those of the compute stream, so only bytes that another stream
// touches are followed: they are numbered as disjoint zones.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "ir/program/verify_internal.h"
#include "ir/program/verify_layout.h"

namespace trireme::program::verify {
namespace {

using Clock = std::array<int32_t, kNumStreams>;

struct Access {
  Span bytes;
  bool write = false;
};

// What an instruction reads and writes as a whole.
void appendAccesses(const Program& program, const Role& role, const Instruction& in,
                    const Place& place, std::vector<Access>& out) {
  const auto add = [&](int32_t buffer, bool write) {
    if (buffer >= 0) out.push_back({spanOf(role.buffers[at(buffer)], place), write});
  };
  switch (in.kind) {
    case InstructionKind::kCompute: {
      const Segment& segment = program.segments[at(in.segment)];
      std::vector<bool> written(segment.operands.size());
      for (const SegmentOp& op : segment.ops)
        for (int32_t o : op.outputs) written[at(o)] = true;
      for (size_t i = 0; i < in.buffers.size(); ++i) add(in.buffers[i], written[i]);
      add(role.workspace, true);
      return;
    }
    case InstructionKind::kSend:
      return add(in.buffers[0], false);
    case InstructionKind::kReduceScatter:
    case InstructionKind::kAllGather:
      // The whole input is read; a reduce-scatter may use it as scratch.
      add(in.buffers[0], in.kind == InstructionKind::kReduceScatter);
      return add(in.buffers[1], true);
    case InstructionKind::kSumSquares:
      add(role.buckets[at(in.bucket)].gradient, false);
      return add(in.buffers[0], true);
    case InstructionKind::kAdamW: {
      const Bucket& bucket = role.buckets[at(in.bucket)];
      add(bucket.gradient, false);
      add(in.buffers[0], false);
      add(role.lossScaling, false);
      for (int32_t b : {bucket.parameter, bucket.master, bucket.moment1, bucket.moment2})
        add(b, true);
      return;
    }
    default:
      for (int32_t b : in.buffers) add(b, true);
  }
}

// One execution of an instruction that matters to other streams.
struct Event {
  int32_t instruction = 0;
  int32_t layer = 0;
  std::vector<std::pair<int32_t, bool>> zones;  // (zone, written)
};

class RaceCheck {
 public:
  RaceCheck(const Context& context, int32_t role)
      : context_(context), index_(role), role_(context.program.roles[at(role)]) {}

  Status run() {
    for (const auto& [tp, dp] : context_.roles[at(index_)].places) {
      place_ = {0, 0, tp, dp};
      layout_ = findSlotLayout(role_, place_);
      findZones();
      events_.assign(role_.bodies.size(), {});
      if (!zones_.empty()) TRIREME_RETURN_IF_ERROR(follow());
      if (!depends_) return {};
    }
    return {};
  }

 private:
  // The slot at which the accesses of a task are looked at.
  int32_t slotOf(const TaskRecord& task) const { return layout_.copies ? 0 : task.slot; }

  // The bytes that streams other than compute touch, cut at all borders.
  void findZones() {
    std::vector<Span> spans;
    std::map<std::pair<int32_t, int32_t>, bool> seen;
    depends_ = false;
    for (const TaskRecord& task : role_.tasks) {
      if (!seen.emplace(std::pair(task.body, slotOf(task)), true).second) continue;
      const Body& body = role_.bodies[at(task.body)];
      place_.slot = slotOf(task);
      forEachInstruction(body, [&](int32_t i, int32_t layer) {
        const Instruction& in = body.instructions[at(i)];
        for (int32_t b : in.buffers)
          if (task.direction != Direction::kStep || in.stream != Stream::kCompute)
            depends_ |= role_.buffers[at(b)].tpStride != 0 || role_.buffers[at(b)].dpStride != 0;
        if (in.stream == Stream::kCompute) return;
        place_.layer = layer;
        std::vector<Access> accesses;
        appendAccesses(context_.program, role_, in, place_, accesses);
        for (const Access& access : accesses) spans.push_back(access.bytes);
      });
    }
    std::vector<int64_t> borders;
    for (Span span : spans) borders.insert(borders.end(), {span.begin, span.end});
    std::sort(borders.begin(), borders.end());
    borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
    zones_.clear();
    std::sort(spans.begin(), spans.end(), [](Span a, Span b) { return a.begin < b.begin; });
    size_t next = 0;
    int64_t covered = INT64_MIN;
    for (size_t i = 0; i + 1 < borders.size(); ++i) {
      while (next < spans.size() && spans[next].begin <= borders[i])
        covered = std::max(covered, spans[next++].end);
      if (covered > borders[i]) zones_.push_back({borders[i], borders[i + 1]});
    }
  }

  // Events of the body on the slot: everything that signals, waits or touches a zone.
  const std::vector<Event>& eventsOf(const TaskRecord& task) {
    std::vector<std::optional<std::vector<Event>>>& slots = events_[at(task.body)];
    const size_t slot = at(slotOf(task));
    if (slot >= slots.size()) slots.resize(slot + 1);
    if (slots[slot].has_value()) return *slots[slot];
    std::vector<Event>& events = slots[slot].emplace();
    const Body& body = role_.bodies[at(task.body)];
    std::vector<Access> accesses;
    forEachInstruction(body, [&](int32_t i, int32_t layer) {
      const Instruction& in = body.instructions[at(i)];
      Event event{i, layer, {}};
      place_.slot = static_cast<int32_t>(slot);
      place_.layer = layer;
      accesses.clear();
      appendAccesses(context_.program, role_, in, place_, accesses);
      for (const Access& access : accesses) {
        auto zone = std::lower_bound(zones_.begin(), zones_.end(), access.bytes.begin,
                                     [](Span z, int64_t begin) { return z.end <= begin; });
        for (; zone != zones_.end() && zone->begin < access.bytes.end; ++zone)
          event.zones.push_back({static_cast<int32_t>(zone - zones_.begin()), access.write});
      }
      if (!event.zones.empty() || in.event.base >= 0) events.push_back(std::move(event));
    });
    return events;
  }

  // Goes through the step in issue order.
  Status follow() {
    for (Clock& clock : clocks_) clock.fill(0);
    int32_t slots = 1;
    if (layout_.copies)
      for (const TaskRecord& task : role_.tasks) slots = std::max(slots, task.slot + 1);
    reads_.assign(zones_.size() * at(slots), {});
    writes_.assign(reads_.size(), {});
    signals_.assign(at(role_.numEvents), {});
    for (task_ = 0; task_ < static_cast<int32_t>(role_.tasks.size()); ++task_) {
      const TaskRecord& task = role_.tasks[at(task_)];
      for (const Event& event : eventsOf(task)) TRIREME_RETURN_IF_ERROR(take(task, event));
    }
    return {};
  }

  Status take(const TaskRecord& task, const Event& event) {
    const Instruction& in = role_.bodies[at(task.body)].instructions[at(event.instruction)];
    const auto stream = at(static_cast<int>(in.stream));
    Clock& clock = clocks_[stream];
    const int32_t signal = eventIndex(in.event, task.slot);
    if (in.kind == InstructionKind::kWait) {
      for (size_t s = 0; s < kNumStreams; ++s)
        clock[s] = std::max(clock[s], signals_[at(signal)][s]);
      return {};
    }
    const int32_t now = ++clock[stream];
    for (const auto& [relative, write] : event.zones) {
      const int32_t zone = zoneOf(task, relative);
      for (size_t other = 0; other < kNumStreams; ++other) {
        if (other == stream) continue;
        const int32_t last = write ? std::max(reads_[at(zone)][other], writes_[at(zone)][other])
                                   : writes_[at(zone)][other];
        if (last > clock[other])
          return race(event.instruction, write, relative, static_cast<Stream>(other));
      }
      (write ? writes_ : reads_)[at(zone)][stream] = now;
    }
    if (signal >= 0) signals_[at(signal)] = clock;
    return {};
  }

  // A zone inside a chunk's region has one copy per slot.
  int32_t zoneOf(const TaskRecord& task, int32_t zone) const {
    if (task.slot == 0 || !layout_.copies) return zone;
    return contains(layout_.regions[at(task.chunk)], zones_[at(zone)])
               ? zone + task.slot * static_cast<int32_t>(zones_.size())
               : zone;
  }

  Status race(int32_t instruction, bool write, int32_t zone, Stream other) const {
    return violation("V7", where(context_, index_, task_, -1, instruction),
                     fmt::format("{} bytes {} to {} while the {} stream may still use them",
                                 write ? "writes" : "reads", zones_[at(zone)].begin,
                                 zones_[at(zone)].end, streamName(other)));
  }

  const Context& context_;
  int32_t index_;
  const Role& role_;
  Place place_;
  SlotLayout layout_;
  bool depends_ = false;  // on the tp or dp index
  std::vector<Span> zones_;
  std::vector<std::vector<std::optional<std::vector<Event>>>> events_;  // [body][slot]
  int32_t task_ = 0;
  std::array<Clock, kNumStreams> clocks_{};  // per stream: latest completed number of every stream
  std::vector<Clock> reads_, writes_;        // per zone: latest access of every stream
  std::vector<Clock> signals_;               // per event
};

}  // namespace

Status checkRaces(const Context& context) {
  for (size_t r = 0; r < context.roles.size(); ++r)
    if (context.roles[r].first >= 0)
      TRIREME_RETURN_IF_ERROR(RaceCheck(context, static_cast<int32_t>(r)).run());
  return {};
}

}  // namespace trireme::program::verify
