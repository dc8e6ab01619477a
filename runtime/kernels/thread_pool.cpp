#include "runtime/kernels/thread_pool.h"

#include <algorithm>
#include <system_error>

#include "ir/base/status.h"
#include "runtime/kernels/kernels.h"

namespace trireme::runtime {
namespace {

constexpr int kSpins = 200;
// Pieces per thread: more than one evens out a core that another process uses.
constexpr int64_t kPiecesPerThread = 4;

void pauseCpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int numThreads) {
  TRIREME_CHECK(numThreads >= 1);
  helpers_.reserve(static_cast<size_t>(numThreads - 1));
  try {
    for (int i = 1; i < numThreads; ++i) helpers_.emplace_back([this] { help(); });
  } catch (const std::system_error&) {
    stop();  // A thread that is destroyed while it runs would end the process.
    throw;
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  stopping_ = true;
  job_.fetch_add(1);
  job_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void ThreadPool::run(int count, const std::function<void(int)>& piece) {
  TRIREME_CHECK(count >= 0 && count < 65536);
  if (helpers_.empty() || count <= 1) {
    for (int i = 0; i < count; ++i) piece(i);
    return;
  }
  piece_ = &piece;
  finished_.store(0, std::memory_order_relaxed);
  const uint64_t number = job_.load(std::memory_order_relaxed) + 1;
  ticket_.store((number << 32) | (static_cast<uint64_t>(count) << 16), std::memory_order_release);
  job_.fetch_add(1);
  if (sleepingHelpers_.load() > 0) job_.notify_all();
  takePieces();
  awaitPieces(static_cast<uint32_t>(count));
}

void ThreadPool::takePieces() {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  while (true) {
    const uint64_t count = (ticket >> 16) & 0xFFFF, next = ticket & 0xFFFF;
    if (next >= count) return;
    if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel)) continue;
    // The job cannot end before this piece does, so piece_ belongs to the ticket.
    (*piece_)(static_cast<int>(next));
    if (finished_.fetch_add(1) + 1 == count && callerSleeps_.load() > 0) finished_.notify_one();
    ticket = ticket_.load(std::memory_order_acquire);
  }
}

void ThreadPool::awaitPieces(uint32_t count) {
  for (int i = 0; i < kSpins; ++i) {
    if (finished_.load(std::memory_order_acquire) == count) return;
    pauseCpu();
  }
  callerSleeps_.store(1);
  for (uint32_t seen = finished_.load(); seen != count; seen = finished_.load())
    finished_.wait(seen);
  callerSleeps_.store(0);
}

void ThreadPool::awaitJob(uint32_t seen) {
  for (int i = 0; i < kSpins; ++i) {
    if (job_.load(std::memory_order_acquire) != seen) return;
    pauseCpu();
  }
  sleepingHelpers_.fetch_add(1);
  job_.wait(seen);
  sleepingHelpers_.fetch_sub(1);
}

void ThreadPool::help() {
  uint32_t seen = 0;
  while (!stopping_) {
    awaitJob(seen);
    seen = job_.load(std::memory_order_acquire);
    takePieces();
  }
}

void parallelFor(ThreadPool& pool, int64_t extent, int64_t grain,
                 const std::function<void(int64_t, int64_t)>& body) {
  if (extent <= 0) return;
  const int64_t most = extent / std::max<int64_t>(grain, 1);
  const int64_t wanted = pool.numThreads() == 1 ? 1 : kPiecesPerThread * pool.numThreads();
  const int64_t pieces = std::clamp<int64_t>(most, 1, wanted);
  if (pieces == 1) return body(0, extent);
  pool.run(static_cast<int>(pieces),
           [&](int piece) { body(extent * piece / pieces, extent * (piece + 1) / pieces); });
}

}  // namespace trireme::runtime
