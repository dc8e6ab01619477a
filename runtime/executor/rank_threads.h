// One persistent thread per rank, which all run the same job at the same time.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "ir/base/status.h"

namespace trireme::runtime {

class RankThreads {
 public:
  RankThreads() = default;
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  // kResourceExhausted: the system gives no more threads; those started stay until destruction.
  Status start(int32_t numRanks);

  // Runs job(rank) on every rank's own thread, always the same one, and returns when all have
  // returned. An error of a job is the job's to keep.
  void run(const std::function<void(int32_t rank)>& job);

 private:
  void loop(int32_t rank);

  std::mutex mutex_;
  std::condition_variable begin_, end_;
  const std::function<void(int32_t)>* job_ = nullptr;
  uint64_t generation_ = 0;
  int32_t running_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace trireme::runtime
