// Whole trainings on a GPU, from bundles that tests/gpu/prepare made: against the host backend, and
// many virtual ranks against one.
//
// The models are those of `prepare`: 4 layers of GPT or Llama, width 64, dropout, clipping and
// decay on, so that every kernel and the optimizer take part.
#include "tests/support/training.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "runtime/session.h"
#include "tests/gpu/bundles.h"
#include "tests/gpu/test_gpu.h"

namespace trireme::runtime::gpu {
namespace {

using equivalence::compareLosses;
using equivalence::compareTensors;

// The emulated GPU is slow, and learns nothing from more of the same.
constexpr int kFewSteps = 2;
int numSteps() { return isRealGpu() ? 20 : 4; }

struct Trained {
  std::vector<double> losses;
  std::vector<NamedTensor> firstGradients;  // of step 1, before clipping
  std::vector<NamedTensor> parameters;      // after the last step
};

Trained train(program::Bundle bundle, int steps, const SessionOptions& options) {
  Trained result;
  const int64_t vocabSize = bundle.program.training.vocabSize;
  auto session = Session::create(std::move(bundle), options);
  EXPECT_TRUE(session.has_value()) << session.error().message();
  if (!session.has_value()) return result;
  equivalence::SyntheticData data(vocabSize);
  for (int i = 0; i < steps; ++i) {
    const auto step = (*session)->step(data);
    EXPECT_TRUE(step.has_value()) << step.error().message();
    if (!step.has_value()) return result;
    result.losses.push_back(step->loss);
    if (i == 0) result.firstGradients = (*session)->gatherGradients();
  }
  result.parameters = (*session)->gatherParameters();
  return result;
}

enum class TrainingKernels { kAsCompiled, kPtx, kLibrary };

Trained onGpu(const std::string& name, int steps,
              TrainingKernels kernels = TrainingKernels::kAsCompiled, bool graphs = true) {
  TestGpu test;
  SessionOptions options;
  options.cudaGraphs = graphs;
  options.virtualRanks = true;
  options.cudaApis = &test.apis();
  program::Bundle bundle = forTestGpu(bundleOf(name));
  if (kernels == TrainingKernels::kLibrary) bundle = withoutGenerated(std::move(bundle));
  if (kernels == TrainingKernels::kPtx) bundle.cubins.clear();
  return train(std::move(bundle), steps, options);
}

// The same program on this machine's processor, every op by the runtime itself.
Trained onHost(const std::string& name, int steps) {
  program::Bundle bundle = withoutGenerated(bundleOf(name));
  bundle.target = {};
  return train(std::move(bundle), steps, {});
}

class GpuTraining : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!isRealGpu() && !hasBundles())
      GTEST_SKIP() << "no bundles: a build with the code generator makes them";
  }
  std::string model() const { return GetParam(); }
};

// Of the largest element of each tensor, or of the norm for what is noise in all of its elements
// (the keys' bias has no gradient but rounding errors).
constexpr equivalence::Tolerance kFp32{1e-4, 1e-7};

TEST_P(GpuTraining, OneRankInFp32TrainsAsTheHost) {
  const Trained host = onHost(model() + "-fp32.bundle", numSteps());
  const Trained gpu = onGpu(model() + "-fp32.bundle", numSteps());
  EXPECT_EQ(compareTensors(host.firstGradients, gpu.firstGradients, kFp32), "");
  EXPECT_EQ(compareLosses(host.losses, gpu.losses, 1e-4), "");
  ASSERT_FALSE(gpu.losses.empty());
  EXPECT_FALSE(gpu.firstGradients.empty());
}

// The same sums in another order: fused kernels against one per op.
TEST_P(GpuTraining, GeneratedKernelsTrainAsTheLibrarys) {
  if (!isRealGpu()) GTEST_SKIP() << "an emulated GPU runs no generated code";
  const std::string name = model() + "-fp32.bundle";
  const Trained library = onGpu(name, numSteps(), TrainingKernels::kLibrary);
  const Trained generated = onGpu(name, numSteps());
  EXPECT_EQ(compareTensors(library.firstGradients, generated.firstGradients, kFp32), "");
  EXPECT_EQ(compareLosses(library.losses, generated.losses, 1e-4), "");
}

// As on a GPU that is later than all targets: the driver compiles what ptxas was given, and no
// instruction in it may be rounded in two ways.
TEST_P(GpuTraining, PtxTrainsAsTheCodeThatIsMadeOfIt) {
  if (!isRealGpu()) GTEST_SKIP() << "an emulated GPU runs no generated code";
  for (const char* precision : {"-fp32.bundle", "-bf16.bundle"}) {
    if (bundleOf(model() + precision).cubins.empty()) GTEST_SKIP() << "bundles made without ptxas";
    const Trained code = onGpu(model() + precision, numSteps());
    const Trained ptx = onGpu(model() + precision, numSteps(), TrainingKernels::kPtx);
    ASSERT_FALSE(code.losses.empty());
    EXPECT_EQ(code.losses, ptx.losses) << precision;
    EXPECT_EQ(compareTensors(code.parameters, ptx.parameters, {}), "") << precision;
  }
}

// In f64 a wrong formula cannot hide behind rounding errors.
TEST_P(GpuTraining, OneRankInFp64TrainsAsTheHost) {
  const Trained host = onHost(model() + "-fp64.bundle", kFewSteps);
  const Trained gpu = onGpu(model() + "-fp64.bundle", kFewSteps);
  EXPECT_EQ(compareTensors(host.firstGradients, gpu.firstGradients, {1e-11, 1e-12}), "");
  EXPECT_EQ(compareLosses(host.losses, gpu.losses, 1e-13), "");
  EXPECT_EQ(compareTensors(host.parameters, gpu.parameters, {1e-9, 1e-12}), "");
}

void expectSixteenBitsTrainAsFp32(const std::string& model, int steps) {
  const Trained fp32 = onGpu(model + "-fp32.bundle", 1);
  for (const char* precision : {"bf16", "fp16"}) {
    const Trained low = onGpu(model + "-" + precision + ".bundle", steps);
    ASSERT_FALSE(low.losses.empty()) << precision;
    EXPECT_GT(equivalence::cosine(fp32.firstGradients, low.firstGradients), 0.999) << precision;
    EXPECT_EQ(compareLosses({fp32.losses.front()}, {low.losses.front()}, 1e-2), "") << precision;
    EXPECT_LT(low.losses.back(), low.losses.front()) << precision;
  }
}

TEST_P(GpuTraining, SixteenBitsHaveTheGradientsOfFp32) {
  expectSixteenBitsTrainAsFp32(model(), numSteps());
}

// Factors of products have 10 bits of mantissa, 3 more than in bf16, which divides their errors by
// 8 and what is missing to a cosine of 1 by 64. An emulated cuBLASLt rounds them as a GPU does; a
// real one may.
TEST_P(GpuTraining, OneRankInTf32TrainsAsInFp32) {
  const Trained exact = onGpu(model() + "-fp32.bundle", numSteps());
  const Trained rounded = onGpu(model() + "-tf32.bundle", numSteps());
  ASSERT_FALSE(rounded.losses.empty());
  EXPECT_GT(equivalence::cosine(exact.firstGradients, rounded.firstGradients), 0.99998);
  EXPECT_EQ(compareLosses(exact.losses, rounded.losses, 1e-3), "");
  EXPECT_LT(rounded.losses.back(), rounded.losses.front());
  if (isRealGpu()) return;
  EXPECT_NE(compareTensors(exact.firstGradients, rounded.firstGradients, {1e-5, 1e-7}), "");
}

// 200 tokens and heads of 64: three tiles of a GPU, of which the last is cut off.
TEST(GpuTrainingOnTiles, SixteenBitsHaveTheGradientsOfFp32) {
  if (!isRealGpu()) GTEST_SKIP() << "half a minute on an emulated GPU, whose tiles are smaller";
  expectSixteenBitsTrainAsFp32("tiles", numSteps());
}

// Twice the same, to the last bit.
TEST_P(GpuTraining, IsRepeatable) {
  const Trained a = onGpu(model() + "-bf16.bundle", kFewSteps),
                b = onGpu(model() + "-bf16.bundle", kFewSteps);
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(compareTensors(a.parameters, b.parameters, {}), "");
}

// What is launched does not depend on how, so neither do the bits.
TEST_P(GpuTraining, GraphsTrainAsSingleLaunches) {
  for (const char* plan :
       {"-bf16.bundle", "-fp32-t2p2d2-interleaved.bundle", "-fp32-t2p2d2-overlap.bundle"}) {
    const Trained graphs = onGpu(model() + plan, numSteps());
    const Trained single = onGpu(model() + plan, numSteps(), TrainingKernels::kAsCompiled, false);
    ASSERT_FALSE(graphs.losses.empty());
    EXPECT_EQ(graphs.losses, single.losses) << plan;
    EXPECT_EQ(compareTensors(graphs.parameters, single.parameters, {}), "") << plan;
  }
}

TEST_P(GpuTraining, EightVirtualRanksTrainAsOne) {
  const Trained one = onGpu(model() + "-fp64.bundle", kFewSteps);
  for (const char* plan : {"1f1b", "interleaved", "overlap"}) {
    const Trained many = onGpu(model() + "-fp64-t2p2d2-" + plan + ".bundle", kFewSteps);
    EXPECT_EQ(compareTensors(one.firstGradients, many.firstGradients, {1e-11, 1e-12}), "") << plan;
    EXPECT_EQ(compareLosses(one.losses, many.losses, 1e-13), "") << plan;
    EXPECT_EQ(compareTensors(one.parameters, many.parameters, {1e-9, 1e-12}), "") << plan;
  }
}

TEST_P(GpuTraining, EightVirtualRanksInFp32TrainAsOne) {
  const Trained one = onGpu(model() + "-fp32.bundle", numSteps());
  for (const char* plan : {"interleaved", "overlap"}) {
    const Trained many = onGpu(model() + "-fp32-t2p2d2-" + plan + ".bundle", numSteps());
    EXPECT_EQ(compareTensors(one.firstGradients, many.firstGradients, kFp32), "") << plan;
    EXPECT_EQ(compareLosses(one.losses, many.losses, 1e-4), "") << plan;
  }
}

// Of the plans, "overlap" alone reduces beside computation: over both axes, in every role.
TEST_P(GpuTraining, ReducesOnStreamsOfTheirOwnUnderOverlap) {
  for (const char* plan : {"interleaved", "overlap"}) {
    const program::Bundle bundle = bundleOf(model() + "-fp64-t2p2d2-" + plan + ".bundle");
    ASSERT_FALSE(bundle.program.roles.empty());
    for (const program::Role& role : bundle.program.roles) {
      std::set<program::Stream> streams;
      for (const program::Body& body : role.bodies)
        for (const program::Instruction& in : body.instructions) streams.insert(in.stream);
      const bool overlaps = plan == std::string("overlap");
      EXPECT_EQ(streams.contains(program::Stream::kDpReduce), overlaps) << plan;
      EXPECT_EQ(streams.contains(program::Stream::kTpReduce), overlaps) << plan;
    }
  }
}

// Memory is placed so that they can be: bias, bias and GELU that keeps its input, GELU's gradient.
TEST(GpuEpilogues, OfGptRunWithTheirProducts) {
  if (isRealGpu()) GTEST_SKIP() << "only an emulated GPU tells what was asked of cuBLASLt";
  if (!hasBundles()) GTEST_SKIP() << "no bundles";
  std::set<int> epilogues;
  trireme::testing::EmulatedGpu emulated;
  const cuda::Apis apis = emulated.apis();
  train(withoutGenerated(bundleOf("gpt-bf16.bundle")), 1,
        {.virtualRanks = true, .cudaApis = &apis});
  for (const auto& product : emulated.products()) epilogues.insert(product.epilogue);
  EXPECT_EQ(epilogues, (std::set<int>{1, cuda::kEpilogueBias, cuda::kEpilogueGeluAuxBias,
                                      cuda::kEpilogueGeluGrad}));
}

INSTANTIATE_TEST_SUITE_P(All, GpuTraining, ::testing::Values("gpt", "llama"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace trireme::runtime::gpu
