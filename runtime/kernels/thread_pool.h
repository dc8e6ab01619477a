// The threads of one rank: the caller and numThreads - 1 helpers.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace trireme::runtime {

// Not shared between ranks: only the thread that made the pool may run work on it, and a piece of
// work may not use the pool again. A pool of one thread runs everything inline.
//
// A thread that waits spins for about 200 pauses and then sleeps in the kernel, because ranks share
// cores.
class ThreadPool {
 public:
  // Requires numThreads >= 1. Starts the helpers. Throws std::system_error, with none left running,
  // if the system gives no more threads.
  explicit ThreadPool(int numThreads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int numThreads() const { return static_cast<int>(helpers_.size()) + 1; }

  // Calls piece(0) ... piece(count - 1), each once, on whatever thread is free, and returns when
  // all have returned. Requires 0 <= count < 65536.
  void run(int count, const std::function<void(int piece)>& piece);

 private:
  // What is left to take of the current job, in one word, so that a late helper never takes a piece
  // of a job it has not seen: job number (32 bits), pieces (16), next piece (16).
  std::atomic<uint64_t> ticket_{0};
  const std::function<void(int)>* piece_ = nullptr;
  std::atomic<uint32_t> finished_{0};  // pieces of the current job that have returned
  std::atomic<uint32_t> job_{0};
  std::atomic<int32_t> sleepingHelpers_{0};
  std::atomic<int32_t> callerSleeps_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> helpers_;

  void stop();
  void help();
  void takePieces();
  void awaitJob(uint32_t seen);
  void awaitPieces(uint32_t count);
};

}  // namespace trireme::runtime
