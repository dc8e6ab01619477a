// NCCL between the ranks of one process that live on an EmulatedGpu: a call puts a piece of work on
// the stream that begins when the streams of all members have come to it. Sums run in the order of
// the members. What was called is recorded.
//
// As with communicators without blocking: any call may say "in progress" and be done later.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "runtime/device/cuda/nccl_api.h"
#include "tests/support/emulated_gpu.h"

namespace trireme::testing {

// How members meet when a communicator is made.
enum class NcclMeeting : uint8_t { kSucceeds, kFails, kNeverEnds };

enum class NcclCall : uint8_t { kAllReduce, kReduceScatter, kAllGather, kSend, kReceive };

// Where the ids say that their makers listen.
inline constexpr const char* kEmulatedNcclHost = "10.20.30.40";
inline constexpr uint16_t kEmulatedNcclPort = 50607;

struct RecordedCall {
  NcclCall call = NcclCall::kAllReduce;
  size_t count = 0;
  int type = 0, op = 0;
  std::vector<std::thread::id> members;  // of the communicator, in its order
  std::thread::id peer;                  // of a message
  void* stream = nullptr;
};

struct EmulatedNcclOptions {
  int version = 22809;
  uint64_t seed = 1;
  int64_t failsAtCall =
      -1;  // after this call, counted from 0 over all ranks, its communicator fails
  // The first call between some members is in progress until all of them have made it: they connect
  // then, as NCCL does (NCCL_RUNTIME_CONNECT; messages always).
  bool connectsLate = false;
  NcclMeeting meeting = NcclMeeting::kSucceeds;
};

// One at a time, on the EmulatedGpu that there is, which outlives it.
class EmulatedNccl {
 public:
  explicit EmulatedNccl(const EmulatedNcclOptions& options = {});
  ~EmulatedNccl();
  EmulatedNccl(const EmulatedNccl&) = delete;
  EmulatedNccl& operator=(const EmulatedNccl&) = delete;

  const runtime::cuda::NcclApi& api() const;
  // Communicators that were created by now, and those that were not given back.
  int64_t numCreated() const;
  int64_t numLive() const;
  int64_t numAborted() const;
  // Of each thread, in order.
  std::map<std::thread::id, std::vector<RecordedCall>> calls() const;

 private:
  friend struct EmulatedNcclTable;

  using Meeting = EmulatedGpu::Meeting;
  struct Comm;
  struct Clique {
    int size = 0;
    std::map<int, Comm*> members;
    std::vector<std::thread::id> threads;
    std::map<std::pair<int, int>, std::vector<std::shared_ptr<Meeting>>> meetings;
    std::map<std::pair<int, int>, std::set<int>> came;  // per pair: who has called
    bool failed = false;
  };
  struct Comm {
    std::shared_ptr<Clique> clique;
    int rank = 0;
    bool pending = false;  // the last call is not done
    bool ending = false;
    std::set<void*> streams;                     // that it was called for
    std::pair<int, int> connects = {-2, -2};     // whose first call is the last; -2: nobody's
    std::map<std::pair<int, int>, size_t> next;  // meeting, per sender and receiver (-1: all)
  };

  EmulatedNcclOptions options_;
  std::mt19937_64 random_;
  int64_t numIds_ = 0, numCreated_ = 0, numAborted_ = 0, numCalls_ = 0, numAborting_ = 0;
  bool isEnding_ = false;
  std::map<int64_t, std::shared_ptr<Clique>> cliques_;  // by id
  std::map<void*, std::unique_ptr<Comm>> comms_;
  std::map<std::thread::id, std::vector<RecordedCall>> calls_;
};

}  // namespace trireme::testing
