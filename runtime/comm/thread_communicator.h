// One rank's end of a ThreadWorld. Private to runtime/comm.
#pragma once
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/thread_world.h"

namespace trireme::runtime {

struct CollectiveCall;

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(ThreadWorld& world, int32_t rank);

  int32_t rank() const override { return rank_; }
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
  Result<std::vector<std::string>> exchange(const std::string& mine) override;
  Status wait(Condition& condition) override;
  void setProgress(Progress* progress) override { progress_ = progress; }
  void fail(const Status& reason) override { world_.fail(rank_, reason); }
  bool failed() const override { return world_.failed(); }

 private:
  // Shows `call` to the members of `group` and waits until all have come with the same.
  Status begin(int32_t group, const CollectiveCall& call);
  Status barrier(int32_t group);
  // The error of a wait that ends because of `awaited`'s or another rank's failure.
  Status unavailable(int32_t awaited, const char* what) const;

  ThreadWorld& world_;
  int32_t rank_;
  Progress* progress_ = nullptr;
  std::vector<int32_t> indexInGroup_;  // per group; -1: not a member
  std::vector<uint64_t> barriers_;     // per group: reached so far
  // Scratch for the addresses of the largest group, so that a collective allocates nothing.
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
};

}  // namespace trireme::runtime
