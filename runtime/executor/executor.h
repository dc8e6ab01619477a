// Executes one rank's program on a RankDevice: the instructions of the compute stream here and now,
// those of the point-to-point streams whenever there is a chance. Allocates nothing within a step.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ir/base/status.h"
#include "ir/program/bundle.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/timeout.h"
#include "runtime/data/data_source.h"
#include "runtime/device/device.h"
#include "runtime/executor/batch_reader.h"
#include "runtime/executor/counters.h"
#include "runtime/executor/fault_injector.h"
#include "runtime/executor/rank_program.h"
#include "runtime/executor/streams.h"
#include "runtime/executor/trace_recorder.h"
#include "runtime/state/layout.h"

namespace trireme::runtime {

// What a rank executes on and with. All pointers outlive the executor; the last two may be null.
struct ExecutorContext {
  RankDevice* device = nullptr;
  Communicator* comm = nullptr;
  TraceRecorder* trace = nullptr;
  FaultInjector* faults = nullptr;
  double timeoutSeconds = 60;  // in which a device has to complete an instruction
};

class Executor {
 public:
  explicit Executor(const ExecutorContext& context);
  ~Executor();

  // Runs the role's tasks once and empties all streams. On failure names the instruction; the
  // caller tells the other ranks (Communicator::fail). kUnavailable: also a device that completes
  // no instruction within the timeout; it is given up (RankDevice::abandon).
  Status runStep(int64_t step, DataSource& data);

  // Whether the samples that the rank needs for the step can be formed; BatchReader::check().
  Status checkData(int64_t step, DataSource& data) const { return batches_.check(step, data); }

  // Of the last step.
  const RankCounters& counters() const { return counters_; }

 private:
  using Flat = FlatInstruction;
  using Task = program::TaskRecord;

  Status runTask(const Task& task);
  Status runSection(const FlatBody& body, const Section& section, const Task& task);
  std::span<const Flat> runFrom(const FlatBody& body, int32_t begin, int32_t end) const;
  Status issue(std::span<const Flat> run, const Task& task, int32_t repeat, int32_t layer);
  Status enqueue(const Flat& instruction, const Task& task, int32_t repeat, int32_t layer);
  Status execute(std::span<const Flat> run, const Task& task, int32_t repeat, int32_t layer);
  Status compute(const Flat& instruction, const Task& task, int32_t repeat, int32_t layer);
  Status collective(const Flat& instruction, int32_t repeat, int32_t slot);
  Status sumSquares(std::span<const Flat> run, int32_t repeat, int32_t slot);
  Status adamWStep(std::span<const Flat> run, int32_t repeat, int32_t slot);
  AdamWArrays arraysOf(int32_t bucket, const BucketView& moment1) const;
  Status updateLossScale(const Flat& instruction, int32_t repeat, int32_t slot);
  Status injectFault(const Flat& instruction, const Task& task, int32_t layer);
  void count(const Flat& instruction, const Task& task);
  Status watchDevice();
  void trackLiveSlots(const Task& task, bool before);
  void fillKeys();
  void buildNormRows();
  void buildArrays();
  char* operand(const Flat& instruction, int32_t i, int32_t repeat, int32_t slot) const;

  const RankProgram& rank_;
  ExecutorContext context_;
  Streams streams_;
  BatchReader batches_;
  RankCounters counters_;
  int64_t step_ = 0;
  int64_t passed_ = -1;  // instructions, when watchDevice() looked last; -1: it has not
  WaitClock passedSince_;
  std::vector<program::KernelContext> contexts_;  // per logical layer; keys of this step
  std::vector<void*> addresses_;                  // scratch
  std::vector<std::vector<NormRow>> normRows_;    // per bucket: a row per parameter and layer
  std::vector<BucketRows> bucketRows_;            // scratch
  std::vector<std::vector<AdamWArrays>> arrays_;  // per bucket
  std::vector<AdamWArrays> bucketArrays_;         // scratch
  std::vector<std::vector<uint8_t>> live_;        // per chunk and slot
  int32_t numLive_ = 0;
  program::Direction lastDirection_;  // after which a slot is free
};

}  // namespace trireme::runtime
