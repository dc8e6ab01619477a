#include "runtime/comm/process_world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <random>

#include "ir/base/rng.h"
#include "runtime/kernels/bf16.h"
#include "tests/runtime/comm/join_processes.h"
#include "tests/runtime/comm/run_ranks.h"

namespace trireme::runtime {
namespace {

using program::Direction;
using program::ReduceOp;
using program::Stream;
using ::testing::HasSubstr;

void expectAllOk(const std::vector<Status>& statuses) {
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.message();
}

template <typename T>
std::vector<T> inputsOf(int32_t rank, int64_t count) {
  std::vector<T> data;
  for (int64_t i = 0; i < count; ++i) {
    const double value =
        randomWord({3, 1}, static_cast<uint64_t>(rank), static_cast<uint64_t>(i)) / 4294967296.0;
    data.push_back(narrow<T>(static_cast<SumOf<T>>(value - 0.4)));
  }
  return data;
}

// A sequence of collectives and what they left, as bytes.
template <typename T>
Status collectives(Communicator& comm, DType type, int64_t n, std::string& left) {
  const auto keep = [&](const std::vector<T>& data) {
    left.append(reinterpret_cast<const char*>(data.data()), data.size() * sizeof(T));
  };
  for (const int64_t count : {1, 7, 129, 3001})
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
      std::vector<T> data = inputsOf<T>(comm.rank(), count);
      TRIREME_RETURN_IF_ERROR(comm.allReduce(0, data.data(), count, type, op));
      keep(data);
      data = inputsOf<T>(comm.rank(), n * count);
      std::vector<T> mine(static_cast<size_t>(count));
      TRIREME_RETURN_IF_ERROR(comm.reduceScatter(0, data.data(), mine.data(), count, type, op));
      keep(mine);
      // In place, shifted by half: the parts overlap.
      data = inputsOf<T>(comm.rank(), (n + 1) * count);
      T* part = data.data() + comm.rank() * count + count / 2;
      TRIREME_RETURN_IF_ERROR(comm.reduceScatter(0, data.data(), part, count, type, op));
      keep({part, part + count});
      TRIREME_RETURN_IF_ERROR(comm.allGather(0, part, data.data(), count, type));
      keep({data.data(), data.data() + n * count});
    }
  return {};
}

template <typename T>
void expectTheBitsOfThreads(DType type) {
  for (const int32_t n : {2, 3, 5}) {
    std::vector<int32_t> group = ranksUpTo(n);
    std::rotate(group.begin(), group.begin() + 1, group.end());  // not the ranks' order
    std::vector<std::string> threads(static_cast<size_t>(n)), processes(static_cast<size_t>(n));
    ThreadWorld world(n, {group}, std::chrono::seconds(60));
    expectAllOk(runRanks(world, n, [&](Communicator& comm) {
      return collectives<T>(comm, type, n, threads[static_cast<size_t>(comm.rank())]);
    }));
    expectAllOk(runProcesses(n, 60, [&](ProcessWorld& own) -> Status {
      TRIREME_RETURN_IF_ERROR(connectAll(own, {group}));
      const auto comm = own.communicator(own.rank());
      return collectives<T>(*comm, type, n, processes[static_cast<size_t>(own.rank())]);
    }));
    EXPECT_EQ(threads, processes) << n;
  }
}

// Longest and too long.
TEST(ProcessWorld, TimeoutsAreBounded) {
  expectAllOk(
      runProcesses(2, 1e6, [](ProcessWorld& world) { return connectAll(world, {{0, 1}}); }));
  for (const Status& status : runProcesses(2, 1e10, [](ProcessWorld&) { return Status(); }))
    EXPECT_THAT(status.message(), HasSubstr("it may be 1000000 s at most"));
}

TEST(ProcessCommunicator, CollectivesHaveTheBitsOfThreads) {
  expectTheBitsOfThreads<double>(DType::kF64);
  expectTheBitsOfThreads<float>(DType::kF32);
  expectTheBitsOfThreads<Bf16>(DType::kBf16);
  expectTheBitsOfThreads<F16>(DType::kF16);
  expectTheBitsOfThreads<int32_t>(DType::kI32);
}

class Polled final : public Condition {
 public:
  explicit Polled(std::function<Result<bool>()> poll, int32_t peer)
      : poll_(std::move(poll)), peer_(peer) {}
  bool ready() override {
    Result<bool> done = poll_();
    if (!done.has_value()) error = done.error();
    return !done.has_value() || *done;
  }
  int32_t awaitedRank() override { return peer_; }
  Status error;

 private:
  std::function<Result<bool>()> poll_;
  int32_t peer_;
};

Status receive(Communicator& comm, int32_t peer, const MessageTag& tag, void* data, int64_t bytes) {
  Polled done([&] { return comm.receive(Stream::kRecvForward, peer, tag, data, bytes); }, peer);
  TRIREME_RETURN_IF_ERROR(comm.wait(done));
  return done.error;
}

Status send(Communicator& comm, Stream stream, int32_t peer, const MessageTag& tag,
            const void* data, int64_t bytes) {
  TRIREME_RETURN_IF_ERROR(comm.publish(stream, peer, tag, data, bytes));
  Polled done([&] { return comm.sent(stream); }, peer);
  return comm.wait(done);
}

// The same tags again and again, large and small; what was sent may change at once.
TEST(ProcessCommunicator, MessagesArriveInOrderAndWhole) {
  constexpr size_t kLarge = 1 << 19;
  expectAllOk(runProcesses(2, 60, [&](ProcessWorld& world) -> Status {
    TRIREME_RETURN_IF_ERROR(connectAll(world, {{0, 1}}));
    const auto comm = world.communicator(world.rank());
    for (int32_t i = 0; i < 50; ++i) {
      const size_t count = i % 10 == 0 ? kLarge : 33;
      std::vector<int32_t> data(count, i);
      const auto bytes = static_cast<int64_t>(count * sizeof(int32_t));
      const MessageTag tag{Direction::kForward, 0, i % 3};
      if (world.rank() == 0) {
        TRIREME_RETURN_IF_ERROR(send(*comm, Stream::kSendForward, 1, tag, data.data(), bytes));
        std::fill(data.begin(), data.end(), -1);
        continue;
      }
      std::fill(data.begin(), data.end(), -2);
      TRIREME_RETURN_IF_ERROR(receive(*comm, 0, tag, data.data(), bytes));
      if (data != std::vector<int32_t>(count, i)) return internalError("got another message");
    }
    return {};
  }));
}

TEST(ProcessCommunicator, WhatDiffersBetweenTwoRanksIsSaidWithBoth) {
  auto statuses = runProcesses(2, 60, [&](ProcessWorld& world) -> Status {
    TRIREME_RETURN_IF_ERROR(connectAll(world, {{0, 1}}));
    const auto comm = world.communicator(world.rank());
    double data[4] = {};
    return comm->allReduce(0, data, 3 + world.rank(), DType::kF64, ReduceOp::kSum);
  });
  bool said = false;
  for (const Status& status : statuses) {
    EXPECT_FALSE(status.ok());
    said = said || status.message() ==
                       "members of a group differ: rank 0 calls all_reduce of 3 f64 elements, "
                       "rank 1 calls all_reduce of 4 f64 elements";
  }
  EXPECT_TRUE(said);
  statuses = runProcesses(2, 60, [&](ProcessWorld& world) -> Status {
    TRIREME_RETURN_IF_ERROR(connectAll(world, {{0, 1}}));
    const auto comm = world.communicator(world.rank());
    int64_t data = 0;
    if (world.rank() == 0) return send(*comm, Stream::kSendForward, 1, {}, &data, 8);
    return receive(*comm, 0, {}, &data, 4);
  });
  EXPECT_EQ(statuses[1].message(), "rank 1 receives 4 bytes, rank 0 sends 8");
}

TEST(ProcessWorld, WordsAreExchangedInRankOrderAndBytesGoToRankZero) {
  expectAllOk(runProcesses(4, 60, [&](ProcessWorld& world) -> Status {
    TRIREME_RETURN_IF_ERROR(world.connect({}, {}, 1 << 24));
    for (int round = 0; round < 20; ++round) {
      const std::string mine = std::to_string(world.rank()) + "." + std::to_string(round);
      TRIREME_ASSIGN_OR_RETURN(const auto all, world.exchange(mine, true));
      for (int32_t rank = 0; rank < 4; ++rank)
        if (all[static_cast<size_t>(rank)] != std::to_string(rank) + "." + std::to_string(round))
          return internalError("other words");
      const auto bytes = [&](int32_t rank) {
        return std::string(static_cast<size_t>(100'000 * rank), static_cast<char>('a' + round));
      };
      if (world.rank() != 0) TRIREME_RETURN_IF_ERROR(world.send(0, bytes(world.rank())));
      for (int32_t rank = 1; world.rank() == 0 && rank < 4; ++rank) {
        TRIREME_ASSIGN_OR_RETURN(const std::string got, world.receive(rank));
        if (got != bytes(rank)) return internalError("other bytes");
      }
    }
    return {};
  }));
}

// Each of them waits for somebody else; all learn who it was, and why.
TEST(ProcessWorld, AFailureReachesEveryRankWithItsReason) {
  const auto statuses = runProcesses(4, 60, [&](ProcessWorld& world) -> Status {
    TRIREME_RETURN_IF_ERROR(connectAll(world, {ranksUpTo(4)}));
    if (world.rank() == 2) return resourceExhausted("the disk is full");
    const auto comm = world.communicator(world.rank());
    double data = 0;
    return comm->allReduce(0, &data, 1, DType::kF64, ReduceOp::kSum);
  });
  for (const size_t rank : {0, 1, 3}) {
    EXPECT_EQ(statuses[rank].code(), StatusCode::kUnavailable);
    EXPECT_THAT(statuses[rank].message(), HasSubstr("gave up (rank 2 failed: the disk is full)"));
  }
}

// Only rank 0 is connected with all: it passes the news on.
TEST(ProcessWorld, RankZeroPassesOnWhoHasGone) {
  const auto statuses = runProcesses(4, 60, [&](ProcessWorld& world) -> Status {
    TRIREME_RETURN_IF_ERROR(world.connect({}, {}, 0));
    if (world.rank() == 3) return unavailable("unplugged");
    return world.exchange("", false).has_value() ? Status() : world.failure();
  });
  for (const size_t rank : {0, 1, 2}) EXPECT_EQ(statuses[rank].message(), "unplugged");
}

TEST(ProcessWorld, WhoDoesNotAnswerIsNamedAfterTheTimeout) {
  std::atomic<bool> over = false;
  const auto statuses = runProcesses(2, 0.3, [&](ProcessWorld& world) -> Status {
    TRIREME_RETURN_IF_ERROR(connectAll(world, {{0, 1}}));
    if (world.rank() == 1) {
      while (!over) std::this_thread::yield();
      return {};
    }
    const auto comm = world.communicator(0);
    double data = 0;
    const Status status = comm->allReduce(0, &data, 1, DType::kF64, ReduceOp::kSum);
    over = true;
    return status;
  });
  EXPECT_EQ(statuses[0].message(), "rank 0, waiting for rank 1: no answer in 0.3 s");
}

// --- The start ---

TEST(Rendezvous, WhoIsMissingIsNamedToThoseWhoCame) {
  const int port = trireme::testing::freePort();
  std::vector<std::string> said(4);
  std::vector<std::thread> threads;
  for (const int32_t rank : {0, 2})
    threads.emplace_back([&, rank] {
      said[static_cast<size_t>(rank)] =
          ProcessWorld::join(launchOf(rank, 4, port), 0.5).error().message();
    });
  for (std::thread& thread : threads) thread.join();
  const std::string expected =
      "ranks 1, 3 of 4 have not come to 127.0.0.1:" + std::to_string(port) + " within 0.5 s";
  EXPECT_EQ(said[0], expected);
  EXPECT_EQ(said[2], expected);
}

TEST(Rendezvous, AnAddressWhereNobodyListensIsNamed) {
  const int port = trireme::testing::freePort();
  EXPECT_THAT(
      ProcessWorld::join(launchOf(1, 2, port), 0.3).error().message(),
      ::testing::AllOf(HasSubstr("rank 1 cannot reach rank 0 at 127.0.0.1:" + std::to_string(port)),
                       HasSubstr("(tried for 0.3 s)")));
}

TEST(Rendezvous, APortThatIsTakenIsNamed) {
  const Socket taken = *listenOn(0);
  EXPECT_THAT(ProcessWorld::join(launchOf(0, 2, portOf(taken)), 0.3).error().message(),
              HasSubstr("cannot listen on port " + std::to_string(portOf(taken))));
}

TEST(Rendezvous, WhoeverAnswersAndIsNotTriremeIsNotBelieved) {
  const Socket listener = *listenOn(0);
  std::thread other([&] {
    std::optional<std::pair<Socket, std::string>> caller;
    while (!caller) caller = acceptFrom(listener);
    const std::string banner = "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n";
    ASSERT_EQ(send(caller->first.fd(), banner.data(), banner.size(), MSG_NOSIGNAL),
              std::ssize(banner));
    char buffer[256];
    while (recv(caller->first.fd(), buffer, sizeof(buffer), 0) != 0) std::this_thread::yield();
  });
  EXPECT_THAT(ProcessWorld::join(launchOf(1, 2, portOf(listener)), 5).error().message(),
              HasSubstr("is not rank 0 of this run, or has ended: it does not speak as Trireme"));
  other.join();
}

// Two seconds more than the timeout, in which rank 0 would say who is missing.
TEST(Rendezvous, WhoeverAnswersNothingIsNotAwaitedForLong) {
  const Socket silent = *listenOn(0);
  const auto start = Clock::now();
  EXPECT_THAT(ProcessWorld::join(launchOf(1, 2, portOf(silent)), 0.5).error().message(),
              HasSubstr("is not rank 0 of this run, or has ended, or waits for others with a "
                        "longer --timeout: no answer"));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(6));
}

TEST(Rendezvous, OneOfAnotherWorldSizeIsToldBoth) {
  const int port = trireme::testing::freePort();
  std::string zero, stranger;
  std::thread first([&] { zero = ProcessWorld::join(launchOf(0, 2, port), 1).error().message(); });
  stranger = ProcessWorld::join(launchOf(1, 4, port), 5).error().message();
  first.join();
  EXPECT_THAT(stranger, HasSubstr("refuses rank 1: it was started as one of 4 processes, rank 0 as "
                                  "one of 2"));
  EXPECT_THAT(zero, HasSubstr("rank 1 of 2 has not come"));
}

// Port scanners, health checks, other programs, half a greeting, noise: none of them stops a run,
// and one that says nothing does not hold it up.
TEST(Rendezvous, StrangersDisturbNobody) {
  const int port = trireme::testing::freePort();
  std::vector<Status> statuses(2);
  std::thread zero([&] {
    auto world = ProcessWorld::join(launchOf(0, 2, port), 60);
    statuses[0] = world.has_value() ? (*world)->finish() : world.error();
  });
  const auto deadline = Clock::now() + std::chrono::seconds(30);
  const auto reach = [&] {
    Result<Socket> socket = dial("127.0.0.1", port, deadline);
    while (!socket.has_value() && Clock::now() < deadline)
      socket = dial("127.0.0.1", port, deadline);
    return socket;
  };
  std::mt19937_64 random(1);
  std::vector<Socket> strangers;
  for (int i = 0; i < 60; ++i) {
    Result<Socket> socket = reach();
    ASSERT_TRUE(socket.has_value());
    std::string noise;
    if (i % 4 == 0) noise = "GET /health HTTP/1.0\r\n\r\n";
    if (i % 4 == 1)
      for (int j = 0; j < 200; ++j) noise += static_cast<char>(random());
    if (i % 4 == 2) {
      wire::Hello hello;
      hello.numProcesses = 2;
      hello.rank = static_cast<int32_t>(random() % 3 == 0 ? 7 : random());
      const std::string body = wire::encode(hello);
      const auto header = wire::encode({wire::Kind::kHello, 0, body.size()});
      noise.assign(header.data(), header.size());
      noise += body;
      if (random() % 2 == 0) noise.resize(random() % noise.size());
    }
    static_cast<void>(send(socket->fd(), noise.data(), noise.size(), MSG_NOSIGNAL));
    if (i % 3 != 0) strangers.push_back(*std::move(socket));  // others hang up
  }
  auto world = ProcessWorld::join(launchOf(1, 2, port), 60);
  statuses[1] = world.has_value() ? (*world)->finish() : world.error();
  if (world.has_value()) world->reset();
  zero.join();
  expectAllOk(statuses);
}

}  // namespace
}  // namespace trireme::runtime
