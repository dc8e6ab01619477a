// The streams of one rank, and the events at which they meet. Those of messages are queues of
// sends, receives and waits that are moved on by polling. Instructions of the others, of
// computation and reductions, are executed when they are issued: what they wait for was issued
// before them.
//
// A queue executes in order. An event is a mark: "the n-th instruction of stream s is complete". A
// wait takes the mark that the event has when the wait is issued, as cudaStreamWaitEvent() does.
// On a device that works through streams of its own, complete means enqueued there; every mark then
// comes with an event of the device, which orders the streams.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/program/program.h"
#include "ir/program/trace.h"
#include "runtime/comm/communicator.h"
#include "runtime/device/device.h"
#include "runtime/executor/rank_program.h"

namespace trireme::runtime {

class TraceRecorder;

struct EventMark {
  program::Stream stream = program::Stream::kCompute;
  uint64_t position = 0;  // 0: complete
  int32_t event = -1;     // of the device; -1: none
};

struct QueuedInstruction {
  const FlatInstruction* instruction = nullptr;
  const program::TaskRecord* task = nullptr;
  int32_t layer = -1;
  char* address = nullptr;  // kSend, kRecv
  EventMark awaited;        // kWait
  int32_t signalled = -1;   // the device's event to record when this is complete
};

class Streams final : public Progress {
 public:
  // All three must outlive this. `trace` may be null.
  Streams(RankDevice& device, Communicator& comm, TraceRecorder* trace);

  // Forgets what the device was asked in the step before, which is complete.
  void beginStep();
  // Appends to the instruction's stream; blocks only if that is the compute stream.
  Status issue(const QueuedInstruction& entry);
  // An instruction of `stream`, which is no queue, has been executed and signals `event`.
  Status signal(int32_t event, program::Stream stream);
  // Blocks `stream`, which is no queue, and with it what is issued later.
  Status waitFor(int32_t event, program::Stream stream);
  EventMark mark(int32_t event) const { return marks_[static_cast<size_t>(event)]; }
  // Blocks until every queue is empty.
  Status drain();

  // All of the instructions has been handed to the device, on the stream of the first.
  Status handedOver(std::span<const FlatInstruction> instructions, const program::TaskRecord& task,
                    int32_t layer);
  // Instructions that the device has completed in this step, of all streams.
  int64_t numPassed() const;
  // The instruction that the device is at, as describeInstruction() says it: one that works, if
  // there is one, rather than one that waits for other ranks, and that rather than one that waits
  // for another stream.
  std::string describeStop() const;
  // "; it waits for rank 3": the others of that instruction. Empty: there are none.
  std::string describeAwaited() const;
  // It is at none that works.
  bool isHeldUpByOthers() const;

  // Moves every queue on as far as it goes. Cheap when all are empty.
  Status advance() override;

  static int32_t eventIndex(const program::EventRef& event, int32_t slot) {
    return event.base < 0 ? -1 : event.base + (event.perSlot ? slot : 0);
  }

 private:
  struct Queue {
    std::vector<QueuedInstruction> ring;  // sized for a whole step
    uint64_t issued = 0;
    uint64_t completed = 0;
    bool published = false;  // the head is a send that is in the air
    int32_t headSince = 0;   // a stamp of the device, if there is a trace
    bool empty() const { return issued == completed; }
    QueuedInstruction& head() { return ring[completed % ring.size()]; }
    const QueuedInstruction& head() const { return ring[completed % ring.size()]; }
  };
  struct Handed {
    const FlatInstruction* instruction = nullptr;
    const program::TaskRecord* task = nullptr;
    int32_t layer = -1;
  };
  class MarkReached;

  Status waitFor(EventMark mark);
  bool reached(EventMark mark) const {
    return queues_[static_cast<size_t>(mark.stream)].completed >= mark.position;
  }
  const Handed* stoppedAt() const;  // null: the device is done with all
  Result<bool> tryHead(program::Stream stream, Queue& queue);
  Status complete(program::Stream stream, Queue& queue);
  // What stands at the end of the chain of waits that starts at `stream`'s head; null: nothing.
  const QueuedInstruction* blockedOn(program::Stream stream) const;

  const RankProgram& rank_;
  RankDevice& device_;
  Communicator& comm_;
  TraceRecorder* trace_;
  std::array<Queue, program::kNumStreams> queues_;
  std::vector<EventMark> marks_;
  std::array<std::vector<Handed>, program::kNumStreams> handed_;  // in this step, in order
  int64_t pending_ = 0;
};

}  // namespace trireme::runtime
