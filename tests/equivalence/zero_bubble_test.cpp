// A backward in two parts makes the same products in the same order as one of a piece, so nothing
// may differ.
#include <gtest/gtest.h>

#include "tests/equivalence/harness.h"
#include "tests/equivalence/plans.h"

namespace trireme::equivalence {
namespace {

using plan::Recompute;
using plan::ScheduleKind;

RunOptions twoSteps() {
  RunOptions options;
  options.steps = 2;
  return options;
}

// Trains under both schedules and under 1F1B, which the choices name.
void expectSameAsOneForwardOneBackward(const spec::ModelSpec& model,
                                       const spec::TrainingSpec& training, Choices choices) {
  const auto expected = run(model, planFor(choices, model, training), twoSteps());
  ASSERT_TRUE(expected.has_value()) << expected.error().message();
  for (const ScheduleKind schedule : {ScheduleKind::kZeroBubbleH1, ScheduleKind::kZeroBubbleH2}) {
    choices.schedule = schedule;
    SCOPED_TRACE(describe(choices));
    const auto actual = run(model, planFor(choices, model, training), twoSteps());
    ASSERT_TRUE(actual.has_value()) << actual.error().message();
    EXPECT_EQ(compareTensors(expected->firstGradients, actual->firstGradients, {}), "");
    EXPECT_EQ(expected->losses, actual->losses);
    EXPECT_EQ(expected->gradNorms, actual->gradNorms);
    EXPECT_EQ(compareTensors(expected->parameters, actual->parameters, {}), "");
  }
}

std::vector<Choices> layouts() {
  return {{.tp = 1, .pp = 2, .dp = 2}, {.tp = 2, .pp = 2, .dp = 1}, {.tp = 2, .pp = 4, .dp = 1}};
}

class ZeroBubble : public ::testing::TestWithParam<Recompute> {};

// The gradient of a layer's output is read by its weights if nothing is dropped in between.
TEST_P(ZeroBubble, ChangesNoBitWithAndWithoutDropout) {
  for (const auto& [model, dropout] :
       {std::pair(tinyGpt(4), 0.0), std::pair(tinyGpt(4), 0.1), std::pair(tinyLlama(4), 0.0)})
    for (Choices choices : layouts()) {
      auto training = tinyTraining(spec::Precision::kFp32);
      training.residualDropout = dropout;
      choices.recompute = GetParam();
      choices.sequenceParallel = choices.tp > 1 && choices.pp == 2;
      choices.scatterGather = choices.tp > 1 && !choices.sequenceParallel;
      expectSameAsOneForwardOneBackward(model, training, choices);
    }
}

TEST_P(ZeroBubble, ChangesNoBitWhereReductionsOverlap) {
  const spec::ModelSpec model = tinyGpt(8, false);
  for (Choices choices : layouts()) {
    choices.overlapReductions = true;
    choices.uneven = choices.pp == 2;
    choices.recompute = GetParam();
    for (const bool shards : {false, true}) {
      choices.sequenceParallel = shards && choices.tp > 1;
      choices.shardOptimizer = shards && choices.dp > 1;
      expectSameAsOneForwardOneBackward(model, tinyTraining(spec::Precision::kFp64), choices);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ZeroBubble, ::testing::Values(Recompute::kNone, Recompute::kSelective, Recompute::kFull),
    [](const auto& info) { return std::string(plan::recomputeName(info.param)); });

}  // namespace
}  // namespace trireme::equivalence
