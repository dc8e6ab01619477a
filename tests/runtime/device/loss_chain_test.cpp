#include "runtime/device/cuda/loss_chain.h"

#include <gtest/gtest.h>

namespace trireme::runtime::cuda {
namespace {

using program::OpKind;
using program::Segment;
using Steps = std::vector<size_t>;

// logits, max, labels, target, sumExp, and two that belong to other ops: operands 0 to 6.
Segment lossForward(bool findsMax = true) {
  const program::OperandType row{DType::kF32, {3, 2}};
  Segment segment{"forward",
                  {{DType::kBf16, {3, 2, 40}}, row, {DType::kI32, {3, 2}}, row, row, row, row},
                  std::vector<bool>(7),
                  {}};
  program::OpAttributes attributes;
  attributes.logicalVocab = 37;
  if (findsMax) segment.ops.push_back({OpKind::kLossMax, attributes, {0}, {1}});
  segment.ops.push_back({OpKind::kLossTarget, attributes, {0, 1, 2}, {3}});
  segment.ops.push_back({OpKind::kLossSumExp, attributes, {0, 1}, {4}});
  return segment;
}

Steps chainAt(const Segment& segment, size_t first = 0) {
  const auto chain = lossChainFrom(stepsOf(segment, nullptr), first);
  return chain ? chain->merged.steps : Steps{};
}

TEST(LossChain, OfAWholeVocabularyAllThreeRunAsOne) {
  const Segment segment = lossForward();
  const auto chain = lossChainFrom(stepsOf(segment, nullptr), 0);
  ASSERT_TRUE(chain.has_value());
  EXPECT_EQ(chain->max, &segment.ops[0]);
  EXPECT_EQ(chain->target, &segment.ops[1]);
  EXPECT_EQ(chain->sumExp, &segment.ops[2]);
  EXPECT_EQ(chain->merged.steps, (Steps{0, 1, 2}));
  EXPECT_EQ(chain->merged.read, (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(chain->merged.written, (std::vector<int32_t>{3, 4, 1}));
}

// In either order; the maximum is read.
TEST(LossChain, OfASplitVocabularyTheTwoBehindTheReductionDo) {
  Segment segment = lossForward(false);
  EXPECT_EQ(chainAt(segment), (Steps{0, 1}));
  std::swap(segment.ops[0], segment.ops[1]);
  const auto chain = lossChainFrom(stepsOf(segment, nullptr), 0);
  ASSERT_TRUE(chain.has_value());
  EXPECT_EQ(chain->max, nullptr);
  EXPECT_EQ(chain->target, &segment.ops[1]);
  EXPECT_EQ(chain->merged.read, (std::vector<int32_t>{0, 2, 1}));
  EXPECT_EQ(chain->merged.written, (std::vector<int32_t>{3, 4}));
}

TEST(LossChain, BeginsWithItsFirstOp) {
  Segment segment = lossForward();
  segment.ops.insert(segment.ops.begin(), {OpKind::kAdd, {}, {5, 6}, {5}});
  EXPECT_EQ(chainAt(segment, 0), Steps{});
  EXPECT_EQ(chainAt(segment, 1), (Steps{1, 2, 3}));
  EXPECT_EQ(chainAt(segment, 3), Steps{});  // the last alone is none
}

TEST(LossChain, IsOfOneMaximumOfOneTensorInOneShard) {
  Segment otherLogits = lossForward();
  otherLogits.ops[2].inputs[0] = 5;
  EXPECT_EQ(chainAt(otherLogits), Steps{});
  Segment otherMax = lossForward();
  otherMax.ops[1].inputs[1] = 5;
  EXPECT_EQ(chainAt(otherMax), Steps{});
  EXPECT_EQ(chainAt(otherMax, 1), Steps{});
  Segment otherPadding = lossForward();
  otherPadding.ops[1].attributes.logicalVocab = 36;
  EXPECT_EQ(chainAt(otherPadding), Steps{});
  Segment otherShard = lossForward();
  otherShard.ops[2].attributes.widthSharded = true;
  EXPECT_EQ(chainAt(otherShard), Steps{});
  Segment missing = lossForward();
  missing.ops.pop_back();
  EXPECT_EQ(chainAt(missing), Steps{});
}

// Operands 256 bytes apart, but for one that a test moves over another.
bool isApartWith(const Segment& segment, size_t moved, size_t over) {
  std::vector<void*> addresses;
  uintptr_t next = 4096;
  for (const program::OperandType& type : segment.operands) {
    addresses.push_back(reinterpret_cast<void*>(next));
    next += static_cast<uintptr_t>(type.bytes() + 255) / 256 * 256;
  }
  addresses[moved] = addresses[over];
  const std::vector<SegmentStep> steps = stepsOf(segment, nullptr);
  return isApart(lossChainFrom(steps, 0)->merged, segment, steps, addresses);
}

TEST(LossChain, ResultsLieOverNothingThatItReadsOrWrites) {
  const Segment segment = lossForward();
  EXPECT_TRUE(isApartWith(segment, 5, 5));
  EXPECT_FALSE(isApartWith(segment, 3, 0));  // the target over the logits
  EXPECT_FALSE(isApartWith(segment, 4, 2));  // the sum over the labels
  EXPECT_FALSE(isApartWith(segment, 3, 1));  // the target over the maximum
  EXPECT_FALSE(isApartWith(segment, 4, 3));
}

// Such a step, which may also be a generated kernel, is done by others meanwhile.
TEST(LossChain, StepsBetweenItsOpsTouchNothingOfIt) {
  Segment segment = lossForward();
  segment.ops.insert(segment.ops.begin() + 1, {OpKind::kAdd, {}, {5, 6}, {5}});
  EXPECT_EQ(chainAt(segment), (Steps{0, 2, 3}));
  EXPECT_TRUE(isApartWith(segment, 5, 5));
  EXPECT_FALSE(isApartWith(segment, 5, 0));  // logits are written
  EXPECT_FALSE(isApartWith(segment, 5, 2));  // labels are
  EXPECT_FALSE(isApartWith(segment, 4, 6));  // what is read lies where the sum is already
}

}  // namespace
}  // namespace trireme::runtime::cuda
