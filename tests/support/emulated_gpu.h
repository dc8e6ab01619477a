// A GPU made of host memory, for tests: behind the same tables of functions as a real one
// (runtime/device/cuda), with the real kernels compiled for the host.
//
// Work is queued on streams and done only when somebody waits for a stream or asks for its state;
// then streams take turns at random (by `seed`), as far as events allow. So an order that no event
// asks for shows sooner or later. Memory starts as garbage. Misuse is remembered as a fault: a wait
// for an event that was never recorded, a copy beyond an allocation, a call without a context, a
// dead end.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "runtime/device/cuda/gpu.h"

namespace trireme::testing {

// A kernel as its name stands for it.
struct EmulatedKernel {
  int64_t argsBytes = 0;
  std::function<void(const void* args)> run;
};
const std::map<std::string, EmulatedKernel>& emulatedKernels();
// The same as nvcc compiles them, thread by thread: warps of fibers (warp.h).
const std::map<std::string, EmulatedKernel>& warpKernels();
// Remembers that threads of a warp went different ways through an exchange.
void addWarpFault(const std::string& kernel);

const runtime::cuda::CublasLtApi& emulatedCublasLt();

struct EmulatedGpuOptions {
  int numDevices = 1;
  int capability = 90;  // compute capability 9.0
  int driverVersion = 13000;
  int64_t memoryBytes = int64_t{1} << 30;
  uint64_t seed = 1;
  bool inWarps = false;        // warpKernels()
  bool isIdle = false;         // nothing is computed: for tests that look at what was asked for
  int64_t hangsAtLaunch = -1;  // this launch, counted from 0, never ends
  // What cuBLASLt offers for every product, in its order: emulated seconds that each algorithm
  // takes. If there are any, events are timed by a clock that nothing else moves. Empty: one.
  std::vector<double> matmulSeconds;
  int refusedAlgorithm = -1;   // of these, this one is not supported after all
  int64_t failsAtMatmul = -1;  // this product, counted from 0, cannot be launched
  bool refusesEpilogues = false;
  size_t cublasLtVersion = 130100;
};

// A matrix product that was launched: its shape as cuBLAS counts, and the algorithm, an index into
// EmulatedGpuOptions::matmulSeconds.
struct EmulatedProduct {
  int64_t m = 0, n = 0, k = 0;
  int64_t algorithm = 0;
  void* stream = nullptr;
  int epilogue = 1;  // cublasLtEpilogue_t; 1: none
};

// One at a time: the tables have no place for an instance.
class EmulatedGpu {
 public:
  explicit EmulatedGpu(const EmulatedGpuOptions& options = {});
  ~EmulatedGpu();
  EmulatedGpu(const EmulatedGpu&) = delete;
  EmulatedGpu& operator=(const EmulatedGpu&) = delete;

  static EmulatedGpu* instance();
  // What the generated code that is loaded stands for: kernels by their names.
  void setGenerated(std::map<std::string, EmulatedKernel> kernels) {
    generated_ = std::move(kernels);
  }

  runtime::cuda::Apis apis() const;
  std::vector<std::string> faults() const;
  // Memory, streams and events that were not given back.
  int64_t numLiveObjects() const;
  int64_t numLaunches() const { return numLaunches_; }
  int64_t numAllocations() const { return numAllocations_; }
  int64_t numSynchronizations() const { return numSynchronizations_; }
  std::vector<EmulatedProduct> products() const;

 private:
  friend struct EmulatedDriver;
  friend void addWarpFault(const std::string& kernel);
  friend struct EmulatedCublasLt;
  friend class EmulatedNccl;
  friend struct EmulatedNcclTable;

  struct Event {
    uint64_t recorded = 0;   // record calls
    uint64_t completed = 0;  // of them, done
    bool timed = false;
    double seconds = 0;  // when it was completed last
  };
  // A piece of work that begins when as many streams as take part in it have come to it.
  struct Meeting {
    int size = 0;
    int arrived = 0;
    bool done = false;
    std::function<void()> run;
    std::shared_ptr<void> parts;  // what those who take part bring along
  };
  struct Work {
    std::function<void()> run;        // neither of the two below
    std::shared_ptr<Event> recorded;  // an event may be destroyed before it is complete
    std::shared_ptr<Event> awaited;
    uint64_t number = 0;  // of the record call
    bool endless = false;
    std::shared_ptr<Meeting> meeting;
    bool hasArrived = false;
    double seconds = 0;  // that the emulated clock moves on
  };
  // Begins at a multiple of 256, as the driver's does.
  class Block {
   public:
    Block(size_t bytes, char value);
    const char* data() const { return data_.get(); }
    size_t size() const { return bytes_; }

   private:
    struct Free {
      void operator()(char* data) const;
    };
    std::unique_ptr<char, Free> data_;
    size_t bytes_;
  };
  struct Stream {
    std::deque<Work> queue;
  };

  int fault(const std::string& what);
  bool isAllocated(const void* data, size_t bytes) const;
  int enqueue(void* stream, Work work);
  bool ready(const Work& work) const;
  void runHead(Stream& stream);
  void arrive();
  bool isMeeting() const;
  bool turn();
  int drain(void* stream);
  int query(void* stream);

  EmulatedGpuOptions options_;
  mutable std::mutex mutex_;
  std::mt19937_64 random_;
  std::map<const char*, Block> memory_;
  std::map<const char*, std::vector<char>> hostMemory_;
  std::map<void*, std::unique_ptr<Stream>> streams_;
  std::map<void*, std::shared_ptr<Event>> events_;
  std::set<void*> matmulObjects_;
  std::map<std::string, EmulatedKernel> generated_;
  int64_t usedBytes_ = 0;
  int64_t numLaunches_ = 0, numAllocations_ = 0, numSynchronizations_ = 0;
  double seconds_ = 0;  // of the emulated clock
  std::vector<EmulatedProduct> products_;
  std::vector<std::string> faults_;
};

}  // namespace trireme::testing
