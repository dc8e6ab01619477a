#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/op_case.h"

namespace trireme::runtime::testing {
namespace {

using program::OpAttributes;
using program::OpKind;

constexpr int64_t kS = 5, kB = 2, kTokens = kS * kB;

OpAttributes lossOf(int64_t logicalVocab) {
  OpAttributes attributes;
  attributes.logicalVocab = logicalVocab;
  attributes.scale = 0.25;
  return attributes;
}

// The last columns are padding, and the vocabulary is longer than one piece of 1024.
constexpr int64_t kVocab = 2500, kLogical = 2469;

struct Stats {
  std::vector<double> logits, max, sumExp;
};

Stats statsOf(DType type) {
  OpCase max(OpKind::kLossMax, lossOf(kLogical));
  const int logits = max.input(type, {kS, kB, kVocab});
  const int largest = max.output(stateOf(type), {kS, kB});
  EXPECT_TRUE(max.runReference().ok());
  OpCase sum(OpKind::kLossSumExp, lossOf(kLogical));
  sum.input(type, {kS, kB, kVocab}, max.values(logits));
  sum.input(stateOf(type), {kS, kB}, max.values(largest));
  const int total = sum.output(stateOf(type), {kS, kB});
  EXPECT_TRUE(sum.runReference().ok());
  return {max.values(logits), max.values(largest), sum.values(total)};
}

TEST(LossMax, MatchesReference) {
  for (DType type : kFloats) {
    OpCase test(OpKind::kLossMax, lossOf(kLogical));
    test.input(type, {kS, kB, kVocab});
    const int max = test.output(stateOf(type), {kS, kB});
    expectFastMatchesReference(test, {{max}}, 0);
  }
}

TEST(LossMax, AShardOfPaddingHasNoMaximum) {
  OpCase test(OpKind::kLossMax, lossOf(8));
  test.attributes().widthSharded = true;
  test.context().tpIndex = 1;
  test.input(DType::kF32, {kS, kB, 8});
  const int max = test.output(DType::kF32, {kS, kB});
  ASSERT_TRUE(test.runFast().ok());
  for (double v : test.values(max)) EXPECT_EQ(v, -std::numeric_limits<double>::infinity());
}

TEST(LossSumExp, MatchesReference) {
  for (DType type : kFloats) {
    const Stats stats = statsOf(type);
    OpCase test(OpKind::kLossSumExp, lossOf(kLogical));
    test.input(type, {kS, kB, kVocab}, stats.logits);
    test.input(stateOf(type), {kS, kB}, stats.max);
    const int sum = test.output(stateOf(type), {kS, kB});
    expectFastMatchesReference(test, {{sum}}, roundingOf(stateOf(type)));
  }
}

TEST(LossGrad, MatchesReferenceAndMayOverwriteTheLogits) {
  for (DType type : kFloats)
    for (bool inPlace : {false, true}) {
      const Stats stats = statsOf(type);
      OpCase test(OpKind::kLossGrad, lossOf(kLogical));
      const int logits = test.input(type, {kS, kB, kVocab}, stats.logits);
      test.input(stateOf(type), {kS, kB}, stats.max);
      test.input(stateOf(type), {kS, kB}, stats.sumExp);
      test.ids({kS, kB}, kLogical);
      int d = logits;
      if (inPlace)
        test.outputOver(logits);
      else
        d = test.output(type, {kS, kB, kVocab});
      expectFastMatchesReference(test, {{d}}, roundingOf(type));
    }
}

TEST(LossGrad, PaddedColumnsGetZero) {
  const Stats stats = statsOf(DType::kF32);
  OpCase test(OpKind::kLossGrad, lossOf(kLogical));
  test.input(DType::kF32, {kS, kB, kVocab}, stats.logits);
  test.input(DType::kF32, {kS, kB}, stats.max);
  test.input(DType::kF32, {kS, kB}, stats.sumExp);
  test.ids({kS, kB}, kLogical);
  const int d = test.output(DType::kF32, {kS, kB, kVocab});
  ASSERT_TRUE(test.runFast().ok());
  const std::vector<double> values = test.values(d);
  for (int64_t token = 0; token < kTokens; ++token)
    for (int64_t c = kLogical; c < kVocab; ++c) ASSERT_EQ(values[token * kVocab + c], 0);
}

// One token, logits (1, 2, 3), label 1: max 3, target 2 - 3 = -1
//   sumExp = e^-2 + e^-1 + 1 = 1.5032147    loss = log(1.5032147) + 1 = 1.4076059
TEST(TokenLoss, MatchesHandDerivation) {
  OpCase target(OpKind::kLossTarget, lossOf(3));
  target.input(DType::kF64, {1, 1, 3}, std::vector<double>{1, 2, 3});
  target.input(DType::kF64, {1, 1}, std::vector<double>{3});
  target.input(DType::kI32, {1, 1}, std::vector<double>{1});
  const int t = target.output(DType::kF64, {1, 1});
  ASSERT_TRUE(target.runFast().ok());
  EXPECT_EQ(target.values(t)[0], -1);

  OpCase loss(OpKind::kTokenLoss);
  loss.input(DType::kF64, {1, 1}, target.values(t));
  loss.input(DType::kF64, {1, 1}, std::vector<double>{1.50321472440});
  const int sum = loss.output(DType::kF64, {1}, true);
  loss.setValues(sum, std::vector<double>{10});
  ASSERT_TRUE(loss.runFast().ok());
  EXPECT_NEAR(loss.values(sum)[0], 11.4076059, 1e-7);
}

// Halves of the vocabulary, with the maximum of both: targets and sums of exponentials add up.
TEST(Loss, ShardsSumToTheWhole) {
  const Stats stats = statsOf(DType::kF64);
  std::vector<double> sums(kTokens);
  for (uint64_t rank = 0; rank < 2; ++rank) {
    std::vector<double> mine;
    for (int64_t token = 0; token < kTokens; ++token)
      for (int64_t c = 0; c < kVocab / 2; ++c)
        mine.push_back(stats.logits[token * kVocab + rank * kVocab / 2 + c]);
    OpCase shard(OpKind::kLossSumExp, lossOf(kLogical));
    shard.attributes().widthSharded = true;
    shard.context().tpIndex = rank;
    shard.input(DType::kF64, {kS, kB, kVocab / 2}, mine);
    shard.input(DType::kF64, {kS, kB}, stats.max);
    const int part = shard.output(DType::kF64, {kS, kB});
    ASSERT_TRUE(shard.runFast().ok());
    for (int64_t token = 0; token < kTokens; ++token) sums[token] += shard.values(part)[token];
  }
  for (int64_t token = 0; token < kTokens; ++token)
    EXPECT_NEAR(sums[token], stats.sumExp[token], 1e-12 * stats.sumExp[token]);
}

}  // namespace
}  // namespace trireme::runtime::testing
