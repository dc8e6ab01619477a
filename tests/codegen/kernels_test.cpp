// Every generated op against its reference, on odd sizes.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "tests/codegen/run_segment.h"

namespace trireme::codegen {
namespace {

using ::testing::HasSubstr;

class GeneratedOps : public ::testing::TestWithParam<DType> {
 protected:
  DType compute() const { return GetParam(); }
  DType state() const { return compute() == DType::kF64 ? DType::kF64 : DType::kF32; }
  int32_t value(std::vector<int64_t> dims) { return b.operand(compute(), std::move(dims)); }
  int32_t stateValue(std::vector<int64_t> dims) { return b.operand(state(), std::move(dims)); }

  SegmentBuilder b;
};

// Less than a vector, a vector, several and a tail, several without a tail.
constexpr int64_t kWidths[] = {7, 32, 37, 128, 300};

TEST_P(GeneratedOps, Add) {
  for (int64_t width : kWidths) {
    b = SegmentBuilder();
    const int32_t x = value({5, 3, width}), y = value({5, 3, width}), z = value({5, 3, width});
    b.op(OpKind::kAdd, {x, y}, {z});
    expectMatchesReference(b.segment, {-1, -1, x});
    expectMatchesReference(b.segment, {-1, -1, y});
  }
}

TEST_P(GeneratedOps, BiasAddOfSeveralDims) {
  const int32_t x = value({5, 2, 3, 13}), bias = value({3, 13}), y = value({5, 2, 3, 13});
  b.op(OpKind::kBiasAdd, {x, bias}, {y});
  expectMatchesReference(b.segment, {-1, -1, x});
}

TEST_P(GeneratedOps, AddPositionWholeAndSharded) {
  for (bool sharded : {false, true}) {
    b = SegmentBuilder();
    const int32_t x = value({4, 3, 37}), position = value({9, 37}), y = value({4, 3, 37});
    b.op(OpKind::kAddPosition, {x, position}, {y}, {.sequenceSharded = sharded});
    expectMatchesReference(b.segment, {-1, -1, x});
  }
}

TEST_P(GeneratedOps, DropoutDrawsTheWordsOfTheGlobalElement) {
  for (int64_t width : kWidths)
    for (bool sharded : {false, true}) {
      b = SegmentBuilder();
      const int32_t x = value({5, 3, width}), y = value({5, 3, width});
      b.op(OpKind::kDropout, {x}, {y},
           {.probability = 0.3, .stream = RngStream::kMlpOutDropout, .sequenceSharded = sharded});
      expectMatchesReference(b.segment, {-1, x});
    }
}

TEST_P(GeneratedOps, Gelu) {
  for (int64_t width : kWidths) {
    b = SegmentBuilder();
    const int32_t u = value({5, 3, width}), z = value({5, 3, width});
    b.op(OpKind::kGelu, {u}, {z});
    expectMatchesReference(b.segment, {-1, u});
  }
}

// Whatever its bits: a computation that went wrong must be seen to.
TEST_P(GeneratedOps, NanStaysNan) {
  const int32_t u = value({1, 1, 37}), z = value({1, 1, 37});
  b.op(OpKind::kGelu, {u}, {z});
  auto compiled = compileSegments({b.segment}, {});
  ASSERT_TRUE(compiled.has_value()) << compiled.error().message();
  const LoadedKernels kernels(*compiled);
  Memory memory(b.segment);
  fillInputs(b.segment, memory);
  std::memset(memory.data(u), 0xFF, static_cast<size_t>(byteSize(compute())) * 2);
  memory.set(u, 2, std::nan(""));
  kernels.run(0, b.segment, memory, testContext());
  for (int64_t i = 0; i < 37; ++i) EXPECT_EQ(std::isnan(memory.at(z, i)), i < 3) << i;
}

TEST_P(GeneratedOps, GeluGrad) {
  const int32_t u = value({5, 3, 37}), dz = value({5, 3, 37}), du = value({5, 3, 37});
  b.op(OpKind::kGeluGrad, {u, dz}, {du});
  expectMatchesReference(b.segment, {-1, -1, dz});
  expectMatchesReference(b.segment, {-1, -1, u});
}

TEST_P(GeneratedOps, SwiGlu) {
  for (int64_t width : kWidths) {
    b = SegmentBuilder();
    const int32_t u = value({5, 3, 2, width}), z = value({5, 3, width});
    b.op(OpKind::kSwiGlu, {u}, {z});
    expectMatchesReference(b.segment);
  }
}

TEST_P(GeneratedOps, SwiGluGrad) {
  for (int64_t width : kWidths) {
    b = SegmentBuilder();
    const int32_t u = value({5, 3, 2, width}), dz = value({5, 3, width});
    const int32_t du = value({5, 3, 2, width});
    b.op(OpKind::kSwiGluGrad, {u, dz}, {du});
    expectMatchesReference(b.segment, {-1, -1, u});
  }
}

TEST_P(GeneratedOps, RotaryAndItsGradient) {
  for (const RopeScaling& scaling :
       {RopeScaling{}, RopeScaling{RopeScalingKind::kLlama3, 8, 0.5, 4, 64},
        RopeScaling{.kind = RopeScalingKind::kLinear, .factor = 3}})
    for (int64_t headSize : {6, 64, 80})
      for (OpKind kind : {OpKind::kRotary, OpKind::kRotaryGrad}) {
        b = SegmentBuilder();
        const int64_t e = (3 + 2) * headSize;
        const int32_t x = value({5, 2, 2, e}), y = value({5, 2, 2, e});
        b.op(kind, {x}, {y},
             {.headSize = headSize,
              .headsPerGroup = 3,
              .ropeTheta = 10000,
              .ropeScaling = scaling,
              .sequenceSharded = true});
        expectMatchesReference(b.segment, {-1, x});
      }
}

TEST_P(GeneratedOps, LayerNorm) {
  for (int64_t width : kWidths) {
    b = SegmentBuilder();
    const int32_t x = value({5, 3, width}), gamma = value({width}), beta = value({width});
    const int32_t y = value({5, 3, width}), mean = stateValue({5, 3}), rstd = stateValue({5, 3});
    b.op(OpKind::kLayerNorm, {x, gamma, beta}, {y, mean, rstd}, {.epsilon = 1e-5});
    expectMatchesReference(b.segment);
  }
}

TEST_P(GeneratedOps, RmsNorm) {
  for (int64_t width : kWidths) {
    b = SegmentBuilder();
    const int32_t x = value({5, 3, width}), gamma = value({width});
    const int32_t y = value({5, 3, width}), rstd = stateValue({5, 3});
    b.op(OpKind::kRmsNorm, {x, gamma}, {y, rstd}, {.epsilon = 1e-5});
    expectMatchesReference(b.segment);
  }
}

TEST_P(GeneratedOps, LayerNormGrad) {
  for (int64_t width : kWidths) {
    b = SegmentBuilder();
    const int32_t x = value({5, 3, width}), gamma = value({width});
    const int32_t mean = stateValue({5, 3}), rstd = stateValue({5, 3});
    const int32_t dy = value({5, 3, width}), dx = value({5, 3, width});
    const int32_t dGamma = stateValue({width}), dBeta = stateValue({width});
    b.op(OpKind::kLayerNormGrad, {x, gamma, mean, rstd, dy}, {dx, dGamma, dBeta});
    expectMatchesReference(b.segment);
  }
}

TEST_P(GeneratedOps, RmsNormGrad) {
  for (int64_t width : kWidths) {
    b = SegmentBuilder();
    const int32_t x = value({5, 3, width}), gamma = value({width}), rstd = stateValue({5, 3});
    const int32_t dy = value({5, 3, width}), dx = value({5, 3, width});
    const int32_t dGamma = stateValue({width});
    b.op(OpKind::kRmsNormGrad, {x, gamma, rstd, dy}, {dx, dGamma});
    expectMatchesReference(b.segment);
  }
}

TEST_P(GeneratedOps, BiasGradOverManyChunksOfColumns) {
  for (int64_t width : {7, 37, 128, 2500}) {
    b = SegmentBuilder();
    const int32_t dy = value({5, 3, width}), dBias = stateValue({width});
    b.op(OpKind::kBiasGrad, {dy}, {dBias});
    expectMatchesReference(b.segment);
  }
  b = SegmentBuilder();  // ranges of 24 tokens
  const int32_t dy = value({300, 2, 1057}), dBias = stateValue({1057});
  b.op(OpKind::kBiasGrad, {dy}, {dBias});
  expectMatchesReference(b.segment);
}

// Ranges that are full, that end early, and fewer than there are, of up to 72 tokens, so that a
// warp takes several turns: the bits are the same.
TEST_P(GeneratedOps, ColumnSumsOverRangesOfTokens) {
  for (int64_t sequence : {1, 8, 37, 150, 1100}) {
    b = SegmentBuilder();
    const int32_t dz = value({sequence, 2, 37}), dBias = stateValue({37});
    b.op(OpKind::kBiasGrad, {dz}, {dBias});
    const int32_t x = value({sequence, 2, 37}), gamma = value({37});
    const int32_t mean = stateValue({sequence, 2}), rstd = stateValue({sequence, 2});
    const int32_t dy = value({sequence, 2, 37}), dx = value({sequence, 2, 37});
    const int32_t dGamma = stateValue({37}), dBeta = stateValue({37});
    b.op(OpKind::kLayerNormGrad, {x, gamma, mean, rstd, dy}, {dx, dGamma, dBeta});
    expectMatchesReference(b.segment);
  }
}

// 16 tokens are ranges of 8: (1e16 + 1) + (-1e16 + 1), where 1 is lost beside 1e16. In one sweep
// the last 1 would stay.
TEST(ColumnSums, AreTheSumsOfTheirRanges) {
  SegmentBuilder b;
  const int32_t dy = b.operand(DType::kF64, {8, 2, 1}), dBias = b.operand(DType::kF64, {1});
  b.op(OpKind::kBiasGrad, {dy}, {dBias});
  auto compiled = compileSegments({b.segment}, {});
  ASSERT_TRUE(compiled.has_value()) << compiled.error().message();
  const LoadedKernels kernels(*compiled);
  Memory memory(b.segment);
  for (int64_t i = 0; i < 16; ++i) memory.set(dy, i, 0);
  memory.set(dy, 0, 1e16), memory.set(dy, 1, 1), memory.set(dy, 8, -1e16), memory.set(dy, 9, 1);
  memory.set(dBias, 0, 0);
  kernels.run(0, b.segment, memory, testContext());
  EXPECT_EQ(memory.at(dBias, 0), 0);
}

TEST_P(GeneratedOps, PositionGradWholeAndSharded) {
  for (bool sharded : {false, true}) {
    b = SegmentBuilder();
    const int32_t dy = value({4, 3, 37}), dPosition = stateValue({9, 37});
    b.op(OpKind::kPositionGrad, {dy}, {dPosition}, {.sequenceSharded = sharded});
    expectMatchesReference(b.segment);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, GeneratedOps,
                         ::testing::Values(DType::kF64, DType::kF32, DType::kBf16, DType::kF16),
                         [](const auto& info) { return std::string(dtypeName(info.param)); });

TEST(Target, WithoutF16cHalvesAreRefused) {
  SegmentBuilder b;
  const int32_t x = b.operand(DType::kF16, {2, 2, 8}), y = b.operand(DType::kF16, {2, 2, 8});
  b.op(OpKind::kGelu, {x}, {y});
  const auto compiled = compileSegments({b.segment}, {.cpuFeatures = {"avx", "avx2", "fma"}});
  ASSERT_FALSE(compiled.has_value());
  EXPECT_EQ(compiled.error().message(),
            "generated kernels in f16 need f16c, which the target (avx, avx2, fma) lacks");
}

TEST(Target, WithoutFmaIsRefused) {
  SegmentBuilder b;
  const int32_t x = b.operand(DType::kF32, {2, 2, 8}), y = b.operand(DType::kF32, {2, 2, 8});
  b.op(OpKind::kGelu, {x}, {y});
  const auto compiled = compileSegments({b.segment}, {.cpuFeatures = {"avx", "avx2"}});
  ASSERT_FALSE(compiled.has_value());
  EXPECT_EQ(compiled.error().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(compiled.error().message(), HasSubstr("need fma"));
}

// The lanes of a sum do not depend on the registers, so neither does the result.
TEST(Target, ResultsDoNotDependOnTheVectorWidth) {
  SegmentBuilder b;
  const int32_t x = b.operand(DType::kF32, {5, 3, 200}), gamma = b.operand(DType::kF32, {200});
  const int32_t y = b.operand(DType::kF32, {5, 3, 200}), rstd = b.operand(DType::kF32, {5, 3});
  b.op(OpKind::kRmsNorm, {x, gamma}, {y, rstd}, {.epsilon = 1e-5});
  std::string first;
  for (const std::vector<std::string>& features :
       {std::vector<std::string>{"avx", "avx2", "fma"}, hostCpuFeatures()}) {
    auto compiled = compileSegments({b.segment}, {.cpuFeatures = features});
    ASSERT_TRUE(compiled.has_value()) << compiled.error().message();
    const LoadedKernels kernels(*compiled);
    Memory memory(b.segment);
    fillInputs(b.segment, memory);
    kernels.run(0, b.segment, memory, testContext());
    if (first.empty()) first = memory.bytes(y);
    EXPECT_TRUE(memory.bytes(y) == first);
  }
}

}  // namespace
}  // namespace trireme::codegen
