#include "runtime/kernels/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

#include "runtime/kernels/kernels.h"

namespace trireme::runtime {
namespace {

TEST(ThreadPool, RunsEveryPieceOnce) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (int count : {0, 1, 2, 7, 300}) {
      std::vector<std::atomic<int>> calls(static_cast<size_t>(count));
      pool.run(count, [&](int piece) { ++calls[static_cast<size_t>(piece)]; });
      for (const auto& c : calls) ASSERT_EQ(c, 1);
    }
  }
}

#if !TRIREME_SANITIZED
// A thousand stacks do not fit into 256 MiB of addresses: the pool reports it, and neither hangs
// nor ends the process.
TEST(ThreadPool, ThreadsThatCannotBeHadAreAnException) {
  const auto makeInLittleMemory = [] {
    const rlimit limit{256 << 20, 256 << 20};
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(1);
    try {
      const ThreadPool pool(1000);
    } catch (const std::system_error&) {
      _exit(7);
    }
    _exit(2);
  };
  EXPECT_EXIT(makeInLittleMemory(), ::testing::ExitedWithCode(7), "");
}
#endif

// Short jobs one after the other, so that helpers are late for most of them.
TEST(ThreadPool, LateHelpersTakeNothingOfAnEarlierJob) {
  ThreadPool pool(4);
  for (int job = 0; job < 3000; ++job) {
    std::atomic<int> sum{0};
    pool.run(6, [&, job](int piece) { sum += job + piece; });
    ASSERT_EQ(sum, 6 * job + 15);
  }
}

TEST(ThreadPool, OneThreadRunsInline) {
  ThreadPool pool(1);
  const std::thread::id caller = std::this_thread::get_id();
  pool.run(3, [&](int) { EXPECT_EQ(std::this_thread::get_id(), caller); });
}

TEST(ParallelFor, CoversTheExtentAndRespectsTheGrain) {
  ThreadPool pool(3);
  for (int64_t extent : {0, 1, 5, 100, 1001}) {
    std::vector<std::atomic<int>> calls(static_cast<size_t>(extent));
    parallelFor(pool, extent, 10, [&](int64_t begin, int64_t end) {
      EXPECT_GE(end - begin, std::min<int64_t>(extent, 10));
      for (int64_t i = begin; i < end; ++i) ++calls[static_cast<size_t>(i)];
    });
    for (const auto& c : calls) ASSERT_EQ(c, 1);
  }
}

}  // namespace
}  // namespace trireme::runtime
