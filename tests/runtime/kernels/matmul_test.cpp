#include <gtest/gtest.h>

#include "tests/support/op_case.h"

namespace trireme::runtime::testing {
namespace {

using program::OpKind;

struct MatmulCase {
  int64_t s, b, in, out;
};
// Below, at and above the tiles (14 x 32, 6 x 16, 32 x 32) and the blocks of depth (384, 768).
constexpr MatmulCase kMatmulCases[] = {{1, 1, 1, 1},      {3, 1, 5, 7},    {17, 1, 29, 33},
                                       {14, 1, 384, 32},  {16, 2, 32, 32}, {65, 2, 1, 3},
                                       {13, 5, 401, 130}, {5, 3, 900, 9},  {7, 1, 33, 801},
                                       {129, 2, 64, 100}, {900, 1, 17, 40}};

TEST(Matmul, MatchesReference) {
  for (DType type : kFloats)
    for (const MatmulCase& z : kMatmulCases) {
      OpCase test(OpKind::kMatmul);
      test.input(type, {z.s, z.b, z.in});
      test.input(type, {z.out, z.in});
      const int y = test.output(type, {z.s, z.b, z.out});
      expectFastMatchesReference(test, {{y}}, roundingOf(type));
    }
}

TEST(MatmulGradInput, MatchesReference) {
  for (DType type : kFloats)
    for (const MatmulCase& z : kMatmulCases) {
      OpCase test(OpKind::kMatmulGradInput);
      test.input(type, {z.s, z.b, z.out});
      test.input(type, {z.out, z.in});
      const int dx = test.output(type, {z.s, z.b, z.in});
      expectFastMatchesReference(test, {{dx}}, roundingOf(type));
    }
}

TEST(MatmulGradWeight, AccumulatesInTheStateType) {
  for (DType type : kFloats)
    for (const MatmulCase& z : kMatmulCases) {
      OpCase test(OpKind::kMatmulGradWeight);
      test.input(type, {z.s, z.b, z.out});
      test.input(type, {z.s, z.b, z.in});
      const int dw = test.output(stateOf(type), {z.out, z.in}, true);
      // Products of 16 bits are exact in f32, so only the sum rounds.
      expectFastMatchesReference(test, {{dw}}, roundingOf(stateOf(type)));
    }
}

TEST(MatmulGradWeight, WritesWhereZerosAreNotWritten) {
  for (DType type : kFloats)
    for (const MatmulCase& z : kMatmulCases) {
      OpCase test(OpKind::kMatmulGradWeight);
      test.input(type, {z.s, z.b, z.out});
      test.input(type, {z.s, z.b, z.in});
      const int dw = test.output(stateOf(type), {z.out, z.in});
      test.overwrite();
      expectFastMatchesReference(test, {{dw}}, roundingOf(stateOf(type)));
    }
}

TEST(Matmul, FlattensTheTrailingDims) {
  OpCase test(OpKind::kMatmul);
  test.input(DType::kF32, {3, 2, 5});
  test.input(DType::kF32, {2, 4, 5});
  const int y = test.output(DType::kF32, {3, 2, 2, 4});
  expectFastMatchesReference(test, {{y}}, roundingOf(DType::kF32));
}

TEST(Matmul, MixedTypesRunOnTheReference) {
  OpCase test(OpKind::kMatmulGradWeight);
  test.input(DType::kF32, {3, 2, 5});
  test.input(DType::kF32, {3, 2, 4});
  const int dw = test.output(DType::kF64, {5, 4}, true);
  expectFastMatchesReference(test, {{dw}}, 0);
  OpCase writing(OpKind::kMatmulGradWeight);
  writing.input(DType::kF32, {3, 2, 5});
  writing.input(DType::kF32, {3, 2, 4});
  const int written = writing.output(DType::kF64, {5, 4});
  writing.overwrite();
  expectFastMatchesReference(writing, {{written}}, 0);
}

TEST(Matmul, RefusesAWeightOfTheWrongSize) {
  OpCase test(OpKind::kMatmul);
  test.input(DType::kF32, {3, 2, 5});
  test.input(DType::kF32, {4, 6});
  test.output(DType::kF32, {3, 2, 4});
  const Status status = test.runFast();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "matmul: the weight must be [out..., in...]");
}

}  // namespace
}  // namespace trireme::runtime::testing
