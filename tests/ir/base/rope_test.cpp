#include "ir/base/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

namespace trireme {
namespace {

constexpr RopeScaling kLlama31{RopeScalingKind::kLlama3, 8, 1, 4, 8192};
constexpr RopeScaling kLinear{.kind = RopeScalingKind::kLinear, .factor = 4};
constexpr double kTheta = 500000;

// Nothing but arithmetic, so that a GPU kernel can compute it, and a compiler too.
static_assert(scaledFrequency({}, 0.25) == 0.25);
static_assert(scaledFrequency(kLinear, 0.25) == 0.0625);
static_assert(scaledFrequency(kLlama31, 1) == 1);
static_assert(scaledFrequency(kLlama31, 0x1p-20) == 0x1p-23);

TEST(RopeFrequency, WithoutScalingIsAPowerOfTheta) {
  for (int64_t i = 0; i < 64; ++i)
    EXPECT_NEAR(ropeFrequency(kTheta, {}, 128, i) * std::pow(kTheta, i / 64.0), 1, 1e-13) << i;
}

// Llama 3.1 8B: heads of 128, theta 500000, 8 x 8192. The wavelength of pair i is 2 pi
// 500000^(i/64) tokens:
//   below 8192 / 4 = 2048      i < 64 ln(2048 / 2 pi) / ln 500000 = 28.2   as it is
//   above 8192 / 1 = 8192      i > 64 ln(8192 / 2 pi) / ln 500000 = 34.98  divided by 8
// and in between the share of the unscaled one grows evenly with 8192 / wavelength, from 1 to 4.
TEST(RopeFrequency, Llama31HasThreeRangesOfWavelengths) {
  for (int64_t i = 0; i < 64; ++i) {
    const double wavelength =
        2 * std::numbers::pi * std::exp(static_cast<double>(i) / 64 * std::log(kTheta));
    const double share = (8192 / wavelength - 1) / 3;
    const double stretched = i <= 28 ? 1 : i >= 35 ? 8 : 1 / (share + (1 - share) / 8);
    const double frequency = ropeFrequency(kTheta, kLlama31, 128, i);
    EXPECT_NEAR(frequency * wavelength * stretched, 2 * std::numbers::pi, 1e-12) << i;
  }
}

// LlamaRotaryEmbedding(LlamaConfig(...)).inv_freq of transformers 5.23.0, which computes in f32: of
// Llama 3.1 8B, and of Llama 3.2 1B (heads of 64, 32 x 8192).
TEST(RopeFrequency, IsThatOfTransformers) {
  struct Expected {
    int64_t i;
    double frequency;
  };
  for (const auto [i, frequency] :
       {Expected{0, 1.0}, Expected{1, 8.146172166e-01}, Expected{28, 3.211446106e-03},
        Expected{29, 2.166570630e-03}, Expected{30, 1.371893683e-03}, Expected{31, 8.567514597e-04},
        Expected{32, 5.248460220e-04}, Expected{33, 3.126936499e-04}, Expected{34, 1.785077911e-04},
        Expected{35, 9.556212171e-05}, Expected{63, 3.068925878e-07}})
    EXPECT_NEAR(ropeFrequency(kTheta, kLlama31, 128, i) / frequency, 1, 2e-6) << i;
  RopeScaling llama32 = kLlama31;
  llama32.factor = 32;
  for (const auto [i, frequency] :
       {Expected{0, 1.0}, Expected{13, 4.839421250e-03}, Expected{14, 3.211446106e-03},
        Expected{15, 1.290548011e-03}, Expected{16, 4.295567051e-04}, Expected{17, 9.708286234e-05},
        Expected{18, 1.946163866e-05}, Expected{31, 9.418306490e-08}})
    EXPECT_NEAR(ropeFrequency(kTheta, llama32, 64, i) / frequency, 1, 2e-6) << i;
}

TEST(RopeFrequency, LinearDividesEvery) {
  for (int64_t i = 0; i < 8; ++i)
    EXPECT_EQ(ropeFrequency(100, kLinear, 16, i), ropeFrequency(100, {}, 16, i) / 4);
}

// Each pair turns more slowly than the one before, and by at most the factor more than unscaled: no
// jump where the ranges of llama3 meet.
TEST(RopeFrequency, FallsFromPairToPair) {
  for (const RopeScaling& scaling : {kLinear, kLlama31}) {
    double before = scaledFrequency(scaling, 1);
    for (double frequency = 0.999; frequency > 1e-5; frequency *= 0.999) {
      const double scaled = scaledFrequency(scaling, frequency);
      EXPECT_LT(scaled, before);
      EXPECT_GT(scaled, 0.99 * before);
      EXPECT_LE(scaled, frequency);
      EXPECT_GE(scaled, frequency / scaling.factor);
      before = scaled;
    }
  }
}

TEST(RopeScaling, TextHasTheKeysOfHuggingFace) {
  EXPECT_EQ(ropeScalingText({}), "none");
  EXPECT_EQ(ropeScalingText(kLinear), "{type: linear, factor: 4}");
  EXPECT_EQ(ropeScalingText(kLlama31),
            "{type: llama3, factor: 8, low_freq_factor: 1, high_freq_factor: 4, "
            "original_max_position_embeddings: 8192}");
}

TEST(RopeScaling, KindsHaveNames) {
  for (int kind = 0; kind < kNumRopeScalingKinds; ++kind) {
    const auto value = static_cast<RopeScalingKind>(kind);
    EXPECT_EQ(parseRopeScalingKind(ropeScalingName(value)), value);
  }
  EXPECT_EQ(parseRopeScalingKind("yarn"), std::nullopt);
}

std::string problemOf(const RopeScaling& scaling) {
  const auto problem = findProblem(scaling);
  return problem ? std::string(problem->key) + " " + problem->message : "";
}

TEST(RopeScaling, NumbersThatMakeNoSenseAreNamed) {
  for (const RopeScaling& good : {RopeScaling{}, kLinear, kLlama31}) EXPECT_EQ(problemOf(good), "");
  constexpr auto kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr auto kInfinity = std::numeric_limits<double>::infinity();
  const auto with = [](RopeScaling scaling, auto field, auto value) {
    scaling.*field = value;
    return problemOf(scaling);
  };
  EXPECT_EQ(with(kLinear, &RopeScaling::factor, 0.5), "factor must be at least 1, got 0.5");
  EXPECT_EQ(with(kLlama31, &RopeScaling::factor, kNan), "factor must be at least 1, got nan");
  EXPECT_EQ(with(kLlama31, &RopeScaling::factor, kInfinity), "factor must be at least 1, got inf");
  EXPECT_EQ(with({}, &RopeScaling::factor, 2.0), "factor must be 1 without scaling, got 2");
  EXPECT_EQ(with(kLlama31, &RopeScaling::lowFreqFactor, 0.0),
            "low_freq_factor must be above 0, got 0");
  EXPECT_EQ(with(kLlama31, &RopeScaling::lowFreqFactor, 4.0),
            "high_freq_factor must be above low_freq_factor (4), got 4");
  EXPECT_EQ(with(kLlama31, &RopeScaling::highFreqFactor, kInfinity),
            "high_freq_factor must be above low_freq_factor (1), got inf");
  EXPECT_EQ(with(kLlama31, &RopeScaling::originalSequence, int64_t{0}),
            "original_max_position_embeddings must be 1 to 1073741824, got 0");
  EXPECT_EQ(with(kLinear, &RopeScaling::lowFreqFactor, 1.0),
            "low_freq_factor must be unset but for llama3, got 1");
  EXPECT_EQ(with(kLinear, &RopeScaling::highFreqFactor, 4.0),
            "high_freq_factor must be unset but for llama3, got 4");
  EXPECT_EQ(with({}, &RopeScaling::originalSequence, int64_t{8}),
            "original_max_position_embeddings must be unset but for llama3, got 8");
}

}  // namespace
}  // namespace trireme
