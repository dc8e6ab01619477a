#include "ir/program/program.h"

#include <gtest/gtest.h>

#include "ir/program/walk.h"
#include "tests/support/program_builder.h"

namespace trireme::program {
namespace {

TEST(OpName, RoundTripsForEveryKind) {
  for (int k = 0; k < kNumOpKinds; ++k) {
    const auto kind = static_cast<OpKind>(k);
    EXPECT_EQ(parseOpKind(opName(kind)), kind);
    EXPECT_GT(arityOf(kind).inputs, 0) << opName(kind);
    EXPECT_GT(arityOf(kind).outputs, 0) << opName(kind);
  }
  EXPECT_EQ(parseOpKind("no such op"), std::nullopt);
}

TEST(InstructionName, DiffersForEveryKind) {
  for (int k = 1; k < kNumInstructionKinds; ++k)
    EXPECT_NE(instructionName(static_cast<InstructionKind>(k)),
              instructionName(static_cast<InstructionKind>(k - 1)));
}

TEST(OperandType, CountsElementsAndBytes) {
  EXPECT_EQ((OperandType{DType::kBf16, {3, 4, 5}}.elements()), 60);
  EXPECT_EQ((OperandType{DType::kBf16, {3, 4, 5}}.bytes()), 120);
  EXPECT_EQ((OperandType{DType::kF64, {}}.elements()), 1);
}

TEST(Parameter, LocalElementsAreTheTpShareOfThePaddedShape) {
  Parameter p;
  p.dims = {101, 32};
  p.paddedDims = {104, 32};
  EXPECT_EQ(p.localElements(4), 104 * 32);
  p.tpDim = 0;
  EXPECT_EQ(p.localElements(4), 104 * 32 / 4);
}

// B = 24 over d = 2 replicas of m = 4 microbatches of b = 3: replica 1 owns samples 12 to 23, and
// its microbatch 2 starts at 12 + 2 * 3.
TEST(FirstSample, CountsReplicasThenMicrobatches) {
  Training t;
  t.globalBatchSize = 24;
  t.microbatchSize = 3;
  t.numMicrobatches = 4;
  EXPECT_EQ(firstSample(t, 0, 0), 0);
  EXPECT_EQ(firstSample(t, 1, 2), 18);
}

// rank = tp + 2 * (dp + 2 * pp): rank 6 is tp 0, dp 1, pp 1.
TEST(Groups, KnowTheirMembers) {
  const Program p = testing::buildPipeline({2, 3, 2, 1, 1, 2});
  EXPECT_EQ(groupOf(p, 6, GroupKind::kTp).ranks, (std::vector<int32_t>{6, 7}));
  EXPECT_EQ(groupOf(p, 6, GroupKind::kDp).ranks, (std::vector<int32_t>{4, 6}));
  EXPECT_EQ(groupOf(p, 6, GroupKind::kPp).ranks, (std::vector<int32_t>{2, 6, 10}));
  EXPECT_EQ(peerRank(p, 6, 2), 10);
  EXPECT_EQ(peerRank(p, 6, 3), -1);
}

// Two layers between a wait and a send: wait, then (a, b) of layer 1, (a, b) of layer 0, then send.
TEST(ForEachInstruction, UnrollsRepeatsInTheirOrder) {
  Body body;
  body.instructions.resize(5);
  body.instructions[0].kind = InstructionKind::kWait;
  body.instructions[1].kind = InstructionKind::kRepeat;
  body.instructions[1].count = 2;
  body.instructions[1].length = 2;
  body.instructions[1].reversed = true;
  std::vector<std::pair<int32_t, int32_t>> visits;
  forEachInstruction(body, [&](int32_t i, int32_t layer) { visits.push_back({i, layer}); });
  EXPECT_EQ(visits, (std::vector<std::pair<int32_t, int32_t>>{
                        {0, 0}, {2, 1}, {3, 1}, {2, 0}, {3, 0}, {4, 0}}));
}

}  // namespace
}  // namespace trireme::program
