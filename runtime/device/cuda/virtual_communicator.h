// How ranks talk that share a GPU: their threads exchange addresses and events, and the data moves
// on the GPU, ordered by events. Nothing here waits for the GPU.
//
// All-reduce: every member records that its data is ready and shows where it is; member i waits for
// all of them, reduces slice i in group order and writes it to all members; records that; all wait
// for all. The same sums in the same order as between threads of a host.
#pragma once
#include <array>
#include <map>
#include <memory>
#include <vector>

#include "runtime/device/cuda/cuda_rank.h"

namespace trireme::runtime::cuda {

class VirtualCommunicator final : public Communicator {
 public:
  // `control` connects the ranks' threads, with its timeouts and failures. `groups` are those of
  // `control`; both they and `rank` outlive this. kInternal: no kernels for reductions.
  static Result<std::unique_ptr<VirtualCommunicator>> create(
      CudaRank& rank, std::unique_ptr<Communicator> control,
      const std::vector<program::Group>& groups);

  int32_t rank() const override { return control_->rank(); }
  // Groups of more than 64 members: kInvalidArgument.
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
    return control_->exchange(mine);
  }
  Status wait(Condition& condition) override { return control_->wait(condition); }
  void setProgress(Progress* progress) override { control_->setProgress(progress); }
  void fail(const Status& reason) override { control_->fail(reason); }
  bool failed() const override { return control_->failed(); }

 private:
  // What a rank shows to others: where its data is, and the event after which that may be used.
  struct Notice {
    const void* data = nullptr;
    EventHandle event = nullptr;
    int64_t bytes = 0;
  };
  // A message that was published and whose receiver has not yet said that it copied it.
  struct Outgoing {
    Notice notice;
    int32_t peer = -1;
    MessageTag tag;
    bool noticed = false;  // the receiver has read the notice
  };

  VirtualCommunicator(CudaRank& rank, std::unique_ptr<Communicator> control,
                      const std::vector<program::Group>& groups);
  Status loadKernels();
  int64_t sizeOf(int32_t group) const;
  int64_t indexIn(int32_t group) const;
  Result<EventHandle> recordEvent(program::Stream stream);
  // Exchanges notices with the group's members, into notices_; then the call's stream waits for all
  // of their events.
  Status meet(GroupCall with, const void* data, int64_t bytes);
  Status reduce(program::Stream stream, ReduceArgs& args, DType type, program::ReduceOp op);
  Status checkGroup(int32_t group) const;

  CudaRank& rank_;
  std::unique_ptr<Communicator> control_;
  const std::vector<program::Group>& groups_;
  std::map<std::pair<DType, program::ReduceOp>, FunctionHandle> kernels_;
  std::vector<Notice> notices_;  // of the members, in group order
  std::array<Outgoing, program::kNumStreams> outgoing_;
  std::array<Notice, program::kNumStreams> acknowledged_;  // what receivers answer
};

}  // namespace trireme::runtime::cuda
