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

program::Program programOf(const plan::Plan& plan) {
  auto expansion = expand(gpt(), plan);
  if (!expansion) throw std::runtime_error(expansion.error().message());
  EXPECT_EQ(program::verifyProgram(expansion->program).message(), "");
  return std::move(expansion->program);
}

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

}  // namespace
}  // namespace trireme::expand
