// What a Session owns. Private to runtime.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/comm/process_world.h"
#include "runtime/comm/thread_world.h"
#include "runtime/device/device.h"
#include "runtime/executor/arena.h"
#include "runtime/executor/executor.h"
#include "runtime/executor/rank_threads.h"
#include "runtime/session.h"
#include "runtime/state/gather.h"

namespace trireme::runtime {

struct Session::Impl {
  struct Worker {
    RankSetup setup;
    std::unique_ptr<TraceRecorder> trace;
    std::unique_ptr<Executor> executor;
  };

  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl();

  // Ranks of other processes, for what is put together of all.
  class Others final : public OtherRanks {
   public:
    explicit Others(ProcessWorld& world) : world_(world) {}
    bool gathersHere() const override { return world_.rank() == 0; }
    Status send(const std::string& bytes) override { return world_.send(0, bytes); }
    Result<std::string> receive(int32_t rank) override { return world_.receive(rank); }

   private:
    ProcessWorld& world_;
  };

  Status load();
  Status openWorld();
  Status loadRanks(const std::optional<Bytes>& available);
  Status openBackend(const std::optional<Bytes>& available);
  Status openCuda();
  Status prepare(int32_t rank, std::chrono::steady_clock::time_point start);
  void runRank(int32_t rank, DataSource& data);
  Status endTogether(Communicator& comm);
  Result<StepResult> collect();
  Status collectLossScaling(StepResult& result);
  // session_processes.cpp: what processes tell each other. All of these: nothing to tell, where all
  // ranks are in this process.
  Status agreeOnProgram();
  Status agreeOn(const std::vector<Fact>& facts);
  Status exchangeResult(StepResult& result, bool hasLoss);
  // Of the world, once it has failed, and this rank has not.
  Status failureOfOthers() const;
  // An error of one is one of all.
  Status shared(Status status);
  std::vector<NamedTensor> gather(StateKind kind) const;

  // Between the ranks' memory and the host's image of it (device.h); see session_state.cpp.
  Result<std::span<const double>> fetchDoubles(const RankProgram& rank, int32_t buffer) const;
  Status fetchState(StateKind kind) const;
  Status fetchCheckpointState() const;
  Result<program::LossScaling> fetchLossScaling(const RankProgram& rank) const;
  // Parameters, masters, moments and loss scaling of one rank, or of all.
  Status storeWeights(int32_t rank) const;
  Status storeAllWeights() const;
  TrainingState trainingState() const { return {&bundle.program, &tensors, ranks, others.get()}; }
  // Ranks are counted from the first of this process.
  size_t indexOf(int32_t rank) const { return static_cast<size_t>(rank - firstRank); }
  Worker& workerOf(int32_t rank) { return workers[indexOf(rank)]; }
  RankDevice& deviceOf(int32_t rank) const { return *workers[indexOf(rank)].setup.device; }

  program::Bundle bundle;
  SessionOptions options;
  std::vector<LogicalTensor> tensors;
  std::unique_ptr<ThreadWorld> threadWorld;
  World* world = nullptr;
  std::unique_ptr<Others> others;  // null: all ranks are in this process
  int32_t firstRank = 0;
  std::vector<Arena> arenas;       // the ranks' memory, or the host's image of it
  std::vector<RankProgram> ranks;  // on the arenas
  std::unique_ptr<Backend> backend;
  std::vector<Worker> workers;
  std::vector<Status> statuses;
  std::vector<RankCounters> counters;
  Status failure;
  TrainedSoFar progress;
  RankThreads threads;  // last: the threads end before what they use
};

}  // namespace trireme::runtime
