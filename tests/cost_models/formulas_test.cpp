#include "cost_models/formulas.h"

#include <gtest/gtest.h>

#include "tests/cost_models/small_specs.h"

namespace trireme::cost {
namespace {

// Narayanan et al., SC 2021 (arXiv 2104.04473), Table 1: V = 51,200, s = 2,048. The billions of
// parameters and TFLOP/s per GPU are printed there; the seconds are Eq. 3 over the printed rates.
struct Table1Row {
  double billions;
  double hidden, layers, gpus, batch, teraflops, seconds;
};
constexpr Table1Row kTable1[] = {
    {1.7, 2304, 24, 32, 512, 137, 3.53},        {3.6, 3072, 30, 64, 512, 138, 3.70},
    {7.5, 4096, 36, 128, 512, 142, 3.70},       {18.4, 6144, 40, 256, 1024, 135, 9.40},
    {39.1, 8192, 48, 512, 1536, 138, 14.45},    {76.1, 10240, 60, 1024, 1792, 140, 16.06},
    {145.6, 12288, 80, 1536, 2304, 148, 24.8},  {310.1, 16384, 96, 1920, 2160, 155, 37.6},
    {529.6, 20480, 105, 2520, 2520, 163, 54.1}, {1008.0, 25600, 128, 3072, 3072, 163, 102.6},
};

TEST(GptParameters, ReproducesTable1ToThePrintedDigit) {
  for (const Table1Row& row : kTable1) {
    const double p = gptParameters({row.layers, row.hidden, 51200, 2048}) / 1e9;
    EXPECT_NEAR(p, row.billions, 0.0501) << row.billions;
  }
}

TEST(GptFlops, ReproducesTheIterationTimesOfTable1) {
  for (const Table1Row& row : kTable1) {
    const Flops flops = gptFlops({row.layers, row.hidden, 51200, 2048}, row.batch, true);
    const Seconds time = flops / FlopsPerSecond(row.teraflops * 1e12 * row.gpus);
    EXPECT_NEAR(time.count(), row.seconds, 0.006 * row.seconds) << row.billions;
  }
}

// Same paper, section 5.1: 300 B tokens, 175 B parameters, 1024 GPUs at 140 TFLOP/s: 34 days;
// 450 B tokens, 1 T parameters, 3072 GPUs at 163 TFLOP/s: 84 days.
TEST(TrainingTime, ReproducesThePublishedDays) {
  constexpr double kDay = 86400;
  EXPECT_NEAR(trainingTime(300e9, 175e9, 1024, FlopsPerSecond(140e12)).count() / kDay, 33.9, 0.1);
  EXPECT_NEAR(trainingTime(450e9, 1008e9, 3072, FlopsPerSecond(163e12)).count() / kDay, 83.9, 0.1);
}

// 12 l h^2 + 13 l h + (V + s) h, written out; our own count adds the final norm's 2 h.
TEST(GptParameters, AgreesWithTheExactCountOfTheModel) {
  const spec::ModelSpec model = small::gpt();
  const double expected = gptParameters({8, 64, 512, 128}) + 2 * 64;
  EXPECT_DOUBLE_EQ(static_cast<double>(model.numParameters()), expected);
}

TEST(ModelFlops, IsEquationThreeWithoutRecomputation) {
  const spec::ModelSpec model = small::gpt();
  const spec::TrainingSpec training = small::training(16, 32);
  EXPECT_NEAR(modelFlops(model, training) / gptFlops({8, 64, 512, 32}, 16, false), 1, 1e-12);
}

// Forward, forward again, backward twice: 4 passes for 3, but the head is not recomputed.
TEST(GptFlops, FullRecomputationAddsOneForwardOfTheLayers) {
  const GptShape shape{8, 64, 512, 32};
  const double head = 3 * 2 * 16 * 32 * 64 * 512.0;
  const double layers = gptFlops(shape, 16, false).count() - head;
  EXPECT_NEAR(gptFlops(shape, 16, true).count(), layers * 4 / 3 + head, 1);
}

// Four projections become q and o at full width, k and v at a quarter; SwiGLU has three matrices.
TEST(ModelFlops, CountsGroupedQueryAttentionAndGatedFfn) {
  spec::ModelSpec model = small::gpt(1, 64, 4);
  model.numKvHeads = 1;
  model.activation = spec::ActivationKind::kSwiGlu;
  const spec::TrainingSpec training = small::training(1, 32);
  const double weights = 2 * 64 * 64 + 2 * 64 * 16 + 3 * 64 * 256.0;
  const double expected = 3 * 32 * (2 * weights + 4 * 32 * 64 + 2 * 64 * 512.0);
  EXPECT_NEAR(modelFlops(model, training).count(), expected, 1);
}

}  // namespace
}  // namespace trireme::cost
