#include "runtime/comm/exchange.h"

#include <gtest/gtest.h>

#include "tests/runtime/comm/join_processes.h"
#include "tests/runtime/comm/run_ranks.h"

namespace trireme::runtime {
namespace {

// Around the 64 KiB that one exchange of processes takes, and nothing at all.
const std::vector<std::string> kWords = {std::string(65536, 'a'), "", std::string(200000, 'b')};

Status expectWords(Communicator& comm) {
  for (int i = 0; i < 2; ++i) {
    TRIREME_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                             exchangeLong(comm, kWords[static_cast<size_t>(comm.rank())]));
    EXPECT_EQ(all, kWords);
  }
  return {};
}

TEST(ExchangeLong, ThreadsHearWordsOfAnyLength) {
  ThreadWorld world(3, {ranksUpTo(3)}, std::chrono::seconds(60));
  for (const Status& status : runRanks(world, 3, expectWords)) EXPECT_EQ(status.message(), "");
}

TEST(ExchangeLong, ProcessesHearWordsOfAnyLength) {
  const auto statuses = runProcesses(3, 60, [](ProcessWorld& world) -> Status {
    TRIREME_RETURN_IF_ERROR(connectAll(world, {}));
    return expectWords(*world.communicator(world.rank()));
  });
  for (const Status& status : statuses) EXPECT_EQ(status.message(), "");
}

}  // namespace
}  // namespace trireme::runtime
