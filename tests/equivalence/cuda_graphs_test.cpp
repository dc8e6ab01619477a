// Segments as CUDA graphs, in whole trainings on the emulated GPU: the same bits with fewer
// launches, and failures that are named as before.
#include <gmock/gmock.h>

#include "tests/equivalence/harness.h"
#include "tests/equivalence/plans.h"
#include "tests/support/emulated_gpu.h"

namespace trireme::equivalence {
namespace {

using ::testing::ContainsRegex;
using testing::EmulatedGpu;
using ::testing::HasSubstr;

struct Trained {
  RunResult result;
  int64_t numLaunches = 0, numSubmissions = 0;
};

// With dropout, and several microbatches for each buffer slot.
struct GraphTraining {
  spec::ModelSpec model = tinyGpt(4);
  Choices choices;
  bool compiled = TRIREME_HAVE_MLIR;
};

Trained train(const GraphTraining& training, int steps, bool graphs) {
  EmulatedGpu gpu;
  const runtime::cuda::Apis apis = gpu.apis();
  RunOptions options;
  options.steps = steps;
  options.gpu = &apis;
  options.cudaGraphs = graphs;
  options.compiled = training.compiled;
  const auto settings = tinyTraining(spec::Precision::kFp32);
  const auto result =
      run(training.model, planFor(training.choices, training.model, settings), options);
  EXPECT_TRUE(result.has_value()) << result.error().message();
  EXPECT_EQ(gpu.faults(), std::vector<std::string>());
  EXPECT_EQ(gpu.numLiveObjects(), 0);
  return {result.has_value() ? *result : RunResult(), gpu.numLaunches(), gpu.numSubmissions()};
}

// The run that fails, and how. What was left on the GPU is `numLive`.
Status failure(const testing::EmulatedGpuOptions& emulation, int64_t* numLive = nullptr) {
  EmulatedGpu gpu(emulation);
  const runtime::cuda::Apis apis = gpu.apis();
  RunOptions options;
  options.steps = 2;
  options.gpu = &apis;
  options.compiled = false;
  options.timeoutSeconds = 0.5;
  const GraphTraining training;
  const auto settings = tinyTraining(spec::Precision::kFp32);
  const auto result =
      run(training.model, planFor(training.choices, training.model, settings), options);
  EXPECT_EQ(gpu.faults(), std::vector<std::string>());
  if (numLive != nullptr) *numLive = gpu.numLiveObjects();
  return result.has_value() ? Status() : result.error();
}

// Keys change with every step, the first sample with every microbatch: graphs that kept those of
// their capture would drop other elements.
TEST(CudaGraphs, TrainAsSingleLaunchesToTheLastBit) {
  std::vector<GraphTraining> all(4);
  all[1].model = tinyLlama(4);
  all[1].choices.recompute = plan::Recompute::kFull;
  Choices& many = all[2].choices;
  many.tp = many.pp = many.dp = many.virtualStages = 2;
  many.schedule = plan::ScheduleKind::kInterleaved;
  many.sequenceParallel = many.shardOptimizer = true;
  all[3].choices = {.pp = 2, .schedule = plan::ScheduleKind::kZeroBubbleH1};
  if (TRIREME_HAVE_MLIR) all.push_back({tinyGpt(4), {}, false});
  for (const GraphTraining& training : all) {
    const Trained graphs = train(training, 4, true), single = train(training, 4, false);
    EXPECT_EQ(graphs.result.losses, single.result.losses);
    EXPECT_EQ(graphs.result.gradNorms, single.result.gradNorms);
    EXPECT_EQ(compareTensors(graphs.result.parameters, single.result.parameters, {}), "");
    EXPECT_EQ(graphs.numLaunches, single.numLaunches);
    EXPECT_LT(graphs.numSubmissions, single.numSubmissions);
  }
}

// After the first step every call of a segment with enough launches is one. Of the 4 layers,
// forward and backward, and of what is before and behind them, nothing else is left in a step
// but the optimizer: without graphs there are more than 4 times as many submissions.
TEST(CudaGraphs, TakeTheLaunchesFromTheHost) {
  GraphTraining training;
  training.compiled = false;
  const auto perStep = [&](bool graphs) {
    return train(training, 3, graphs).numSubmissions - train(training, 2, graphs).numSubmissions;
  };
  const int64_t graphs = perStep(true), single = perStep(false);
  RecordProperty("graphs", std::to_string(graphs));
  RecordProperty("single", std::to_string(single));
  EXPECT_LT(4 * graphs, single);
}

// A kernel in a graph that never ends, a graph that is refused, a capture that is lost: step, rank
// and instruction or segment are named. Nothing is given back by a GPU that hangs, all else is.
TEST(CudaGraphs, FailuresAreNamed) {
  const GraphTraining training{tinyGpt(4), {}, false};
  const Trained first = train(training, 1, true);
  int64_t numLive = 0;
  const Status hang = failure({.hangsAtLaunch = first.numLaunches + 20}, &numLive);
  EXPECT_EQ(hang.code(), StatusCode::kUnavailable);
  EXPECT_THAT(hang.message(), ContainsRegex("step 2, rank 0: .*instruction.*layer"));
  EXPECT_THAT(hang.message(), HasSubstr("the device has not completed it in 0.5 s"));
  EXPECT_GT(numLive, 0);

  const Status refused = failure({.refusesSubmission = first.numSubmissions + 2}, &numLive);
  EXPECT_EQ(refused.code(), StatusCode::kInternal);
  EXPECT_THAT(refused.message(), ContainsRegex("step 2, rank 0: .*instruction.*layer"));
  EXPECT_THAT(refused.message(), HasSubstr("launching a graph"));
  EXPECT_EQ(numLive, 0);

  const Status lost = failure({.losesCaptures = true}, &numLive);
  EXPECT_EQ(lost.code(), StatusCode::kInternal);
  EXPECT_THAT(lost.message(), ContainsRegex("step 1, rank 0: .*segment .* as a CUDA graph"));
  EXPECT_THAT(lost.message(), HasSubstr("capturing a graph"));
  EXPECT_EQ(numLive, 0);
}

}  // namespace
}  // namespace trireme::equivalence
