// fp16: a loss whose gradient is scaled trains like one that is not, whatever the plan, and all
// ranks take the same decisions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "tests/equivalence/harness.h"
#include "tests/equivalence/plans.h"
#include "tests/support/training.h"

namespace trireme::equivalence {
namespace {

constexpr double kTooLarge = 0x1p30;

spec::TrainingSpec halfTraining(double initialScale, int64_t window = 2000) {
  spec::TrainingSpec t = tinyTraining(spec::Precision::kFp16);
  t.initialLossScale = initialScale;
  t.lossScaleWindow = window;
  return t;
}

std::vector<Choices> everyForm() {
  std::vector<Choices> all(6);
  all[1].tp = 2;
  all[2].dp = 2, all[2].shardOptimizer = true;
  all[3].pp = 2;
  all[4].tp = all[4].pp = all[4].dp = 2;
  all[5] = all[4], all[5].sequenceParallel = all[5].shardOptimizer = true;
  return all;
}

std::vector<double> scalesOf(const RunResult& result) {
  std::vector<double> scales;
  for (const runtime::ScaledStep& step : result.scaled) scales.push_back(step.lossScale);
  return scales;
}

// The scale is a power of two: gradients in f16 are the same numbers with another exponent, as long
// as they neither overflow nor fall below what f16 has.
TEST(LossScaling, LeavesTheTrainingAsItIs) {
  const spec::ModelSpec model = tinyGpt(2);
  RunOptions options;
  options.steps = 6;
  const auto fp32 = run(model, serialPlan(model, tinyTraining(spec::Precision::kFp32)), options);
  ASSERT_TRUE(fp32.has_value()) << fp32.error().message();
  const auto first = run(model, serialPlan(model, halfTraining(1024)), options);
  ASSERT_TRUE(first.has_value()) << first.error().message();
  EXPECT_EQ(compareLosses(fp32->losses, first->losses, 2e-3), "");
  EXPECT_EQ(compareLosses(fp32->gradNorms, first->gradNorms, 2e-2), "");
  const auto other = run(model, serialPlan(model, halfTraining(4096)), options);
  ASSERT_TRUE(other.has_value()) << other.error().message();
  EXPECT_EQ(compareLosses(first->gradNorms, other->gradNorms, 1e-3), "");
  EXPECT_EQ(scalesOf(*other), std::vector<double>(6, 4096));
}

// Without a scale small gradients fall below 2^-24 and are gone.
TEST(LossScaling, KeepsSmallGradients) {
  const spec::ModelSpec model = tinyGpt(2);
  const auto error = [&](double scale) {
    RunOptions options;
    options.steps = 1;
    const auto exact = run(model, serialPlan(model, tinyTraining(spec::Precision::kFp32)), options);
    spec::TrainingSpec training = halfTraining(scale);
    training.minLossScale = std::min(scale, 1.0);
    const auto half = run(model, serialPlan(model, training), options);
    EXPECT_TRUE(exact.has_value() && half.has_value());
    double sum = 0;
    for (size_t t = 0; t < exact->firstGradients.size(); ++t)
      for (size_t i = 0; i < exact->firstGradients[t].values.size(); ++i)
        sum += std::pow(
            exact->firstGradients[t].values[i] - half->firstGradients[t].values[i] / scale, 2);
    return std::sqrt(sum);
  };
  // A batch has 128 tokens; with 2^-8 its gradients are as small as those of 32,768.
  EXPECT_GT(error(0x1p-8), 4 * error(0x1p10));
}

// The first scales overflow. Every rank of every plan skips the same steps: weights stay, the scale
// halves, and when it fits the training begins, with t = 1.
TEST(LossScaling, AnOverflowIsSkippedByAllRanksOfEveryPlan) {
  const spec::ModelSpec model = tinyGpt(4);
  RunOptions options;
  options.steps = 20;
  const auto expected = run(model, serialPlan(model, halfTraining(kTooLarge)), options);
  ASSERT_TRUE(expected.has_value()) << expected.error().message();
  const std::vector<double> scales = scalesOf(*expected);
  const auto taken = static_cast<size_t>(
      std::find_if(expected->scaled.begin(), expected->scaled.end(),
                   [](const runtime::ScaledStep& step) { return !step.isSkipped; }) -
      expected->scaled.begin());
  ASSERT_GT(taken, 2u);
  ASSERT_LT(taken, 18u);
  for (size_t i = 0; i < scales.size(); ++i) {
    EXPECT_EQ(expected->scaled[i].isSkipped, i < taken) << i;
    EXPECT_EQ(scales[i], std::ldexp(kTooLarge, -static_cast<int>(std::min(i, taken)))) << i;
    EXPECT_EQ(std::isfinite(expected->gradNorms[i]), i >= taken) << i;
    EXPECT_TRUE(std::isfinite(expected->losses[i])) << i;
  }
  EXPECT_EQ(expected->scaled.back().numSkipped, static_cast<int64_t>(taken));
  EXPECT_LT(expected->losses.back(), expected->losses[taken]);

  for (const Choices& choices : everyForm()) {
    const auto actual = run(model, planFor(choices, model, halfTraining(kTooLarge)), options);
    ASSERT_TRUE(actual.has_value()) << actual.error().message();
    EXPECT_EQ(scalesOf(*actual), scales) << describe(choices);
    EXPECT_EQ(compareLosses(expected->losses, actual->losses, 5e-3), "") << describe(choices);
    EXPECT_EQ(actual->scaled.back().numSkipped, expected->scaled.back().numSkipped);
  }
}

TEST(LossScaling, SkippedStepsChangeNoWeight) {
  const spec::ModelSpec model = tinyGpt(2);
  Choices c;
  c.tp = c.pp = c.dp = 2;
  c.shardOptimizer = true;
  RunOptions options;
  const auto weightsAfter = [&](int steps) {
    options.steps = steps;
    auto result = run(model, planFor(c, model, halfTraining(kTooLarge)), options);
    EXPECT_TRUE(result.has_value()) << result.error().message();
    return result->parameters;
  };
  const auto one = weightsAfter(1);
  EXPECT_EQ(compareTensors(one, weightsAfter(3), {}), "");
  EXPECT_NE(compareTensors(one, weightsAfter(20), {}), "");
}

// Windows of 3 good steps: 64 64 64 128 128 128 256 256.
TEST(LossScaling, GrowsAfterAWindowOfGoodSteps) {
  const spec::ModelSpec model = tinyGpt(2);
  Choices c;
  c.tp = c.dp = 2;
  RunOptions options;
  options.steps = 8;
  const auto result = run(model, planFor(c, model, halfTraining(64, 3)), options);
  ASSERT_TRUE(result.has_value()) << result.error().message();
  EXPECT_EQ(scalesOf(*result), (std::vector<double>{64, 64, 64, 128, 128, 128, 256, 256}));
  EXPECT_EQ(result->scaled.back().numSkipped, 0);
}

class Resume : public ::testing::Test {
 protected:
  ~Resume() override { std::filesystem::remove(path_); }

  std::unique_ptr<runtime::Session> session(const Choices& choices,
                                            const spec::TrainingSpec& training) {
    auto bundle = makeBundle(model_, planFor(choices, model_, training));
    EXPECT_TRUE(bundle.has_value()) << bundle.error().message();
    auto opened = runtime::Session::create(std::move(*bundle), {});
    EXPECT_TRUE(opened.has_value()) << opened.error().message();
    return std::move(*opened);
  }
  std::vector<runtime::ScaledStep> train(runtime::Session& session, int steps) {
    SyntheticData data(model_.vocabSize);
    std::vector<runtime::ScaledStep> scaled;
    for (int i = 0; i < steps; ++i) {
      const auto step = session.step(data);
      EXPECT_TRUE(step.has_value()) << step.error().message();
      if (step->scaled) scaled.push_back(*step->scaled);
    }
    return scaled;
  }

  const spec::ModelSpec model_ = tinyGpt(2);
  // The tests run at once, in processes of their own.
  const std::string path_ = ::testing::TempDir() + "loss_scaling_" +
                            ::testing::UnitTest::GetInstance()->current_test_info()->name() +
                            ".safetensors";
};

// Saved in the middle of a window, after skipped steps.
TEST_F(Resume, ContinuesBitForBit) {
  const spec::TrainingSpec training = halfTraining(0x1p24, 5);
  Choices c;
  c.tp = c.pp = 2;
  const auto straight = session(c, training), first = session(c, training);
  const auto all = train(*straight, 20);
  train(*first, 13);
  ASSERT_TRUE(first->saveCheckpoint(path_).ok());
  const auto second = session(c, training);
  ASSERT_EQ(second->loadCheckpoint(path_).message(), "");
  const auto rest = train(*second, 7);
  ASSERT_GT(all[12].numSkipped, 0);
  for (size_t i = 0; i < rest.size(); ++i) {
    EXPECT_EQ(rest[i].lossScale, all[13 + i].lossScale) << i;
    EXPECT_EQ(rest[i].numSkipped, all[13 + i].numSkipped) << i;
  }
  // A window ends in between.
  EXPECT_TRUE(std::any_of(rest.begin(), rest.end(), [&](const runtime::ScaledStep& step) {
    return step.lossScale != rest.front().lossScale;
  }));
  EXPECT_EQ(compareTensors(straight->gatherParameters(), second->gatherParameters(), {}), "");
}

TEST_F(Resume, UnderAnotherPlanHasTheSameScale) {
  const spec::TrainingSpec training = halfTraining(0x1p24, 5);
  Choices c;
  c.tp = c.pp = 2;
  const auto first = session(c, training);
  const auto before = train(*first, 13);
  ASSERT_TRUE(first->saveCheckpoint(path_).ok());
  Choices other;
  other.dp = 4;
  other.shardOptimizer = true;
  const auto second = session(other, training);
  ASSERT_EQ(second->loadCheckpoint(path_).message(), "");
  EXPECT_EQ(compareTensors(first->gatherParameters(), second->gatherParameters(), {}), "");
  const auto a = train(*first, 3), b = train(*second, 3);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].lossScale, b[i].lossScale);
    EXPECT_EQ(a[i].numSkipped, b[i].numSkipped);
  }
}

// The stages of a replica next to each other, or the replicas of a stage: every rank but the first
// and the last holds something else, and what follows is the same.
TEST_F(Resume, UnderAnotherRankOrderIsTheSameRun) {
  const spec::TrainingSpec training = tinyTraining(spec::Precision::kFp32);
  for (const bool shards : {false, true}) {
    Choices c;
    c.pp = c.dp = 2;
    c.shardOptimizer = shards;
    Choices reordered = c;
    reordered.rankOrder = plan::RankOrder::kTpCpPpDp;
    for (const auto& [from, to] : {std::pair{c, reordered}, std::pair{reordered, c}}) {
      const auto first = session(from, training), second = session(to, training);
      train(*first, 3);
      ASSERT_TRUE(first->saveCheckpoint(path_).ok());
      ASSERT_EQ(second->loadCheckpoint(path_).message(), "");
      train(*first, 2);
      train(*second, 2);
      EXPECT_EQ(compareTensors(first->gatherParameters(), second->gatherParameters(), {}), "");
    }
  }
}

// Of a run in another precision there is no scale.
TEST_F(Resume, OfAnotherPrecisionBeginsWithTheInitialScale) {
  const auto first = session({}, tinyTraining(spec::Precision::kFp32));
  train(*first, 2);
  ASSERT_TRUE(first->saveCheckpoint(path_).ok());
  const auto second = session({}, halfTraining(512));
  ASSERT_EQ(second->loadCheckpoint(path_).message(), "");
  EXPECT_EQ(train(*second, 1).front().lossScale, 512);
  const auto third = session({}, tinyTraining(spec::Precision::kFp32));
  ASSERT_TRUE(second->saveCheckpoint(path_).ok());
  EXPECT_EQ(third->loadCheckpoint(path_).message(), "");
}

}  // namespace
}  // namespace trireme::equivalence
