// Programs in f16 scale their loss, and verifyProgram() sees where one does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "ir/expand/expand.h"
#include "tests/ir/expand/small_gpt.h"
#include "tests/support/program_edit.h"

namespace trireme::expand {
namespace {

using program::Instruction;
using program::InstructionKind;
using program::Program;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using trireme::testing::code;
using trireme::testing::errorOf;

Program halfProgram(int64_t tp = 2, int64_t pp = 2, int64_t dp = 2, bool sharded = false) {
  plan::Plan plan = planFor(gpt(), tp, pp, dp);
  plan.training.precision = spec::Precision::kFp16;
  plan.training.initialLossScale = 512;
  plan.training.lossScaleWindow = 7;
  plan.training.minLossScale = 2;
  if (sharded) {
    plan.stateSharding = plan::StateSharding::kOptimizer;
    plan.dpShard = dp;
    plan.dpReplicate = 1;
  }
  return programOf(plan);
}

bool updatesScale(const Instruction& in) { return in.kind == InstructionKind::kUpdateLossScale; }

TEST(LossScaling, IsInEveryRoleOfAProgramInF16) {
  for (const bool sharded : {false, true}) {
    const Program p = halfProgram(2, 2, 2, sharded);
    EXPECT_EQ(p.training.initialLossScale, 512);
    EXPECT_EQ(p.training.lossScaleWindow, 7);
    EXPECT_EQ(p.training.minLossScale, 2);
    for (const program::Role& role : p.roles) {
      ASSERT_GE(role.lossScaling, 0);
      EXPECT_EQ(role.buffers[static_cast<size_t>(role.lossScaling)].bytes(), 32);
      for (const program::Bucket& bucket : role.buckets) {
        EXPECT_EQ(role.buffers[static_cast<size_t>(bucket.parameter)].dtype, DType::kF16);
        EXPECT_EQ(role.buffers[static_cast<size_t>(bucket.master)].dtype, DType::kF32);
      }
    }
  }
}

TEST(LossScaling, IsInNoOtherProgram) {
  plan::Plan plan = planFor(gpt(), 1, 1, 1);
  plan.training.precision = spec::Precision::kBf16;
  const auto expansion = expand(gpt(), plan);
  ASSERT_TRUE(expansion.has_value());
  EXPECT_EQ(expansion->program.roles[0].lossScaling, -1);
  EXPECT_EQ(expansion->program.training.initialLossScale, 1);
}

TEST(VerifyLossScaling, V1F16WithoutIt) {
  Program p = halfProgram();
  p.roles[1].lossScaling = -1;
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V1)"), HasSubstr("loss scaling is buffer -1")));
}

TEST(VerifyLossScaling, V1AnotherTypeWithIt) {
  Program p = halfProgram();
  p.training.computeDType = DType::kBf16;
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V1)"), HasSubstr("the loss is scaled in bf16")));
}

TEST(VerifyLossScaling, V1TooSmall) {
  Program p = halfProgram();
  p.roles[0].buffers[static_cast<size_t>(p.roles[0].lossScaling)].elements = 3;
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V1)"), HasSubstr("loss scaling is 3 x f64")));
}

TEST(VerifyLossScaling, V1SomethingElseIsUpdated) {
  Program p = halfProgram();
  std::vector<Instruction>& step = code(p, 1, kStepBody);
  std::find_if(step.begin(), step.end(), updatesScale)->buffers[1] = p.roles[1].squares;
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V1)"), HasSubstr("the loss scaling is")));
}

TEST(VerifyLossScaling, V9IsNotUpdated) {
  Program p = halfProgram();
  std::erase_if(code(p, 0, kStepBody), updatesScale);
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V9)"),
                                HasSubstr("the loss scale is updated 0 times, expected 1")));
}

TEST(VerifyLossScaling, V9IsUpdatedBeforeTheLastBucketHasReadIt) {
  Program p = halfProgram();
  std::vector<Instruction>& step = code(p, 0, kStepBody);
  const auto update = std::find_if(step.begin(), step.end(), updatesScale);
  std::swap(*update, *(update - 1));
  EXPECT_THAT(errorOf(p),
              AllOf(StartsWith("(V9)"), HasSubstr("before the last bucket is stepped")));
}

// Ranks that see their own squares alone would not decide alike.
TEST(VerifyLossScaling, V9OfSquaresThatAreNotSummed) {
  Program p = halfProgram();
  std::vector<Instruction>& step = code(p, 0, kStepBody);
  const int32_t squares = p.roles[0].squares;
  const auto sum = std::find_if(step.begin(), step.end(), [&](const Instruction& in) {
    return in.kind == InstructionKind::kAllReduce && in.buffers[0] == squares;
  });
  ASSERT_NE(sum, step.end());
  step.erase(sum);
  EXPECT_NE(errorOf(p), "");
}

TEST(VerifyLossScaling, V7LiesOverParameters) {
  Program p = halfProgram();
  program::Role& role = p.roles[0];
  role.buffers[static_cast<size_t>(role.lossScaling)].offset =
      role.buffers[static_cast<size_t>(role.buckets[0].parameter)].offset;
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V7)"), HasSubstr("shares memory")));
}

TEST(VerifyTf32, V1NeedsFactorsInF32) {
  plan::Plan plan = planFor(gpt(), 1, 1, 1);
  plan.training.tf32 = true;
  auto expansion = expand(gpt(), plan);
  ASSERT_TRUE(expansion.has_value());
  int products = 0;
  for (const program::Segment& segment : expansion->program.segments)
    for (const program::SegmentOp& op : segment.ops) products += op.attributes.tf32;
  EXPECT_EQ(products, 3 * (4 + 1));  // of a layer's four matrices and the head: y, dx, dw
  Program p = halfProgram();
  for (program::SegmentOp& op : p.segments.back().ops) op.attributes.tf32 = true;
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V1)"), HasSubstr("tf32 with factors in f16")));
}

}  // namespace
}  // namespace trireme::expand
