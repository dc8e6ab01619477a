// A rank that stops, at every kind of instruction: its peers say so, in time, and name it.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "runtime/executor/arena.h"
#include "runtime/executor/rank_program.h"
#include "runtime/session.h"
#include "tests/runtime/executor/counting_data.h"
#include "tests/runtime/executor/tiny_program.h"

namespace trireme::runtime {
namespace {

using program::InstructionKind;

class StopAt final : public FaultInjector {
 public:
  StopAt(const program::Program& program, int32_t rank, InstructionKind kind, Fault fault)
      : program_(program), rank_(rank), kind_(kind), fault_(fault) {}
  Fault before(int32_t rank, const program::TaskRecord& task, int32_t instruction,
               int32_t) override {
    if (rank != rank_) return Fault::kNone;
    const auto& role = program_.roles[static_cast<size_t>(program_.ranks[rank].role)];
    const auto& body = role.bodies[static_cast<size_t>(task.body)];
    return body.instructions[static_cast<size_t>(instruction)].kind == kind_ ? fault_
                                                                             : Fault::kNone;
  }

 private:
  const program::Program& program_;
  int32_t rank_;
  InstructionKind kind_;
  Fault fault_;
};

bool roleHas(const program::Program& program, int32_t rank, InstructionKind kind) {
  for (const auto& body : program.roles[static_cast<size_t>(program.ranks[rank].role)].bodies)
    for (const auto& instruction : body.instructions)
      if (instruction.kind == kind) return true;
  return false;
}

class Stopping : public ::testing::TestWithParam<std::tuple<int, Fault, bool>> {};

TEST_P(Stopping, IsReportedByThePeersThatWaitForTheRank) {
  const auto kind = static_cast<InstructionKind>(std::get<0>(GetParam()));
  const Fault fault = std::get<1>(GetParam());
  TinyOptions tiny;
  tiny.scaled = true;
  tiny.sharded = std::get<2>(GetParam());
  const program::Bundle bundle = tinyBundle(tiny);
  const std::vector<int32_t> victims = {1, 6};  // one of each stage
  // Whole gradients are summed in all-reduces instead.
  if (std::none_of(victims.begin(), victims.end(),
                   [&](int32_t victim) { return roleHas(bundle.program, victim, kind); })) {
    EXPECT_FALSE(tiny.sharded) << "no rank has this kind of instruction";
    return;
  }
  for (const int32_t victim : victims) {
    if (!roleHas(bundle.program, victim, kind)) continue;
    StopAt injector(bundle.program, victim, kind, fault);
    SessionOptions options;
    options.useReference = true;
    options.faults = &injector;
    options.timeoutSeconds = fault == Fault::kStall ? 0.25 : 30;
    auto session = Session::create(bundle, options);
    ASSERT_TRUE(session.has_value()) << session.error().message();
    CountingData data;
    const auto begin = std::chrono::steady_clock::now();
    const auto result = (*session)->step(data);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code(), StatusCode::kUnavailable);

    const std::string awaited = "waiting for rank " + std::to_string(victim);
    const std::string failed = "rank " + std::to_string(victim) + " failed: step 1";
    int32_t witnesses = 0;
    for (int32_t rank = 0; rank < bundle.program.numRanks(); ++rank) {
      const Status& status = (*session)->rankStatuses()[static_cast<size_t>(rank)];
      if (rank == victim || status.ok()) continue;
      EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.message();
      EXPECT_TRUE(status.message().starts_with("step 1, rank " + std::to_string(rank) + ": "))
          << status.message();
      EXPECT_NE(status.message().find("instruction"), std::string::npos) << status.message();
      EXPECT_NE(status.message().find("waiting for rank "), std::string::npos) << status.message();
      witnesses +=
          status.message().find(fault == Fault::kStall ? awaited : failed) != std::string::npos;
    }
    EXPECT_GE(witnesses, 1) << result.error().message();
    if (fault == Fault::kFail) {
      EXPECT_NE(result.error().message().find(instructionName(kind)), std::string::npos)
          << result.error().message();
    }
    EXPECT_EQ((*session)->step(data).error().message(), result.error().message());
  }
}

// Each pass of a split backward by its own name.
TEST(StoppedInstruction, NamesItsPass) {
  const program::Bundle bundle = tinyBundle({});
  const auto arena = *Arena::allocate(bundle.program.roles.front().arenaBytes);
  const auto rank = resolveRank(bundle.program, 0, arena.data());
  ASSERT_TRUE(rank.has_value()) << rank.error().message();
  const FlatInstruction& first = rank->bodies.front().instructions.front();
  program::TaskRecord task = rank->role->tasks.front();
  for (const auto& [direction, name] :
       {std::pair(program::Direction::kForward, "forward, begin"),
        std::pair(program::Direction::kBackward, "backward, begin"),
        std::pair(program::Direction::kStep, "step, begin"),
        std::pair(program::Direction::kWeights, "weights, begin")}) {
    task.direction = direction;
    const std::string said = describeInstruction(*rank, task, first, -1);
    EXPECT_TRUE(said.starts_with(name)) << said;
  }
}

// A repeat is not an instruction that is issued, but a shape of the body.
std::vector<int> issuedKinds() {
  std::vector<int> kinds;
  for (int kind = 0; kind < program::kNumInstructionKinds; ++kind)
    if (static_cast<InstructionKind>(kind) != InstructionKind::kRepeat) kinds.push_back(kind);
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(AtEveryInstruction, Stopping,
                         ::testing::Combine(::testing::ValuesIn(issuedKinds()),
                                            ::testing::Values(Fault::kFail, Fault::kStall),
                                            ::testing::Bool()),
                         [](const auto& info) {
                           return std::string(instructionName(
                                      static_cast<InstructionKind>(std::get<0>(info.param)))) +
                                  (std::get<1>(info.param) == Fault::kFail ? "_fails" : "_stalls") +
                                  (std::get<2>(info.param) ? "_sharded" : "");
                         });

}  // namespace
}  // namespace trireme::runtime
