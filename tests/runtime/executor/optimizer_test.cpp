#include "runtime/executor/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ir/base/rng.h"
#include "runtime/kernels/bf16.h"
#include "runtime/kernels/thread_pool.h"

namespace trireme::runtime {
namespace {

double draw(uint64_t tensor, uint64_t i) { return randomNormal({3, 4}, tensor, i); }

// The textbook, one element at a time in double.
struct Scalar {
  double p, m = 0, v = 0;
  void step(const AdamWStep& s, double weightDecay, double gradient) {
    const double g = s.gradientScale * gradient;
    m = s.beta1 * m + (1 - s.beta1) * g;
    v = s.beta2 * v + (1 - s.beta2) * g * g;
    const double mHat = m / (1 - std::pow(s.beta1, static_cast<double>(s.number)));
    const double vHat = v / (1 - std::pow(s.beta2, static_cast<double>(s.number)));
    p -= s.learningRate * (mHat / (std::sqrt(vHat) + s.epsilon) + weightDecay * p);
  }
};

AdamWStep stepNumber(int64_t number) {
  AdamWStep step{0.01, 0.9, 0.95, 1e-8, 0.7, number};
  return step;
}

template <typename S>
struct State {
  std::vector<S> master, gradient, moment1, moment2;
  explicit State(size_t n) : master(n), gradient(n), moment1(n), moment2(n) {
    for (size_t i = 0; i < n; ++i) master[i] = static_cast<S>(draw(0, i));
  }
  AdamWArrays arrays(DType type, int64_t begin, int64_t end) {
    AdamWArrays a;
    a.stateType = a.computeType = type;
    a.parameter = a.master = master.data() + begin;
    a.gradient = gradient.data() + begin;
    a.moment1 = moment1.data() + begin;
    a.moment2 = moment2.data() + begin;
    a.elements = end - begin;
    a.weightDecay = 0.1;
    return a;
  }
};

template <typename S>
void compareWithScalar(DType type, double tolerance) {
  constexpr int64_t kCount = 70001;  // several pieces, and a tail
  State<S> state(kCount);
  std::vector<Scalar> scalars;
  for (S p : state.master) scalars.push_back({static_cast<double>(p)});
  ThreadPool pool(2);
  for (int64_t number = 1; number <= 5; ++number) {
    for (size_t i = 0; i < kCount; ++i) {
      state.gradient[i] = static_cast<S>(draw(static_cast<uint64_t>(number), i));
      scalars[i].step(stepNumber(number), 0.1, static_cast<double>(state.gradient[i]));
    }
    ASSERT_TRUE(adamW(stepNumber(number), state.arrays(type, 0, kCount), pool).ok());
  }
  for (size_t i = 0; i < kCount; ++i)
    ASSERT_NEAR(state.master[i], scalars[i].p, tolerance * (1 + std::abs(scalars[i].p))) << i;
}

TEST(AdamW, MatchesTheTextbookInDouble) { compareWithScalar<double>(DType::kF64, 1e-14); }
TEST(AdamW, MatchesTheTextbookInFloat) { compareWithScalar<float>(DType::kF32, 2e-6); }

// Whatever the cuts, hence whatever lies in a vector's body or in its tail: the same bits.
TEST(AdamW, IsBitwiseTheSameHoweverTheBucketIsCut) {
  constexpr int64_t kCount = 1013;
  ThreadPool pool(1);
  State<float> whole(kCount), cut(kCount);
  for (size_t i = 0; i < kCount; ++i)
    whole.gradient[i] = cut.gradient[i] = static_cast<float>(draw(1, i));
  for (int64_t number = 1; number <= 3; ++number) {
    ASSERT_TRUE(adamW(stepNumber(number), whole.arrays(DType::kF32, 0, kCount), pool).ok());
    for (int64_t at = 0, piece = 1; at < kCount; at += piece++)
      ASSERT_TRUE(
          adamW(stepNumber(number), cut.arrays(DType::kF32, at, std::min(kCount, at + piece)), pool)
              .ok());
  }
  EXPECT_EQ(0, std::memcmp(whole.master.data(), cut.master.data(), kCount * sizeof(float)));
  EXPECT_EQ(0, std::memcmp(whole.moment2.data(), cut.moment2.data(), kCount * sizeof(float)));
}

TEST(AdamW, ABf16ParameterIsItsMasterRoundedToNearestEven) {
  constexpr int64_t kCount = 517;
  ThreadPool pool(1);
  State<float> state(kCount);
  std::vector<Bf16> parameter(kCount);
  AdamWArrays arrays = state.arrays(DType::kF32, 0, kCount);
  arrays.computeType = DType::kBf16;
  arrays.parameter = parameter.data();
  AdamWStep still = stepNumber(1);
  still.learningRate = 0;         // masters stay
  state.master[0] = 1.00390625f;  // 1 + 2^-8: halfway between 1 and 1 + 2^-7; even is 1
  state.master[1] = 1.01171875f;  // 1 + 3 2^-8: halfway; even is 1 + 2^-6
  ASSERT_TRUE(adamW(still, arrays, pool).ok());
  EXPECT_EQ(toFloat(parameter[0]), 1.0f);
  EXPECT_EQ(toFloat(parameter[1]), 1.015625f);
  for (size_t i = 0; i < kCount; ++i) EXPECT_EQ(parameter[i].bits, toBf16(state.master[i]).bits);
}

// Of several blocks with a tail, at addresses that vectors are aligned to and others.
TEST(AdamW, EveryRoundedParameterArrivesAndNothingBesideThem) {
  constexpr size_t kCount = 70'003, kGuard = 16;
  const Bf16 untouched = toBf16(-77.0f);
  for (const size_t first : {kGuard, kGuard + 1}) {
    ThreadPool pool(2);
    State<float> state(kCount);
    std::vector<Bf16> parameter(kCount + 2 * kGuard, untouched);
    AdamWArrays arrays = state.arrays(DType::kF32, 0, kCount);
    arrays.computeType = DType::kBf16;
    arrays.parameter = parameter.data() + first;
    ASSERT_TRUE(adamW(stepNumber(1), arrays, pool).ok());
    for (size_t i = 0; i < parameter.size(); ++i) {
      const bool isParameter = i >= first && i < first + kCount;
      const Bf16 expected = isParameter ? toBf16(state.master[i - first]) : untouched;
      ASSERT_EQ(parameter[i].bits, expected.bits) << i;
    }
  }
}

TEST(AdamW, OtherTypesAreRefused) {
  ThreadPool pool(1);
  State<float> state(4);
  AdamWArrays arrays = state.arrays(DType::kBf16, 0, 4);
  EXPECT_EQ(adamW(stepNumber(1), arrays, pool).code(), StatusCode::kInvalidArgument);
}

// Peak 1, floor 0.2, 4 steps up, 8 down: 1/4, 2/4, 3/4, 1; then 0.2 + 0.8 (1 + cos(pi i / 8)) / 2.
TEST(LearningRate, RisesLinearlyFallsAsACosineAndStays) {
  program::Training t;
  t.learningRate = 1, t.minLearningRate = 0.2, t.warmupSteps = 4, t.decaySteps = 8;
  EXPECT_DOUBLE_EQ(learningRateAt(t, 0), 0.25);
  EXPECT_DOUBLE_EQ(learningRateAt(t, 3), 1);
  EXPECT_DOUBLE_EQ(learningRateAt(t, 4), 1);
  EXPECT_DOUBLE_EQ(learningRateAt(t, 8), 0.6);
  EXPECT_DOUBLE_EQ(learningRateAt(t, 12), 0.2);
  EXPECT_DOUBLE_EQ(learningRateAt(t, 99), 0.2);
  t.decaySteps = 0;
  EXPECT_DOUBLE_EQ(learningRateAt(t, 99), 1);
}

TEST(Clipping, ScalesDownToTheLimitAndNeverUp) {
  EXPECT_DOUBLE_EQ(clipCoefficient(1, 3), 1 / (3 + 1e-6));
  EXPECT_EQ(clipCoefficient(1, 0.5), 1);
  EXPECT_EQ(clipCoefficient(0, 1e30), 1);
  EXPECT_TRUE(std::isnan(clipCoefficient(1, std::nan(""))));
}

template <typename T>
void expectPlainSums(DType type) {
  for (const int64_t count : {0, 1, 15, 16, 17, 31, 32, 33, 47, 63, 64, 65, 1000}) {
    std::vector<T> data;
    double expected = 0;
    for (int64_t i = 0; i < count; ++i) {
      data.push_back(static_cast<T>(draw(2, static_cast<uint64_t>(i))));
      expected += static_cast<double>(data.back()) * static_cast<double>(data.back());
    }
    EXPECT_NEAR(sumOfSquares(type, data.data(), count), expected, 1e-12 * (1 + expected)) << count;
  }
}
TEST(SumOfSquares, MatchesPlainSummation) {
  expectPlainSums<float>(DType::kF32);
  expectPlainSums<double>(DType::kF64);
}

}  // namespace
}  // namespace trireme::runtime
