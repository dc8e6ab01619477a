// How ranks talk that have a GPU each: by NCCL. A call hands the work over to the stream and
// returns; the streams of the GPUs wait for each other.
//
// Communicators are created without blocking, so that no call waits for a peer that never comes:
// while NCCL says "in progress" the state of the others is asked for, and a failure of any rank
// ends it. What has been handed over is watched by poll(), which gives up all communicators when a
// rank has failed: that ends what the GPU waits for.
#pragma once
#include <memory>
#include <vector>

#include "ir/program/cliques.h"
#include "runtime/device/cuda/cuda_rank.h"
#include "runtime/device/cuda/nccl_api.h"

namespace trireme::runtime::cuda {

class NcclCommunicator final : public Communicator {
 public:
  // Creates this rank's communicators: all ranks do so at the same time. `control` connects the
  // ranks' hosts. `rank` and `api` outlive this.
  // kUnavailable: another rank failed or did not come, or NCCL says so; names the ranks.
  // kInvalidArgument: those of cliquesOf().
  static Result<std::unique_ptr<NcclCommunicator>> create(CudaRank& rank,
                                                          std::unique_ptr<Communicator> control,
                                                          const NcclApi& api,
                                                          double timeoutSeconds);
  ~NcclCommunicator() override;

  int32_t rank() const override { return control_->rank(); }
  Status allReduce(GroupCall with, void* data, int64_t count, DType type,
                   program::ReduceOp op) override;
  Status reduceScatter(GroupCall with, void* all, void* mine, int64_t count, DType type,
                       program::ReduceOp op) override;
  Status allGather(GroupCall with, const void* mine, void* all, int64_t count, DType type) override;
  // Messages of one sender to one receiver are matched by their order; tags are not sent.
  Status publish(program::Stream stream, int32_t peer, const MessageTag& tag, const void* data,
                 int64_t bytes) override;
  Result<bool> sent(program::Stream) override { return true; }
  Result<bool> receive(program::Stream stream, int32_t peer, const MessageTag& tag, void* data,
                       int64_t bytes) override;
  Result<std::vector<std::string>> exchange(const std::string& mine) override {
    return control_->exchange(mine);
  }
  Status wait(Condition& condition) override { return control_->wait(condition); }
  void setProgress(Progress* progress) override {
    progress_ = progress;
    control_->setProgress(progress);
  }
  void fail(const Status& reason) override;
  bool failed() const override { return control_->failed(); }
  Status poll() override;
  void abort() override;

 private:
  struct Channel {
    program::Clique clique;
    int32_t index = 0;  // of this rank in it
    NcclHandle comm = nullptr;
  };

  NcclCommunicator(CudaRank& rank, std::unique_ptr<Communicator> control, const NcclApi& api,
                   double timeoutSeconds)
      : rank_(rank), control_(std::move(control)), api_(api), timeoutSeconds_(timeoutSeconds) {}
  Status open();
  Result<std::vector<NcclId>> exchangeIds(const std::vector<program::Clique>& cliques);
  Status openChannel(const program::Clique& clique, const NcclId& id);
  Status connectMessages();
  // Null: a group of this rank alone. kInvalidArgument: this rank is no member of it.
  Result<Channel*> channelOf(GroupCall with);
  Result<Channel*> channelOf(const program::Clique& clique);
  // Returns when NCCL is done with a call that returned `result`. The others have `patience` times
  // the timeout.
  Status settle(Channel& channel, int result, const char* what, double patience = 1);
  Status failureOf(const Channel& channel, int result, const char* what);
  Status lost(int32_t awaited);
  std::string describe(int result, NcclHandle comm) const;  // null: no communicator yet

  CudaRank& rank_;
  std::unique_ptr<Communicator> control_;
  const NcclApi& api_;
  double timeoutSeconds_;
  Progress* progress_ = nullptr;
  std::vector<Channel> channels_;
  // Per group of the program and lane; null: not found yet.
  std::vector<std::array<Channel*, program::kNumLanes>> ofGroup_;
  bool aborted_ = false;
};

}  // namespace trireme::runtime::cuda
