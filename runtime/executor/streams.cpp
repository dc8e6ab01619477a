#include "runtime/executor/streams.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ir/program/walk.h"
#include "runtime/executor/trace_recorder.h"

namespace trireme::runtime {

using program::InstructionKind;
using program::Stream;

namespace {

MessageTag tagOf(const QueuedInstruction& entry) {
  return {entry.task->direction, entry.instruction->virtualStage, entry.task->microbatch};
}

// Communication and waits: done when others have done their part.
bool waitsForOthers(InstructionKind kind) {
  switch (kind) {
    case InstructionKind::kWait:
    case InstructionKind::kSend:
    case InstructionKind::kRecv:
    case InstructionKind::kAllReduce:
    case InstructionKind::kReduceScatter:
    case InstructionKind::kAllGather:
      return true;
    default:
      return false;
  }
}

}  // namespace

class Streams::MarkReached final : public Condition {
 public:
  MarkReached(const Streams& streams, EventMark mark) : streams_(streams), mark_(mark) {}
  bool ready() override { return streams_.reached(mark_); }
  int32_t awaitedRank() override {
    const QueuedInstruction* blocked = streams_.blockedOn(mark_.stream);
    return blocked == nullptr ? -1 : blocked->instruction->peer;
  }

 private:
  const Streams& streams_;
  EventMark mark_;
};

Streams::Streams(RankDevice& device, Communicator& comm, TraceRecorder* trace)
    : rank_(device.program()), device_(device), comm_(comm), trace_(trace) {
  int32_t slots = 1;
  for (const program::Chunk& chunk : rank_.role->chunks) slots = std::max(slots, chunk.numSlots);
  marks_.resize(static_cast<size_t>(rank_.role->numEvents + slots));
  // The compute stream waits for each of its own, so it never holds two.
  for (size_t i = 0; i < queues_.size(); ++i) {
    const bool queues = isMessageStream(static_cast<Stream>(i)) && rank_.queued[i] > 0;
    queues_[i].ring.resize(queues ? static_cast<size_t>(rank_.queued[i]) : 1);
    handed_[i].reserve(static_cast<size_t>(rank_.queued[i]));
  }
}

void Streams::beginStep() {
  for (EventMark& mark : marks_) mark.event = -1;
  for (std::vector<Handed>& handed : handed_) handed.clear();
}

Status Streams::handedOver(std::span<const FlatInstruction> instructions,
                           const program::TaskRecord& task, int32_t layer) {
  const Stream stream = instructions.front().stream;
  for (const FlatInstruction& instruction : instructions)
    handed_[static_cast<size_t>(stream)].push_back({&instruction, &task, layer});
  return device_.mark(stream, std::ssize(instructions));
}

int64_t Streams::numPassed() const {
  int64_t sum = 0;
  for (size_t i = 0; i < handed_.size(); ++i)
    sum += std::min(device_.passed(static_cast<Stream>(i)), std::ssize(handed_[i]));
  return sum;
}

const Streams::Handed* Streams::stoppedAt() const {
  const Handed* waits = nullptr;
  for (size_t i = 0; i < handed_.size(); ++i) {
    const int64_t passed = device_.passed(static_cast<Stream>(i));
    if (passed >= std::ssize(handed_[i])) continue;
    const Handed& at = handed_[i][static_cast<size_t>(passed)];
    if (!waitsForOthers(at.instruction->kind)) return &at;
    if (waits == nullptr || waits->instruction->kind == InstructionKind::kWait) waits = &at;
  }
  return waits;
}

Status Streams::signal(int32_t event, Stream stream) {
  const int32_t recorded = device_.newEvent();
  marks_[static_cast<size_t>(event)] = {stream, 0, recorded};
  return device_.record(recorded, stream);
}

Status Streams::waitFor(int32_t event, Stream stream) {
  const EventMark mark = marks_[static_cast<size_t>(event)];
  TRIREME_RETURN_IF_ERROR(waitFor(mark));
  return device_.wait(mark.event, stream);
}

Status Streams::issue(const QueuedInstruction& entry) {
  const Stream stream = entry.instruction->stream;
  Queue& queue = queues_[static_cast<size_t>(stream)];
  if (queue.empty() && trace_ != nullptr) {
    TRIREME_ASSIGN_OR_RETURN(queue.headSince, device_.stamp(stream));
  }
  QueuedInstruction& queued = queue.ring[queue.issued++ % queue.ring.size()];
  queued = entry;
  ++pending_;
  EventMark end{stream, queue.issued};
  const int32_t event = eventIndex(entry.instruction->event, entry.task->slot);
  if (event >= 0 && entry.instruction->kind != InstructionKind::kWait) {
    queued.signalled = end.event = device_.newEvent();
    marks_[static_cast<size_t>(event)] = end;
  }
  TRIREME_RETURN_IF_ERROR(advance());
  return stream == Stream::kCompute ? waitFor(end) : Status();
}

Status Streams::waitFor(EventMark mark) {
  if (reached(mark)) return {};
  MarkReached condition(*this, mark);
  return comm_.wait(condition);
}

Status Streams::drain() {
  for (size_t i = 0; i < queues_.size(); ++i) {
    const EventMark end{static_cast<Stream>(i), queues_[i].issued, -1};
    Status status = waitFor(end);
    if (status.ok()) continue;
    const QueuedInstruction* blocked = blockedOn(end.stream);
    if (blocked == nullptr) return status;
    return status.withContext(
        describeInstruction(rank_, *blocked->task, *blocked->instruction, blocked->layer));
  }
  return {};
}

// A queue that moves may unblock one that was tried before it: go round until none moves.
Status Streams::advance() {
  bool moved = pending_ > 0;
  while (moved) {
    moved = false;
    for (size_t i = 0; i < queues_.size(); ++i) {
      Queue& queue = queues_[i];
      while (!queue.empty()) {
        Result<bool> done = tryHead(static_cast<Stream>(i), queue);
        if (!done.has_value()) {
          const QueuedInstruction& head = queue.head();
          return done.error().withContext(
              describeInstruction(rank_, *head.task, *head.instruction, head.layer));
        }
        if (!*done) break;
        TRIREME_RETURN_IF_ERROR(complete(static_cast<Stream>(i), queue));
        moved = true;
      }
    }
  }
  return {};
}

std::string Streams::describeStop() const {
  const Handed* at = stoppedAt();
  if (at == nullptr) return "the end of the step";
  return describeInstruction(rank_, *at->task, *at->instruction, at->layer);
}

std::string Streams::describeAwaited() const {
  const Handed* at = stoppedAt();
  if (at == nullptr) return "";
  if (at->instruction->peer >= 0)
    return fmt::format("; it waits for rank {}", at->instruction->peer);
  if (at->instruction->group < 0) return "";
  std::vector<int32_t> others;
  for (const int32_t rank :
       rank_.program->groups[static_cast<size_t>(at->instruction->group)].ranks)
    if (rank != rank_.rank) others.push_back(rank);
  return fmt::format("; it waits for {} {}", others.size() == 1 ? "rank" : "one of ranks",
                     fmt::join(others, ", "));
}

bool Streams::isHeldUpByOthers() const {
  const Handed* at = stoppedAt();
  return at != nullptr && waitsForOthers(at->instruction->kind);
}

Result<bool> Streams::tryHead(Stream stream, Queue& queue) {
  const QueuedInstruction& head = queue.head();
  const FlatInstruction& instruction = *head.instruction;
  switch (instruction.kind) {
    case InstructionKind::kWait:
      if (!reached(head.awaited)) return false;
      TRIREME_RETURN_IF_ERROR(device_.wait(head.awaited.event, stream));
      return true;
    case InstructionKind::kRecv:
      return comm_.receive(stream, instruction.peer, tagOf(head), head.address, instruction.bytes);
    case InstructionKind::kSend: {
      if (!queue.published)
        TRIREME_RETURN_IF_ERROR(
            comm_.publish(stream, instruction.peer, tagOf(head), head.address, instruction.bytes));
      Result<bool> sent = comm_.sent(stream);
      queue.published = sent.has_value() && !*sent;
      return sent;
    }
    default:
      return Error(internalError("not an instruction of a point-to-point stream"));
  }
}

Status Streams::complete(Stream stream, Queue& queue) {
  const QueuedInstruction& head = queue.head();
  Status status = head.signalled < 0 ? Status() : device_.record(head.signalled, stream);
  if (status.ok()) status = handedOver({head.instruction, 1}, *head.task, head.layer);
  if (status.ok() && trace_ != nullptr) {
    const int32_t begin = queue.headSince;
    TRIREME_ASSIGN_OR_RETURN(queue.headSince, device_.stamp(stream));
    trace_->record(*head.instruction, *head.task, head.layer, begin, queue.headSince);
  }
  ++queue.completed;
  --pending_;
  return status;
}

const QueuedInstruction* Streams::blockedOn(Stream stream) const {
  for (int hops = 0; hops < program::kNumStreams; ++hops) {
    const Queue& queue = queues_[static_cast<size_t>(stream)];
    if (queue.empty()) return nullptr;
    if (queue.head().instruction->kind != InstructionKind::kWait) return &queue.head();
    stream = queue.head().awaited.stream;
  }
  return nullptr;
}

}  // namespace trireme::runtime
