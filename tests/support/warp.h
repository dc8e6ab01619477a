// A thread block of a GPU on one thread of the host: its threads are fibers, which take turns
// whenever the lanes of a warp exchange values or the block waits for all of its threads. So the
// code of warps runs without a GPU. Not under sanitizers, which cannot follow fibers.
#pragma once
#include <ucontext.h>

#include <array>
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

namespace trireme::testing {

class ThreadBlock {
 public:
  static constexpr int kLanes = 32;

  explicit ThreadBlock(int numWarps = 1);

  // Calls `thread` as each of the threads of block `index` of `numBlocks`, until all are through.
  // One warp after the other runs until all of it waits, and after the wait in the other order, so
  // that an order that no wait asks for shows: a thread that reads before others have written, or
  // after they wrote again.
  void run(const std::function<void()>& thread, int index = 0, int numBlocks = 1);
  // Whether all threads of a warp took part in every exchange, and all of the block in every wait.
  bool converged() const { return converged_; }

  // Inside run(), for the thread that runs.
  static ThreadBlock& current();
  int thread() const { return thread_; }
  int lane() const { return thread_ % kLanes; }
  int numThreads() const { return static_cast<int>(threads_.size()); }
  int index() const { return index_; }
  int numBlocks() const { return numBlocks_; }
  // The values of all threads of the warp, each of which gives one. Returns when all have.
  template <typename T>
  std::array<T, kLanes> gather(const T& value) {
    static_assert(sizeof(T) <= kSlotBytes);
    const Slots& slots = exchange(&value, sizeof(T));
    std::array<T, kLanes> all;
    for (size_t i = 0; i < kLanes; ++i) std::memcpy(&all[i], slots[i].data(), sizeof(T));
    return all;
  }
  // Returns when all threads of the block are here.
  void wait();

 private:
  static constexpr size_t kSlotBytes = 64, kStackBytes = 256 << 10;
  using Slots = std::array<std::array<char, kSlotBytes>, kLanes>;
  // It begins as a context, and goes on by jumps, which do not ask the system for signals to mask.
  struct Thread {
    ucontext_t context;
    sigjmp_buf at;
    std::unique_ptr<char[]> stack;
    int64_t numExchanges = 0;
    bool running = false, waiting = false, done = false;
  };

  static void enter();
  void start(Thread& fiber);
  void resume(Thread& fiber);
  void yield(Thread& fiber);
  bool turn(size_t warp);
  bool release();
  void checkExchanges();
  const Slots& exchange(const void* value, size_t bytes);
  Thread& self() { return threads_[static_cast<size_t>(thread_)]; }

  const std::function<void()>* function_ = nullptr;
  int thread_ = 0, index_ = 0, numBlocks_ = 1;
  bool converged_ = true;
  sigjmp_buf scheduler_;
  std::vector<Thread> threads_;
  std::vector<std::array<Slots, 2>> slots_;  // per warp
};

}  // namespace trireme::testing
