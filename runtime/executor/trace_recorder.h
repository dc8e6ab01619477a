// Measured TraceEvents of one rank. While a step runs, events hold stamps of the device
// (RankDevice::stamp()); endStep() turns them into times.
#pragma once
#include <chrono>
#include <utility>
#include <vector>

#include "ir/program/trace.h"
#include "runtime/device/device.h"
#include "runtime/executor/rank_program.h"

namespace trireme::runtime {

class TraceRecorder {
 public:
  TraceRecorder(int32_t rank, std::chrono::steady_clock::time_point start)
      : rank_(rank), start_(start) {}

  void beginStep(int64_t step) {
    step_ = step;
    firstOfStep_ = events_.size();
    stamps_.clear();
  }

  void record(const FlatInstruction& instruction, const program::TaskRecord& task, int32_t layer,
              int32_t begin, int32_t end) {
    program::TraceEvent event;
    event.rank = rank_;
    event.stream = instruction.stream;
    event.kind = instruction.kind;
    event.direction = task.direction;
    event.chunk = task.chunk;
    event.microbatch = task.microbatch;
    event.layer = layer;
    event.segment = instruction.segment;
    event.step = step_;
    stamps_.emplace_back(begin, end);
    if (instruction.kind != program::InstructionKind::kCompute) event.bytes = instruction.bytes;
    events_.push_back(event);
  }

  // After RankDevice::finishStep(). Seconds since the start of the trace.
  Status endStep(const RankDevice& device) {
    const double start = std::chrono::duration<double>(start_.time_since_epoch()).count();
    for (size_t i = 0; i < stamps_.size(); ++i) {
      program::TraceEvent& event = events_[firstOfStep_ + i];
      TRIREME_ASSIGN_OR_RETURN(const double begin, device.secondsOf(stamps_[i].first));
      TRIREME_ASSIGN_OR_RETURN(const double end, device.secondsOf(stamps_[i].second));
      event.beginSeconds = begin - start;
      event.endSeconds = end - start;
    }
    return {};
  }

  std::vector<program::TraceEvent> take() { return std::exchange(events_, {}); }

 private:
  int32_t rank_;
  std::chrono::steady_clock::time_point start_;
  int64_t step_ = 0;
  size_t firstOfStep_ = 0;
  std::vector<std::pair<int32_t, int32_t>> stamps_;  // of the step's events
  std::vector<program::TraceEvent> events_;
};

}  // namespace trireme::runtime
