// Trains: loads a bundle, owns one arena and one thread per rank, and runs steps.
//
//   auto session = Session::create(std::move(bundle), {});
//   auto data = TokenFiles::open({"corpus.txt"}, ...);
//   for (...) auto result = (*session)->step(**data);
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/base/units.h"
#include "ir/program/bundle.h"
#include "ir/program/trace.h"
#include "runtime/data/data_source.h"
#include "runtime/executor/counters.h"
#include "runtime/executor/fault_injector.h"

namespace trireme::runtime {

class FileSystem;
struct ForeignWeights;
namespace cuda {
struct Apis;
}
class ProcessWorld;

struct SessionOptions {
  int threadsPerRank = 1;
  double timeoutSeconds = 60;       // of any one wait for a peer, or for a GPU to go on
  bool trace = false;               // record TraceEvents
  bool useReference = false;        // every op by its slow readable twin; ignores generated code
  std::optional<Bytes> memory;      // for all arenas; nothing: what the system has available
  FaultInjector* faults = nullptr;  // tests; not owned
  bool virtualRanks = false;        // of a CUDA bundle: all ranks on one GPU
  bool cudaGraphs = true;           // of a CUDA bundle: segments are launched as CUDA graphs
  // Of a CUDA bundle: the algorithms of matrix products are timed before the first step, and kept
  // in this folder (empty: nowhere); runtime/device/cuda/matmul_tuning.h. Otherwise cuBLASLt's own
  // first choice, which no measured time enters.
  bool timesMatmuls = false;
  std::string cacheFolder;
  // One rank per process: this process has rank processes->rank(). Null: all ranks are here. Not
  // owned.
  ProcessWorld* processes = nullptr;
  const cuda::Apis* cudaApis = nullptr;  // tests; not owned. Null: this machine's
};

// Of a step whose loss was scaled (program::LossScaling).
struct ScaledStep {
  double lossScale = 1;    // that the step used
  bool isSkipped = false;  // it has changed no parameter
  int64_t numSkipped = 0;  // steps so far
};

struct StepResult {
  int64_t step = 0;         // 0-based number of the step that was run
  double loss = 0;          // mean over the tokens of the global batch
  double gradNorm = 0;      // before clipping; not finite: the step has changed no parameter
  double learningRate = 0;  // that the step used
  double seconds = 0;
  std::optional<ScaledStep> scaled;  // in fp16
};

// What all processes of a run must have in common, in words: {"--save-every", "10"}.
struct Fact {
  std::string name, value;
};

// A logical tensor: full, unpadded, row-major, under its name in the state table with the layer
// number filled in.
struct NamedTensor {
  std::string name;
  std::vector<int64_t> dims;
  std::vector<double> values;
};

// With SessionOptions::processes every process has a session of its own rank and makes the same
// calls in the same order; what a call returns is that of all ranks, but where it says otherwise,
// and a failure is one of all.
//
// Not thread-safe: one caller at a time. The first failure of a step is final: the ranks have
// diverged, and every later call but the accessors returns it again; resume from a checkpoint.
class Session {
 public:
  // Allocates the arenas and initialises parameters (the same values under any plan).
  // kInvalidArgument: the program or its kernels are malformed, or need CPU features that are
  //                   missing here.
  // kResourceExhausted: the arenas need more than the machine has, or a thread cannot be had.
  // kUnavailable: a CUDA bundle, and no GPU, driver or library that could run it; names it.
  static Result<std::unique_ptr<Session>> create(program::Bundle bundle, SessionOptions options);
  // Reads the bundle in `folder` and opens its shared object. Errors: also those of readBundle().
  static Result<std::unique_ptr<Session>> open(const std::string& folder, SessionOptions options);
  ~Session();

  // Runs one training step on all ranks and waits for it. The error is that of the rank that failed
  // first; each rank's own is in rankStatuses().
  // kUnavailable: a rank stopped or stalled; names rank, instruction and the peer awaited.
  // kInvalidArgument: the data source refused a sample.
  Result<StepResult> step(DataSource& data);

  // Whether the samples that this process's ranks need for the next step can be formed: one that
  // cannot would fail the step, which is final, while this changes nothing. For devices that have
  // read them ahead no sample is read. kInvalidArgument: as step().
  Status checkData(DataSource& data);

  // Steps done so far: the number of the next one.
  int64_t numStepsDone() const;
  // DataSource::identity() of the last step, also of a checkpoint's; empty: not known.
  const std::string& trainedOn() const;
  // Settings of this training that the steps of the loaded checkpoint had otherwise, "clip_norm 0.5
  // instead of 1".
  const std::vector<std::string>& changedSettings() const;
  const program::Program& program() const;
  // Of the ranks of this process.
  const std::vector<Status>& rankStatuses() const;
  // What was not as it should be when the session was created, and did not stop it, one line each;
  // of the ranks of this process.
  std::vector<std::string> notes() const;
  // Whether all processes say the same, of facts of the same names in the same order.
  // kInvalidArgument, in all of them: the first fact that differs, with the values of two ranks.
  Status agree(const std::vector<Fact>& facts);
  // Whether `mine` is true in any process.
  Result<bool> anyProcess(bool mine);

  // These three: empty if a GPU failed while it was read, and in other processes than rank 0's.
  // Current weights: the optimizer's masters in state dtype, in order of logical index.
  std::vector<NamedTensor> gatherParameters() const;
  // Current weights as the forward pass reads them (compute dtype).
  std::vector<NamedTensor> gatherComputeParameters() const;
  // Gradient of the last step: summed over the global batch, before clipping, times the loss scale.
  std::vector<NamedTensor> gatherGradients() const;

  // Of the last step, per rank of this process.
  const std::vector<RankCounters>& counters() const;
  // Since the start or the last call, of all ranks of this process, if SessionOptions::trace.
  std::vector<program::TraceEvent> takeTrace();
  // The same of all processes, in that of rank 0; in others none.
  Result<std::vector<program::TraceEvent>> gatherTrace();

  // Writes weights, moments and position to one safetensors file, atomically: the old file survives
  // any failure. Rank 0's process writes; the others give it their parts, and return when it has
  // written. kResourceExhausted: the disk is full. See runtime/checkpoint/checkpoint.h.
  Status saveCheckpoint(const std::string& path) const;
  // Continues from a checkpoint that any plan of the same model and training settings wrote; under
  // the same plan, bit for bit. Every process reads the file.
  // kInvalidArgument: names what is truncated, corrupt, newer, missing or misshapen. Unless it says
  // otherwise the session is as before.
  Status loadCheckpoint(const std::string& path);
  // Starts from weights that other software keeps; see runtime/checkpoint/foreign.h. Before the
  // first step.
  Status loadForeignWeights(const ForeignWeights& weights, const std::string& path);
  // The same through another file system (tests).
  Status saveCheckpoint(const std::string& path, FileSystem& files) const;
  Status loadCheckpoint(const std::string& path, FileSystem& files);

 private:
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme::runtime
