// What is refused and why, what a stack keeps for a framework, and what is noted.
#include <gmock/gmock.h>

#include "ir/base/format.h"
#include "tests/export/plans.h"

namespace trireme::codegen {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string refusal(const Plan& plan, const spec::ModelSpec& model, Framework framework) {
  const Result<Exported> exported = exportPlan(plan, model, framework);
  return exported.has_value() ? "exported" : exported.error().message();
}

TEST(Refusals, NameEveryChoiceAndTheNearestOne) {
  const spec::ModelSpec model = small::gpt();
  Plan plan = small::plan(model, small::training(), 2, 2, 2);
  plan.schedule = plan::ScheduleKind::kGpipe;
  EXPECT_EQ(refusal(plan, model, Framework::kMegatron),
            "Megatron-LM cannot express schedule gpipe (nearest: schedule 1f1b)");
  EXPECT_EQ(refusal(plan, model, Framework::kDeepspeed),
            "DeepSpeed's JSON cannot express tp 2 (nearest: tp 1); pp 2 (nearest: pp 1); schedule "
            "gpipe (nearest: schedule 1f1b); bf16 without sharded state (nearest: state sharding "
            "optimizer, or fp16)");
  plan = small::plan(model, small::training());
  plan.training.precision = spec::Precision::kFp64;
  EXPECT_EQ(refusal(plan, model, Framework::kMegatron),
            "Megatron-LM cannot express precision fp64 (nearest: fp32)");
  plan.training.precision = spec::Precision::kBf16;
  plan.training.embeddingDropout = 0.1;
  EXPECT_EQ(refusal(plan, model, Framework::kMegatron),
            "Megatron-LM cannot express embedding dropout 0.1 with residual dropout 0 (nearest: "
            "both 0)");
}

// 64 tokens are priced as 128 rows; train.py has 64.
TEST(Refusals, NameAPaddedVocabularyWhereNobodyPads) {
  spec::ModelSpec model = small::gpt();
  model.vocabSize = 64;
  Plan plan = small::plan(model, small::training());
  plan.vocabMultiple = 128;
  EXPECT_EQ(refusal(plan, model, Framework::kDeepspeed),
            "DeepSpeed's JSON cannot express a vocabulary of 64 padded to 128 (nearest: "
            "vocab_multiple 1 (--vocab-multiple 1))");
  EXPECT_EQ(refusal(plan, model, Framework::kMegatron), "exported");
  plan.vocabMultiple = 1;
  EXPECT_EQ(refusal(plan, model, Framework::kDeepspeed), "exported");
}

TEST(RestrictedTo, PadsAVocabularyIfTheFrameworkDoes) {
  const spec::StackProfile stack = spec::loadStack("megatron-core").value();
  EXPECT_EQ(restrictedTo(stack, Framework::kMegatron)->vocabMultiple, 128);
  EXPECT_EQ(restrictedTo(stack, Framework::kDeepspeed)->vocabMultiple, 1);
}

// torchtitan has one vocabulary, and pads none.
TEST(Refusals, OfTorchtitanIncludeOtherVocabularies) {
  Plan plan = loadPlan("llama3-70b-titan");
  spec::ModelSpec model = loadModel(plan);
  EXPECT_EQ(plan.tp, 8);
  EXPECT_EQ(refusal(plan, model, Framework::kTorchtitan), "exported");
  plan.vocabMultiple = 5;
  EXPECT_THAT(refusal(plan, model, Framework::kTorchtitan),
              HasSubstr("a vocabulary of 128256 padded to 128280"));
  plan.vocabMultiple = 1;
  ++model.vocabSize;
  EXPECT_THAT(refusal(plan, model, Framework::kTorchtitan),
              HasSubstr("a vocabulary of 128257 (nearest: 128256"));
}

// Its heads are hidden / heads.
TEST(Refusals, OfTorchtitanIncludeOtherHeads) {
  const Plan plan = loadPlan("llama3-70b-titan");
  spec::ModelSpec model = loadModel(plan);
  model.headSize /= 2;
  EXPECT_THAT(refusal(plan, model, Framework::kTorchtitan), HasSubstr("which it does not define"));
}

// Fused attention, whose blocks ranks of cp exchange, takes 16 bits.
TEST(Refusals, OfMegatronIncludeContextParallelismInFp32) {
  const spec::ModelSpec model = flavored();
  Plan plan = small::plan(model, small::training(16, 32), 1, 1, 2);
  plan.cp = 2;
  for (const Framework framework : {Framework::kMegatron, Framework::kNemo}) {
    plan.training.precision = spec::Precision::kFp32;
    EXPECT_THAT(refusal(plan, model, framework), HasSubstr("cp in fp32 (nearest: bf16, or cp 1)"));
    plan.training.precision = spec::Precision::kBf16;
    EXPECT_EQ(refusal(plan, model, framework), "exported");
  }
}

// torchtitan shards over cp whenever cp > 1, and its tensor parallelism is sequence parallel.
TEST(Refusals, OfTorchtitanIncludeWhatItDoesWithoutBeingAsked) {
  const spec::ModelSpec model = flavored();
  Plan plan = small::plan(model, small::training(16, 32), 2, 1, 2);
  plan.cp = 2;
  EXPECT_THAT(refusal(plan, model, Framework::kTorchtitan),
              ::testing::AllOf(HasSubstr("tp without sequence parallel"),
                               HasSubstr("cp without sharded parameters")));
  plan.cp = 1;
  plan.sequenceParallel = true;
  EXPECT_THAT(refusal(plan, model, Framework::kTorchtitan),
              HasSubstr("2 unsharded replicas beside tp or pp"));
}

// 2 x 2 x 2 parts of 12 positions; 2 x 2 of 16.
TEST(Refusals, OfTorchtitanIncludeSequencesThatPartsDoNotDivide) {
  const spec::ModelSpec model = flavored();
  Plan plan = small::plan(model, small::training(16, 12), 2, 1, 1);
  plan.cp = 2;
  EXPECT_THAT(refusal(plan, model, Framework::kTorchtitan),
              HasSubstr("sequence 12 with tp 2 and cp 2, which 2 x tp x cp does not divide "
                        "(nearest: tp 1)"));
  plan.training.sequenceLength = 14;
  EXPECT_THAT(refusal(plan, model, Framework::kTorchtitan), HasSubstr("(nearest: sequence 16)"));
  plan.cp = 1;
  plan.training.sequenceLength = 16;
  EXPECT_THAT(refusal(plan, model, Framework::kTorchtitan), Not(HasSubstr("sequence 16")));
}

// 8 sequences of a replica by 4 are 2 microbatches; PyTorch's schedules want one for every stage.
TEST(Refusals, OfTorchtitanIncludePipelinesWithFewMicrobatches) {
  const spec::ModelSpec model = flavored();
  Plan plan = small::plan(model, small::training(16, 32), 1, 4, 2);
  plan.stateSharding = plan::StateSharding::kParameters;
  std::swap(plan.dpShard, plan.dpReplicate);
  plan.vocabMultiple = 1;
  for (const plan::ScheduleKind schedule :
       {plan::ScheduleKind::k1F1B, plan::ScheduleKind::kGpipe}) {
    plan.schedule = schedule;
    plan.microbatchSize = 4;
    EXPECT_EQ(refusal(plan, model, Framework::kTorchtitan),
              "torchtitan cannot express 2 microbatches in 4 stages (nearest: microbatches of 2)");
    plan.microbatchSize = 2;
    EXPECT_EQ(refusal(plan, model, Framework::kTorchtitan), "exported");
  }
}

TEST(Refusals, OfMegatronIncludeSeedsAndWarmUpsThatItAssertsOn) {
  const spec::ModelSpec model = small::gpt(4);
  Plan plan = small::plan(model, small::training(), 1, 1, 1);
  plan.training.seed = 0;
  plan.training.warmupSteps = 10;
  plan.training.decaySteps = 0;
  for (const Framework framework : {Framework::kMegatron, Framework::kNemo}) {
    const auto refused = exportPlan(plan, model, framework, {.steps = 10});
    ASSERT_FALSE(refused.has_value());
    EXPECT_THAT(refused.error().message(), HasSubstr("seed 0 (nearest: seed 1)"));
    EXPECT_THAT(refused.error().message(),
                HasSubstr("10 steps with a warm-up of 10 (nearest: 11 steps)"));
  }
  plan.training.seed = uint64_t{1} << 32;
  EXPECT_THAT(exportPlan(plan, model, Framework::kMegatron, {.steps = 11}).error().message(),
              HasSubstr("seed 4294967296 (nearest: seed 4294967295)"));
  plan.training.seed = 1;
  EXPECT_TRUE(exportPlan(plan, model, Framework::kMegatron, {.steps = 11}).has_value());
}

// A fourth of the gradients, of 4 bytes a parameter, stays on a rank of dp shard 2 and cp 2.
TEST(Notes, OfAccelerateSayWhatWholeGradientsTake) {
  const spec::ModelSpec model = flavored();
  Plan plan = small::plan(model, small::training(16, 32), 1, 1, 2);
  plan.cp = 2;
  plan.vocabMultiple = 1;
  plan.stateSharding = plan::StateSharding::kParameters;
  std::swap(plan.dpShard, plan.dpReplicate);
  const auto notes = [&](int64_t microbatch) {
    plan.microbatchSize = microbatch;
    const auto exported = exportPlan(plan, model, Framework::kAccelerate);
    EXPECT_TRUE(exported.has_value()) << exported.error().message();
    std::vector<std::string> expected = {"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"};
    if (microbatch != 8)
      expected.insert(expected.begin(), "ACCELERATE_GRADIENT_ACCUMULATION_STEPS=4");
    EXPECT_EQ(exported->environment, expected);
    return exported->notes;
  };
  EXPECT_THAT(notes(2), ::testing::Contains(HasSubstr("accelerator.accumulate(model)")));
  EXPECT_THAT(notes(8), ::testing::Contains(HasSubstr("accelerator.maybe_context_parallel(")));
  const std::string more = formatBytes(Bytes(model.numParameters() * 3));
  EXPECT_THAT(notes(2), ::testing::Contains(::testing::AllOf(
                            HasSubstr("GradientAccumulationPlugin(num_steps=4, "
                                      "sync_each_batch=True)"),
                            HasSubstr("keeps them whole, which is " + more + " more"))));
  EXPECT_THAT(notes(8), Not(::testing::Contains(HasSubstr("GradientAccumulationPlugin"))));
}

TEST(Notes, SayWhereTheStepsAreNot) {
  const spec::ModelSpec model = small::gpt(4);
  const Plan plan = small::plan(model, small::training(), 1, 1, 1);
  for (const Framework framework : {Framework::kDeepspeed, Framework::kAccelerate}) {
    const auto exported = exportPlan(plan, model, framework, {.steps = 10});
    ASSERT_TRUE(exported.has_value()) << exported.error().message();
    EXPECT_THAT(exported->notes, ::testing::Contains(HasSubstr("--steps 10 is not in ")));
  }
}

// Launchers start as many processes on every node: 12 ranks are 6 on each of two nodes of 8, where
// groups of tp 4 would not be whole, and 20 ranks are not the same on any three.
TEST(Nodes, HaveAsManyRanks) {
  const spec::ModelSpec model = small::gpt();
  Plan plan = small::plan(model, small::training(24, 32), 2, 1, 6);
  const auto exported = exportPlan(plan, model, Framework::kMegatron);
  ASSERT_TRUE(exported.has_value()) << exported.error().message();
  EXPECT_THAT(printExport(*exported, plan, Framework::kMegatron, Launcher::kTorchrun),
              HasSubstr("torchrun --nnodes 2 --nproc-per-node 6 "));
  plan = small::plan(model, small::training(24, 32), 4, 1, 3);
  for (const Framework framework : {Framework::kMegatron, Framework::kNemo})
    EXPECT_THAT(refusal(plan, model, framework),
                HasSubstr("12 ranks, not as many on each host of 8 (nearest: dp 2)"));
  plan = small::plan(model, small::training(20, 32), 1, 1, 20);
  for (const Framework framework : kFrameworks)
    EXPECT_THAT(refusal(plan, model, framework), HasSubstr("(nearest: dp 18)"));
  plan.devicesPerHost = 4;
  plan.stateSharding = plan::StateSharding::kOptimizer;
  std::swap(plan.dpShard, plan.dpReplicate);
  EXPECT_TRUE(exportPlan(plan, model, Framework::kDeepspeed).has_value());
}

TEST(Stacks, BelongToAFramework) {
  for (const Framework framework : kFrameworks)
    EXPECT_EQ(frameworkOfStack(infoOf(framework).stack), framework);
  EXPECT_EQ(frameworkOfStack("torchtitan-compiled-fp8-rowwise"), Framework::kTorchtitan);
  EXPECT_EQ(frameworkOfStack("megatron-lm-2021"), Framework::kMegatron);
  for (const char* stack : {"trireme", "alpa", "megatron-deepspeed", ""})
    EXPECT_EQ(frameworkOfStack(stack), std::nullopt) << stack;
}

TEST(Restriction, LeavesWhatBothHave) {
  const spec::StackProfile stack = restrictedTo({}, Framework::kDeepspeed).value();
  EXPECT_FALSE(stack.supports(spec::StackChoice::kTensorParallel));
  EXPECT_FALSE(stack.supports(spec::StackChoice::kGpipe));
  EXPECT_TRUE(stack.supports(spec::StackChoice::kShardOptimizer));
  EXPECT_FALSE(stack.supports(spec::StackChoice::kShardParameters));  // the stack itself has none
}

}  // namespace
}  // namespace trireme::codegen
