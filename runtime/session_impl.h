// What a Session owns. Private to runtime.
#pragma once
#include <chrono>
#include <memory>
#include <vector>

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/comm/thread_world.h"
#include "runtime/executor/arena.h"
#include "runtime/executor/executor.h"
#include "runtime/executor/rank_threads.h"
#include "runtime/kernels/thread_pool.h"
#include "runtime/session.h"
#include "runtime/state/gather.h"

namespace trireme::runtime {

struct Session::Impl {
  struct Worker {
    std::unique_ptr<ThreadPool> pool;
    std::unique_ptr<Communicator> comm;
    std::unique_ptr<TraceRecorder> trace;
    std::unique_ptr<Executor> executor;
  };

  Status load();
  Status prepare(int32_t rank, std::chrono::steady_clock::time_point start);
  void runRank(int32_t rank, DataSource& data);
  StepResult collect() const;
  std::vector<NamedTensor> gather(StateKind kind) const;
  TrainingState trainingState() const { return {&bundle.program, &tensors, ranks}; }

  program::Bundle bundle;
  SessionOptions options;
  std::vector<LogicalTensor> tensors;
  SegmentCode code;
  std::unique_ptr<ThreadWorld> world;
  std::vector<Arena> arenas;
  std::vector<RankProgram> ranks;
  std::vector<Worker> workers;
  std::vector<Status> statuses;
  std::vector<RankCounters> counters;
  Status failure;
  TrainedSoFar progress;
  RankThreads threads;  // last: the threads end before what they use
};

}  // namespace trireme::runtime
