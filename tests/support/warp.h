// The 32 threads of a GPU's warp on one thread of the host: fibers, which take turns whenever lanes
// exchange values. So the code of a warp runs without a GPU. Not under sanitizers, which cannot
// follow fibers.
#pragma once
#include <ucontext.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>

namespace trireme::testing {

class Warp {
 public:
  static constexpr int kThreads = 32;

  // Calls `thread` as each of the threads of warp `index` of `numWarps`, until all are through.
  void run(const std::function<void()>& thread, int index = 0, int numWarps = 1);
  // Whether all threads took part in every exchange.
  bool converged() const;

  // Inside run(), for the thread that runs.
  static Warp& current();
  int lane() const { return lane_; }
  int index() const { return index_; }
  int numWarps() const { return numWarps_; }
  // The values of all threads, each of which gives one. Returns when all have.
  template <typename T>
  std::array<T, kThreads> gather(const T& value) {
    static_assert(sizeof(T) <= kSlotBytes);
    const Slots& slots = exchange(&value, sizeof(T));
    std::array<T, kThreads> all;
    for (size_t i = 0; i < kThreads; ++i) std::memcpy(&all[i], slots[i].data(), sizeof(T));
    return all;
  }

 private:
  static constexpr size_t kSlotBytes = 64, kStackBytes = 256 << 10;
  using Slots = std::array<std::array<char, kSlotBytes>, kThreads>;
  struct Thread {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    int64_t numExchanges = 0;
    bool done = false;
  };

  static void enter();
  const Slots& exchange(const void* value, size_t bytes);
  Thread& self() { return threads_[static_cast<size_t>(lane_)]; }

  const std::function<void()>* function_ = nullptr;
  int lane_ = 0, index_ = 0, numWarps_ = 1;
  ucontext_t scheduler_;
  std::array<Thread, kThreads> threads_;
  std::array<Slots, 2> slots_ = {};
};

}  // namespace trireme::testing
