// Programs that compute from the wrong values: (V4), (V6), (V7), (V8) and (V9) of what a buffer
// holds, and who has made it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/program/verify.h"
#include "tests/support/program_builder.h"
#include "tests/support/program_edit.h"

namespace trireme::program {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using trireme::testing::bufferIndex;
using trireme::testing::bufferNamed;
using trireme::testing::buildPipeline;
using trireme::testing::callOf;
using trireme::testing::code;
using trireme::testing::errorOf;
using trireme::testing::find;
using trireme::testing::moveOnto;

constexpr int kStepBody = 1, kForwardBody = 2, kBackwardBody = 3;  // bodies of chunk 0

// One stage, so that chunk 0 has everything.
Program oneStage(int tp = 1) { return buildPipeline({tp, 1, 1, 1, 2, 2}); }

void insert(Program& p, int body, size_t at, InstructionKind kind, int32_t buffer) {
  Instruction in;
  in.kind = kind;
  in.buffers = {buffer};
  code(p, 0, body).insert(code(p, 0, body).begin() + static_cast<long>(at), in);
}

// The gradient of a layer's input is computed before that of its hidden activations, which is left
// in scratch by the layer before; the first layer finds zeros.
TEST(VerifyValues, V6ScratchOfTheLayerBeforeIsRead) {
  Program p = oneStage();
  std::vector<Instruction>& body = code(p, 0, kBackwardBody);
  const size_t i = callOf(p, 0, kBackwardBody, "layer.backward.0");
  std::swap(body[i], body[i + 1]);
  insert(p, kBackwardBody, 0, InstructionKind::kZero, bufferIndex(p, 0, "du"));
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V6)"), HasSubstr("reads du"),
                                HasSubstr("an earlier layer or task has left")));
}

TEST(VerifyValues, V6ScratchOfTheTaskBeforeIsRead) {
  Program p = buildPipeline({1, 1, 1, 1, 1, 2});
  std::vector<Instruction>& body = code(p, 0, kBackwardBody);
  const size_t i = callOf(p, 0, kBackwardBody, "layer.backward.0");
  std::swap(body[i], body[i + 1]);
  insert(p, kForwardBody, 0, InstructionKind::kZero, bufferIndex(p, 0, "du"));
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V6)"), HasSubstr("reads du"), HasSubstr("(B0.0)"),
                                HasSubstr("an earlier layer or task has left")));
}

TEST(VerifyValues, V7AnotherValueOfTheTypeTakesTheMemory) {
  Program p = oneStage();
  moveOnto(p, 0, "du", "chunk0.max");
  insert(p, kForwardBody, callOf(p, 0, kForwardBody, "head.forward.1"), InstructionKind::kZero,
         bufferIndex(p, 0, "du"));
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V7)"), HasSubstr("reads chunk0.max"),
                                HasSubstr("which now holds du")));
}

// As if the step from one to the other, in place, was left out.
TEST(VerifyValues, V7ValueIsMadeUnderAnotherName) {
  Program p = oneStage();
  Buffer other = bufferNamed(p, 0, "target");
  other.name = "raw";
  code(p, 0, kForwardBody)[callOf(p, 0, kForwardBody, "head.forward.1")].buffers[3] =
      static_cast<int32_t>(p.roles[0].buffers.size());
  p.roles[0].buffers.push_back(other);
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V7)"), HasSubstr("reads target"),
                                HasSubstr("which now holds raw")));
}

// The forward has read it, and so will the backward.
TEST(VerifyValues, V7MemoryIsGivenAwayBetweenForwardAndBackward) {
  Program p = oneStage();
  moveOnto(p, 0, "chunk0.sum_exp", "chunk0.output");
  EXPECT_THAT(errorOf(p),
              AllOf(StartsWith("(V7)"), HasSubstr("(B0.0)"), HasSubstr("reads chunk0.output"),
                    HasSubstr("which now holds chunk0.sum_exp")));
}

TEST(VerifyValues, V7LabelsAreLoadedOverTokens) {
  Program p = oneStage();
  bufferNamed(p, 0, "chunk0.labels").offset = bufferNamed(p, 0, "chunk0.tokens").offset + 4;
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V7)"), HasSubstr("loads chunk0.tokens over")));
}

TEST(VerifyValues, V9ResultIsNotUsed) {
  Program p = buildPipeline({2, 2, 2, 1, 2, 6, true});
  std::vector<Instruction>& body = code(p, 0, kBackwardBody);
  body.erase(body.begin() + static_cast<long>(callOf(p, 0, kBackwardBody, "embedding.backward")));
  EXPECT_THAT(errorOf(p),
              AllOf(StartsWith("(V9)"), HasSubstr("makes chunk0.gradient, which nobody uses")));
}

TEST(VerifyValues, V9ParameterIsNotUsed) {
  Program p = oneStage();
  const size_t i = callOf(p, 0, kForwardBody, "embedding.forward");
  code(p, 0, kForwardBody)[i].buffers[1] = bufferIndex(p, 0, "head.weight");
  EXPECT_THAT(errorOf(p),
              AllOf(StartsWith("(V9)"), HasSubstr("parameter embedding"), HasSubstr("not used")));
}

TEST(VerifyValues, V9CompleteGradientIsSummedOverTp) {
  Program p = oneStage(2);
  insert(p, kStepBody, 0, InstructionKind::kAllReduce, bufferIndex(p, 0, "gradient"));
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V9)"), HasSubstr("complete, but summed over tp")));
}

TEST(VerifyValues, V4MicrobatchIsReducedOverReplicas) {
  Program p = buildPipeline({2, 1, 2, 1, 1, 2});
  find(p, 0, kForwardBody, InstructionKind::kAllReduce).group = GroupKind::kDp;
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V4)"), HasSubstr("of a microbatch over dp")));
}

// Both are sums of as many elements: one rank's targets would meet the other's denominators.
TEST(VerifyValues, V4OneRankSwapsCollectivesOfOneType) {
  Program p = oneStage(2);
  p.roles.push_back(Role(p.roles[0]));
  p.ranks[1].role = 1;
  const size_t i = callOf(p, 1, kForwardBody, "head.forward.1");
  std::swap(code(p, 1, kForwardBody)[i + 1], code(p, 1, kForwardBody)[i + 2]);
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V4)"), HasSubstr("is not of what")));
}

TEST(VerifyValues, V1ComputationOnATransferStream) {
  Program p = oneStage();
  find(p, 0, kForwardBody, InstructionKind::kCompute).stream = Stream::kSendForward;
  EXPECT_THAT(errorOf(p),
              AllOf(StartsWith("(V1)"), HasSubstr("the send_forward stream takes only messages")));
}

TEST(VerifyValues, V1WeightIsNoParameter) {
  Program p = buildPipeline({1, 1, 1, 1, 1, 2});
  moveOnto(p, 0, "head.weight", "chunk0.logits");
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V1)"), HasSubstr("head.weight is no parameter")));
}

TEST(VerifyValues, V1NothingUsesABuffer) {
  Program p = oneStage();
  p.roles[0].buffers.push_back(p.roles[0].buffers[0]);
  p.roles[0].buffers.back().name = "idle";
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V1)"), HasSubstr("nothing uses buffer idle")));
}

TEST(VerifyValues, V8MicrobatchesAreOutOfOrder) {
  const Direction f = Direction::kForward, b = Direction::kBackward;
  const testing::Order order = {{{f, 0, 0}, {f, 0, 1}, {b, 0, 1}, {b, 0, 0}}};
  EXPECT_THAT(errorOf(buildPipeline({1, 1, 1, 1, 1, 2}, order)),
              AllOf(StartsWith("(V8)"), HasSubstr("comes before microbatch 0")));
}

TEST(VerifyValues, V8BackwardRunsTheForwardBody) {
  Program p = oneStage();
  p.roles[0].tasks[p.roles[0].tasks.size() - 2].body = kForwardBody;
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V8)"), HasSubstr("runs body forward0")));
}

}  // namespace
}  // namespace trireme::program
