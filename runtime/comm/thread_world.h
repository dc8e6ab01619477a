// The communicator of ranks that are threads of one process: they read each other's memory.
//
// All-reduce: every member says where its data is; barrier; member i reduces slice i straight from
// all members' memory and writes it back to all of them (nobody else touches slice i); barrier.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/comm/doorbell.h"
#include "runtime/comm/world.h"

namespace trireme::runtime {

// What the ranks share. Outlives its communicators.
class ThreadWorld final : public World {
 public:
  // `groups`: the ranks of each group, in reduction order.
  ThreadWorld(int32_t numRanks, const std::vector<std::vector<int32_t>>& groups,
              std::chrono::nanoseconds timeout);
  ~ThreadWorld() override;

  std::unique_ptr<Communicator> communicator(int32_t rank) override;

  bool failed() const override { return failed_.load(std::memory_order_acquire); }
  Status failure() const override;
  int32_t failedRank() const override;
  void fail(int32_t rank, const Status& reason) override;

 private:
  friend class ThreadCommunicator;
  struct Group;
  struct RankState;

  std::chrono::nanoseconds timeout_;
  std::vector<std::unique_ptr<Group>> groups_;  // the last is of all ranks
  std::vector<std::unique_ptr<RankState>> ranks_;
  std::vector<std::string> said_;  // per rank: written before a barrier, read after it
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;  // of the two below
  Status failure_;
  int32_t failedRank_ = -1;
};

}  // namespace trireme::runtime
