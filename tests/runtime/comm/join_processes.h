// The processes of a run as threads of a test: each with a ProcessWorld of its own, connected by
// sockets of this machine.
#pragma once
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/comm/process_world.h"
#include "tests/support/free_port.h"

namespace trireme::runtime {

inline Launch launchOf(int32_t rank, int32_t numProcesses, int port) {
  return {"the test", rank, numProcesses, rank, "127.0.0.1", port};
}

// Runs `body` for every rank on a thread, as a process would: joins, runs, and ends well or fails.
// The status of each.
inline std::vector<Status> runProcesses(int32_t numProcesses, double timeoutSeconds,
                                        const std::function<Status(ProcessWorld&)>& body) {
  const int port = trireme::testing::freePort();
  std::vector<Status> statuses(static_cast<size_t>(numProcesses));
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < numProcesses; ++rank)
    threads.emplace_back([&, rank] {
      Status& status = statuses[static_cast<size_t>(rank)];
      auto world = ProcessWorld::join(launchOf(rank, numProcesses, port), timeoutSeconds);
      if (!world.has_value()) {
        status = world.error();
        return;
      }
      status = body(**world);
      if (status.ok()) status = (*world)->finish();
      if (!status.ok()) (*world)->fail(rank, status);
    });
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

// All exchange tensors with all, in one group.
inline Status connectAll(ProcessWorld& world, std::vector<std::vector<int32_t>> groups) {
  std::set<int32_t> others;
  for (int32_t rank = 0; rank < world.numProcesses(); ++rank)
    if (rank != world.rank()) others.insert(rank);
  return world.connect(std::move(groups), others, uint64_t{1} << 24);
}

}  // namespace trireme::runtime
