#include "runtime/device/cuda/virtual_communicator.h"

#include <gtest/gtest.h>

#include <barrier>
#include <functional>
#include <thread>

#include "runtime/comm/thread_world.h"
#include "runtime/executor/arena.h"
#include "tests/runtime/executor/tiny_program.h"
#include "tests/support/emulated_gpu.h"

namespace trireme::runtime::cuda {
namespace {

using program::Stream;

class Polled final : public Condition {
 public:
  explicit Polled(std::function<Result<bool>()> poll) : poll_(std::move(poll)) {}
  bool ready() override {
    const Result<bool> done = poll_();
    EXPECT_TRUE(done.has_value()) << done.error().message();
    return done.value_or(true);
  }
  int32_t awaitedRank() override { return -1; }

 private:
  std::function<Result<bool>()> poll_;
};

// One of two ranks that share the GPU, with the host's image of its arena.
struct Rank {
  Rank(const Gpu& gpu, const program::Bundle& bundle, ThreadWorld& world, int32_t number) {
    const auto& info = bundle.program.ranks[static_cast<size_t>(number)];
    arena = *Arena::allocate(bundle.program.roles[static_cast<size_t>(info.role)].arenaBytes);
    image = *resolveRank(bundle.program, number, arena.data());
    device = *CudaRank::create(gpu, bundle, image);
    comm = *VirtualCommunicator::create(*device, world.communicator(number), bundle.program.groups);
  }
  double& number() { return *reinterpret_cast<double*>(arena.data()); }
  void* address() { return device->program().arena; }

  Arena arena;
  RankProgram image;
  std::unique_ptr<CudaRank> device;
  std::unique_ptr<VirtualCommunicator> comm;
};

// Rank 0 sends a number and zeroes it as soon as its stream goes on: what arrives is the number, in
// whatever order the GPU takes the streams of the two.
TEST(VirtualCommunicator, ASendIsOverWhenTheReceiverHasCopied) {
  constexpr int kMessages = 5;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    trireme::testing::EmulatedGpu emulated({.seed = seed});
    const auto gpu = *Gpu::open(emulated.apis(), 0);
    const program::Bundle bundle = tinyBundle({.tp = 1, .dp = 1});
    ThreadWorld world(2, {{0, 1}}, std::chrono::seconds(20));
    std::vector<double> received;
    std::barrier senderIsDone(2);
    std::unique_ptr<Rank> ranks[2];  // until both are done: each waits for events of the other
    std::thread sender([&] {
      ranks[0] = std::make_unique<Rank>(*gpu, bundle, world, 0);
      Rank& rank = *ranks[0];
      for (int i = 0; i < kMessages; ++i) {
        rank.number() = i + 1;
        EXPECT_TRUE(rank.device->store(&rank.number(), sizeof(double)).ok());
        const MessageTag tag{program::Direction::kForward, 0, i};
        EXPECT_TRUE(
            rank.comm->publish(Stream::kSendForward, 1, tag, rank.address(), sizeof(double)).ok());
        Polled sent([&] { return rank.comm->sent(Stream::kSendForward); });
        EXPECT_TRUE(rank.comm->wait(sent).ok());
        const int32_t event = rank.device->newEvent();
        EXPECT_TRUE(rank.device->record(event, Stream::kSendForward).ok());
        EXPECT_TRUE(rank.device->wait(event, Stream::kCompute).ok());
        EXPECT_TRUE(rank.device->zero(rank.address(), sizeof(double)).ok());
        EXPECT_TRUE(rank.device->finishStep().ok());
        senderIsDone.arrive_and_wait();
      }
    });
    std::thread receiver([&] {
      ranks[1] = std::make_unique<Rank>(*gpu, bundle, world, 1);
      Rank& rank = *ranks[1];
      for (int i = 0; i < kMessages; ++i) {
        Polled arrived([&] {
          return rank.comm->receive(Stream::kRecvForward, 0, {program::Direction::kForward, 0, i},
                                    rank.address(), sizeof(double));
        });
        EXPECT_TRUE(rank.comm->wait(arrived).ok());
        senderIsDone.arrive_and_wait();  // and has made the GPU do all that its streams ask for
        EXPECT_TRUE(rank.device->finishStep().ok());
        EXPECT_TRUE(rank.device->fetch(&rank.number(), sizeof(double)).ok());
        received.push_back(rank.number());
      }
    });
    sender.join();
    receiver.join();
    EXPECT_EQ(received, (std::vector<double>{1, 2, 3, 4, 5})) << "seed " << seed;
    EXPECT_EQ(emulated.faults(), std::vector<std::string>());
  }
}

// Every place for tokens is another, and stays: the GPU reads it when it comes to it.
TEST(CudaRank, StagedTokensHavePlacesOfTheirOwn) {
  trireme::testing::EmulatedGpu emulated;
  const auto gpu = *Gpu::open(emulated.apis(), 0);
  const program::Bundle bundle = tinyBundle({.tp = 1, .dp = 1});
  ThreadWorld world(2, {{0, 1}}, std::chrono::seconds(20));
  Rank rank(*gpu, bundle, world, 0);
  auto* target = reinterpret_cast<int32_t*>(rank.address());
  std::vector<int32_t*> places;
  for (int32_t i = 0; i < 3; ++i) {
    const auto place = rank.device->stagingFor(target + i, 1);
    ASSERT_TRUE(place.has_value());
    places.push_back(*place);
  }
  for (int step = 0; step < 2; ++step) {
    ASSERT_TRUE(rank.device->beginStep().ok());
    for (int32_t i = 0; i < 3; ++i) {
      *places[static_cast<size_t>(i)] = 10 * step + i;
      ASSERT_TRUE(rank.device->sendTokens(target + i, places[static_cast<size_t>(i)], 1).ok());
    }
    ASSERT_TRUE(rank.device->finishStep().ok());
    auto* tokens = reinterpret_cast<int32_t*>(rank.arena.data());
    ASSERT_TRUE(rank.device->fetch(tokens, 3 * sizeof(int32_t)).ok());
    for (int32_t i = 0; i < 3; ++i) EXPECT_EQ(tokens[i], 10 * step + i);
  }
}

}  // namespace
}  // namespace trireme::runtime::cuda
