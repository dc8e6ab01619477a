#include "runtime/executor/rank_threads.h"

#include <fmt/format.h>

#include <system_error>

namespace trireme::runtime {

Status RankThreads::start(int32_t numRanks) {
  try {
    for (int32_t rank = 0; rank < numRanks; ++rank)
      threads_.emplace_back([this, rank] { loop(rank); });
  } catch (const std::system_error& error) {
    return resourceExhausted(
        fmt::format("cannot start the thread of rank {}: {}", threads_.size(), error.what()));
  }
  return {};
}

RankThreads::~RankThreads() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  begin_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void RankThreads::run(const std::function<void(int32_t)>& job) {
  std::unique_lock lock(mutex_);
  job_ = &job;
  running_ = static_cast<int32_t>(threads_.size());
  ++generation_;
  begin_.notify_all();
  end_.wait(lock, [this] { return running_ == 0; });
  job_ = nullptr;
}

void RankThreads::loop(int32_t rank) {
  uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    begin_.wait(lock, [&] { return stopping_ || generation_ != seen; });
    if (stopping_) return;
    seen = generation_;
    const auto* job = job_;
    lock.unlock();
    (*job)(rank);
    lock.lock();
    if (--running_ == 0) end_.notify_all();
  }
}

}  // namespace trireme::runtime
