// Chains of ops as transformer layers have them: what is fused, and that it changes no bit.
#include <gmock/gmock.h>

#include "tests/codegen/run_segment.h"

namespace trireme::codegen {
namespace {

using program::KernelCall;
using program::KernelCallKind;
using ::testing::ElementsAre;
using ::testing::StartsWith;

std::vector<std::string> symbolsOf(const Segment& segment, const CodegenOptions& options = {}) {
  auto compiled = compileSegments({segment}, options);
  EXPECT_TRUE(compiled.has_value()) << compiled.error().message();
  std::vector<std::string> symbols;
  for (const KernelCall& call : compiled->segments[0].calls)
    symbols.push_back(call.kind == KernelCallKind::kGenerated
                          ? call.symbol
                          : std::string(program::opName(call.op.kind)));
  return symbols;
}

const OpAttributes kDropout{.probability = 0.2, .stream = RngStream::kMlpOutDropout};

class Chains : public ::testing::TestWithParam<DType> {
 protected:
  int32_t value(std::vector<int64_t> dims) { return b.operand(GetParam(), std::move(dims)); }
  int32_t temporary(std::vector<int64_t> dims) {
    return b.operand(GetParam(), std::move(dims), true);
  }
  int32_t stateValue(std::vector<int64_t> dims) {
    return b.operand(GetParam() == DType::kF64 ? DType::kF64 : DType::kF32, std::move(dims));
  }

  SegmentBuilder b;
};

// The end of a block and the start of the next: bias, dropout, residual and norm in one pass over
// rows.
TEST_P(Chains, BiasDropoutAddNorm) {
  for (int64_t h : {36, 37, 128}) {
    b = SegmentBuilder();
    const int32_t x = temporary({5, 3, h}), bias = value({h}), residual = value({5, 3, h});
    const int32_t biased = temporary({5, 3, h}), dropped = temporary({5, 3, h});
    const int32_t sum = value({5, 3, h}), gamma = value({h}), beta = value({h});
    const int32_t y = temporary({5, 3, h}), out = value({5, 3, h});
    const int32_t mean = stateValue({5, 3}), rstd = stateValue({5, 3});
    b.op(OpKind::kBiasAdd, {x, bias}, {biased});
    b.op(OpKind::kDropout, {biased}, {dropped}, kDropout);
    b.op(OpKind::kAdd, {dropped, residual}, {sum});
    b.op(OpKind::kLayerNorm, {sum, gamma, beta}, {y, mean, rstd}, {.epsilon = 1e-5});
    b.op(OpKind::kGelu, {y}, {out});
    EXPECT_THAT(symbolsOf(b.segment), ElementsAre("bias_add_dropout_add_layer_norm_gelu_0"));
    // x, biased, dropped and sum share memory, as do y and out.
    expectMatchesReference(b.segment, {sum, -1, -1, sum, sum, -1, -1, -1, out, -1, -1, -1});
  }
}

// The norm reads its row again after the reduction, so the sum needs its memory though nobody else
// reads it.
TEST_P(Chains, NormOfATemporary) {
  const int32_t x = value({5, 3, 37}), residual = value({5, 3, 37}), sum = temporary({5, 3, 37});
  const int32_t gamma = value({37}), y = value({5, 3, 37}), rstd = stateValue({5, 3});
  b.op(OpKind::kAdd, {x, residual}, {sum});
  b.op(OpKind::kRmsNorm, {sum, gamma}, {y, rstd}, {.epsilon = 1e-5});
  EXPECT_THAT(symbolsOf(b.segment), ElementsAre("add_rms_norm_0"));
  expectMatchesReference(b.segment);
}

TEST_P(Chains, BiasGelu) {
  const int32_t x = temporary({5, 3, 37}), bias = value({37}), biased = value({5, 3, 37});
  const int32_t z = value({5, 3, 37});
  b.op(OpKind::kBiasAdd, {x, bias}, {biased});
  b.op(OpKind::kGelu, {biased}, {z});
  EXPECT_THAT(symbolsOf(b.segment), ElementsAre("bias_add_gelu_0"));
  expectMatchesReference(b.segment, {biased});
}

TEST_P(Chains, BiasSwiGluDropout) {
  const int32_t x = temporary({5, 3, 2, 36}), bias = value({2, 36}), biased = value({5, 3, 2, 36});
  const int32_t z = temporary({5, 3, 36}), out = value({5, 3, 36});
  b.op(OpKind::kBiasAdd, {x, bias}, {biased});
  b.op(OpKind::kSwiGlu, {biased}, {z});
  b.op(OpKind::kDropout, {z}, {out}, kDropout);
  EXPECT_THAT(symbolsOf(b.segment), ElementsAre("bias_add_swiglu_dropout_0"));
  expectMatchesReference(b.segment, {biased, -1, -1, out});
}

TEST_P(Chains, BiasRotary) {
  const int64_t e = 4 * 40;
  const int32_t x = value({5, 3, 2, e}), bias = value({2, e}), biased = temporary({5, 3, 2, e});
  const int32_t y = value({5, 3, 2, e});
  b.op(OpKind::kBiasAdd, {x, bias}, {biased});
  b.op(OpKind::kRotary, {biased}, {y}, {.headSize = 40, .headsPerGroup = 2, .ropeTheta = 10000});
  EXPECT_THAT(symbolsOf(b.segment), ElementsAre("bias_add_rotary_0"));
  expectMatchesReference(b.segment, {-1, -1, y});
}

// The gradient of a norm beside the residual: the sums over columns read dy before dx overwrites
// it.
TEST_P(Chains, NormGradAddResidual) {
  const int32_t x = value({5, 3, 37}), gamma = value({37}), mean = stateValue({5, 3});
  const int32_t rstd = stateValue({5, 3}), dy = temporary({5, 3, 37});
  const int32_t dNorm = temporary({5, 3, 37}), dResidual = value({5, 3, 37});
  const int32_t dx = value({5, 3, 37}), dGamma = stateValue({37}), dBeta = stateValue({37});
  b.op(OpKind::kLayerNormGrad, {x, gamma, mean, rstd, dy}, {dNorm, dGamma, dBeta});
  b.op(OpKind::kAdd, {dNorm, dResidual}, {dx});
  EXPECT_THAT(symbolsOf(b.segment), ElementsAre(StartsWith("layer_norm_grad_weight"),
                                                StartsWith("layer_norm_grad_input_add")));
  expectMatchesReference(b.segment, {-1, -1, -1, -1, -1, dx});
}

TEST_P(Chains, GeluGradThenBiasGrad) {
  const int32_t u = value({5, 3, 37}), dz = temporary({5, 3, 37}), du = value({5, 3, 37});
  const int32_t dBias = stateValue({37});
  b.op(OpKind::kGeluGrad, {u, dz}, {du});
  b.op(OpKind::kBiasGrad, {du}, {dBias});
  EXPECT_THAT(symbolsOf(b.segment), ElementsAre(StartsWith("gelu_grad"), StartsWith("bias_grad")));
  expectMatchesReference(b.segment, {-1, du});
}

// (C5) The second dropout is the last reader of t and may overwrite it: it must not move before the
// sum that reads t as well.
TEST_P(Chains, OpThatMayOverwriteStaysBehindOtherReaders) {
  const int32_t x = value({5, 3, 36}), t = temporary({5, 3, 36}), dBias = stateValue({36});
  const int32_t y = value({5, 3, 36});
  b.op(OpKind::kDropout, {x}, {t}, kDropout);
  b.op(OpKind::kBiasGrad, {t}, {dBias});
  b.op(OpKind::kGelu, {t}, {y});
  EXPECT_THAT(symbolsOf(b.segment), ElementsAre("dropout_0", "bias_grad_1", "gelu_2"));
  expectMatchesReference(b.segment, {-1, y});
}

// With a later reader of t the same op can move.
TEST_P(Chains, OpThatOverwritesNothingMovesUp) {
  const int32_t x = value({5, 3, 36}), t = value({5, 3, 36}), dBias = stateValue({36});
  const int32_t y = value({5, 3, 36}), other = value({36, 36}), z = value({5, 3, 36});
  b.op(OpKind::kDropout, {x}, {t}, kDropout);
  b.op(OpKind::kBiasGrad, {t}, {dBias});
  b.op(OpKind::kGelu, {t}, {y});
  b.op(OpKind::kMatmul, {t, other}, {z});
  EXPECT_THAT(symbolsOf(b.segment), ElementsAre("dropout_gelu_0", "bias_grad_1", "matmul"));
  expectMatchesReference(b.segment);
}

TEST_P(Chains, LibraryOpsSeparateKernels) {
  const int32_t x = value({5, 3, 37}), w = value({37, 37}), bias = value({37});
  const int32_t a = temporary({5, 3, 37}), c = temporary({5, 3, 37}), y = value({5, 3, 37});
  b.op(OpKind::kGelu, {x}, {a});
  b.op(OpKind::kMatmul, {a, w}, {c});
  b.op(OpKind::kBiasAdd, {c, bias}, {y});
  EXPECT_THAT(symbolsOf(b.segment), ElementsAre("gelu_0", "matmul", "bias_add_1"));
  expectMatchesReference(b.segment);
}

INSTANTIATE_TEST_SUITE_P(Types, Chains,
                         ::testing::Values(DType::kF64, DType::kF32, DType::kBf16, DType::kF16),
                         [](const auto& info) { return std::string(dtypeName(info.param)); });

TEST(Kernels, EqualOnesAreSharedByAllSegments) {
  std::vector<Segment> segments;
  for (int i = 0; i < 3; ++i) {
    SegmentBuilder b("s" + std::to_string(i));
    for (int unused = 0; unused < i; ++unused) b.operand(DType::kF32, {4});
    const int32_t x = b.operand(DType::kF32, {4, 2, 8}), y = b.operand(DType::kF32, {4, 2, 8});
    b.op(OpKind::kGelu, {x}, {y});
    segments.push_back(b.segment);
  }
  auto compiled = compileSegments(segments, {});
  ASSERT_TRUE(compiled.has_value()) << compiled.error().message();
  for (const auto& segment : compiled->segments) EXPECT_EQ(segment.calls[0].symbol, "gelu_0");
  EXPECT_THAT(compiled->segments[2].calls[0].operands, ElementsAre(2, 3));
}

// For cuBLASLt to do with the product; a host fuses them.
TEST(Epilogues, AreLibraryCallsForGpusAndKernelsForHosts) {
  SegmentBuilder b;
  const auto value = [&](std::vector<int64_t> dims, bool isTemporary = false) {
    return b.operand(DType::kBf16, std::move(dims), isTemporary);
  };
  const int32_t x = value({4, 2, 8}), w = value({16, 8}), bias = value({16});
  const int32_t product = value({4, 2, 16}, true), u = value({4, 2, 16}), z = value({4, 2, 16});
  const int32_t dx = value({4, 2, 16}, true), du = value({4, 2, 16});
  const int32_t dy = value({4, 2, 8}), back = value({8, 16});
  b.op(OpKind::kMatmul, {x, w}, {product});
  b.op(OpKind::kBiasAdd, {product, bias}, {u});
  b.op(OpKind::kGelu, {u}, {z});
  b.op(OpKind::kMatmulGradInput, {dy, back}, {dx});
  b.op(OpKind::kGeluGrad, {u, dx}, {du});
  EXPECT_THAT(symbolsOf(b.segment),
              ElementsAre("matmul", "bias_add_gelu_0", "matmul_grad_input", "gelu_grad_1"));
  EXPECT_THAT(symbolsOf(b.segment, {.gpus = *program::parseGpuTargets("cuda:sm_90")}),
              ElementsAre("matmul", "bias_add", "gelu", "matmul_grad_input", "gelu_grad"));
}

TEST(Kernels, CompilingTwiceGivesTheSameBytes) {
  SegmentBuilder b;
  const int32_t x = b.operand(DType::kF32, {4, 2, 8}), y = b.operand(DType::kF32, {4, 2, 8});
  b.op(OpKind::kGelu, {x}, {y});
  const auto first = compileSegments({b.segment}, {}), second = compileSegments({b.segment}, {});
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_TRUE(first->sharedObject == second->sharedObject);
}

TEST(Kernels, SegmentOfLibraryCallsNeedsNoSharedObject) {
  SegmentBuilder b;
  const int32_t x = b.operand(DType::kF32, {4, 2, 8}), w = b.operand(DType::kF32, {3, 8});
  const int32_t y = b.operand(DType::kF32, {4, 2, 3});
  b.op(OpKind::kMatmul, {x, w}, {y});
  const auto compiled = compileSegments({b.segment}, {});
  ASSERT_TRUE(compiled.has_value());
  EXPECT_TRUE(compiled->sharedObject.empty());
  EXPECT_EQ(compiled->segments[0].calls[0].op, b.segment.ops[0]);
}

TEST(Kernels, MismatchedOperandsAreRefusedWithTheRule) {
  SegmentBuilder b;
  const int32_t x = b.operand(DType::kF32, {4, 2, 8}), y = b.operand(DType::kF32, {4, 2, 9});
  b.op(OpKind::kGelu, {x}, {y});
  const auto compiled = compileSegments({b.segment}, {});
  ASSERT_FALSE(compiled.has_value());
  EXPECT_THAT(compiled.error().message(), ::testing::HasSubstr("(D1)"));
}

}  // namespace
}  // namespace trireme::codegen
