// A backward in two parts makes the same products in the same order as one of a piece, so nothing
// may differ.
#include <gtest/gtest.h>

#include "tests/equivalence/harness.h"
#include "tests/equivalence/plans.h"

namespace trireme::equivalence {
namespace {

using plan::Recompute;
using plan::ScheduleKind;

RunOptions threeSteps() {
  RunOptions options;
  options.steps = 3;
  return options;
}

// Trains under both schedules and under 1F1B, which the choices name.
void expectSameAsOneForwardOneBackward(const spec::ModelSpec& model,
                                       const spec::TrainingSpec& training, Choices choices) {
  const auto expected = run(model, planFor(choices, model, training), threeSteps());
  ASSERT_TRUE(expected.has_value()) << expected.error().message();
  for (const ScheduleKind schedule : {ScheduleKind::kZeroBubbleH1, ScheduleKind::kZeroBubbleH2}) {
    choices.schedule = schedule;
    SCOPED_TRACE(describe(choices));
    const auto actual = run(model, planFor(choices, model, training), threeSteps());
    ASSERT_TRUE(actual.has_value()) << actual.error().message();
    EXPECT_EQ(compareTensors(expected->firstGradients, actual->firstGradients, {}), "");
    EXPECT_EQ(expected->losses, actual->losses);
    EXPECT_EQ(expected->gradNorms, actual->gradNorms);
    EXPECT_EQ(compareTensors(expected->parameters, actual->parameters, {}), "");
  }
}

std::vector<Choices> layouts() {
  std::vector<Choices> all;
  for (const int64_t tp : {1, 2})
    for (const int64_t pp : {2, 4})
      for (const int64_t dp : {1, 2}) all.push_back({.tp = tp, .pp = pp, .dp = dp});
  return all;
}

class ZeroBubble : public testing::TestWithParam<Recompute> {};

// The gradient of a layer's output is read by its weights if nothing is dropped in between.
TEST_P(ZeroBubble, ChangesNoBitWithAndWithoutDropout) {
  for (const double dropout : {0.0, 0.1})
    for (const spec::ModelSpec& model : {tinyGpt(4), tinyLlama(4)})
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
    if (choices.tp * choices.dp == 1) continue;
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

INSTANTIATE_TEST_SUITE_P(All, ZeroBubble,
                         testing::Values(Recompute::kNone, Recompute::kSelective, Recompute::kFull),
                         [](const auto& info) {
                           return std::string(plan::recomputeName(info.param));
                         });

}  // namespace
}  // namespace trireme::equivalence
