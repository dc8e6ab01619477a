// Rules of verifyProgram that need what only real programs have: sequence parallelism, transfers in
// shards, tied tables.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/expand/expand.h"
#include "ir/program/verify.h"
#include "tests/ir/expand/small_gpt.h"
#include "tests/support/program_edit.h"

namespace trireme::expand {
namespace {

using program::GroupKind;
using program::Instruction;
using program::InstructionKind;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using trireme::testing::bufferNamed;
using trireme::testing::code;

// Each rank's norms saw their own tokens only.
TEST(VerifyExpanded, V9NormGradientsAreNotSummedOverTp) {
  plan::Plan plan = planFor(gpt(), 2, 1, 1);
  plan.sequenceParallel = true;
  program::Program p = programOf(plan);
  std::erase_if(code(p, 0, kStepBody), [](const Instruction& in) {
    return in.kind == InstructionKind::kAllReduce && in.group == GroupKind::kTp;
  });
  EXPECT_THAT(program::verifyProgram(p).message(),
              AllOf(StartsWith("(V9)"), HasSubstr("not summed over tp")));
}

TEST(VerifyExpanded, V7AnotherMembersShardIsSent) {
  plan::Plan plan = planFor(gpt(), 2, 2, 1);
  plan.scatterGather = true;
  program::Program p = programOf(plan);
  program::Buffer& shard = bufferNamed(p, 0, "chunk0.output.shard");
  shard.offset += shard.tpStride;
  shard.tpStride = -shard.tpStride;
  EXPECT_THAT(program::verifyProgram(p).message(),
              AllOf(StartsWith("(V7)"), HasSubstr("sends chunk0.output.shard from byte")));
}

// The table's gradient is summed over replicas and over the two stages; one rank does the second
// sum first.
TEST(VerifyExpanded, V4OneRankSumsOverTheGroupsInAnotherOrder) {
  program::Program p = programOf(planFor(gpt(), 1, 2, 2));
  p.roles.push_back(program::Role(p.roles[1]));
  p.ranks[3].role = 2;
  std::vector<Instruction>& step = code(p, 2, kStepBody);
  for (size_t i = 1; i < step.size(); ++i)
    if (step[i].kind == InstructionKind::kAllReduce && step[i].group == GroupKind::kEmbedding) {
      std::swap(step[i - 1], step[i]);
      break;
    }
  EXPECT_THAT(program::verifyProgram(p).message(),
              AllOf(StartsWith("(V4)"), HasSubstr("is not of what")));
}

plan::Plan overlapped(bool shards) {
  plan::Plan plan = planFor(gpt(), 1, 2, 2);
  plan.overlapReductions = true;
  if (!shards) return plan;
  plan.stateSharding = plan::StateSharding::kOptimizer;
  std::swap(plan.dpShard, plan.dpReplicate);
  return plan;
}

bool isEarly(const Instruction& in) {
  return in.stream == program::Stream::kDpReduce && in.kind != InstructionKind::kWait;
}

TEST(VerifyExpanded, V9LayersAreNotReduced) {
  for (const bool shards : {false, true}) {
    const plan::Plan plan = overlapped(shards);
    program::Program p = programOf(plan);
    std::vector<Instruction>& body = code(p, 1, lastBackwardBody(plan, 0));
    std::erase_if(body, isEarly);
    for (Instruction& in : body)
      if (in.kind == InstructionKind::kRepeat) --in.length;
    EXPECT_THAT(program::verifyProgram(p).message(),
                AllOf(StartsWith("(V9)"), HasSubstr("layers.whole is not reduced over dp")));
  }
}

// Every layer reduces the first one's.
TEST(VerifyExpanded, V9ALayerAddsToWhatIsReduced) {
  for (const bool shards : {false, true}) {
    const plan::Plan plan = overlapped(shards);
    program::Program p = programOf(plan);
    const std::vector<Instruction>& body = code(p, 1, lastBackwardBody(plan, 0));
    for (const int32_t buffer : std::find_if(body.begin(), body.end(), isEarly)->buffers)
      p.roles[1].buffers[static_cast<size_t>(buffer)].layerStride = 0;
    EXPECT_THAT(program::verifyProgram(p).message(),
                shards ? AllOf(StartsWith("(V6)"), HasSubstr("which nothing has written"))
                       : AllOf(StartsWith("(V9)"), HasSubstr("adds to what has been reduced")));
  }
}

TEST(VerifyExpanded, V1ReductionOfAnotherGroupOnTheStreamOfDp) {
  const plan::Plan plan = overlapped(false);
  program::Program p = programOf(plan);
  std::vector<Instruction>& body = code(p, 0, lastBackwardBody(plan, 0));
  std::find_if(body.begin(), body.end(), isEarly)->group = GroupKind::kWorld;
  EXPECT_THAT(
      program::verifyProgram(p).message(),
      AllOf(StartsWith("(V1)"), HasSubstr("the dp_reduce stream takes only collectives over dp")));
}

// The step adds what the last backward has summed.
TEST(VerifyExpanded, V4GradientsAreReducedInTheStepAgain) {
  const plan::Plan plan = overlapped(false);
  program::Program p = programOf(plan);
  const std::vector<Instruction>& body = code(p, 0, lastBackwardBody(plan, 0));
  Instruction again = *std::find_if(body.begin(), body.end(), isEarly);
  again.stream = program::Stream::kCompute;
  again.event = {};
  std::vector<Instruction>& step = code(p, 0, kStepBody);
  const auto wait = std::find_if(step.begin(), step.end(), [](const Instruction& in) {
    return in.kind == InstructionKind::kWait;
  });
  ASSERT_NE(wait, step.end());
  step.insert(wait + 1, again);
  EXPECT_THAT(program::verifyProgram(p).message(),
              AllOf(StartsWith("(V4)"), HasSubstr("already reduced over dp")));
}

// The body that reduces is that of an earlier microbatch.
TEST(VerifyExpanded, V9GradientsAreReducedBeforeTheLastMicrobatch) {
  const plan::Plan plan = overlapped(false);
  program::Program p = programOf(plan);
  std::vector<program::TaskRecord*> backwards;
  for (program::TaskRecord& task : p.roles[0].tasks)
    if (task.direction == program::Direction::kBackward) backwards.push_back(&task);
  std::swap(backwards[backwards.size() - 2]->body, backwards.back()->body);
  EXPECT_THAT(program::verifyProgram(p).message(),
              AllOf(StartsWith("(V9)"), HasSubstr("adds to gradients that B0.2 has reduced")));
}

TEST(VerifyExpanded, V9GradientsAreReducedTwice) {
  const plan::Plan plan = overlapped(false);
  program::Program p = programOf(plan);
  for (program::TaskRecord& task : p.roles[0].tasks)
    if (task.direction == program::Direction::kBackward && task.microbatch == 2)
      task.body = lastBackwardBody(plan, 0);
  EXPECT_THAT(program::verifyProgram(p).message(),
              AllOf(StartsWith("(V9)"), HasSubstr("reduces gradients that B0.2 has reduced")));
}

TEST(VerifyExpanded, V7GradientsAreReducedBeforeTheyAreComputed) {
  const plan::Plan plan = overlapped(true);
  program::Program p = programOf(plan);
  std::erase_if(code(p, 0, lastBackwardBody(plan, 0)), [](const Instruction& in) {
    return in.kind == InstructionKind::kWait && in.stream == program::Stream::kDpReduce;
  });
  for (Instruction& in : code(p, 0, lastBackwardBody(plan, 0)))
    if (in.kind == InstructionKind::kRepeat) --in.length;
  EXPECT_THAT(program::verifyProgram(p).message(),
              AllOf(StartsWith("(V7)"), HasSubstr("while the compute stream may still use them")));
}

TEST(VerifyExpanded, V7TheStepDoesNotWaitForReductions) {
  const plan::Plan plan = overlapped(true);
  program::Program p = programOf(plan);
  std::erase_if(code(p, 0, kStepBody),
                [](const Instruction& in) { return in.kind == InstructionKind::kWait; });
  EXPECT_THAT(program::verifyProgram(p).message(),
              AllOf(StartsWith("(V7)"), HasSubstr("while the dp_reduce stream may still")));
}

}  // namespace
}  // namespace trireme::expand
