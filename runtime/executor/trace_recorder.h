// Measured TraceEvents of one rank.
#pragma once
#include <chrono>
#include <vector>

#include "ir/program/trace.h"
#include "runtime/executor/rank_program.h"

namespace trireme::runtime {

class TraceRecorder {
 public:
  TraceRecorder(int32_t rank, std::chrono::steady_clock::time_point start)
      : rank_(rank), start_(start) {}

  // Seconds since the start of the trace.
  double now() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  void setStep(int64_t step) { step_ = step; }

  void record(const FlatInstruction& instruction, const program::TaskRecord& task, int32_t layer,
              double begin) {
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
    event.beginSeconds = begin;
    event.endSeconds = now();
    if (instruction.kind != program::InstructionKind::kCompute) event.bytes = instruction.bytes;
    events_.push_back(event);
  }

  std::vector<program::TraceEvent> take() { return std::exchange(events_, {}); }

 private:
  int32_t rank_;
  std::chrono::steady_clock::time_point start_;
  int64_t step_ = 0;
  std::vector<program::TraceEvent> events_;
};

}  // namespace trireme::runtime
