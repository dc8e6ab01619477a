// Runs one function on a thread per rank of a ThreadWorld.
#pragma once
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "runtime/comm/thread_world.h"

namespace trireme::runtime {

inline std::vector<Status> runRanks(ThreadWorld& world, int32_t numRanks,
                                    const std::function<Status(Communicator&)>& body) {
  std::vector<Status> statuses(static_cast<size_t>(numRanks));
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < numRanks; ++rank)
    threads.emplace_back([&, rank] {
      const auto comm = world.communicator(rank);
      Status status = body(*comm);
      if (!status.ok()) comm->fail(status);
      statuses[static_cast<size_t>(rank)] = status;
    });
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

inline std::vector<int32_t> ranksUpTo(int32_t n) {
  std::vector<int32_t> ranks;
  for (int32_t rank = 0; rank < n; ++rank) ranks.push_back(rank);
  return ranks;
}

}  // namespace trireme::runtime
