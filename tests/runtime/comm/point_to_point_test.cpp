#include <gtest/gtest.h>

#include "tests/runtime/comm/run_ranks.h"

namespace trireme::runtime {
namespace {

using program::Direction;
using program::Stream;
using std::chrono::seconds;

class Received final : public Condition {
 public:
  Received(Communicator& comm, int32_t peer, MessageTag tag, void* data, int64_t bytes)
      : comm_(comm), peer_(peer), tag_(tag), data_(data), bytes_(bytes) {}
  bool ready() override {
    Result<bool> done = comm_.receive(Stream::kRecvForward, peer_, tag_, data_, bytes_);
    if (!done.has_value()) error = done.error();
    return !done.has_value() || *done;
  }
  int32_t awaitedRank() override { return peer_; }
  Status error;

 private:
  Communicator& comm_;
  int32_t peer_;
  MessageTag tag_;
  void* data_;
  int64_t bytes_;
};

class Sent final : public Condition {
 public:
  Sent(Communicator& comm, Stream stream, int32_t peer)
      : comm_(comm), stream_(stream), peer_(peer) {}
  bool ready() override { return comm_.sent(stream_).value_or(true); }
  int32_t awaitedRank() override { return peer_; }

 private:
  Communicator& comm_;
  Stream stream_;
  int32_t peer_;
};

// Rank 0 sends a thousand numbers on one stream and gets each back, doubled, on another.
TEST(PointToPoint, MessagesOfOneStreamArriveInOrderAndWhole) {
  ThreadWorld world(2, {{0, 1}}, seconds(20));
  constexpr int32_t kCount = 1000;
  const auto statuses = runRanks(world, 2, [&](Communicator& comm) -> Status {
    const int32_t peer = 1 - comm.rank();
    for (int32_t i = 0; i < kCount; ++i) {
      int32_t out[33] = {i}, in[33] = {};
      if (comm.rank() == 1) {
        Received received(comm, peer, {Direction::kForward, 0, i}, in, sizeof(in));
        TRIREME_RETURN_IF_ERROR(comm.wait(received));
        out[0] = 2 * in[0];
      }
      const Stream stream = comm.rank() == 0 ? Stream::kSendForward : Stream::kSendBackward;
      const Direction way = comm.rank() == 0 ? Direction::kForward : Direction::kBackward;
      TRIREME_RETURN_IF_ERROR(comm.publish(stream, peer, {way, comm.rank(), i}, out, sizeof(out)));
      Sent sent(comm, stream, peer);
      TRIREME_RETURN_IF_ERROR(comm.wait(sent));
      out[0] = -1;  // the peer has its copy
      if (comm.rank() == 0) {
        Received received(comm, peer, {Direction::kBackward, 1, i}, in, sizeof(in));
        TRIREME_RETURN_IF_ERROR(comm.wait(received));
        if (in[0] != 2 * i) return internalError("got another message");
      }
    }
    return {};
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.message();
}

// Two streams may be in the air at once; the receiver picks by tag, not by order of publication.
TEST(PointToPoint, TheTagDecidesWhichMessageIsTaken) {
  ThreadWorld world(2, {{0, 1}}, seconds(20));
  const auto statuses = runRanks(world, 2, [&](Communicator& comm) -> Status {
    if (comm.rank() == 0) {
      const int32_t a = 1, b = 2;
      TRIREME_RETURN_IF_ERROR(
          comm.publish(Stream::kSendForward, 1, {Direction::kForward, 4, 9}, &a, 4));
      TRIREME_RETURN_IF_ERROR(
          comm.publish(Stream::kSendBackward, 1, {Direction::kBackward, 4, 9}, &b, 4));
      Sent first(comm, Stream::kSendForward, 1), second(comm, Stream::kSendBackward, 1);
      TRIREME_RETURN_IF_ERROR(comm.wait(second));
      return comm.wait(first);
    }
    int32_t a = 0, b = 0, none = 0;
    Received second(comm, 0, {Direction::kBackward, 4, 9}, &b, 4);
    TRIREME_RETURN_IF_ERROR(comm.wait(second));
    EXPECT_FALSE(*comm.receive(Stream::kRecvForward, 0, {Direction::kForward, 4, 8}, &none, 4));
    EXPECT_FALSE(*comm.receive(Stream::kRecvForward, 0, {Direction::kForward, 3, 9}, &none, 4));
    Received first(comm, 0, {Direction::kForward, 4, 9}, &a, 4);
    TRIREME_RETURN_IF_ERROR(comm.wait(first));
    EXPECT_EQ(a, 1);
    EXPECT_EQ(b, 2);
    return {};
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.message();
}

TEST(PointToPoint, AMessageOfAnotherSizeIsRefused) {
  ThreadWorld world(2, {{0, 1}}, seconds(20));
  const auto statuses = runRanks(world, 2, [&](Communicator& comm) -> Status {
    int64_t data = 0;
    if (comm.rank() == 0) {
      TRIREME_RETURN_IF_ERROR(comm.publish(Stream::kSendForward, 1, {}, &data, 8));
      Sent sent(comm, Stream::kSendForward, 1);
      return comm.wait(sent);
    }
    Received received(comm, 0, {}, &data, 4);
    TRIREME_RETURN_IF_ERROR(comm.wait(received));
    return received.error;
  });
  EXPECT_EQ(statuses[1].code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(statuses[1].message(), "rank 1 receives 4 bytes, rank 0 sends 8");
  EXPECT_EQ(statuses[0].code(), StatusCode::kUnavailable);
}

// A rank that waits in a collective keeps its point-to-point streams moving.
TEST(PointToPoint, AWaitInACollectiveAdvancesTheStreams) {
  ThreadWorld world(2, {{0, 1}}, seconds(20));
  const auto statuses = runRanks(world, 2, [&](Communicator& comm) -> Status {
    class Receiver final : public Progress {
     public:
      explicit Receiver(Communicator& comm) : comm_(comm) {}
      Status advance() override {
        if (!done) done = *comm_.receive(Stream::kRecvForward, 1, {}, &value, 4);
        return {};
      }
      bool done = false;
      int32_t value = 0;

     private:
      Communicator& comm_;
    };
    double sum = 1;
    if (comm.rank() == 0) {
      Receiver receiver(comm);
      comm.setProgress(&receiver);
      Status status = comm.allReduce(0, &sum, 1, DType::kF64, program::ReduceOp::kSum);
      comm.setProgress(nullptr);
      EXPECT_EQ(receiver.value, 5);
      return status;
    }
    const int32_t value = 5;
    TRIREME_RETURN_IF_ERROR(comm.publish(Stream::kSendForward, 0, {}, &value, 4));
    Sent sent(comm, Stream::kSendForward, 0);  // only then does rank 1 join the collective
    TRIREME_RETURN_IF_ERROR(comm.wait(sent));
    return comm.allReduce(0, &sum, 1, DType::kF64, program::ReduceOp::kSum);
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.message();
}

}  // namespace
}  // namespace trireme::runtime
