// The whole CUDA backend on an emulated GPU: programs, streams, events, kernels, the optimizer and
// collectives between virtual ranks, against the host backend.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/equivalence/harness.h"
#include "tests/equivalence/plans.h"
#include "tests/support/emulated_gpu.h"

namespace trireme::equivalence {
namespace {

using testing::EmulatedGpu;

enum class Family { kGpt, kLlama };

spec::ModelSpec modelOf(Family family, int64_t numLayers) {
  return family == Family::kGpt ? tinyGpt(numLayers) : tinyLlama(numLayers);
}

// Trains on the emulated GPU and expects that nothing was misused and all was given back.
Result<RunResult> runOnGpu(const spec::ModelSpec& model, const plan::Plan& plan, int steps,
                           uint64_t seed = 1, const Mutation& mutate = nullptr) {
  EmulatedGpu gpu({.seed = seed});
  const runtime::cuda::Apis apis = gpu.apis();
  RunOptions options;
  options.steps = steps;
  options.gpu = &apis;
  Result<RunResult> result = run(model, plan, options, mutate);
  EXPECT_EQ(gpu.faults(), std::vector<std::string>());
  EXPECT_EQ(gpu.numLiveObjects(), 0);
  return result;
}

struct Case {
  Family family;
  spec::Precision precision;
  double losses, gradients, parameters;  // tolerances
};

class OneGpuRank : public ::testing::TestWithParam<Case> {};

// f64 leaves no room for a wrong formula; f32 and bf16 differ from the host by the order of sums and
// by roundings between kernels.
TEST_P(OneGpuRank, TrainsAsOnTheHost) {
  const Case& c = GetParam();
  const spec::ModelSpec model = modelOf(c.family, 2);
  const plan::Plan plan = serialPlan(model, tinyTraining(c.precision), 2);
  RunOptions host;
  host.steps = 4;
  const auto expected = run(model, plan, host);
  const auto actual = runOnGpu(model, plan, host.steps);
  ASSERT_TRUE(expected.has_value()) << expected.error().message();
  ASSERT_TRUE(actual.has_value()) << actual.error().message();
  EXPECT_EQ(compareLosses(expected->losses, actual->losses, c.losses), "");
  EXPECT_EQ(compareLosses(expected->gradNorms, actual->gradNorms, 10 * c.losses), "");
  EXPECT_EQ(compareTensors(expected->firstGradients, actual->firstGradients, {c.gradients, 1e-12}),
            "");
  EXPECT_EQ(compareTensors(expected->parameters, actual->parameters, {c.parameters, 1e-12}), "");
}

INSTANTIATE_TEST_SUITE_P(
    All, OneGpuRank,
    ::testing::Values(Case{Family::kGpt, spec::Precision::kFp64, 1e-13, 1e-11, 1e-9},
                      Case{Family::kLlama, spec::Precision::kFp64, 1e-13, 1e-11, 1e-9},
                      Case{Family::kGpt, spec::Precision::kFp32, 1e-5, 1e-4, 1e-2},
                      Case{Family::kLlama, spec::Precision::kFp32, 1e-5, 1e-4, 1e-2},
                      Case{Family::kGpt, spec::Precision::kBf16, 1e-3, 0.05, 0.1},
                      Case{Family::kLlama, spec::Precision::kBf16, 1e-3, 0.05, 0.1}),
    [](const auto& info) {
      const std::string family = info.param.family == Family::kGpt ? "Gpt" : "Llama";
      return family + (info.param.precision == spec::Precision::kFp64   ? "Fp64"
                       : info.param.precision == spec::Precision::kFp32 ? "Fp32"
                                                                        : "Bf16");
    });

class VirtualRanks : public ::testing::TestWithParam<Choices> {};

// Every parallel form, in f64, where the order of sums hardly shows: against one rank on the host,
// with two ways for the GPU to order what no event orders.
TEST_P(VirtualRanks, TrainAsOneRankOfTheHost) {
  for (const Family family : {Family::kGpt, Family::kLlama}) {
    const spec::ModelSpec model = modelOf(family, 4);
    const auto training = tinyTraining(spec::Precision::kFp64);
    RunOptions host;
    host.steps = 2;
    const auto expected = run(model, serialPlan(model, training, GetParam().microbatchSize), host);
    ASSERT_TRUE(expected.has_value()) << expected.error().message();
    RunResult first;
    for (uint64_t seed : {1, 2}) {
      const auto actual = runOnGpu(model, planFor(GetParam(), model, training), 2, seed);
      ASSERT_TRUE(actual.has_value()) << actual.error().message();
      EXPECT_EQ(compareLosses(expected->losses, actual->losses, 1e-13), "");
      EXPECT_EQ(
          compareTensors(expected->firstGradients, actual->firstGradients, {1e-11, 1e-12}), "");
      EXPECT_EQ(compareTensors(expected->parameters, actual->parameters, {1e-9, 1e-12}), "");
      if (seed == 1) first = *actual;
      EXPECT_EQ(compareTensors(first.parameters, actual->parameters, {}), "") << "not repeatable";
    }
  }
}

std::vector<Choices> virtualChoices() {
  std::vector<Choices> all(7);
  all[0].tp = 2;
  all[1].tp = 2, all[1].sequenceParallel = true, all[1].microbatchSize = 2;
  all[2].dp = 2;
  all[3].dp = 2, all[3].shardOptimizer = true;
  all[4].pp = 2;
  all[5].pp = 2, all[5].virtualStages = 2, all[5].schedule = plan::ScheduleKind::kInterleaved;
  all[6].tp = all[6].pp = all[6].dp = 2, all[6].sequenceParallel = all[6].shardOptimizer = true;
  all[6].recompute = plan::Recompute::kFull;
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, VirtualRanks, ::testing::ValuesIn(virtualChoices()),
                         [](const auto& info) {
                           std::string name = describe(info.param);
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

}  // namespace
}  // namespace trireme::equivalence
