#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ir/spec/load.h"
#include "tests/ir/spec/spec_test_util.h"

namespace trireme::spec {
namespace {
using ::testing::HasSubstr;

Result<TrainingSpec> trainingFrom(const std::string& text) { return parseTraining(text, "t.yaml"); }
std::string refusalOfTraining(const std::string& text) { return messageOf(trainingFrom(text)); }

TEST(ParseTraining, SequenceLengthAndBatchMayComeFromTheCommandLine) {
  const TrainingSpec t = trainingFrom("precision: bf16\n").value();
  EXPECT_EQ(t.precision, Precision::kBf16);
  EXPECT_EQ(t.sequenceLength, 0);
  EXPECT_EQ(t.globalBatchSize, 0);
  EXPECT_THAT(refusalOfTraining("sequence_length: 0\n"),
              HasSubstr("t.yaml:1:18: sequence_length: must be at least 1 (left out it is a flag"));
}

TEST(ParseTraining, WithoutPrecisionItIsTheUsualOne) {
  EXPECT_EQ(parseTraining("seed: 1\n", "t.yaml", Precision::kBf16)->precision, Precision::kBf16);
  EXPECT_EQ(parseTraining("precision: fp32\n", "t.yaml", Precision::kBf16)->precision,
            Precision::kFp32);
  // The loss is scaled where fp16 is usual.
  EXPECT_EQ(parseTraining("min_loss_scale: 2\n", "t.yaml", Precision::kFp16)->minLossScale, 2);
  EXPECT_EQ(messageOf(parseTraining("min_loss_scale: 2\n", "t.yaml", Precision::kBf16)),
            "t.yaml:1:17: min_loss_scale: the loss is scaled in fp16 only, and precision is bf16");
}

TEST(ParseTraining, NamesTheNearestKey) {
  EXPECT_EQ(refusalOfTraining("seed: 1\nlearnin_rate: 1e-3\n"),
            "t.yaml:2:1: unknown key 'learnin_rate'; did you mean 'learning_rate'?");
  EXPECT_EQ(refusalOfTraining("precision: bf32\n"),
            "t.yaml:1:12: precision: unknown value 'bf32'; did you mean 'fp32'?");
}

// fp8 is a format of products: tensors stay bf16.
TEST(ParseTraining, EveryPrecisionHasItsTypes) {
  struct Case {
    const char* name;
    DType compute, state;
    MathFormat linear;
  };
  for (const Case& c : {Case{"fp64", DType::kF64, DType::kF64, MathFormat::kF64},
                        Case{"fp32", DType::kF32, DType::kF32, MathFormat::kF32},
                        Case{"bf16", DType::kBf16, DType::kF32, MathFormat::kBf16},
                        Case{"fp16", DType::kF16, DType::kF32, MathFormat::kF16},
                        Case{"fp8", DType::kBf16, DType::kF32, MathFormat::kF8}}) {
    const TrainingSpec t = trainingFrom(std::string("precision: ") + c.name + "\n").value();
    EXPECT_EQ(precisionName(t.precision), c.name);
    EXPECT_EQ(computeDType(t.precision), c.compute) << c.name;
    EXPECT_EQ(stateDType(t.precision), c.state) << c.name;
    EXPECT_EQ(linearFormat(t), c.linear) << c.name;
    EXPECT_EQ(trainingFrom(printTraining(t)).value(), t);
  }
}

TEST(ParseTraining, SeedHas64Bits) {
  EXPECT_EQ(trainingFrom("seed: 18446744073709551615\n")->seed,
            std::numeric_limits<uint64_t>::max());
  EXPECT_THAT(refusalOfTraining("seed: -1\n"),
              HasSubstr("expected a whole number that is not negative"));
  EXPECT_THAT(refusalOfTraining("seed: 18446744073709551616\n"), HasSubstr("out of range"));
}

TEST(ParseTraining, T1SizesAreNotNegative) {
  EXPECT_THAT(refusalOfTraining("global_batch_size: -4\n"),
              HasSubstr("t.yaml:1:20: global_batch_size: must be 0 to 1073741824, got -4"));
}

TEST(ParseTraining, T2ProbabilitiesAreBelowOne) {
  for (const char* key :
       {"embedding_dropout", "attention_dropout", "residual_dropout", "beta1", "beta2"}) {
    EXPECT_THAT(refusalOfTraining(std::string(key) + ": 1\n"),
                HasSubstr("must be at least 0 and below 1, got 1"));
    EXPECT_THAT(refusalOfTraining(std::string(key) + ": -0.1\n"),
                HasSubstr(std::string(key) + ": must be"));
    EXPECT_TRUE(trainingFrom(std::string(key) + ": 0\n").has_value());
  }
}

TEST(ParseTraining, T3LearningRatesAreOrdered) {
  EXPECT_THAT(refusalOfTraining("learning_rate: 0\n"), HasSubstr("learning_rate: must be above 0"));
  EXPECT_THAT(
      refusalOfTraining("learning_rate: 1e-3\nmin_learning_rate: 2e-3\n"),
      HasSubstr(
          "t.yaml:2:20: min_learning_rate: must not exceed learning_rate (0.001), got 0.002"));
}

TEST(ParseTraining, T4StepsAreNotNegative) {
  EXPECT_THAT(refusalOfTraining("warmup_steps: -1\n"), HasSubstr("warmup_steps: must be 0 to"));
  EXPECT_THAT(refusalOfTraining("decay_steps: -1\n"), HasSubstr("decay_steps: must be 0 to"));
}

TEST(ParseTraining, T5OptimizerConstantsAreInRange) {
  EXPECT_THAT(refusalOfTraining("epsilon: 0\n"), HasSubstr("epsilon: must be above 0"));
  for (const char* precision : {"fp32", "bf16"})
    for (const char* none : {"1e-50", "1e-38", "1e39"})
      EXPECT_THAT(
          refusalOfTraining(fmt::format("precision: {}\nepsilon: {}\n", precision, none)),
          HasSubstr("epsilon: must be 1.1754944e-38 to 3.4028235e+38, the normal numbers of the "
                    "optimizer's state (f32), got 1e"));
  EXPECT_TRUE(trainingFrom("precision: fp32\nepsilon: 1.2e-38\n").has_value());
  EXPECT_TRUE(trainingFrom("precision: fp64\nepsilon: 1e-50\n").has_value());
  EXPECT_THAT(refusalOfTraining("precision: fp64\nepsilon: 1e-310\n"),
              HasSubstr("epsilon: must be 2.2250739e-308 to 1.7976931e+308"));
  EXPECT_THAT(refusalOfTraining("weight_decay: -1\n"),
              HasSubstr("weight_decay: must not be negative"));
  EXPECT_THAT(refusalOfTraining("clip_norm: -1\n"), HasSubstr("clip_norm: must not be negative"));
  EXPECT_TRUE(trainingFrom("clip_norm: 0\n").has_value());
}

TEST(ParseTraining, T6Tf32NeedsFp32) {
  const TrainingSpec t = trainingFrom("tf32: true\n").value();
  EXPECT_TRUE(t.tf32);
  EXPECT_EQ(linearFormat(t), MathFormat::kTf32);
  EXPECT_EQ(precisionText(t), "fp32 with tf32");
  EXPECT_EQ(trainingFrom(printTraining(t)).value(), t);
  for (const char* precision : {"fp64", "bf16", "fp16", "fp8"}) {
    const std::string text = std::string("precision: ") + precision + "\n";
    EXPECT_EQ(refusalOfTraining(text + "tf32: true\n"),
              "t.yaml:2:7: tf32: rounds factors in fp32: it needs precision fp32");
    EXPECT_TRUE(trainingFrom(text + "tf32: false\n").has_value());
  }
}

TEST(ParseTraining, T7LossScalesAreThoseOfFp16) {
  const TrainingSpec t = trainingFrom("precision: fp16\n").value();
  EXPECT_EQ(t.initialLossScale, 65536);
  EXPECT_EQ(t.lossScaleWindow, 2000);
  EXPECT_EQ(t.minLossScale, 1);
  const TrainingSpec own = trainingFrom(
                               "precision: fp16\ninitial_loss_scale: 1024.5\n"
                               "loss_scale_window: 7\nmin_loss_scale: 0.25\n")
                               .value();
  EXPECT_EQ(own.initialLossScale, 1024.5);
  EXPECT_EQ(own.lossScaleWindow, 7);
  EXPECT_EQ(own.minLossScale, 0.25);
  EXPECT_EQ(trainingFrom(printTraining(own)).value(), own);
  for (const char* line :
       {"initial_loss_scale: 2\n", "loss_scale_window: 5\n", "min_loss_scale: 2\n"})
    EXPECT_THAT(refusalOfTraining(std::string("precision: bf16\n") + line),
                HasSubstr("the loss is scaled in fp16 only, and precision is bf16"));
  EXPECT_THAT(refusalOfTraining("precision: fp16\nmin_loss_scale: 0\n"),
              HasSubstr("min_loss_scale: must be above 0, got 0"));
  // Its inverse, by which gradients are multiplied, would be infinite.
  EXPECT_THAT(
      refusalOfTraining("precision: fp16\nmin_loss_scale: 1e-39\ninitial_loss_scale: 1e-39\n"),
      HasSubstr("min_loss_scale: must be at least 1.1754944e-38, the least normal number of f32"));
  EXPECT_THAT(refusalOfTraining("precision: fp16\ninitial_loss_scale: 0.5\n"),
              HasSubstr("initial_loss_scale: must be min_loss_scale (1) to 2^126, got 0.5"));
  EXPECT_THAT(refusalOfTraining("precision: fp16\ninitial_loss_scale: 1e39\n"),
              HasSubstr("to 2^126"));
  EXPECT_THAT(refusalOfTraining("precision: fp16\nloss_scale_window: 0\n"),
              HasSubstr("loss_scale_window: must be 1 to"));
}

TEST(PrintTraining, RoundTripsExactly) {
  TrainingSpec t;
  EXPECT_EQ(trainingFrom(printTraining(t)).value(), t);
  t = {.precision = Precision::kFp64,
       .seed = 1u << 31,
       .sequenceLength = 7,
       .globalBatchSize = 3,
       .embeddingDropout = 0.1 + 0.2,
       .attentionDropout = 1.0 / 3,
       .residualDropout = 5e-324,
       .learningRate = 0.1,
       .minLearningRate = 1e-17,
       .warmupSteps = 5,
       .decaySteps = 1'000'000,
       .beta1 = 0.123,
       .beta2 = 0.999,
       .epsilon = 1e-300,
       .weightDecay = 0,
       .clipNorm = 1e20};
  const Result<TrainingSpec> again = trainingFrom(printTraining(t));
  ASSERT_TRUE(again.has_value()) << messageOf(again);
  EXPECT_EQ(*again, t);
}

TEST(VerifyTraining, SequenceMustFitTheModel) {
  ModelSpec model;
  model.maxSequence = 16;
  TrainingSpec t;
  EXPECT_THAT(messageOf(verifyTraining(t, model)), HasSubstr("sequence_length: not given"));
  t.sequenceLength = 17;
  EXPECT_THAT(messageOf(verifyTraining(t, model)), HasSubstr("global_batch_size: not given"));
  t.globalBatchSize = 1;
  EXPECT_EQ(messageOf(verifyTraining(t, model)),
            "sequence_length: 17 exceeds the model's max_sequence (16); nearest: 16, or a copy of "
            "the model with a longer one");
  t.sequenceLength = 16;
  EXPECT_TRUE(verifyTraining(t, model).ok());
  t.beta1 = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(messageOf(verifyTraining(t, model)),
              HasSubstr("beta1: must be at least 0 and below 1, got nan"));
}

TEST(VerifyTraining, ALongerModelOfTheSameShapeIsNamed) {
  TrainingSpec t;
  t.globalBatchSize = 1;
  t.sequenceLength = 8193;
  EXPECT_THAT(messageOf(verifyTraining(t, *loadModel("llama3-8b"))),
              HasSubstr("(8192); nearest: 8192, or model llama3.1-8b, of the same shape"));
}

// Warm-up of 4 from 0: 1/4, 2/4, 3/4, 4/4 of 1.0. Then a cosine from 1.0 to 0.2 over 8 steps: the
// first step after the warm-up is 1.0, the middle is 0.6, and from the eighth on it stays at 0.2.
TEST(LearningRate, WarmsUpDecaysAndStays) {
  TrainingSpec t;
  t.learningRate = 1.0;
  t.minLearningRate = 0.2;
  t.warmupSteps = 4;
  t.decaySteps = 8;
  EXPECT_DOUBLE_EQ(t.learningRateAt(0), 0.25);
  EXPECT_DOUBLE_EQ(t.learningRateAt(2), 0.75);
  EXPECT_DOUBLE_EQ(t.learningRateAt(3), 1.0);
  EXPECT_DOUBLE_EQ(t.learningRateAt(4), 1.0);
  EXPECT_NEAR(t.learningRateAt(6), 0.2 + 0.4 * (1 + std::sqrt(0.5)), 1e-15);
  EXPECT_NEAR(t.learningRateAt(8), 0.6, 1e-15);
  EXPECT_DOUBLE_EQ(t.learningRateAt(12), 0.2);
  EXPECT_DOUBLE_EQ(t.learningRateAt(16), 0.2);  // a cosine that went on would be back at 0.6
  EXPECT_DOUBLE_EQ(t.learningRateAt(1'000'000), 0.2);
}

TEST(LearningRate, IsConstantWithoutDecay) {
  TrainingSpec t;
  t.learningRate = 0.5;
  EXPECT_EQ(t.learningRateAt(0), 0.5);
  EXPECT_EQ(t.learningRateAt(12345), 0.5);
}

}  // namespace
}  // namespace trireme::spec
