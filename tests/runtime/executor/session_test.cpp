#include "runtime/session.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/runtime/executor/counting_data.h"
#include "tests/runtime/executor/tiny_program.h"

namespace trireme::runtime {
namespace {

using program::Direction;
using program::GroupKind;
using program::InstructionKind;

std::unique_ptr<Session> makeSession(program::Bundle bundle, SessionOptions options = {}) {
  options.useReference = true;
  options.timeoutSeconds = 20;
  auto session = Session::create(std::move(bundle), options);
  EXPECT_TRUE(session.has_value()) << session.error().message();
  return session.has_value() ? std::move(*session) : nullptr;
}

// tp 2, dp 2, 3 microbatches: y = 6 on stage 0 and 9 on stage 1, where all gradients come from.
//   loss  = 2 replicas * 3 microbatches * 5 tokens * (log 9 - 9) / (6 samples * 5 tokens)
//   g     = 2 replicas * 3 microbatches * 9 = 54 for each of 6 layers * 5 elements
//   AdamW, t = 1: mhat / (sqrt(vhat) + eps) = 1, so w = 1 - 0.5 (1 + 0.1 * 1) = 0.45
TEST(Session, AStepOfTheTinyProgramMatchesTheHandDerivation) {
  for (const bool sharded : {true, false})
    for (const int threads : {1, 3}) {
      TinyOptions tiny;
      tiny.sharded = sharded;
      SessionOptions options;
      options.threadsPerRank = threads;
      auto session = makeSession(tinyBundle(tiny), options);
      CountingData data;
      const auto result = session->step(data);
      ASSERT_TRUE(result.has_value()) << result.error().message();
      EXPECT_NEAR(result->loss, std::log(9) - 9, 1e-12);
      EXPECT_NEAR(result->gradNorm, 54 * std::sqrt(30), 1e-9);
      EXPECT_EQ(result->learningRate, 0.5);
      const auto gradients = session->gatherGradients();
      const auto weights = session->gatherParameters();
      ASSERT_EQ(gradients.size(), 6u);
      for (size_t i = 0; i < 6; ++i) {
        EXPECT_EQ(weights[i].name, "layers." + std::to_string(i) + ".w");
        EXPECT_EQ(gradients[i].values, std::vector<double>(kTinyWidth, 54));
        for (double w : weights[i].values) EXPECT_NEAR(w, 0.45, 1e-7);
      }
    }
}

// Weights of -1.1e300 after the first step: their gradients are finite, and the squares are not.
TEST(Session, AStepWhoseNormIsNotFiniteChangesNoWeight) {
  for (const bool sharded : {true, false})
    for (const double clipNorm : {0.0, 1.0}) {
      program::Bundle bundle = tinyBundle({.sharded = sharded});
      bundle.program.training.clipNorm = clipNorm;
      bundle.program.training.learningRate = 1e300;
      const auto session = makeSession(std::move(bundle));
      CountingData data;
      ASSERT_TRUE(session->step(data).has_value());
      const auto before = session->gatherParameters();
      const auto second = session->step(data);
      ASSERT_TRUE(second.has_value()) << second.error().message();
      EXPECT_TRUE(std::isinf(second->gradNorm)) << second->gradNorm;
      const auto after = session->gatherParameters();
      for (size_t i = 0; i < after.size(); ++i) EXPECT_EQ(after[i].values, before[i].values) << i;
    }
}

// The longest is one that all can wait; more would wrap round and be over at once.
TEST(Session, TimeoutsAreBounded) {
  for (const double seconds : {0.0, -1.0, std::nan(""), 1e10}) {
    const auto session = Session::create(tinyBundle({}), {.timeoutSeconds = seconds});
    EXPECT_EQ(session.error().message(), seconds > 0
                                             ? "the timeout is 10000000000 s; it may be 1000000 s "
                                               "at most"
                                             : "the timeout must be positive");
  }
  auto session = Session::create(tinyBundle({}), {.timeoutSeconds = 1e6, .useReference = true});
  CountingData data;
  ASSERT_TRUE(session.has_value() && (*session)->step(data).has_value());
}

// 8 MiB of workspace per rank, of which a rank of one thread touches 1 MiB.
TEST(Session, MemoryIsCheckedForTheThreadsThatThereAre) {
  program::Bundle bundle = tinyBundle({});
  Bytes oneThread;
  for (program::Role& role : bundle.program.roles) {
    program::Buffer workspace;
    workspace.name = "workspace";
    workspace.dtype = DType::kI32;
    workspace.elements = (8 << 20) / 4;
    workspace.offset = role.arenaBytes;
    role.arenaBytes += workspace.bytes();
    role.workspace = static_cast<int32_t>(role.buffers.size());
    role.buffers.push_back(workspace);
  }
  for (const program::RankInfo& rank : bundle.program.ranks) {
    const program::Role& role = bundle.program.roles[static_cast<size_t>(rank.role)];
    oneThread += Bytes(static_cast<double>(role.arenaBytes - (7 << 20)));
  }
  SessionOptions options;
  options.memory = oneThread;
  EXPECT_NE(makeSession(bundle, options), nullptr);
  options.threadsPerRank = 2;
  const auto session = Session::create(bundle, options);
  ASSERT_FALSE(session.has_value());
  EXPECT_EQ(session.error().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(session.error().message().find("1 thread per rank would fit"), std::string::npos)
      << session.error().message();
}

TEST(Session, ResultsDoNotDependOnReplicasOrShardingOfTheState) {
  TinyOptions tiny;
  std::vector<NamedTensor> first;
  for (const bool sharded : {true, false})
    for (const int32_t dp : {1, 2, 3}) {
      tiny.dp = dp;
      tiny.numMicrobatches = 6 / dp;
      tiny.sharded = sharded;
      auto session = makeSession(tinyBundle(tiny));
      CountingData data;
      for (int i = 0; i < 3; ++i) ASSERT_TRUE(session->step(data).has_value());
      const auto weights = session->gatherParameters();
      if (first.empty()) first = weights;
      for (size_t i = 0; i < weights.size(); ++i)
        for (size_t j = 0; j < weights[i].values.size(); ++j)
          EXPECT_NEAR(weights[i].values[j], first[i].values[j], 1e-13) << dp << sharded;
    }
}

// Per rank and step: 3 microbatches of 5 f64 (40 bytes) each way; 15 gradients padded to 16.
TEST(Session, CountsWhatItSends) {
  auto session = makeSession(tinyBundle({}));
  CountingData data;
  ASSERT_TRUE(session->step(data).has_value());
  const RankCounters& first = session->counters().front();
  const RankCounters& last = session->counters().back();
  const CommCount messages{3, 120};
  EXPECT_EQ(first.at(InstructionKind::kSend, GroupKind::kPp, Direction::kForward), messages);
  EXPECT_EQ(first.at(InstructionKind::kRecv, GroupKind::kPp, Direction::kBackward), messages);
  EXPECT_EQ(last.at(InstructionKind::kRecv, GroupKind::kPp, Direction::kForward), messages);
  EXPECT_EQ(last.at(InstructionKind::kSend, GroupKind::kPp, Direction::kBackward), messages);
  EXPECT_EQ(first.at(InstructionKind::kAllReduce, GroupKind::kTp, Direction::kForward), messages);
  EXPECT_EQ(first.at(InstructionKind::kReduceScatter, GroupKind::kDp, Direction::kStep),
            (CommCount{1, 16 * 8}));
  EXPECT_EQ(first.at(InstructionKind::kAllGather, GroupKind::kDp, Direction::kStep),
            (CommCount{1, 16 * 8}));
  EXPECT_EQ(first.at(InstructionKind::kAllReduce, GroupKind::kWorld, Direction::kStep),
            (CommCount{1, 6 * 8}));
  EXPECT_EQ(first.peakLiveSlots, 3);
}

TEST(Session, TheTraceHasEveryInstructionOfEveryRankInOrder) {
  SessionOptions options;
  options.trace = true;
  auto session = makeSession(tinyBundle({}), options);
  CountingData data;
  ASSERT_TRUE(session->step(data).has_value());
  int64_t instructions = 0;
  for (const RankCounters& counters : session->counters()) instructions += counters.instructions;
  const auto events = session->takeTrace();
  EXPECT_EQ(static_cast<int64_t>(events.size()), instructions);
  for (const auto& event : events) EXPECT_LE(event.beginSeconds, event.endSeconds);
  EXPECT_TRUE(session->takeTrace().empty());
}

TEST(Session, ATokenOutsideTheVocabularyIsRefusedWithItsPlace) {
  program::Bundle bundle = tinyBundle({});
  bundle.program.training.vocabSize = 7;
  auto session = makeSession(std::move(bundle));
  CountingData data;  // sample i holds i .. i + 4, and its last label is i + 5
  const auto result = session->step(data);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(result.error().message().find("is not in the vocabulary of 7"), std::string::npos);
  EXPECT_EQ(session->step(data).error().message(), result.error().message());
}

TEST(Session, MalformedProgramsAreRefused) {
  const auto refused = [](const auto& damage) {
    program::Bundle bundle = tinyBundle({});
    damage(bundle.program);
    const auto session = Session::create(std::move(bundle), {.useReference = true});
    EXPECT_FALSE(session.has_value());
    return session.has_value() ? std::string() : session.error().message();
  };
  using program::Program;
  EXPECT_EQ(refused([](Program& p) { p.roles[0].bodies[1].instructions[1].buffers = {99}; }),
            "role first, body first.forward, instruction 1 (zero): no buffer 99");
  EXPECT_EQ(refused([](Program& p) { p.roles[0].bodies[1].instructions[2].length = 9; }),
            "role first, body first.forward, instruction 2 (repeat): repeat leaves its body");
  EXPECT_EQ(refused([](Program& p) { p.roles[0].bodies[1].instructions[3].segment = 7; }),
            "role first, body first.forward, instruction 3 (compute): no segment 7");
  EXPECT_EQ(refused([](Program& p) { p.roles[0].tasks[1].slot = 3; }), "role first: no slot 3");
  EXPECT_EQ(refused([](Program& p) { p.groups[0].ranks[0] = 64; }), "a group has a rank 64");
  EXPECT_EQ(refused([](Program& p) { p.ranks.clear(); }), "the program has no ranks");
}

}  // namespace
}  // namespace trireme::runtime
