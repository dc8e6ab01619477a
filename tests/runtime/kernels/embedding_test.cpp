#include <gtest/gtest.h>

#include "tests/support/op_case.h"

namespace trireme::runtime::testing {
namespace {

using program::OpKind;

TEST(Embedding, MatchesReference) {
  for (DType type : kFloats) {
    OpCase test(OpKind::kEmbedding);
    test.ids({9, 5}, 40);
    test.input(type, {40, 130});
    const int y = test.output(type, {9, 5, 130});
    expectFastMatchesReference(test, {{y}}, 0);
  }
}

TEST(EmbeddingGrad, MatchesReferenceWhenTokensRepeat) {
  for (DType type : kFloats) {
    OpCase test(OpKind::kEmbeddingGrad);
    test.ids({30, 5}, 4);
    test.input(type, {30, 5, 1301});
    const int table = test.output(stateOf(type), {4, 1301}, true);
    expectFastMatchesReference(test, {{table}}, roundingOf(stateOf(type)));
  }
}

// Each rank has half of the vocabulary, and zeros for the tokens of the other half.
TEST(Embedding, ShardsSumToTheWhole) {
  OpCase whole(OpKind::kEmbedding);
  const int ids = whole.ids({6, 2}, 8);
  const int table = whole.input(DType::kF32, {8, 3});
  const int y = whole.output(DType::kF32, {6, 2, 3});
  ASSERT_TRUE(whole.runFast().ok());
  const std::vector<double> rows = whole.values(table);
  std::vector<double> sum(36);
  for (uint64_t rank = 0; rank < 2; ++rank) {
    program::OpAttributes sharded;
    sharded.widthSharded = true;
    OpCase shard(OpKind::kEmbedding, sharded);
    shard.context().tpIndex = rank;
    shard.input(DType::kI32, {6, 2}, whole.values(ids));
    shard.input(DType::kF32, {4, 3}, std::span(rows).subspan(12 * rank, 12));
    const int part = shard.output(DType::kF32, {6, 2, 3});
    ASSERT_TRUE(shard.runFast().ok());
    const std::vector<double> values = shard.values(part);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
  }
  EXPECT_EQ(sum, whole.values(y));
}

TEST(AddPosition, RefusesASequenceBeyondTheTable) {
  program::OpAttributes sharded;
  sharded.sequenceSharded = true;
  OpCase test(OpKind::kAddPosition, sharded);
  test.context().tpIndex = 2;
  test.input(DType::kF32, {4, 1, 3});
  test.input(DType::kF32, {11, 3});
  test.output(DType::kF32, {4, 1, 3});
  EXPECT_EQ(test.runFast().message(),
            "add_position: the sequence is longer than the table of positions");
}

}  // namespace
}  // namespace trireme::runtime::testing
