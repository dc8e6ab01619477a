#include "runtime/executor/host_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::runtime {
namespace {

using testing::HasSubstr;

TEST(HostMemory, IsWhatTheKernelSaysWithSwap) {
  EXPECT_EQ(parseAvailableMemory("MemTotal: 900 kB\nMemAvailable:   3 kB\nSwapFree: 2 kB\n"),
            Bytes(5 * 1024));
  EXPECT_EQ(parseAvailableMemory("MemTotal: 900 kB\n"), std::nullopt);
  EXPECT_EQ(parseAvailableMemory(""), std::nullopt);
}

// Ranks of 3 and 1 MiB: 4 MiB in all.
TEST(HostMemory, ArenasOfAllRanksMustFitTogether) {
  program::Program program;
  program.roles.resize(2);
  program.roles[0].arenaBytes = 3 << 20;
  program.roles[1].arenaBytes = 1 << 20;
  program.ranks.resize(2);
  program.ranks[0].role = 0;
  program.ranks[1].role = 1;
  EXPECT_TRUE(checkArenas(program, Bytes(4 << 20)).ok());
  const Status status = checkArenas(program, Bytes(3 << 20));
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(),
              HasSubstr("the arenas of 2 ranks need 4.00 MiB (at most 3.00 MiB each), 3.00 MiB are "
                        "available on this machine; a plan with at most 1.50 MiB per rank"));
}

}  // namespace
}  // namespace trireme::runtime
