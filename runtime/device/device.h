// What executes the work of one rank. The executor says what comes next; a RankDevice does it: at
// once (host), or by putting it on streams where it happens in order (CUDA).
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/program/bundle.h"
#include "runtime/comm/communicator.h"
#include "runtime/executor/optimizer.h"
#include "runtime/executor/rank_program.h"

namespace trireme::runtime {

// A contiguous part of one logical parameter's gradient, as far as this rank counts it in the norm.
struct NormRow {
  int32_t logicalIndex = 0;
  const char* data = nullptr;
  int64_t elements = 0;
};

// What a rank counts of a bucket: the same rows always.
struct BucketRows {
  int32_t bucket = -1;
  DType type = DType::kF32;
  std::span<const NormRow> rows;
};

struct SegmentCall {
  int32_t segment = -1;
  const program::KernelContext* context = nullptr;
  void* const* operands = nullptr;  // one per operand of the segment
};

// On the rank's memory; the norm is the root of their sum.
struct Squares {
  const double* data = nullptr;  // of all logical parameters
  int64_t count = 0;
};

// A step whose norm is not finite changes nothing. With loss scaling the step's number is
// takenSteps + 1; see program::LossScaling, which is where the rank's memory is.
struct AdamWCall {
  AdamWStep step;  // but for gradientScale, which follows from the next three
  double clipNorm = 0;
  Squares squares;
  const program::LossScaling* lossScaling = nullptr;
  std::span<const AdamWArrays> buckets;
};

struct LossScaleUpdate {
  const program::Training* training = nullptr;
  Squares squares;
  program::LossScaling* lossScaling = nullptr;
};

// Used by the rank's thread only, but for fetch() and store(), which are called between steps.
// Addresses are of the rank's memory; only the host backend's may be looked at. All but events is
// for the compute stream. Errors: kResourceExhausted, kInternal (the device failed: the message
// says what it was asked), and those of the kernels.
class RankDevice {
 public:
  virtual ~RankDevice() = default;

  // The rank's program on the memory of this device.
  virtual const RankProgram& program() const = 0;

  // finishStep() returns when all that the step has asked for is done. As long as it waits it asks
  // `watch`, whose error ends the wait.
  virtual Status beginStep() = 0;
  virtual Status finishStep() = 0;
  virtual void setWatch(std::function<Status()> watch) = 0;

  // Progress, for messages about a device that does not go on: mark() is called when all of some
  // instructions has been asked for, passed() says how many marked instructions of this step lie
  // behind the stream.
  virtual Status mark(program::Stream stream, int64_t numInstructions) = 0;
  virtual int64_t passed(program::Stream stream) const = 0;
  // The device does not answer: nothing more is asked of it, and what it holds is not given back.
  virtual void abandon() = 0;
  // Returns when nothing that was asked for is going on, or abandons the device after some seconds.
  // Devices read each other's memory, and a failed step leaves work behind: the first of them may
  // end when all are quiet.
  virtual void quiesce() = 0;

  // Moments of this step, for traces: when all that was asked of the stream so far is done.
  virtual Result<int32_t> stamp(program::Stream stream) = 0;
  // After finishStep(): seconds of std::chrono::steady_clock.
  virtual Result<double> secondsOf(int32_t stamp) const = 0;

  virtual Status runSegment(const SegmentCall& call) = 0;
  virtual Status zero(void* data, int64_t bytes) = 0;
  // The communicator is about to use the buffer that holds `data`: what the device has put off for
  // it is done.
  virtual void expose(const void*) {}
  // Whether finishStep() has to wait for what was asked for: then the host has time meanwhile.
  virtual bool isAsynchronous() const = 0;
  // Where the host writes `count` tokens for `target`, which sendTokens() sends: `target` itself,
  // or memory of the host that is the rank's until its end. What is there may change when the step
  // that sent it has ended. In the first step only.
  virtual Result<int32_t*> stagingFor(int32_t* target, int64_t count) = 0;
  virtual Status sendTokens(int32_t* target, const int32_t* staged, int64_t count) = 0;
  // squares[row.logicalIndex] = sum of the squares of each row. The same buckets follow a first
  // one always.
  virtual Status sumSquares(std::span<const BucketRows> buckets, double* squares) = 0;
  virtual Status adamW(const AdamWCall& call) = 0;
  virtual Status updateLossScale(const LossScaleUpdate& update) = 0;

  // Events of the current step, for one record() each. A host that does everything at once has none
  // and returns -1; wait() takes that for no event.
  virtual int32_t newEvent() = 0;
  virtual Status record(int32_t event, program::Stream stream) = 0;
  virtual Status wait(int32_t event, program::Stream stream) = 0;

  // Copies `bytes` at `data`, an address of the host's image of the rank's memory, from or to the
  // device. Nothing to do where the image is the memory.
  virtual Status fetch(void* data, int64_t bytes) = 0;
  virtual Status store(const void* data, int64_t bytes) = 0;
};

// A rank ready to run: what it executes on, and how it talks to the others.
struct RankSetup {
  std::unique_ptr<RankDevice> device;
  std::unique_ptr<Communicator> comm;
  std::vector<std::string> notes;  // what is not as it should be, and does not stop the rank
};

// Where all ranks of a session live. Outlives their setups.
class Backend {
 public:
  virtual ~Backend() = default;
  // kResourceExhausted: the ranks need more memory than there is; names the need.
  virtual Status checkMemory(const program::Program& program) const = 0;
  // On the rank's thread. `image` is the rank's program on memory of the host; `control` connects
  // the threads of this process. Both are as good as any for a host; a device copies and wraps
  // them.
  virtual Result<RankSetup> prepare(const RankProgram& image,
                                    std::unique_ptr<Communicator> control) = 0;
};

}  // namespace trireme::runtime
