// One rank's end of a ProcessWorld: collectives and messages over its connections. Sums run in
// group order as between threads, so a run of processes has the bits of one of threads.
//
// All-reduce: every member sends slice i to member i, which reduces it and sends the sum to all.
// Each part begins with a description of the call, which the receiver compares with its own.
// A message waits at its sender until the receiver asks for it, so that none piles up.
#pragma once
#include <array>
#include <set>
#include <string>
#include <vector>

#include "runtime/comm/collective_call.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/process_world.h"

namespace trireme::runtime {

class ProcessCommunicator final : public Communicator {
 public:
  explicit ProcessCommunicator(ProcessWorld& world);

  int32_t rank() const override { return world_.rank(); }
  Status allReduce(GroupCall with, void* data, int64_t count, DType type,
                   program::ReduceOp op) override;
  Status reduceScatter(GroupCall with, void* all, void* mine, int64_t count, DType type,
                       program::ReduceOp op) override;
  Status allGather(GroupCall with, const void* mine, void* all, int64_t count, DType type) override;
  Status publish(program::Stream stream, int32_t peer, const MessageTag& tag, const void* data,
                 int64_t bytes) override;
  Result<bool> sent(program::Stream stream) override;
  Result<bool> receive(program::Stream stream, int32_t peer, const MessageTag& tag, void* data,
                       int64_t bytes) override;
  Result<std::vector<std::string>> exchange(const std::string& mine) override {
    return world_.exchange(mine, false);
  }
  Status wait(Condition& condition) override {
    return world_.wait(condition, progress_, world_.timeout_);
  }
  void setProgress(Progress* progress) override { progress_ = progress; }
  void fail(const Status& reason) override { world_.fail(rank(), reason); }
  bool failed() const override { return world_.failed(); }

 private:
  // A collective that is going on.
  struct Round {
    const std::vector<int32_t>* ranks = nullptr;
    int32_t index = 0;  // of this rank
    uint64_t key = 0;   // but for the phase
    CollectiveCall call;
    int64_t size() const { return static_cast<int64_t>(ranks->size()); }
  };
  enum class Phase : uint8_t { kInputs, kResults };

  Result<Round> begin(int32_t group, const CollectiveCall& call);
  // Sends `bytes` at `data` to a member.
  void post(const Round& round, Phase phase, int64_t member, const void* data, int64_t bytes);
  // Waits until all members' parts of the phase are in received_, and until what was posted is
  // gone. `bytes`: what the part of each member has.
  Status collect(const Round& round, Phase phase, const std::vector<int64_t>& bytes);
  const char* partOf(int64_t member) const;

  ProcessWorld& world_;
  Progress* progress_ = nullptr;
  std::vector<int32_t> indexInGroup_;  // per group; -1: not a member
  std::vector<uint64_t> rounds_;       // per group: begun so far
  std::vector<std::string> received_;  // per member
  ProcessWorld::Ticket ticket_;
  std::set<std::pair<int32_t, uint64_t>> asked_;
};

}  // namespace trireme::runtime
