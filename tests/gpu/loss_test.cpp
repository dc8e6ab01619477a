// Cross entropy's passes as one kernel against a kernel for each: the same bits.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "runtime/device/cuda/loss_chain.h"
#include "runtime/device/cuda/op_launch.h"
#include "runtime/kernels/operands.h"
#include "tests/gpu/test_gpu.h"
#include "tests/support/op_case.h"

namespace trireme::runtime::gpu {
namespace {

using program::OpKind;
using RawBytes = std::vector<char>;

// logits, max, labels, target, sumExp: operands 0 to 4.
enum LossOperand { kLogits, kMax, kLabels, kTarget, kSumExp };

struct Shape {
  int64_t tokens, columns;  // local
  int64_t vocab;            // logical
  int32_t tpIndex = -1;     // -1: the vocabulary is whole
};

program::Segment lossSegment(DType type, const Shape& shape, bool findsMax) {
  const DType state = testing::stateOf(type);
  const std::vector<int64_t> perToken = {shape.tokens, 1};
  program::Segment segment;
  segment.operands = {{type, {shape.tokens, 1, shape.columns}},
                      {state, perToken},
                      {DType::kI32, perToken},
                      {state, perToken},
                      {state, perToken}};
  segment.temporary.assign(segment.operands.size(), false);
  program::OpAttributes attributes;
  attributes.logicalVocab = shape.vocab;
  attributes.widthSharded = shape.tpIndex >= 0;
  if (findsMax) segment.ops.push_back({OpKind::kLossMax, attributes, {kLogits}, {kMax}});
  segment.ops.push_back({OpKind::kLossTarget, attributes, {kLogits, kMax, kLabels}, {kTarget}});
  segment.ops.push_back({OpKind::kLossSumExp, attributes, {kLogits, kMax}, {kSumExp}});
  return segment;
}

enum class LossKernels { kOne, kEach };

// The operands after the segment has run on them.
std::vector<RawBytes> run(const program::Segment& segment, const std::vector<RawBytes>& operands,
                          int32_t tpIndex, LossKernels kernels, bool inWarps) {
  trireme::testing::EmulatedGpuOptions emulation;
  emulation.inWarps = inWarps;
  TestGpu test(emulation);
  const auto gpu = *cuda::Gpu::open(test.apis(), 0);
  GpuMemory memory(*gpu);
  std::vector<void*> onGpu;
  for (const RawBytes& bytes : operands) onGpu.push_back(memory.upload(bytes));
  std::vector<cuda::OpLaunch> launches;
  if (kernels == LossKernels::kOne) {
    const auto chain = cuda::lossChainFrom(cuda::stepsOf(segment, nullptr), 0);
    EXPECT_EQ(chain->merged.steps.size(), segment.ops.size());
    launches.push_back(*cuda::OpLaunch::create(*gpu, *chain, segment.operands, tpIndex));
  } else {
    for (const program::SegmentOp& op : segment.ops)
      launches.push_back(*cuda::OpLaunch::create(*gpu, op, segment.operands, tpIndex));
  }
  cuda::StreamSink sink(*gpu, memory.stream());
  program::KernelContext context;
  context.tpIndex = static_cast<uint64_t>(tpIndex);
  for (const cuda::OpLaunch& launch : launches)
    EXPECT_EQ(launch.run(context, onGpu.data(), sink).message(), "");
  std::vector<RawBytes> results = operands;
  for (size_t i = 0; i < results.size(); ++i)
    memory.download(onGpu[i], results[i].data(), std::ssize(results[i]));
  return results;
}

class GpuLoss : public ::testing::TestWithParam<DType> {
 protected:
  // Normal draws; labels of the whole vocabulary, so that where it is split some are elsewhere.
  std::vector<RawBytes> drawOperands(const program::Segment& segment, const Shape& shape) {
    std::vector<RawBytes> operands;
    for (const program::OperandType& type : segment.operands)
      operands.emplace_back(static_cast<size_t>(type.bytes()), '\xFF');
    std::normal_distribution<double> normal(0, 3);
    for (const int operand : {kLogits, kMax}) {
      const auto i = static_cast<size_t>(operand);
      const Tensor tensor{operands[i].data(), &segment.operands[i]};
      for (int64_t e = 0; e < tensor.elements(); ++e) tensor.set(e, normal(random_));
    }
    std::uniform_int_distribution<int32_t> label(0, static_cast<int32_t>(shape.vocab) - 1);
    auto* labels = reinterpret_cast<int32_t*>(operands[kLabels].data());
    for (int64_t i = 0; i < shape.tokens; ++i) labels[i] = label(random_);
    return operands;
  }
  void expectSameBits(const Shape& shape, bool findsMax) {
    SCOPED_TRACE(fmt::format("{} tokens, {} columns, vocabulary {}, shard {}{}", shape.tokens,
                             shape.columns, shape.vocab, shape.tpIndex,
                             findsMax ? ", with the maximum" : ""));
    const program::Segment segment = lossSegment(GetParam(), shape, findsMax);
    const std::vector<RawBytes> operands = drawOperands(segment, shape);
    const int32_t tpIndex = std::max(0, shape.tpIndex);
    const std::vector<RawBytes> expected =
        run(segment, operands, tpIndex, LossKernels::kEach, false);
    for (const int written : {kTarget, kSumExp})
      EXPECT_NE(expected[static_cast<size_t>(written)], operands[static_cast<size_t>(written)]);
    EXPECT_EQ(run(segment, operands, tpIndex, LossKernels::kOne, false), expected);
    if (TRIREME_SANITIZED || isRealGpu()) return;
    // Sums have one partition, however many warps a block has.
    EXPECT_EQ(run(segment, operands, tpIndex, LossKernels::kEach, true), expected);
    EXPECT_EQ(run(segment, operands, tpIndex, LossKernels::kOne, true), expected);
  }

 private:
  std::mt19937_64 random_{testing::seedOfDraws()};
};

INSTANTIATE_TEST_SUITE_P(Types, GpuLoss, ::testing::ValuesIn(testing::kFloats),
                         [](const auto& info) { return std::string(dtypeName(info.param)); });

// Around a lane, a warp and the 1024 sums of a row; several rows for each block; the last columns
// of all but the first are padding.
TEST_P(GpuLoss, OfAWholeVocabularyIsOneKernelWithTheBitsOfThree) {
  for (const Shape& shape : {Shape{7, 1, 1}, Shape{3, 37, 31}, Shape{5, 1025, 1023},
                             Shape{2, 1088, 1025}, Shape{3, 9001, 8999}})
    expectSameBits(shape, true);
}

// The second of two ranks, and one that has padding alone: no target, and a sum of zero.
TEST_P(GpuLoss, OfASplitVocabularyIsOneKernelWithTheBitsOfTwo) {
  for (const Shape& shape :
       {Shape{9, 41, 79, 1}, Shape{3, 1500, 2999, 1}, Shape{3, 33, 99, 0}, Shape{2, 16, 15, 1}})
    expectSameBits(shape, false);
}

// Beyond the columns of one warp, with padding in the last piece.
TEST_P(GpuLoss, TheGradientOfAWideVocabularyIsTheReferences) {
  testing::OpCase grad(OpKind::kLossGrad, {.logicalVocab = 9001, .scale = 0.125});
  grad.input(GetParam(), {2, 2, 9010});
  grad.input(testing::stateOf(GetParam()), {2, 2}, std::vector<double>(4, 3.5));
  grad.input(testing::stateOf(GetParam()), {2, 2}, std::vector<double>(4, 700.0));
  grad.ids({2, 2}, 9001);
  const int output = grad.output(GetParam(), {2, 2, 9010});
  testing::OpCase expected = grad;
  ASSERT_EQ(expected.runReference().message(), "");
  for (const bool inWarps : {false, true}) {
    if (inWarps && (TRIREME_SANITIZED || isRealGpu())) continue;
    testing::OpCase actual = grad;
    const auto onGpu = [&](const program::SegmentOp& op,
                           const std::vector<program::OperandType>& types,
                           const program::KernelContext&, const std::vector<void*>& operands) {
      std::vector<RawBytes> bytes;
      for (size_t i = 0; i < operands.size(); ++i) {
        const auto* data = static_cast<const char*>(operands[i]);
        bytes.emplace_back(data, data + types[i].bytes());
      }
      const program::Segment segment{"grad", types, {}, {op}};
      const std::vector<RawBytes> results = run(segment, bytes, 0, LossKernels::kEach, inWarps);
      for (size_t i = 0; i < operands.size(); ++i)
        std::memcpy(operands[i], results[i].data(), results[i].size());
      return Status();
    };
    ASSERT_EQ(actual.runOn(onGpu).message(), "");
    const std::vector<double> values = actual.values(output), exact = expected.values(output);
    for (size_t i = 0; i < exact.size(); ++i)
      ASSERT_NEAR(values[i], exact[i], testing::roundingOf(GetParam()) * 0.125) << i;
  }
}

}  // namespace
}  // namespace trireme::runtime::gpu
