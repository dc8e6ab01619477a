#include <gtest/gtest.h>

#include "tests/support/op_case.h"

namespace trireme::runtime::testing {
namespace {

using program::OpAttributes;
using program::OpKind;

struct AttentionCase {
  int64_t s, b, groups, headsPerGroup, headSize;
};
// Blocks hold 128 positions.
constexpr AttentionCase kAttentionCases[] = {{1, 1, 1, 1, 4},    {7, 2, 3, 1, 8},
                                             {33, 1, 2, 4, 5},   {128, 1, 1, 2, 16},
                                             {130, 2, 1, 3, 24}, {301, 1, 2, 1, 64}};

OpAttributes attributesOf(const AttentionCase& z, double probability) {
  OpAttributes attributes;
  attributes.headSize = z.headSize;
  attributes.headsPerGroup = z.headsPerGroup;
  attributes.probability = probability;
  attributes.stream = RngStream::kAttentionDropout;
  return attributes;
}

struct Dims {
  std::vector<int64_t> qkv, ctx, lse;
};
Dims dimsOf(const AttentionCase& z) {
  return {{z.s, z.b, z.groups, (z.headsPerGroup + 2) * z.headSize},
          {z.s, z.b, z.groups, z.headsPerGroup * z.headSize},
          {z.b, z.groups * z.headsPerGroup, z.s}};
}

void expectForward(const AttentionCase& z, DType type, double probability) {
  OpCase test(OpKind::kAttention, attributesOf(z, probability));
  test.context().firstSample = 5;
  test.input(type, dimsOf(z).qkv);
  const int ctx = test.output(type, dimsOf(z).ctx);
  const int lse = test.output(stateOf(type), dimsOf(z).lse);
  expectFastMatchesReference(test, {{ctx}}, roundingOf(type));
  expectFastMatchesReference(test, {{lse}}, roundingOf(stateOf(type)));
}

void expectBackward(const AttentionCase& z, DType type, double probability) {
  const Dims dims = dimsOf(z);
  OpCase forward(OpKind::kAttention, attributesOf(z, probability));
  const int qkv = forward.input(type, dims.qkv);
  const int ctx = forward.output(type, dims.ctx);
  const int lse = forward.output(stateOf(type), dims.lse);
  ASSERT_TRUE(forward.runReference().ok());

  OpCase test(OpKind::kAttentionGrad, attributesOf(z, probability));
  test.input(type, dims.qkv, forward.values(qkv));
  test.input(type, dims.ctx, forward.values(ctx));
  test.input(stateOf(type), dims.lse, forward.values(lse));
  test.input(type, dims.ctx);
  const int dqkv = test.output(type, dims.qkv);
  expectFastMatchesReference(test, {{dqkv}}, 2 * roundingOf(type));
}

TEST(Attention, MatchesReference) {
  for (DType type : kFloats)
    for (const AttentionCase& z : kAttentionCases)
      for (double probability : {0.0, 0.2}) expectForward(z, type, probability);
}

TEST(AttentionGrad, MatchesReference) {
  for (DType type : kFloats)
    for (const AttentionCase& z : kAttentionCases)
      for (double probability : {0.0, 0.2}) expectBackward(z, type, probability);
}

// Scores of several hundred would overflow an exponential that is not shifted.
TEST(Attention, LargeScoresDoNotOverflow) {
  const AttentionCase z{140, 1, 1, 1, 8};
  OpCase test(OpKind::kAttention, attributesOf(z, 0));
  const int qkv = test.input(DType::kF32, dimsOf(z).qkv);
  std::vector<double> large = test.values(qkv);
  for (double& v : large) v *= 30;
  test.setValues(qkv, large);
  const int ctx = test.output(DType::kF32, dimsOf(z).ctx);
  test.output(DType::kF32, dimsOf(z).lse);
  // Scores of size 1000 have an error of 1e-4, and so have the probabilities.
  expectFastMatchesReference(test, {{ctx}}, 1e-3);
}

// Two ranks with one group each compute the two groups of one rank, dropout included.
TEST(Attention, ShardsOfGroupsAreColumnsOfTheWhole) {
  const AttentionCase whole{9, 2, 2, 2, 4}, half{9, 2, 1, 2, 4};
  OpCase all(OpKind::kAttention, attributesOf(whole, 0.3));
  const int qkv = all.input(DType::kF64, dimsOf(whole).qkv);
  const int ctx = all.output(DType::kF64, dimsOf(whole).ctx);
  all.output(DType::kF64, dimsOf(whole).lse);
  ASSERT_TRUE(all.runFast().ok());
  const std::vector<double> qkvs = all.values(qkv), ctxs = all.values(ctx);
  const int64_t tokens = 18, e = 16, c = 8;
  for (uint64_t rank = 0; rank < 2; ++rank) {
    OpCase shard(OpKind::kAttention, attributesOf(half, 0.3));
    shard.attributes().widthSharded = true;
    shard.context().tpIndex = rank;
    std::vector<double> mine;
    for (int64_t i = 0; i < tokens * e; ++i) mine.push_back(qkvs[(i / e * 2 + rank) * e + i % e]);
    shard.input(DType::kF64, dimsOf(half).qkv, mine);
    const int out = shard.output(DType::kF64, dimsOf(half).ctx);
    shard.output(DType::kF64, dimsOf(half).lse);
    ASSERT_TRUE(shard.runFast().ok());
    const std::vector<double> got = shard.values(out);
    for (int64_t i = 0; i < tokens * c; ++i)
      ASSERT_EQ(got[i], ctxs[(i / c * 2 + rank) * c + i % c]);
  }
}

TEST(Attention, RefusesAShardedSequence) {
  const AttentionCase z = kAttentionCases[1];
  OpCase test(OpKind::kAttention, attributesOf(z, 0));
  test.attributes().sequenceSharded = true;
  test.input(DType::kF32, dimsOf(z).qkv);
  test.output(DType::kF32, dimsOf(z).ctx);
  test.output(DType::kF32, dimsOf(z).lse);
  EXPECT_EQ(test.runFast().message(), "attention: attention needs the whole sequence");
}

}  // namespace
}  // namespace trireme::runtime::testing
