// A GPU made of host memory, for tests: behind the same tables of functions as a real one
// (runtime/device/cuda), with the real kernels compiled for the host.
//
// Work is queued on streams and done only when somebody waits for a stream or asks for its state;
// then streams take turns at random (by `seed`), as far as events allow. So an order that no event
// asks for shows sooner or later. Memory starts as garbage. Misuse is remembered as a fault: a wait
// for an event that was never recorded, a copy beyond an allocation, a call without a context, a
// dead end. What a stream is given while it is captured is not done but becomes a graph; what the
// driver forbids meanwhile is a fault (emulated_graphs.cpp).
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

// A piece of work, for those who say how long it takes.
struct EmulatedTask {
  std::string name;  // "adamw_f32", "matmul_bf16", "copy", "fill", "all_reduce", "send"...
  const void* args = nullptr;  // of a kernel
  double products = 0;         // multiply-adds of a matrix product
  double bytes = 0;            // copied, filled or sent; of a collective the full tensor
  int members = 1;             // of a collective
};

struct EmulatedGpuOptions {
  int numDevices = 1;
  std::string name = "Emulated GPU";
  int numMultiprocessors = 4;
  int capability = 90;  // compute capability 9.0
  int driverVersion = 13000;
  int64_t memoryBytes = int64_t{64} << 30;
  uint64_t seed = 1;
  bool inWarps = false;            // warpKernels()
  bool isIdle = false;             // nothing is computed: for tests that look at what was asked for
  int64_t hangsAtLaunch = -1;      // this launch of a kernel, counted from 0, never ends
  int64_t refusesSubmission = -1;  // this kernel, product or graph, counted from 0, is refused
  bool losesCaptures = false;      // as after a call that a capture forbids
  std::vector<std::string> refusedImages;  // that the driver does not know: code of a later CUDA
  // Seconds that a task takes. With them, or those below, events have the time of their stream,
  // which begins at 0 and waits for nothing but other streams; else that of the host.
  std::function<double(const EmulatedTask&)> duration;
  // What cuBLASLt offers for every product, in its order: emulated seconds that each algorithm
  // takes. Empty: one.
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
  // Memory, streams, events and graphs that were not given back.
  int64_t numLiveObjects() const;
  // So far: such objects, also what the first launch of a graph makes if nobody has uploaded it;
  int64_t numCreations() const { return numCreations_; }
  // streams of each priority, of which the least is 0;
  std::map<int, int> numStreamsOf() const { return numStreamsOf_; }
  // kernels that streams were given, alone or in graphs;
  int64_t numLaunches() const { return numLaunches_; }
  // and how often: kernels, products and graphs.
  int64_t numSubmissions() const { return numSubmissions_; }
  int64_t numSynchronizations() const { return numSynchronizations_; }
  std::vector<EmulatedProduct> products() const;
  // What was loaded as a bundle's generated code, up to its first zero.
  std::vector<std::string> generatedImages() const { return generatedImages_; }
  // And as library kernels: "library sm_80", "library sm_90" or "library PTX".
  const std::string& libraryImage() const { return libraryImage_; }

 private:
  friend struct EmulatedDriver;
  friend struct EmulatedGraphs;
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
    double begins = 0;  // by the streams' time
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
    double seconds = 0;
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
  struct Node {
    std::function<void()> run;
    const EmulatedKernel* kernel = nullptr;  // null: no kernel's
    double seconds = 0;
  };
  struct Graph {
    std::vector<std::unique_ptr<Node>> nodes;  // in order
  };
  struct GraphExec {
    const Graph* graph = nullptr;  // that it was made of, perhaps destroyed
    std::vector<Node> nodes;       // like the graph's
    bool isUploaded = false;
  };
  struct Stream {
    std::deque<Work> queue;
    std::unique_ptr<Graph> captured;   // null: it is not captured
    const void* capturedBy = nullptr;  // a thread
    bool isCaptureLost = false;
    void* lastNode = nullptr;
    double seconds = 0;  // when its last work has ended
  };

  int fault(const std::string& what);
  // 0 unless `stream`, or any stream that the calling thread captures, is captured: a fault then,
  // and the capture is lost. `stream` may be null.
  int checkNoCapture(void* stream, const char* what);
  // A kernel, or with `kernel` null a product, for a stream or the graph that it is captured as.
  int submit(void* stream, const EmulatedKernel* kernel, std::function<void()> run, double seconds);
  // Counts it, and gives it to a stream.
  int enqueueKernel(void* stream, Work work);
  // Counts what the host puts on a stream. False: it is refused.
  bool takesSubmission() { return numSubmissions_++ != options_.refusesSubmission; }
  bool isAllocated(const void* data, size_t bytes) const;
  int enqueue(void* stream, Work work);
  int enqueueRun(void* stream, const EmulatedTask& task, std::function<void()> run);
  double secondsOf(const EmulatedTask& task) const {
    return options_.duration ? options_.duration(task) : 0;
  }
  double timeOf(const Stream& stream) const;
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
  std::map<void*, std::unique_ptr<Graph>> graphs_;
  std::map<void*, std::unique_ptr<GraphExec>> graphExecs_;
  std::map<void*, std::shared_ptr<void>> matmulObjects_;
  std::map<const void*, std::string> kernelNames_;  // by function
  std::map<std::string, EmulatedKernel> generated_;
  std::string libraryImage_;
  std::vector<std::string> generatedImages_;
  int64_t usedBytes_ = 0;
  int64_t numLaunches_ = 0, numSubmissions_ = 0, numCreations_ = 0, numSynchronizations_ = 0;
  std::map<int, int> numStreamsOf_;
  std::vector<EmulatedProduct> products_;
  std::vector<std::string> faults_;
};

}  // namespace trireme::testing
