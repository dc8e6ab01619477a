// One negative test per rule of checkBuildable: plans that verifyPlan accepts and nobody here
// builds.
#include "ir/expand/buildable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "ir/expand/expand.h"
#include "tests/ir/expand/small_gpt.h"

namespace trireme::expand {
namespace {

using plan::Plan;
using plan::Recompute;
using plan::StateSharding;

Plan buildablePlan() {
  Plan plan;
  plan.fingerprint = plan::fingerprintOf(gpt());
  plan.training.sequenceLength = 16;
  plan.training.globalBatchSize = 8;
  plan.pp = 2;
  plan.dpShard = 2;
  plan.stateSharding = StateSharding::kOptimizer;
  plan.recompute = Recompute::kFull;
  plan.layers = plan::evenLayers(4, 2, 1);
  return plan;
}

// What expand says of a plan that verifyPlan accepts.
std::string messageAfter(const std::function<void(Plan&)>& change) {
  Plan plan = buildablePlan();
  change(plan);
  EXPECT_EQ(plan::verifyPlan(plan, gpt()).message(), "");
  const Result<Expansion> expansion = expand(gpt(), plan);
  if (expansion.has_value()) return "";
  EXPECT_EQ(expansion.error().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(expansion.error().message(), checkBuildable(plan).message());
  return expansion.error().message();
}

TEST(Buildable, WhatItAcceptsExpands) {
  EXPECT_EQ(messageAfter([](Plan&) {}), "");
  EXPECT_EQ(messageAfter([](Plan& p) { p.stack = "megatron-core"; }), "");
}

TEST(E1ContextIsWhole, NearestIsOne) {
  EXPECT_EQ(messageAfter([](Plan& p) { p.cp = 2; }),
            "(E1) cp 2: context parallelism cannot be compiled yet; nearest: cp 1");
}

TEST(E2OnlyTheOptimizerIsSharded, NearestIsTheOptimizer) {
  EXPECT_EQ(messageAfter([](Plan& p) { p.stateSharding = StateSharding::kGradients; }),
            "(E2) state sharding gradients cannot be compiled yet; nearest: optimizer");
  EXPECT_EQ(messageAfter([](Plan& p) { p.stateSharding = StateSharding::kParameters; }),
            "(E2) state sharding parameters cannot be compiled yet; nearest: optimizer");
}

TEST(E3ShardsAreNotReplicated, NearestShardsOverAll) {
  EXPECT_EQ(messageAfter([](Plan& p) { p.dpReplicate = 4; }),
            "(E3) state sharding optimizer with dp_replicate 4 cannot be compiled yet; nearest: "
            "dp_replicate 1 and dp_shard 8");
  EXPECT_EQ(messageAfter([](Plan& p) {
              p.stateSharding = StateSharding::kNone;
              p.dpShard = 1;
              p.dpReplicate = 4;
            }),
            "");
}

TEST(E4AllLayersAreRecomputed, NearestIsAll) {
  EXPECT_EQ(
      messageAfter([](Plan& p) { p.recomputeLayers = 1; }),
      "(E4) recompute_layers 1: recomputing some layers only cannot be compiled yet; nearest: "
      "all of them (recompute_layers 0, or no --recompute-layers)");
}

TEST(E5PrecisionsHaveKernels, NearestIsBf16) {
  EXPECT_EQ(messageAfter([](Plan& p) { p.training.precision = spec::Precision::kFp8; }),
            "(E5) precision fp8 cannot be compiled yet; nearest: bf16");
  for (const spec::Precision precision : {spec::Precision::kFp16, spec::Precision::kFp64})
    EXPECT_EQ(messageAfter([&](Plan& p) { p.training.precision = precision; }), "");
}

TEST(E6StagesHaveLayers, NearestIsOne) {
  EXPECT_EQ(messageAfter([](Plan& p) { p.layers = {{{0, 0}}, {{0, 4}}}; }),
            "(E6) layers: stage 0, chunk 0: a virtual stage without layers cannot be compiled yet; "
            "nearest: 1 layer");
  EXPECT_THAT(messageAfter([](Plan& p) { p.layers = {{{0, 4}}, {{4, 0}}}; }),
              ::testing::HasSubstr("(E6) layers: stage 1, chunk 0"));
}

// Two replicas.
TEST(E7MicrobatchesAreCounted, NearestIsAsManyAsThereMayBe) {
  EXPECT_EQ(messageAfter([](Plan& p) { p.training.globalBatchSize = 2 * 131073; }),
            "(E7) 131073 microbatches a step: programs have up to 131072; nearest: "
            "global_batch_size 262144");
}

}  // namespace
}  // namespace trireme::expand
