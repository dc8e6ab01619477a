// The whole CUDA backend on an emulated GPU: programs, streams, events, kernels, the optimizer and
// collectives between virtual ranks, against the host backend.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>

#include "ir/program/walk.h"
#include "tests/equivalence/harness.h"
#include "tests/equivalence/plans.h"
#include "tests/support/emulated_gpu.h"

namespace trireme::equivalence {
namespace {

using testing::EmulatedGpu;

enum class TinyFamily { kGpt, kLlama };

spec::ModelSpec tinyModel(TinyFamily family, int64_t numLayers) {
  return family == TinyFamily::kGpt ? tinyGpt(numLayers) : tinyLlama(numLayers);
}

// Trains on the emulated GPU and expects that nothing was misused and all was given back.
Result<RunResult> runOnGpu(const spec::ModelSpec& model, const plan::Plan& plan, int steps,
                           uint64_t seed = 1, const Mutation& mutate = nullptr,
                           bool compiled = TRIREME_HAVE_MLIR) {
  EmulatedGpu gpu({.seed = seed});
  const runtime::cuda::Apis apis = gpu.apis();
  RunOptions options;
  options.steps = steps;
  options.gpu = &apis;
  options.compiled = compiled;
  Result<RunResult> result = run(model, plan, options, mutate);
  EXPECT_EQ(gpu.faults(), std::vector<std::string>());
  EXPECT_EQ(gpu.numLiveObjects(), 0);
  return result;
}

struct PrecisionCase {
  TinyFamily family;
  spec::Precision precision;
  // Tolerances. Parameters: 0 where they are not compared, for AdamW makes full steps of what is
  // noise in bf16 (the keys' bias has no gradient but rounding errors).
  double losses, gradients, parameters;
};

class OneGpuRank : public ::testing::TestWithParam<PrecisionCase> {};

// f64 leaves no room for a wrong formula; f32 and bf16 differ from the host by the order of sums
// and by roundings between kernels. With generated kernels, and with the library's for every op.
TEST_P(OneGpuRank, TrainsAsOnTheHost) {
  const PrecisionCase& c = GetParam();
  const spec::ModelSpec model = tinyModel(c.family, 2);
  const plan::Plan plan = serialPlan(model, tinyTraining(c.precision), 2);
  RunOptions host;
  host.steps = TRIREME_SANITIZED ? 2 : 4;
  const auto expected = run(model, plan, host);
  ASSERT_TRUE(expected.has_value()) << expected.error().message();
  for (const bool compiled : {TRIREME_HAVE_MLIR != 0, false}) {
    const auto actual = runOnGpu(model, plan, host.steps, 1, nullptr, compiled);
    ASSERT_TRUE(actual.has_value()) << actual.error().message();
    EXPECT_EQ(compareLosses(expected->losses, actual->losses, c.losses), "");
    EXPECT_EQ(compareLosses(expected->gradNorms, actual->gradNorms, 10 * c.losses), "");
    EXPECT_EQ(
        compareTensors(expected->firstGradients, actual->firstGradients, {c.gradients, 1e-12}), "");
    if (c.parameters > 0) {
      EXPECT_EQ(compareTensors(expected->parameters, actual->parameters, {c.parameters, 1e-12}),
                "");
    }
    if (!TRIREME_HAVE_MLIR) break;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, OneGpuRank,
    ::testing::Values(PrecisionCase{TinyFamily::kGpt, spec::Precision::kFp64, 1e-13, 1e-11, 1e-9},
                      PrecisionCase{TinyFamily::kLlama, spec::Precision::kFp64, 1e-13, 1e-11, 1e-9},
                      PrecisionCase{TinyFamily::kGpt, spec::Precision::kFp32, 1e-5, 1e-4, 1e-2},
                      PrecisionCase{TinyFamily::kLlama, spec::Precision::kFp32, 1e-5, 1e-4, 1e-2},
                      PrecisionCase{TinyFamily::kGpt, spec::Precision::kBf16, 1e-3, 0.05, 0},
                      PrecisionCase{TinyFamily::kLlama, spec::Precision::kBf16, 1e-3, 0.05, 0},
                      PrecisionCase{TinyFamily::kGpt, spec::Precision::kFp16, 1e-3, 0.01, 0},
                      PrecisionCase{TinyFamily::kLlama, spec::Precision::kFp16, 1e-3, 0.01, 0}),
    [](const auto& info) {
      const std::string family = info.param.family == TinyFamily::kGpt ? "Gpt" : "Llama";
      return family + (info.param.precision == spec::Precision::kFp64   ? "Fp64"
                       : info.param.precision == spec::Precision::kFp32 ? "Fp32"
                       : info.param.precision == spec::Precision::kFp16 ? "Fp16"
                                                                        : "Bf16");
    });

// Factors of 10 bits: near the products in f32, and not those.
TEST(OneGpuRank, RoundsFactorsToTf32WhereThePlanSaysSo) {
  const spec::ModelSpec model = tinyGpt(2);
  spec::TrainingSpec training = tinyTraining(spec::Precision::kFp32);
  const auto exact = runOnGpu(model, serialPlan(model, training, 2), 2);
  training.tf32 = true;
  const auto rounded = runOnGpu(model, serialPlan(model, training, 2), 2);
  ASSERT_TRUE(exact.has_value() && rounded.has_value());
  EXPECT_GT(cosine(exact->firstGradients, rounded->firstGradients), 0.99999);
  EXPECT_NE(compareTensors(exact->firstGradients, rounded->firstGradients, {1e-5, 1e-7}), "");
  // A host multiplies in f32 all the same.
  const auto host = run(model, serialPlan(model, training, 2), {.steps = 2});
  ASSERT_TRUE(host.has_value()) << host.error().message();
  EXPECT_EQ(compareTensors(exact->firstGradients, host->firstGradients, {1e-4, 1e-6}), "");
}

// Kernels of a step, by name.
std::map<std::string, int> launchesOf(const plan::Plan& plan, const spec::ModelSpec& model,
                                      RunResult* result = nullptr) {
  std::map<std::string, int> launches;
  testing::EmulatedGpuOptions emulation;
  std::mutex mutex;  // ranks have a thread each
  emulation.duration = [&](const testing::EmulatedTask& task) {
    const std::lock_guard lock(mutex);
    if (task.args != nullptr) ++launches[task.name];
    return 1e-6;
  };
  EmulatedGpu gpu(emulation);
  const runtime::cuda::Apis apis = gpu.apis();
  RunOptions options;
  options.steps = 1;
  options.gpu = &apis;
  options.compiled = false;
  options.cudaGraphs = false;  // to capture is to launch
  options.trace = true;
  const auto run = equivalence::run(model, plan, options);
  EXPECT_TRUE(run.has_value()) << run.error().message();
  if (run.has_value() && result != nullptr) *result = *run;
  return launches;
}

// A step of two microbatches. However many buckets a rank has, their norms are two launches and
// their AdamW is two; where the vocabulary is whole its cross entropy is one kernel.
TEST(GpuLaunches, AreFewerThanInstructionsAndOps) {
  const spec::ModelSpec model = tinyGpt(2);
  const auto training = tinyTraining(spec::Precision::kBf16);
  RunResult result;
  auto launches = launchesOf(serialPlan(model, training, 4), model, &result);
  // Each is in the trace, but the first has the time of all.
  for (const auto kind :
       {program::InstructionKind::kSumSquares, program::InstructionKind::kAdamW}) {
    std::vector<double> seconds;
    for (const program::TraceEvent& event : result.trace)
      if (event.kind == kind) seconds.push_back(event.endSeconds - event.beginSeconds);
    ASSERT_EQ(seconds.size(), 3u);
    EXPECT_NEAR(seconds[0], 2e-6, 1e-7);
    EXPECT_EQ(std::vector(seconds.begin() + 1, seconds.end()), std::vector<double>(2, 0));
  }
  for (const char* once : {"adamw_scale", "adamw_bf16", "squares_pieces_f32", "squares_rows"})
    EXPECT_EQ(launches[once], 1) << once;
  EXPECT_EQ(launches["loss_forward_bf16"], 2);
  for (const char* alone : {"loss_max_bf16", "loss_target_bf16", "loss_sum_exp_bf16"})
    EXPECT_EQ(launches[alone], 0) << alone;

  Choices c;
  c.tp = 2;
  c.microbatchSize = 4;
  launches = launchesOf(planFor(c, model, training), model);
  EXPECT_EQ(launches["loss_max_bf16"], 4);
  EXPECT_EQ(launches["loss_sums_bf16"], 4);
  for (const char* alone : {"loss_target_bf16", "loss_sum_exp_bf16", "loss_forward_bf16"})
    EXPECT_EQ(launches[alone], 0) << alone;
}

class VirtualRanks : public ::testing::TestWithParam<Choices> {};

// Every parallel form, in f64, where the order of sums hardly shows: against one rank on the host,
// with two ways for the GPU to order what no event orders. Kernels are compiled, which takes most
// of the time, where nothing overlaps; what overlaps computes the same.
TEST_P(VirtualRanks, TrainAsOneRankOfTheHost) {
  for (const TinyFamily family : {TinyFamily::kGpt, TinyFamily::kLlama}) {
    if (TRIREME_SANITIZED && family == TinyFamily::kLlama) continue;  // they take minutes
    const spec::ModelSpec model = tinyModel(family, 4);
    const auto training = tinyTraining(spec::Precision::kFp64);
    RunOptions host;
    host.steps = 2;
    const auto expected = run(model, serialPlan(model, training, GetParam().microbatchSize), host);
    ASSERT_TRUE(expected.has_value()) << expected.error().message();
    RunResult first;
    for (uint64_t seed : {1, 2}) {
      const auto actual = runOnGpu(model, planFor(GetParam(), model, training), 2, seed, nullptr,
                                   TRIREME_HAVE_MLIR != 0 && !GetParam().overlapReductions);
      ASSERT_TRUE(actual.has_value()) << actual.error().message();
      EXPECT_EQ(compareLosses(expected->losses, actual->losses, 1e-13), "");
      EXPECT_EQ(compareTensors(expected->firstGradients, actual->firstGradients, {1e-11, 1e-12}),
                "");
      EXPECT_EQ(compareTensors(expected->parameters, actual->parameters, {1e-9, 1e-12}), "");
      if (seed == 1) first = *actual;
      EXPECT_EQ(compareTensors(first.parameters, actual->parameters, {}), "") << "not repeatable";
    }
  }
}

std::vector<Choices> virtualChoices() {
  std::vector<Choices> all(8);
  all[0].tp = 2;
  all[1].tp = 2, all[1].sequenceParallel = true, all[1].microbatchSize = 2;
  all[2].dp = 2;
  all[3].dp = 2, all[3].shardOptimizer = true;
  all[4].pp = 2;
  all[5].pp = 2, all[5].virtualStages = 2, all[5].schedule = plan::ScheduleKind::kInterleaved;
  all[6].tp = all[6].pp = all[6].dp = 2, all[6].sequenceParallel = all[6].shardOptimizer = true;
  all[6].recompute = plan::Recompute::kFull;
  all[7] = all[6], all[7].schedule = plan::ScheduleKind::kZeroBubbleH1;
  for (const size_t i : {0, 1, 2, 3, 6, 7}) {
    all.push_back(all[i]);
    all.back().overlapReductions = true;
  }
  return all;
}

// The first scales overflow: virtual ranks of every axis skip what one rank of the host skips.
TEST(VirtualRanks, SkipTheStepsThatOneRankOfTheHostSkips) {
  const spec::ModelSpec model = tinyGpt(2);
  spec::TrainingSpec training = tinyTraining(spec::Precision::kFp16);
  training.initialLossScale = 0x1p30;
  training.lossScaleWindow = 2;
  const int steps = 18;
  const auto expected = run(model, serialPlan(model, training), {.steps = steps});
  ASSERT_TRUE(expected.has_value()) << expected.error().message();
  ASSERT_GT(expected->scaled.back().numSkipped, 2);
  ASSERT_FALSE(expected->scaled.back().isSkipped && expected->scaled[steps - 2].isSkipped);
  Choices c;
  c.tp = c.pp = c.dp = 2;
  c.shardOptimizer = true;
  const auto actual = runOnGpu(model, planFor(c, model, training), steps);
  ASSERT_TRUE(actual.has_value()) << actual.error().message();
  for (size_t i = 0; i < expected->scaled.size(); ++i) {
    EXPECT_EQ(actual->scaled[i].lossScale, expected->scaled[i].lossScale) << i;
    EXPECT_EQ(actual->scaled[i].isSkipped, expected->scaled[i].isSkipped) << i;
  }
  EXPECT_EQ(compareLosses(expected->losses, actual->losses, 5e-3), "");
}

// Streams that do not wait for what they send, receive or reduce: some order of the GPU shows it.
void expectNeedOfWaits(const Choices& choices, std::initializer_list<program::Stream> streams) {
  const spec::ModelSpec model = tinyGpt(2);
  const auto training = tinyTraining(spec::Precision::kFp64);
  const plan::Plan plan = planFor(choices, model, training);
  const auto expected = runOnGpu(model, plan, 1);
  ASSERT_TRUE(expected.has_value()) << expected.error().message();
  for (const program::Stream stream : streams) {
    const Mutation dropWaits = [stream](program::Program& program) {
      for (program::Role& role : program.roles) {
        const program::EventRef never{role.numEvents++, false};
        for (program::Body& body : role.bodies)
          for (program::Instruction& i : body.instructions)
            if (i.kind == program::InstructionKind::kWait && i.stream == stream) i.event = never;
      }
    };
    bool seen = false;
    for (uint64_t seed = 1; seed <= 40 && !seen; ++seed) {
      const auto actual = runOnGpu(model, plan, 1, seed, dropWaits);
      ASSERT_TRUE(actual.has_value()) << actual.error().message();
      seen = expected->losses != actual->losses ||
             !compareTensors(expected->firstGradients, actual->firstGradients, {}).empty() ||
             !compareTensors(expected->parameters, actual->parameters, {}).empty();
    }
    EXPECT_TRUE(seen) << program::streamName(stream);
  }
}

TEST(VirtualRanks, NeedTheWaitsOfTheirMessages) {
  Choices c;
  c.pp = 2;
  expectNeedOfWaits(c, {program::Stream::kSendForward, program::Stream::kCompute});
}

// The compute stream's wait for the last of them is behind so much other work that no order by
// chance shows it; the verifier does.
TEST(VirtualRanks, NeedTheWaitsOfTheirReductions) {
  Choices c;
  c.dp = 2;
  c.overlapReductions = true;
  expectNeedOfWaits(c, {program::Stream::kDpReduce});
}

TEST(VirtualRanks, NeedTheWaitsOfWhatTheyReduceBesideGradients) {
  Choices c;
  c.tp = 2;
  c.overlapReductions = true;
  expectNeedOfWaits(c, {program::Stream::kTpReduce, program::Stream::kCompute});
  c.sequenceParallel = true;
  expectNeedOfWaits(c, {program::Stream::kTpReduce, program::Stream::kCompute});
}

// Looks at the GPU at the end of every step, when the session asks for the data's identity.
class WatchedData final : public SyntheticData {
 public:
  WatchedData(int64_t vocabSize, const EmulatedGpu& gpu) : SyntheticData(vocabSize), gpu_(gpu) {}
  std::string identity() const override {
    creations.push_back(gpu_.numCreations());
    synchronizations.push_back(gpu_.numSynchronizations());
    return {};
  }
  mutable std::vector<int64_t> creations, synchronizations;

 private:
  const EmulatedGpu& gpu_;
};

// Nothing within a step waits for the GPU: its end is asked for, then its loss and its norm are
// fetched.
TEST(GpuRank, AllocatesNothingAfterTheFirstStepAndWaitsOnlyAtTheEndOfEach) {
  const spec::ModelSpec model = tinyGpt(2);
  const auto training = tinyTraining(spec::Precision::kFp32);
  EmulatedGpu gpu;
  const runtime::cuda::Apis apis = gpu.apis();
  WatchedData data(model.vocabSize, gpu);
  RunOptions options;
  options.steps = 3;
  options.gpu = &apis;
  options.data = &data;
  const auto result = run(model, serialPlan(model, training, 4), options);
  ASSERT_TRUE(result.has_value()) << result.error().message();
  ASSERT_EQ(data.creations.size(), 3u);
  EXPECT_EQ(data.creations[1], data.creations[0]);
  EXPECT_EQ(data.creations[2], data.creations[0]);
  EXPECT_EQ(data.synchronizations[2] - data.synchronizations[1], 2);
}

INSTANTIATE_TEST_SUITE_P(
    All, VirtualRanks, ::testing::ValuesIn(virtualChoices()), [](const auto& info) {
      std::string name = describe(info.param);
      std::replace_if(name.begin(), name.end(), [](char c) { return c == ' ' || c == '-'; }, '_');
      return name;
    });

}  // namespace
}  // namespace trireme::equivalence
