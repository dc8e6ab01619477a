// Every op's CUDA kernels against the reference: random operands (TRIREME_SEED), odd sizes, outputs
// that start as NaN, shards, all types.
#include <gtest/gtest.h>

#include <cmath>

#include "ir/program/workspace.h"
#include "runtime/device/cuda/matmul.h"
#include "runtime/device/cuda/op_launch.h"
#include "tests/gpu/test_gpu.h"
#include "tests/support/op_case.h"

namespace trireme::runtime {
namespace {

using gpu::GpuMemory;
using gpu::TestGpu;
using program::OpAttributes;
using program::OpKind;
using testing::OpCase;

Status runOp(const cuda::Gpu& gpu, const program::SegmentOp& op,
             const std::vector<program::OperandType>& types, const program::KernelContext& context,
             const std::vector<void*>& operands, const cuda::Workspace& workspace,
             cuda::StreamHandle stream) {
  if (!cuda::isMatmul(op.kind)) {
    TRIREME_ASSIGN_OR_RETURN(
        const cuda::OpLaunch launch,
        cuda::OpLaunch::create(gpu, op, types, static_cast<int32_t>(context.tpIndex),
                               {.workspace = workspace}));
    cuda::StreamSink sink(gpu, stream);
    return launch.run(context, operands.data(), sink);
  }
  TRIREME_ASSIGN_OR_RETURN(const auto library, cuda::CublasLt::create(gpu.cublasLt()));
  TRIREME_ASSIGN_OR_RETURN(const auto matmul, cuda::Matmul::create(*library, op, types));
  return matmul->run(operands.data(), {}, stream);
}

// On copies of the operands in memory of the GPU, each with a guard behind it.
Status runOn(const trireme::testing::EmulatedGpuOptions& emulation, const program::SegmentOp& op,
             const std::vector<program::OperandType>& types, const program::KernelContext& context,
             const std::vector<void*>& operands) {
  TestGpu test(emulation);
  TRIREME_ASSIGN_OR_RETURN(const auto gpu, cuda::Gpu::open(test.apis(), 0));
  GpuMemory memory(*gpu);
  std::vector<void*> onGpu;
  for (size_t i = 0; i < operands.size(); ++i)
    onGpu.push_back(memory.upload(operands[i], types[i].bytes()));
  const std::vector<char> workspace(static_cast<size_t>(program::kernelWorkspaceBytes(op, types)));
  const auto bytes = static_cast<int64_t>(workspace.size());
  TRIREME_RETURN_IF_ERROR(runOp(
      *gpu, op, types, context, onGpu,
      cuda::alignedWorkspace(memory.upload(workspace.data(), bytes), bytes), memory.stream()));
  for (size_t i = 0; i < operands.size(); ++i)
    memory.download(onGpu[i], operands[i], types[i].bytes());
  return {};
}

Status runOpOnGpu(const program::SegmentOp& op, const std::vector<program::OperandType>& types,
                  const program::KernelContext& context, const std::vector<void*>& operands) {
  return runOn({}, op, types, context, operands);
}
Status runInWarps(const program::SegmentOp& op, const std::vector<program::OperandType>& types,
                  const program::KernelContext& context, const std::vector<void*>& operands) {
  return runOn({.inWarps = true}, op, types, context, operands);
}

void expectMatch(const OpCase& slow, const OpCase& fast, std::initializer_list<int> outputs,
                 double tolerance) {
  for (int output : outputs) {
    const std::vector<double> expected = slow.values(output), actual = fast.values(output);
    double largest = 0;
    for (double v : expected) largest = std::max(largest, std::abs(v));
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(expected[i], actual[i], tolerance * largest)
          << "operand " << output << "[" << i << "]";
  }
}

// Emulated with one host thread for a warp, and with a fiber for each of its threads.
void expectGpuMatchesReference(const OpCase& test, std::initializer_list<int> outputs,
                               double tolerance) {
  OpCase slow = test, fast = test, inWarps = test;
  ASSERT_EQ(slow.runReference().message(), "");
  ASSERT_EQ(fast.runOn(runOpOnGpu).message(), "");
  expectMatch(slow, fast, outputs, tolerance);
  if (TRIREME_SANITIZED || gpu::isRealGpu()) return;
  ASSERT_EQ(inWarps.runOn(runInWarps).message(), "");
  expectMatch(slow, inWarps, outputs, tolerance);
}

class GpuKernels : public ::testing::TestWithParam<DType> {
 protected:
  DType type() const { return GetParam(); }
  DType state() const { return testing::stateOf(type()); }
  double tolerance() const { return testing::roundingOf(type()); }
};

INSTANTIATE_TEST_SUITE_P(Types, GpuKernels, ::testing::ValuesIn(testing::kFloats),
                         [](const auto& info) { return std::string(dtypeName(info.param)); });

// 5 tokens of 2 samples, 37 columns: no multiple of a warp.
TEST_P(GpuKernels, ElementwiseOps) {
  for (OpKind kind : {OpKind::kAdd, OpKind::kGeluGrad}) {
    OpCase test(kind);
    test.input(type(), {5, 2, 37});
    test.input(type(), {5, 2, 37});
    expectGpuMatchesReference(test, {test.output(type(), {5, 2, 37})}, tolerance());
  }
  OpCase gelu(OpKind::kGelu);
  gelu.input(type(), {5, 2, 37});
  expectGpuMatchesReference(gelu, {gelu.output(type(), {5, 2, 37})}, tolerance());
  OpCase bias(OpKind::kBiasAdd);
  bias.input(type(), {5, 2, 37});
  bias.input(type(), {37});
  expectGpuMatchesReference(bias, {bias.output(type(), {5, 2, 37})}, tolerance());
  OpCase biasGrad(OpKind::kBiasGrad);
  biasGrad.input(type(), {5, 2, 37});
  expectGpuMatchesReference(biasGrad, {biasGrad.output(state(), {37}, true)}, tolerance());
}

TEST_P(GpuKernels, ResultsMayLieOverOperands) {
  OpCase add(OpKind::kAdd);
  const int x = add.input(type(), {3, 2, 35});
  add.input(type(), {3, 2, 35});
  add.outputOver(x);
  expectGpuMatchesReference(add, {x}, tolerance());
  OpCase norm(OpKind::kRmsNorm, {.epsilon = 1e-5});
  const int normed = norm.input(type(), {3, 2, 35});
  norm.input(type(), {35});
  norm.outputOver(normed);
  norm.output(state(), {3, 2});
  expectGpuMatchesReference(norm, {normed}, tolerance());
}

TEST_P(GpuKernels, SwiGlu) {
  OpCase forward(OpKind::kSwiGlu);
  forward.input(type(), {5, 2, 2, 21});
  expectGpuMatchesReference(forward, {forward.output(type(), {5, 2, 21})}, tolerance());
  OpCase backward(OpKind::kSwiGluGrad);
  backward.input(type(), {5, 2, 2, 21});
  backward.input(type(), {5, 2, 21});
  expectGpuMatchesReference(backward, {backward.output(type(), {5, 2, 2, 21})}, tolerance());
}

// Masks have to be the host's bit by bit: one element that is kept on one side only is far off.
TEST_P(GpuKernels, DropoutDropsTheSameElements) {
  OpAttributes attributes{.probability = 0.3, .stream = RngStream::kMlpOutDropout};
  attributes.sequenceSharded = true;
  OpCase test(OpKind::kDropout, attributes);
  test.context().firstSample = 11;
  test.context().tpIndex = 3;
  test.input(type(), {5, 2, 301});
  expectGpuMatchesReference(test, {test.output(type(), {5, 2, 301})}, tolerance());
}

TEST_P(GpuKernels, Embedding) {
  OpAttributes attributes;
  attributes.widthSharded = true;  // rows 9..17 of 27 are here
  OpCase forward(OpKind::kEmbedding, attributes);
  forward.context().tpIndex = 1;
  forward.ids({7, 2}, 27);
  forward.input(type(), {9, 33});
  expectGpuMatchesReference(forward, {forward.output(type(), {7, 2, 33})}, tolerance());
  OpCase backward(OpKind::kEmbeddingGrad, attributes);
  backward.context().tpIndex = 1;
  backward.ids({7, 2}, 27);
  backward.input(type(), {7, 2, 33});
  expectGpuMatchesReference(backward, {backward.output(state(), {9, 33}, true)}, tolerance());
}

// A few ids for 70 tokens, so that most are of one that was seen before, in rows of two warps: sums
// in the order of the tokens, as the host's, bit by bit.
TEST_P(GpuKernels, EmbeddingGradAddsInTheOrderOfTheTokens) {
  for (int64_t ids : {1, 3, 40}) {
    OpCase backward(OpKind::kEmbeddingGrad);
    backward.ids({35, 2}, static_cast<int>(ids));
    backward.input(type(), {35, 2, 300});
    expectGpuMatchesReference(backward, {backward.output(state(), {ids, 300}, true)}, 0);
  }
}

// Ranges that are full, that end early, that stay empty: the order that ir/program/op.h says. Where
// terms are exact the reference has the same bits.
TEST_P(GpuKernels, ColumnSumsKeepTheirOrder) {
  for (int64_t sequence : {1, 8, 37, 128, 150}) {
    OpCase biasGrad(OpKind::kBiasGrad);
    biasGrad.input(type(), {sequence, 2, 37});
    expectGpuMatchesReference(biasGrad, {biasGrad.output(state(), {37}, true)}, 0);
    OpCase layerNorm(OpKind::kLayerNormGrad, {.epsilon = 1e-5});
    layerNorm.input(type(), {sequence, 2, 37});
    layerNorm.input(type(), {37});
    layerNorm.input(state(), {sequence, 2});
    layerNorm.input(state(), {sequence, 2});
    layerNorm.input(type(), {sequence, 2, 37});
    layerNorm.output(type(), {sequence, 2, 37});
    const int gamma = layerNorm.output(state(), {37}, true);
    const int beta = layerNorm.output(state(), {37}, true);
    expectGpuMatchesReference(layerNorm, {gamma}, tolerance());
    expectGpuMatchesReference(layerNorm, {beta}, 0);
    OpCase rmsNorm(OpKind::kRmsNormGrad, {.epsilon = 1e-5});
    rmsNorm.input(type(), {sequence, 2, 37});
    rmsNorm.input(type(), {37});
    rmsNorm.input(state(), {sequence, 2});
    rmsNorm.input(type(), {sequence, 2, 37});
    rmsNorm.output(type(), {sequence, 2, 37});
    const int scale = rmsNorm.output(state(), {37}, true);
    expectGpuMatchesReference(rmsNorm, {scale}, tolerance());
  }
}

// 16 tokens are ranges of 8: (1e16 + 1) + (-1e16 + 1), where 1 is lost beside 1e16. In one sweep
// the last 1 would stay.
TEST(GpuKernels, ColumnsAreTheSumsOfTheirRanges) {
  std::vector<double> values(16, 0.0);
  values[0] = 1e16, values[1] = 1, values[8] = -1e16, values[9] = 1;
  OpCase test(OpKind::kBiasGrad);
  test.input(DType::kF64, {8, 2, 1}, values);
  const int sum = test.output(DType::kF64, {1}, true);
  const double before = test.values(sum)[0];
  OpCase onGpu = test;
  ASSERT_EQ(test.runReference().message(), "");
  EXPECT_EQ(test.values(sum)[0], before);
  ASSERT_EQ(onGpu.runOn(runOpOnGpu).message(), "");
  EXPECT_EQ(onGpu.values(sum)[0], before);
}

TEST_P(GpuKernels, Positions) {
  OpAttributes attributes;
  attributes.sequenceSharded = true;
  OpCase forward(OpKind::kAddPosition, attributes);
  forward.context().tpIndex = 2;
  forward.input(type(), {3, 2, 33});
  forward.input(type(), {10, 33});
  expectGpuMatchesReference(forward, {forward.output(type(), {3, 2, 33})}, tolerance());
  OpCase backward(OpKind::kPositionGrad, attributes);
  backward.context().tpIndex = 2;
  backward.input(type(), {3, 2, 33});
  expectGpuMatchesReference(backward, {backward.output(state(), {10, 33}, true)}, tolerance());
}

TEST_P(GpuKernels, LayerNorm) {
  OpCase forward(OpKind::kLayerNorm, {.epsilon = 1e-5});
  forward.input(type(), {5, 2, 67});
  forward.input(type(), {67});
  forward.input(type(), {67});
  const int y = forward.output(type(), {5, 2, 67});
  const int mean = forward.output(state(), {5, 2}), rstd = forward.output(state(), {5, 2});
  expectGpuMatchesReference(forward, {y, mean, rstd}, tolerance());
  OpCase backward(OpKind::kLayerNormGrad, {.epsilon = 1e-5});
  backward.input(type(), {5, 2, 67});
  backward.input(type(), {67});
  backward.input(state(), {5, 2});
  backward.input(state(), {5, 2});
  backward.input(type(), {5, 2, 67});
  const int dx = backward.output(type(), {5, 2, 67});
  const int gamma = backward.output(state(), {67}, true),
            beta = backward.output(state(), {67}, true);
  expectGpuMatchesReference(backward, {dx, gamma, beta}, tolerance());
}

TEST_P(GpuKernels, RmsNorm) {
  OpCase forward(OpKind::kRmsNorm, {.epsilon = 1e-5});
  forward.input(type(), {5, 2, 67});
  forward.input(type(), {67});
  const int y = forward.output(type(), {5, 2, 67}), rstd = forward.output(state(), {5, 2});
  expectGpuMatchesReference(forward, {y, rstd}, tolerance());
  OpCase backward(OpKind::kRmsNormGrad, {.epsilon = 1e-5});
  backward.input(type(), {5, 2, 67});
  backward.input(type(), {67});
  backward.input(state(), {5, 2});
  backward.input(type(), {5, 2, 67});
  const int dx = backward.output(type(), {5, 2, 67});
  expectGpuMatchesReference(backward, {dx, backward.output(state(), {67}, true)}, tolerance());
}

TEST_P(GpuKernels, Rotary) {
  for (OpKind kind : {OpKind::kRotary, OpKind::kRotaryGrad}) {
    OpAttributes attributes{.headSize = 6, .headsPerGroup = 3, .ropeTheta = 10000};
    attributes.sequenceSharded = true;
    OpCase test(kind, attributes);
    test.context().tpIndex = 2;
    test.input(type(), {7, 2, 2, 30});
    expectGpuMatchesReference(test, {test.output(type(), {7, 2, 2, 30})}, tolerance());
  }
}

// Of the four pairs, at theta 10000, llama3 leaves the first alone (64 / 2 pi = 10.2 turns), blends
// the second (1.02) and divides the others.
TEST_P(GpuKernels, RotaryOfScaledPositions) {
  for (const RopeScaling& scaling : {RopeScaling{RopeScalingKind::kLlama3, 8, 0.5, 4, 64},
                                     RopeScaling{.kind = RopeScalingKind::kLinear, .factor = 3}})
    for (OpKind kind : {OpKind::kRotary, OpKind::kRotaryGrad}) {
      OpCase test(kind, {.headSize = 8,
                         .headsPerGroup = 3,
                         .ropeTheta = 10000,
                         .ropeScaling = scaling,
                         .sequenceSharded = true});
      test.context().tpIndex = 2;
      test.input(type(), {7, 2, 2, 40});
      expectGpuMatchesReference(test, {test.output(type(), {7, 2, 2, 40})}, tolerance());
    }
}

// Forward and backward of two query heads to each of two groups, for two samples.
void expectAttentionMatches(DType type, DType state, int64_t headSize, int64_t sequence,
                            double probability, double tolerance) {
  OpAttributes attributes{.probability = probability,
                          .stream = RngStream::kAttentionDropout,
                          .headSize = headSize,
                          .headsPerGroup = 2};
  attributes.widthSharded = true;
  OpCase forward(OpKind::kAttention, attributes);
  forward.context().tpIndex = 1;
  forward.input(type, {sequence, 2, 2, 4 * headSize});
  const int ctx = forward.output(type, {sequence, 2, 2, 2 * headSize});
  const int lse = forward.output(state, {2, 4, sequence});
  expectGpuMatchesReference(forward, {ctx, lse}, tolerance);

  ASSERT_EQ(forward.runReference().message(), "");
  OpCase backward(OpKind::kAttentionGrad, attributes);
  backward.context().tpIndex = 1;
  backward.input(type, {sequence, 2, 2, 4 * headSize}, forward.values(0));
  backward.input(type, {sequence, 2, 2, 2 * headSize}, forward.values(ctx));
  backward.input(state, {2, 4, sequence}, forward.values(lse));
  backward.input(type, {sequence, 2, 2, 2 * headSize});
  const int dqkv = backward.output(type, {sequence, 2, 2, 4 * headSize});
  expectGpuMatchesReference(backward, {dqkv}, 3 * tolerance);
}

// Sequences around a tile of 32, heads that are no multiple of a warp, grouped queries, dropout.
TEST_P(GpuKernels, Attention) {
  for (int64_t sequence : {1, 31, 33, 70})
    for (double probability : {0.0, 0.2})
      expectAttentionMatches(type(), state(), 10, sequence, probability, tolerance());
}

// On tensor cores, where probabilities and the scores' gradients are rounded to 16 bits. A block
// has 96 rows with heads of 64 and 128 with others, on the emulated GPU 48.
TEST(GpuAttentionTiles, MatchTheReference) {
  std::vector<int64_t> sequences = {1, 17, 70};
  if (gpu::isRealGpu()) sequences.insert(sequences.end(), {97, 128, 129, 200, 300});
  for (DType type : {DType::kBf16, DType::kF16})
    for (int64_t headSize : {64, 96, 128})
      for (int64_t sequence : sequences)
        for (double probability : {0.0, 0.2})
          expectAttentionMatches(type, DType::kF32, headSize, sequence, probability,
                                 2 * testing::roundingOf(type));
}

// 2 samples, 4 heads of 16 queries: 512 bytes of deltas.
TEST(GpuAttentionTiles, TooLittleWorkspaceIsRefused) {
  OpCase test(OpKind::kAttentionGrad, {.headSize = 64, .headsPerGroup = 2});
  test.input(DType::kBf16, {16, 2, 2, 256});
  test.input(DType::kBf16, {16, 2, 2, 128});
  test.input(DType::kF32, {2, 4, 16});
  test.input(DType::kBf16, {16, 2, 2, 128});
  test.output(DType::kBf16, {16, 2, 2, 256});
  const auto createWith = [](int64_t bytes) {
    return [bytes](const program::SegmentOp& op, const std::vector<program::OperandType>& types,
                   const program::KernelContext&, const std::vector<void*>&) -> Status {
      TestGpu gpu;
      TRIREME_ASSIGN_OR_RETURN(const auto opened, cuda::Gpu::open(gpu.apis(), 0));
      const cuda::OpPlace place{.workspace = {nullptr, bytes}};
      const auto launch = cuda::OpLaunch::create(*opened, op, types, 0, place);
      return launch.has_value() ? Status() : launch.error();
    };
  };
  EXPECT_EQ(test.runOn(createWith(512)).message(), "");
  EXPECT_EQ(test.runOn(createWith(511)).message(),
            "attention_grad: needs a workspace of 512 bytes and has 511; compile the bundle with "
            "this version");
}

// 41 local columns, of which the last 3 are padding.
TEST_P(GpuKernels, CrossEntropy) {
  OpAttributes attributes{.logicalVocab = 79, .scale = 0.125};
  attributes.widthSharded = true;
  const auto make = [&](OpKind kind) {
    OpCase test(kind, attributes);
    test.context().tpIndex = 1;
    test.input(type(), {5, 2, 41});
    return test;
  };
  OpCase max = make(OpKind::kLossMax);
  const int largest = max.output(state(), {5, 2});
  expectGpuMatchesReference(max, {largest}, tolerance());
  ASSERT_EQ(max.runReference().message(), "");
  const std::vector<double> maxima = max.values(largest);

  OpCase sum = make(OpKind::kLossSumExp);
  sum.input(state(), {5, 2}, maxima);
  const int sumExp = sum.output(state(), {5, 2});
  expectGpuMatchesReference(sum, {sumExp}, tolerance());
  ASSERT_EQ(sum.runReference().message(), "");
  const std::vector<double> sums = sum.values(sumExp);

  OpCase target = make(OpKind::kLossTarget);
  target.input(state(), {5, 2}, maxima);
  target.ids({5, 2}, 79);
  expectGpuMatchesReference(target, {target.output(state(), {5, 2})}, tolerance());
  OpCase grad = make(OpKind::kLossGrad);
  grad.input(state(), {5, 2}, maxima);
  grad.input(state(), {5, 2}, sums);
  grad.ids({5, 2}, 79);
  expectGpuMatchesReference(grad, {grad.output(type(), {5, 2, 41})}, tolerance());
}

TEST(GpuKernels, TokenLossAddsInF64) {
  for (int64_t sequence : {9, 700}) {  // within a block's threads, and beyond
    OpCase test(OpKind::kTokenLoss);
    test.input(DType::kF32, {sequence, 5});
    const std::vector<double> sums(static_cast<size_t>(sequence * 5), 2.5);
    test.input(DType::kF32, {sequence, 5}, sums);
    expectGpuMatchesReference(test, {test.output(DType::kF64, {1}, true)}, 1e-13);
  }
}

TEST_P(GpuKernels, MatrixProducts) {
  OpCase forward(OpKind::kMatmul);
  forward.input(type(), {5, 3, 13});
  forward.input(type(), {2, 7, 13});
  expectGpuMatchesReference(forward, {forward.output(type(), {5, 3, 2, 7})}, tolerance());
  OpCase input(OpKind::kMatmulGradInput);
  input.input(type(), {5, 3, 2, 7});
  input.input(type(), {2, 7, 13});
  expectGpuMatchesReference(input, {input.output(type(), {5, 3, 13})}, tolerance());
  OpCase weight(OpKind::kMatmulGradWeight);
  weight.input(type(), {5, 3, 2, 7});
  weight.input(type(), {5, 3, 13});
  expectGpuMatchesReference(weight, {weight.output(state(), {2, 7, 13}, true)}, tolerance());
}

// Many blocks, rows of several warps' lanes, whole tiles: what real models have.
TEST_P(GpuKernels, LargerShapes) {
  OpCase norm(OpKind::kLayerNorm, {.epsilon = 1e-5});
  norm.input(type(), {128, 4, 768});
  norm.input(type(), {768});
  norm.input(type(), {768});
  const int y = norm.output(type(), {128, 4, 768});
  norm.output(state(), {128, 4});
  norm.output(state(), {128, 4});
  expectGpuMatchesReference(norm, {y}, tolerance());
  OpCase attention(OpKind::kAttention, {.headSize = 64, .headsPerGroup = 1});
  attention.input(type(), {160, 1, 3, 192});
  const int ctx = attention.output(type(), {160, 1, 3, 64});
  attention.output(state(), {1, 3, 160});
  expectGpuMatchesReference(attention, {ctx}, tolerance());
  OpCase product(OpKind::kMatmul);
  product.input(type(), {64, 4, 256});
  product.input(type(), {192, 256});
  expectGpuMatchesReference(product, {product.output(type(), {64, 4, 192})}, 2 * tolerance());
  OpCase wide(OpKind::kLossSumExp, {.logicalVocab = 50257, .scale = 1});
  wide.input(type(), {5, 1, 50304});
  const std::vector<double> maxima(5, 4.0);
  wide.input(state(), {5, 1}, maxima);
  expectGpuMatchesReference(wide, {wide.output(state(), {5, 1})}, tolerance());
}

TEST(GpuKernels, TypesThatNoKernelTakesAreRefused) {
  OpCase mixed(OpKind::kAdd);
  mixed.input(DType::kF32, {2, 2, 4});
  mixed.input(DType::kBf16, {2, 2, 4});
  mixed.output(DType::kF32, {2, 2, 4});
  const Status status = mixed.runOn(runOpOnGpu);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("add: no CUDA kernel for these types"), std::string::npos);
  OpCase wide(OpKind::kAttention, {.headSize = 264, .headsPerGroup = 1});
  wide.input(DType::kF32, {2, 1, 1, 792});
  wide.output(DType::kF32, {2, 1, 1, 264});
  wide.output(DType::kF32, {1, 1, 2});
  EXPECT_EQ(wide.runOn(runOpOnGpu).message(),
            "attention: heads of 264; the CUDA kernels take up to 256");
}

}  // namespace
}  // namespace trireme::runtime
