// How one rank talks to the others. One object per rank, used by that rank's thread only.
//
// Failure: every wait ends with an error when a peer has failed or when it took longer than the
// timeout; the message names this rank and the peer it was waiting for. After that the world is
// unusable. Nobody waits for ever.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ir/base/dtype.h"
#include "ir/base/status.h"
#include "ir/program/program.h"

namespace trireme::runtime {

// What a rank does meanwhile whenever it waits: it moves its point-to-point streams on.
class Progress {
 public:
  virtual ~Progress() = default;
  // Cheap and non-blocking. An error ends the wait.
  virtual Status advance() = 0;
};

// Something that becomes true through the work of other ranks.
class Condition {
 public:
  virtual ~Condition() = default;
  virtual bool ready() = 0;
  // For messages: the rank that it depends on (-1: none known).
  virtual int32_t awaitedRank() = 0;
};

struct MessageTag {
  program::Direction direction = program::Direction::kForward;
  int32_t virtualStage = 0;  // of the producer, below 2^16
  int32_t microbatch = 0;    // below 2^24
};

// Whom a collective is with, an index into the groups that the world was made with, and the stream
// that a device executes it on.
struct GroupCall {
  int32_t group = 0;
  program::Stream stream = program::Stream::kCompute;
  GroupCall(int32_t index, program::Stream on = program::Stream::kCompute)
      : group(index), stream(on) {}
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int32_t rank() const = 0;

  // Collectives. Every member makes the same calls on the same streams in the same order; they
  // return when the result is in place and the inputs may change. The result is ((m0 + m1) + m2) +
  // ... in group order, whatever the timing; bf16 and f16 are accumulated in f32 and rounded once
  // (NCCL: in its own order, rounded at every hop). kInvalidArgument: members differ in call, count
  // or type. kUnavailable: a peer failed, or did not come within the timeout.
  virtual Status allReduce(GroupCall with, void* data, int64_t count, DType type,
                           program::ReduceOp op) = 0;
  // `all` holds n * count elements; this member's n-th of the result goes to `mine`. The two may
  // overlap in any way; then all of `all` but `mine` is undefined afterwards.
  virtual Status reduceScatter(GroupCall with, void* all, void* mine, int64_t count, DType type,
                               program::ReduceOp op) = 0;
  // The reverse: `mine` (count elements) of every member to `all`. The two may overlap in any way.
  virtual Status allGather(GroupCall with, const void* mine, void* all, int64_t count,
                           DType type) = 0;

  // Point to point. Each stream has at most one message in the air: publish, then ask sent() until
  // it is true; the receiver copies straight out of `data`, which must not change before that.
  virtual Status publish(program::Stream stream, int32_t peer, const MessageTag& tag,
                         const void* data, int64_t bytes) = 0;
  virtual Result<bool> sent(program::Stream stream) = 0;
  // True once the message `tag` of `peer` has been copied into `data`; false: not published yet.
  // `stream` is the receiver's. kInvalidArgument: the message has another size.
  virtual Result<bool> receive(program::Stream stream, int32_t peer, const MessageTag& tag,
                               void* data, int64_t bytes) = 0;

  // What every rank of the world says, in rank order: all call it together. For what is said once:
  // at most 64 KiB each. Errors: kUnavailable, as above.
  virtual Result<std::vector<std::string>> exchange(const std::string& mine) = 0;

  // Blocks until `condition` holds, advancing `progress`.
  virtual Status wait(Condition& condition) = 0;
  // What every wait advances, also those inside collectives; null: nothing. Not owned.
  virtual void setProgress(Progress* progress) = 0;

  // Declares this rank failed: all waits of all ranks return kUnavailable with this message in it.
  virtual void fail(const Status& reason) = 0;
  // Whether any rank has failed.
  virtual bool failed() const = 0;

  // For communicators that hand work over to a device: poll() is asked while the device works, and
  // its error is why that will not come to an end; abort() ends what waits there for other ranks,
  // after which the communicator is unusable.
  virtual Status poll() { return {}; }
  virtual void abort() {}
};

}  // namespace trireme::runtime
