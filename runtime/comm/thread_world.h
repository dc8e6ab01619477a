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

#include "runtime/comm/communicator.h"
#include "runtime/comm/doorbell.h"

namespace trireme::runtime {

// What the ranks share. Outlives its communicators.
class ThreadWorld {
 public:
  // `groups`: the ranks of each group, in reduction order.
  ThreadWorld(int32_t numRanks, const std::vector<std::vector<int32_t>>& groups,
              std::chrono::nanoseconds timeout);
  ~ThreadWorld();

  // Once per rank.
  std::unique_ptr<Communicator> communicator(int32_t rank);

  bool failed() const { return failed_.load(std::memory_order_acquire); }
  // Why the first rank failed (ok: none has), and which (-1: none in particular).
  Status failure() const;
  int32_t failedRank() const;
  // Only the first call counts; wakes everybody. `rank` -1: none in particular.
  void fail(int32_t rank, const Status& reason);

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
