#include <gtest/gtest.h>

#include <cmath>

#include "runtime/kernels/row_kernels.h"
#include "tests/support/op_case.h"

namespace trireme::runtime::testing {
namespace {

using program::OpAttributes;
using program::OpKind;

OpAttributes dropoutOf(double probability) {
  OpAttributes attributes;
  attributes.probability = probability;
  attributes.stream = RngStream::kEmbeddingDropout;
  return attributes;
}

std::vector<double> dropped(const OpAttributes& attributes, int64_t s, int64_t b, int64_t h,
                            uint64_t firstSample, uint64_t tpIndex) {
  OpCase test(OpKind::kDropout, attributes);
  test.context().firstSample = firstSample;
  test.context().tpIndex = tpIndex;
  test.input(DType::kF64, {s, b, h}, std::vector<double>(static_cast<size_t>(s * b * h), 1.0));
  const int y = test.output(DType::kF64, {s, b, h});
  EXPECT_TRUE(test.runFast().ok());
  return test.values(y);
}

// 64 Ki draws at p = 0.1: the share kept has a standard deviation of sqrt(0.09 / 65536) = 0.0012.
TEST(Dropout, KeepsTheRightShareAndRescalesIt) {
  int64_t kept = 0;
  const std::vector<double> values = dropped(dropoutOf(0.1), 64, 4, 256, 0, 0);
  for (double v : values) {
    ASSERT_TRUE(v == 0 || v == 1 / 0.9);
    kept += v != 0;
  }
  EXPECT_NEAR(static_cast<double>(kept) / static_cast<double>(values.size()), 0.9, 0.006);
}

TEST(Dropout, ProbabilityZeroIsTheIdentity) {
  for (double v : dropped(dropoutOf(0), 3, 2, 5, 0, 0)) ASSERT_EQ(v, 1);
}

// [s, b, h] of rank 1 of 2 is the second half of the sequence.
TEST(Dropout, ShardsOfTheSequenceAreRowsOfTheWhole) {
  OpAttributes sharded = dropoutOf(0.5);
  sharded.sequenceSharded = true;
  const std::vector<double> whole = dropped(dropoutOf(0.5), 8, 3, 7, 4, 0);
  const std::vector<double> half = dropped(sharded, 4, 3, 7, 4, 1);
  EXPECT_TRUE(std::equal(half.begin(), half.end(), whole.begin() + 4 * 3 * 7));
}

// A microbatch of one sample draws what that sample draws inside a larger microbatch.
TEST(Dropout, DoesNotDependOnTheMicrobatch) {
  const std::vector<double> both = dropped(dropoutOf(0.5), 4, 2, 7, 10, 0);
  const std::vector<double> second = dropped(dropoutOf(0.5), 4, 1, 7, 11, 0);
  for (int64_t s = 0; s < 4; ++s)
    for (int64_t c = 0; c < 7; ++c) ASSERT_EQ(second[s * 7 + c], both[(s * 2 + 1) * 7 + c]);
}

TEST(RandomWords, AreThoseOfTheContractFromAnyStart) {
  const RngKey key = makeRngKey(1, 2, 3, RngStream::kAttentionDropout);
  for (uint64_t first : {uint64_t{0}, uint64_t{1}, uint64_t{6}, (uint64_t{1} << 34) - 3})
    for (int64_t n : {1, 3, 64, 129}) {
      std::vector<uint32_t> words(static_cast<size_t>(n));
      rowKernels().randomWords(key, 77, first, n, words.data());
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(words[i], randomWord(key, 77, first + i));
    }
}

}  // namespace
}  // namespace trireme::runtime::testing
