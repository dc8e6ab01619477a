#include "runtime/executor/host_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/program/workspace.h"

namespace trireme::runtime {
namespace {

using ::testing::HasSubstr;

TEST(HostMemory, IsWhatTheKernelSaysWithSwap) {
  EXPECT_EQ(parseAvailableMemory("MemTotal: 900 kB\nMemAvailable:   3 kB\nSwapFree: 2 kB\n"),
            Bytes(5 * 1024));
  EXPECT_EQ(parseAvailableMemory("MemTotal: 900 kB\n"), std::nullopt);
  EXPECT_EQ(parseAvailableMemory(""), std::nullopt);
}

// Ranks of 3 and 1 MiB: 4 MiB in all.
program::Program twoRanks() {
  program::Program program;
  program.roles.resize(2);
  program.roles[0].arenaBytes = 3 << 20;
  program.roles[1].arenaBytes = 1 << 20;
  program.ranks.resize(2);
  program.ranks[0].role = 0;
  program.ranks[1].role = 1;
  return program;
}

TEST(HostMemory, ArenasOfAllRanksMustFitTogether) {
  EXPECT_TRUE(checkArenas(twoRanks(), 1, Bytes(4 << 20)).ok());
  const Status status = checkArenas(twoRanks(), 1, Bytes(3 << 20));
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(),
              HasSubstr("the arenas of 2 ranks with 1 thread each need 4.00 MiB (at most 3.00 MiB "
                        "each), 3.00 MiB are available on this machine; a plan with at most "
                        "1.50 MiB per rank would fit"));
}

// The first rank has a workspace of 2 MiB, a quarter MiB for each of 8 threads. With t threads the
// two ranks need 4 - (8 - t) / 4 MiB: 2.25, 2.5, 3.25 and 4 MiB for 1, 2, 5 and 8 (or more).
TEST(HostMemory, WorkspaceCountsForTheThreadsThatThereAre) {
  static_assert(program::kMaxKernelThreads == 8);
  program::Program program = twoRanks();
  program::Buffer workspace;
  workspace.dtype = DType::kI32;
  workspace.elements = (2 << 20) / 4;
  program.roles[0].buffers.push_back(workspace);
  program.roles[0].workspace = 0;
  for (const auto& [threads, quarters] : {std::pair{1, 9}, {2, 10}, {5, 13}, {8, 16}, {99, 16}}) {
    EXPECT_TRUE(checkArenas(program, threads, Bytes(quarters << 18)).ok()) << threads;
    EXPECT_FALSE(checkArenas(program, threads, Bytes((quarters << 18) - 1)).ok()) << threads;
  }
  EXPECT_THAT(checkArenas(program, 8, Bytes(10 << 18)).message(),
              HasSubstr("with 8 threads each need 4.00 MiB (at most 3.00 MiB each), 2.50 MiB are "
                        "available on this machine; 2 threads per rank would fit"));
  EXPECT_THAT(checkArenas(program, 2, Bytes(9 << 18)).message(),
              HasSubstr("1 thread per rank would fit"));
  EXPECT_THAT(checkArenas(program, 1, Bytes(2 << 20)).message(),
              HasSubstr("need 2.25 MiB (at most 1.25 MiB each), 2.00 MiB are available on this "
                        "machine; a plan with at most 1.00 MiB per rank would fit"));
}

}  // namespace
}  // namespace trireme::runtime
