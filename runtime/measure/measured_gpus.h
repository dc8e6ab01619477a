// What the GPUs of this machine reach: kernels, memory, and communication between them. A rank on
// each, all at work at the same time, by the code that training runs; times are those of the GPU's
// events.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/base/units.h"
#include "ir/program/bundle.h"
#include "runtime/comm/thread_world.h"
#include "runtime/device/cuda/cuda_rank.h"
#include "runtime/executor/arena.h"
#include "runtime/executor/rank_threads.h"
#include "runtime/measure/measure.h"

namespace trireme::runtime {

struct GpuInfo {
  std::string name;    // the driver's: "NVIDIA H100 80GB HBM3"
  int capability = 0;  // 90: 9.0
  int numMultiprocessors = 0;
  int driverVersion = 0;  // 13000: of CUDA 13.0
  int64_t totalBytes = 0, freeBytes = 0;
  bool operator==(const GpuInfo&) const = default;
};

struct GpuTiming {
  int repetitions = 7;      // whose median counts
  Seconds batch{1e-3};      // calls between two events take at least this long, but for
  int64_t maxCalls = 1024;  // so many of them
  double timeoutSeconds = 60;
};

// What moves memory without a segment. How often an element of an array goes through memory:
enum class GpuStream : uint8_t {
  kCopy,        // 2: from one half of the arena to the other
  kSumSquares,  // 1: as Instruction kSumSquares, in f32
  kAdamW,       // 7: as kAdamW, in f32 with parameters that are their own master
};

class MeasuredGpus {
 public:
  // GPUs 0 .. numRanks - 1. `apis` outlive the result; more than one GPU needs apis.nccl.
  // kInvalidArgument: GPUs of different kinds. kUnavailable: fewer GPUs; and the errors of
  // Gpu::open().
  static Result<std::unique_ptr<MeasuredGpus>> open(const cuda::Apis& apis, int32_t numRanks,
                                                    const GpuTiming& timing);
  ~MeasuredGpus();
  MeasuredGpus(const MeasuredGpus&) = delete;
  MeasuredGpus& operator=(const MeasuredGpus&) = delete;

  int32_t numRanks() const { return static_cast<int32_t>(gpus_.size()); }
  // That of every GPU; of their memory the least.
  const GpuInfo& info() const { return info_; }
  // Of neighbouring ranks that collectives are measured among: the powers of two that divide
  // numRanks(), and numRanks(), at most five of them; none of one rank.
  static std::vector<int32_t> groupSizes(int32_t numRanks);

  // Takes `arenaBytes` of each GPU, loads `segments` (one
  // op each, without integers) and lets the ranks meet. At most once, before what follows.
  // kResourceExhausted: not so much memory or threads. kInvalidArgument: a segment that has no
  // kernels, or that takes more memory. kUnavailable: another rank failed, or NCCL says so.
  Status start(std::vector<program::Segment> segments, int64_t arenaBytes);

  // Of one call, by all ranks at once: after a warm-up the median of batches, and the mean of the
  // ranks. Operands are numbers between -1 and 1. A call does not find its own in the caches that
  // the last one filled: calls take turns among sets of operands, which fill a GiB or the arena.
  // After an error nothing more is measured. kUnavailable: a GPU does not answer, or a rank failed.
  // kInternal: a GPU reports an error.
  Result<Seconds> segment(size_t index);
  // The same for the better part of a second: clocks that rest take as long to rise.
  Status warmUp(size_t index);
  // Over as much as the arena holds.
  struct Traffic {
    Bytes moved;
    Seconds time;
  };
  Result<Traffic> stream(GpuStream stream);
  // A kernel that has next to nothing to do, one after the other.
  Result<Seconds> launch();
  // One call among `groupSize` neighbours, one of groupSizes(), while all other groups of that size
  // do the same. `bytes` of f32, a multiple of 4 groupSize: the full tensor, as CollectivePoint
  // counts. kSend: from ranks 2 i to 2 i + 1; groupSize is 2. Requires numRanks() > 1.
  Result<Seconds> exchange(Exchange exchange, int32_t groupSize, int64_t bytes);
  // The most that exchange() can send.
  int64_t tensorBytes() const { return tensorBytes_; }

 private:
  struct Rank {
    Arena image;
    RankProgram program;
    std::unique_ptr<cuda::CudaRank> device;
    std::unique_ptr<Communicator> comm;
    program::KernelContext context;
    Status status;
    DType pattern = DType::kI32;  // of the numbers in the image; kI32: none yet
    double once = 0;              // seconds of a warm call
    double perCall = 0;
  };
  using Work = std::function<Status(Rank&)>;  // one call

  MeasuredGpus(const cuda::Apis& apis, const GpuTiming& timing) : apis_(apis), timing_(timing) {}
  void buildProgram(std::vector<program::Segment> segments, int64_t arenaBytes);
  Status prepare(Rank& rank, int32_t index);
  Status chooseAlgorithms(Rank& rank, size_t index, std::vector<void*> operands);
  Status fill(Rank& rank, DType type, int64_t bytes);
  Status timeFirst(Rank& rank, const Work& work, program::Stream on);
  Status timeCalls(Rank& rank, const Work& work, program::Stream on, int64_t calls);
  Status finish(Rank& rank);
  Status onAll(const std::function<Status(Rank&)>& job);
  // Ranks beyond `numTimed` do nothing. `on`: where a rank's work is, the compute stream if null.
  Result<Seconds> measure(const Work& work, int32_t numTimed,
                          const std::function<program::Stream(const Rank&)>& on = nullptr);
  int32_t groupOf(const Rank& rank, int32_t size) const;
  char* tensors(const Rank& rank) const;  // where tensorBytes() are

  cuda::Apis apis_;
  GpuTiming timing_;
  GpuInfo info_;
  std::vector<std::unique_ptr<cuda::Gpu>> gpus_;
  program::Bundle bundle_;
  int64_t tensorBytes_ = 0;
  std::unique_ptr<ThreadWorld> world_;
  RankThreads threads_;
  std::vector<Rank> ranks_;
};

}  // namespace trireme::runtime
