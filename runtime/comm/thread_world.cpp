#include "runtime/comm/thread_world.h"

#include <thread>

#include "runtime/comm/thread_communicator.h"
#include "runtime/comm/thread_world_state.h"

namespace trireme::runtime {

ThreadWorld::Group::Group(const std::vector<int32_t>& ranks) : members(ranks.size()) {
  for (size_t i = 0; i < ranks.size(); ++i) members[i].rank = ranks[i];
}

ThreadWorld::ThreadWorld(int32_t numRanks, const std::vector<std::vector<int32_t>>& groups,
                         std::chrono::nanoseconds timeout)
    : timeout_(timeout) {
  for (const std::vector<int32_t>& ranks : groups)
    groups_.push_back(std::make_unique<Group>(ranks));
  const bool isCrowded = static_cast<uint32_t>(numRanks) > std::thread::hardware_concurrency();
  std::vector<int32_t> everybody;
  for (int32_t rank = 0; rank < numRanks; ++rank) {
    ranks_.push_back(std::make_unique<RankState>());
    if (isCrowded) ranks_.back()->doorbell.shareCore();
    everybody.push_back(rank);
  }
  groups_.push_back(std::make_unique<Group>(everybody));
  said_.resize(ranks_.size());
}

ThreadWorld::~ThreadWorld() = default;

std::unique_ptr<Communicator> ThreadWorld::communicator(int32_t rank) {
  return std::make_unique<ThreadCommunicator>(*this, rank);
}

int32_t ThreadWorld::failedRank() const {
  const std::lock_guard lock(mutex_);
  return failedRank_;
}

Status ThreadWorld::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void ThreadWorld::fail(int32_t rank, const Status& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_.ok()) {
      failure_ = reason;
      failedRank_ = rank;
    }
  }
  failed_.store(true, std::memory_order_seq_cst);
  for (const auto& state : ranks_) state->doorbell.ring();
}

}  // namespace trireme::runtime
