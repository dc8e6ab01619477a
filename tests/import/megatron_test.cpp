// Command lines of Megatron-LM: what is exported comes back as the same plan; what others published
// has the settings that they published; what makes no sense is refused with its line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codegen/export/export.h"
#include "codegen/import/import.h"
#include "codegen/import/layout.h"
#include "ir/spec/load.h"
#include "ir/spec/stack_on_device.h"
#include "tests/support/damaged_text.h"
#include "tests/support/small_plan.h"

namespace trireme::codegen {
namespace {

Result<Imported> importedRun(const std::string& text, const std::string& file,
                             const spec::ModelSpec& model, std::optional<int64_t> gpus) {
  return importPlan(Framework::kMegatron, text, file, model, {.gpus = gpus});
}

using plan::Plan;
using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// (tt|)*2 is tt|tt|, so the layers are 1 + 3 = 4 behind E, then 2, 2 and 1 before L.
TEST(Layout, RepeatsLayersAndStages) {
  EXPECT_THAT(parseLayout("Et*3,t|(tt|)*2,tL", 9).value(), ElementsAre(4, 2, 2, 1));
  EXPECT_THAT(parseLayout("E|(t*2|)*2L", 4).value(), ElementsAre(0, 2, 2, 0));
  for (const char* bad :
       {"", "tt", "EtL|t", "Et|mL", "E(tL", "Et)L", "Et*0L", "Et*99999999999L", "E(t|)L", "EEtL"})
    EXPECT_FALSE(parseLayout(bad, 1).has_value()) << bad;
  EXPECT_THAT(parseLayout("EtL", 2).error().message(), HasSubstr("it has 1 layers, the model 2"));
}

// Every plan that can be written can be read, and is the same but for the stack.
TEST(ImportMegatron, ReadsBackWhatIsExported) {
  size_t trips = 0;
  for (const spec::ModelSpec& model : {small::gpt(12), small::asLlama(small::gpt(11))})
    for (int64_t tp : {1, 2})
      for (int64_t pp : {1, 2, 3})
        for (int64_t cp : {1, 2})
          for (int64_t v : {1, 2})
            for (int sharding = 0; sharding <= 3; ++sharding)
              for (int flags = 0; flags < 8; ++flags) {
                Plan p = small::plan(model, small::training(48, 32), tp, pp, 4);
                p.stack = "megatron-core";
                p.cp = cp;
                if (v > 1) p = small::interleaved(p, model, v);
                p.stateSharding = static_cast<plan::StateSharding>(sharding);
                p.dpReplicate = sharding == 0 ? 4 : (flags & 4) ? 2 : 1;
                p.dpShard = 4 / p.dpReplicate;
                p.recompute = static_cast<plan::Recompute>(flags % 3);
                p.recomputeLayers = flags == 2 ? 1 : 0;
                p.sequenceParallel = flags & 1;
                if ((flags & 2) && pp > 1 && sharding < 2) p.rankOrder = plan::RankOrder::kTpCpPpDp;
                p.training.warmupSteps = flags;
                p.training.decaySteps = flags * 7;
                p.training.residualDropout = p.training.embeddingDropout = 0.25;
                if (flags & 4) {
                  p.training.precision = spec::Precision::kFp16;
                  p.training.initialLossScale = 4096;
                  p.training.lossScaleWindow = 10 + flags;
                  p.training.minLossScale = 2;
                }
                if (!plan::verifyPlan(p, model).ok() || (sharding > 1 && pp > 1)) continue;
                Plan onNodes = p;
                onNodes.devicesPerHost = 1;
                const Result<Exported> e = exportPlan(onNodes, model, Framework::kMegatron);
                ASSERT_TRUE(e.has_value()) << e.error().message();
                const std::string text =
                    printExport(*e, onNodes, Framework::kMegatron, Launcher::kTorchrun);
                const Result<Imported> back = importedRun(text, "run.sh", model, p.numRanks());
                ASSERT_TRUE(back.has_value()) << back.error().message() << "\n" << text;
                if (sharding > 1) p.stack = "nemo";  // whose profile has it
                EXPECT_EQ(plan::printPlan(back->plan), plan::printPlan(p)) << text;
                EXPECT_THAT(back->unpriced, ElementsAre());
                ++trips;
              }
  EXPECT_GT(trips, 200u);
}

// The largest run of Narayanan et al., SC 2021, table 1, for GPT-3: t 8, p 12, 1,024 GPUs as in
// their section 5.1: batch 1536, microbatch 1; its data-parallel size is 1024 / 96, so 960 GPUs.
const char* const kPublishedRun = R"(#!/bin/bash
# GPT-3 175B, as in examples/pretrain_gpt3_175B.sh
options=" "
torchrun --nnodes 120 --nproc-per-node 8 pretrain_gpt.py \
    --tensor-model-parallel-size 8 \
    --pipeline-model-parallel-size 12 \
    --num-layers 96 --hidden-size 12288 --num-attention-heads 96 \
    --seq-length 2048 --max-position-embeddings 2048 \
    --micro-batch-size 1 --global-batch-size 1520 \
    --vocab-size 51200 \
    --lr 6.0e-5 --min-lr 6.0e-6 --lr-decay-style cosine \
    --num-layers-per-virtual-pipeline-stage 4 \
    --recompute-granularity full --recompute-method uniform --recompute-num-layers 1 \
    --clip-grad 1.0 --weight-decay 0.1 --fp16 \
    --our-logs "$LOGS"
)";

TEST(ImportMegatron, ReadsAPublishedScript) {
  const spec::ModelSpec model = spec::loadModel("gpt3-175b").value();
  std::string text = kPublishedRun;
  text.replace(text.find("1520"), 4, "1560");  // 10 replicas x 12 stages divide 1560 / 10 = 156
  const Result<Imported> imported = importedRun(text, "run.sh", model, {});
  ASSERT_TRUE(imported.has_value()) << imported.error().message();
  const Plan& p = imported->plan;
  EXPECT_EQ(p.tp, 8);
  EXPECT_EQ(p.pp, 12);
  EXPECT_EQ(p.dp(), 10);          // 120 x 8 / (8 x 12), not the cluster's 8 devices
  EXPECT_EQ(p.virtualStages, 2);  // 96 layers / 12 stages / 4
  EXPECT_EQ(p.schedule, plan::ScheduleKind::kInterleaved);
  EXPECT_EQ(p.recompute, plan::Recompute::kFull);
  EXPECT_EQ(p.training.precision, spec::Precision::kFp16);
  EXPECT_THAT(imported->unpriced, ElementsAre("--our-logs"));
}

// By default those of Megatron's arguments.py.
TEST(ImportMegatron, LossScalingIsThatOfTheFlags) {
  const spec::ModelSpec model = spec::loadModel("gpt3-175b").value();
  const auto read = [&](const std::string& flags) {
    std::string text = kPublishedRun;
    text.replace(text.find("1520"), 4, "1560");
    text.replace(text.find("--fp16"), 6, flags);
    const Result<Imported> imported = importedRun(text, "run.sh", model, {});
    EXPECT_TRUE(imported.has_value()) << imported.error().message();
    return imported.value();
  };
  const spec::TrainingSpec absent = read("--fp16").plan.training;
  EXPECT_EQ(absent.initialLossScale, 4294967296);
  EXPECT_EQ(absent.lossScaleWindow, 1000);
  EXPECT_EQ(absent.minLossScale, 1);
  const spec::TrainingSpec given =
      read("--fp16 --initial-loss-scale 4096 --loss-scale-window 500 --min-loss-scale 2")
          .plan.training;
  EXPECT_EQ(given.initialLossScale, 4096);
  EXPECT_EQ(given.lossScaleWindow, 500);
  EXPECT_EQ(given.minLossScale, 2);
  EXPECT_THAT(read("--fp16 --hysteresis 2").notes, Contains(HasSubstr("--hysteresis is not kept")));
  EXPECT_THAT(read("--fp16 --hysteresis 1").notes,
              Not(Contains(HasSubstr("--hysteresis is not kept"))));
  // One that never changes.
  const Imported fixed = read("--fp16 --loss-scale 128 --loss-scale-window 500 --hysteresis 2");
  EXPECT_EQ(fixed.plan.training.initialLossScale, 128);
  EXPECT_EQ(fixed.plan.training.lossScaleWindow, int64_t{1} << 53);
  EXPECT_EQ(fixed.plan.training.minLossScale, 128);
  EXPECT_THAT(fixed.unpriced, ElementsAre("--hysteresis", "--loss-scale-window", "--our-logs"));
  // In bf16 there is none.
  const Imported bf16 = read("--bf16 --initial-loss-scale 4096");
  EXPECT_EQ(bf16.plan.training.initialLossScale, spec::TrainingSpec{}.initialLossScale);
  EXPECT_THAT(bf16.unpriced, ElementsAre("--initial-loss-scale", "--our-logs"));
}

// get_optimizer_param_scheduler(): a fraction of the decay; 430,000 of the published script for 175
// B.
TEST(ImportMegatron, WarmUpIsAFractionOfTheDecay) {
  const spec::ModelSpec model = spec::loadModel("gpt3-175b").value();
  const auto read = [&](const std::string& flags) {
    std::string text = kPublishedRun;
    text.replace(text.find("1520"), 4, "1560");
    text.replace(text.find("--lr-decay-style cosine"), 23, flags);
    const Result<Imported> imported = importedRun(text, "run.sh", model, {});
    EXPECT_TRUE(imported.has_value()) << imported.error().message();
    return imported.value();
  };
  const Imported published =
      read("--lr-decay-style cosine --lr-warmup-fraction .001 --lr-decay-iters 430000");
  EXPECT_EQ(published.plan.training.warmupSteps, 430);
  EXPECT_EQ(published.plan.training.decaySteps, 429570);
  EXPECT_THAT(published.notes, ElementsAre());
  const Imported ramped = read(
      "--lr-decay-style linear --lr-decay-iters 100 --rampup-batch-size 16 16 5859375 "
      "--sequence-parallel --tp-comm-overlap --overlap-grad-reduce");
  EXPECT_EQ(ramped.plan.training.decaySteps, 100);
  EXPECT_THAT(ramped.notes,
              ElementsAre(HasSubstr("--lr-decay-style is linear: the plan has a cosine"),
                          HasSubstr("--rampup-batch-size: steps of the full batch"),
                          HasSubstr("--tp-comm-overlap: stack megatron-core hides no")));
  EXPECT_THAT(ramped.unpriced, ElementsAre("--our-logs"));
}

// s x s x b bytes: of 16,384 positions 256 MiB.
TEST(ImportMegatron, NamesTheMaskThatTheLoaderMakes) {
  spec::ModelSpec model = spec::loadModel("llama3.1-8b").value();
  const auto read = [&](const std::string& more) {
    Result<Imported> imported = importedRun(
        "--micro-batch-size 1 --seq-length 16384 --num-layers 32 --hidden-size 4096 "
        "--num-attention-heads 32 --max-position-embeddings 131072 --ffn-hidden-size 14336 "
        "--swiglu --normalization RMSNorm --disable-bias-linear "
        "--untie-embeddings-and-output-weights --position-embedding-type rope --rotary-base 500000 "
        "--group-query-attention --num-query-groups 8 --use-rope-scaling --use-distributed-"
        "optimizer --bf16 " +
            more,
        "run.sh", model, 16);
    EXPECT_TRUE(imported.has_value()) << imported.error().message();
    return imported.has_value() ? *imported : Imported{};
  };
  const auto notesOf = [&](const std::string& more) { return read(more).notes; };
  EXPECT_THAT(notesOf(""), ElementsAre(HasSubstr("an attention mask of 256.00 MiB for every")));
  const std::string without = "--no-create-attention-mask-in-dataloader ";
  const auto isCounted = [&](const std::string& more) {
    spec::StackProfile stack = spec::loadStack("megatron-core").value();
    stack.description.loaderMasks = true;  // whatever the profile says
    Imported imported = read(more);
    imported.framework = Framework::kMegatron;
    EXPECT_EQ(setWidths(imported, "run.sh", stack), "");
    return stack.description.loaderMasks;
  };
  EXPECT_TRUE(isCounted(""));
  EXPECT_FALSE(isCounted(without));
  EXPECT_THAT(notesOf(without + "--cp-comm-type p2p"), ElementsAre());
  EXPECT_THAT(notesOf(without + "--cp-comm-type p2p a2a"),
              ElementsAre("--cp-comm-type is a2a: priced as p2p"));
  EXPECT_THAT(notesOf(without + "--attention-backend flash"),
              ElementsAre(HasSubstr("--attention-backend is flash: priced as the stack's")));
}

// The block method recomputes the first so many layers of every chunk: none is a number, too.
TEST(ImportMegatron, LayersOfABlockAreRecomputedByTheirNumber) {
  const spec::ModelSpec model = spec::loadModel("gpt3-175b").value();
  const auto plan = [&](const std::string& flags) {
    std::string text = kPublishedRun;
    text.replace(text.find("1520"), 4, "1560");
    const std::string uniform = "--recompute-method uniform --recompute-num-layers 1";
    text.replace(text.find(uniform), uniform.size(), flags);
    const Result<Imported> imported = importedRun(text, "run.sh", model, {});
    EXPECT_TRUE(imported.has_value()) << imported.error().message();
    return imported->plan;
  };
  const plan::Plan none = plan("--recompute-method block --recompute-num-layers 0");
  EXPECT_EQ(none.recompute, plan::Recompute::kNone);
  const plan::Plan two = plan("--recompute-method block --recompute-num-layers 2");
  EXPECT_EQ(two.recompute, plan::Recompute::kFull);
  EXPECT_EQ(two.recomputeLayers, 2);
  EXPECT_EQ(plan("--recompute-method uniform --recompute-num-layers 1").recomputeLayers, 0);
}

// 96 layers in 12 stages of two chunks are 4 in each: a block of 30 is all of them.
TEST(ImportMegatron, ABlockIsAtMostAStage) {
  std::string text = kPublishedRun;
  text.replace(text.find("1520"), 4, "1560");
  const std::string uniform = "--recompute-method uniform --recompute-num-layers 1";
  text.replace(text.find(uniform), uniform.size(),
               "--recompute-method block --recompute-num-layers 30");
  const Result<Imported> imported =
      importedRun(text, "run.sh", spec::loadModel("gpt3-175b").value(), {});
  ASSERT_TRUE(imported.has_value()) << imported.error().message();
  EXPECT_EQ(imported->plan.recomputeLayers, 4);
  EXPECT_THAT(imported->notes,
              ElementsAre("--recompute-num-layers is 30: virtual stages have at most 4, and all "
                          "are recomputed"));
}

// Megatron-Core sends whole borders, whatever the flag of the code before it says.
TEST(ImportMegatron, BordersAreSentWhole) {
  const spec::ModelSpec model = spec::loadModel("gpt3-175b").value();
  std::string text = kPublishedRun;
  text.replace(text.find("1520"), 4, "1560");
  EXPECT_FALSE(importedRun(text, "run.sh", model, {})->plan.scatterGather);
  text.replace(text.find("--fp16"), 6, "--fp16 --no-scatter-gather-tensors-in-pipeline");
  const Result<Imported> told = importedRun(text, "run.sh", model, {});
  EXPECT_FALSE(told->plan.scatterGather);
  EXPECT_THAT(told->unpriced, ::testing::Not(::testing::Contains(HasSubstr("scatter"))));
}

// Megatron-LM's own default is to overlap nothing, and profiles have what hides with its switches.
TEST(ImportMegatron, WithoutItsSwitchesNothingOverlaps) {
  const spec::ModelSpec model = spec::loadModel("gpt3-175b").value();
  const spec::StackProfile shipped = spec::loadStack("megatron-core").value();
  const auto read = [&](const std::string& flags) {
    std::string text = kPublishedRun;
    text.replace(text.find("1520"), 4, "1560");
    text.replace(text.find("--fp16"), 6, "--fp16 " + flags);
    return importedRun(text, "run.sh", model, {}).value();
  };
  spec::StackProfile stack = shipped;
  EXPECT_THAT(setOverlap(read("--use-distributed-optimizer"), stack),
              ElementsAre("--overlap-grad-reduce", "--overlap-param-gather"));
  EXPECT_EQ(stack.description.gradientExposed, 1);
  EXPECT_EQ(stack.description.gatherExposed, 1);
  stack = shipped;
  EXPECT_THAT(setOverlap(read("--use-distributed-optimizer --overlap-grad-reduce"), stack),
              ElementsAre("--overlap-param-gather"));
  EXPECT_LT(stack.description.gradientExposed, 1);
  // What other plans of the program would gather counts as well.
  stack = shipped;
  EXPECT_THAT(setOverlap(read("--overlap-grad-reduce"), stack),
              ElementsAre("--overlap-param-gather (beside --use-distributed-optimizer)"));
  EXPECT_EQ(stack.description.gatherExposed, 1);
  const std::string both =
      "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather";
  const std::string all = both + " --sequence-parallel --tp-comm-overlap";
  const spec::StackProfile hiding = spec::loadStack("nemo").value();
  spec::StackProfile nemo = hiding;
  EXPECT_THAT(setOverlap(read(all), nemo), ElementsAre());
  EXPECT_EQ(nemo, hiding);
  // Whose profile hides a part of what tensor parallelism sends, from buffers of their own.
  ASSERT_LT(nemo.description.tensorParallelExposed, 1);
  ASSERT_TRUE(nemo.description.keepsLayerBuffers);
  EXPECT_THAT(setOverlap(read(both), nemo), ElementsAre("--tp-comm-overlap"));
  EXPECT_EQ(nemo.description.tensorParallelExposed, 1);
  EXPECT_FALSE(nemo.description.keepsLayerBuffers);
  nemo = hiding;
  setOverlap(read(all + " --no-overlap-p2p-communication"), nemo);
  EXPECT_EQ(nemo.description.transferExposed, 1);
  EXPECT_THAT(setOverlap(read(""), nemo), ElementsAre(_, _, _));
  spec::StackProfile users = shipped;
  users.name = "ours";
  EXPECT_THAT(setOverlap(read(""), users), ElementsAre(_, _));
  // What is not hidden in any case, or of another program.
  for (const char* name : {"megatron-lm-2021", "megatron-deepspeed", "torchtitan", "trireme"}) {
    spec::StackProfile other = spec::loadStack(name).value();
    EXPECT_THAT(setOverlap(read(""), other), ElementsAre()) << name;
    EXPECT_EQ(other, spec::loadStack(name).value()) << name;
  }
}

// Megatron-LM accumulates and reduces gradients in fp32 if it trains in bf16 and is not told
// otherwise, or if it is told so.
TEST(ImportMegatron, NarrowGradientsAndWeightsArePricedAsWhatTheyAre) {
  const spec::ModelSpec model = spec::loadModel("gpt3-175b").value();
  const auto read = [&](const std::string& flags) {
    std::string text = kPublishedRun;
    text.replace(text.find("1520"), 4, "1560");
    text.replace(text.find("--fp16"), 6, flags);
    return importedRun(text, "run.sh", model, {});
  };
  const ParameterWidths kWide{4.0, 4.0, {}};
  EXPECT_EQ(read("--bf16")->widths, kWide);
  EXPECT_EQ(read("--fp16")->widths, (ParameterWidths{2.0, 2.0, {}}));
  EXPECT_EQ(read("--fp16 --accumulate-allreduce-grads-in-fp32")->widths, kWide);
  // Whatever the recipe's profile, nemo-fp8-current, says.
  EXPECT_EQ(read("--bf16 --fp8-format hybrid --fp8-recipe tensorwise")->widths,
            (ParameterWidths{4.0, 4.0, {}, false}));
  EXPECT_EQ(read("--bf16 --grad-reduce-in-bf16")->widths, (ParameterWidths{2.0, 2.0, {}}));
  const Result<Imported> narrow = read(
      "--bf16 --grad-reduce-in-bf16 --use-distributed-optimizer --fp8-format hybrid "
      "--fp8-param-gather");
  ASSERT_TRUE(narrow.has_value()) << narrow.error().message();
  EXPECT_EQ(narrow->widths, (ParameterWidths{2.0, 2.0, 1.0, true}));
  EXPECT_THAT(narrow->notes, ElementsAre());
  spec::StackProfile stack = spec::loadStack("megatron-core").value();
  EXPECT_EQ(
      setWidths(*narrow, "run.sh", stack),
      "run.sh: it and the optimum are priced with what it sets a parameter, and stack "
      "'megatron-core' (in parentheses) not: gradients of 2 B (4 B), reduced gradients of 2 B "
      "(4 B), gathered weights of 1 B (2 B); plan files and exports do not say it");
  EXPECT_EQ(stack.description.gradientBytes, 2);
  EXPECT_EQ(stack.description.reducedGradientBytes, 2);
  EXPECT_EQ(stack.description.gatheredParameterBytes, 1);
  EXPECT_EQ(stack.description.stepGradientBytes, 4);  // which the optimizer makes of them
  EXPECT_TRUE(stack.description.gathersF8);
  // Software that gathers fp8 has the width that it was compared with, and MXFP8 gathers bf16.
  spec::StackProfile nemo = spec::loadStack("nemo").value();
  const double compared = nemo.description.gatheredParameterBytes;
  setWidths(*narrow, "", nemo);
  EXPECT_EQ(nemo.description.gatheredParameterBytes, compared);
  const std::string mx =
      "--bf16 --use-distributed-optimizer --fp8-format e4m3 --fp8-recipe mxfp8 --fp8-param-gather ";
  EXPECT_EQ(read(mx)->widths.gatheredParameter, std::nullopt);
  EXPECT_TRUE(read(mx + "--reuse-grad-buf-for-mxfp8-param-ag").has_value());
  EXPECT_THAT(read("--bf16 --reuse-grad-buf-for-mxfp8-param-ag").error().message(),
              HasSubstr("needs --fp8-recipe mxfp8 and --fp8-param-gather"));
  EXPECT_THAT(read("--bf16 --use-megatron-fsdp --fp8-format e4m3 --fp8-recipe mxfp8 "
                   "--fp8-param-gather --reuse-grad-buf-for-mxfp8-param-ag "
                   "--data-parallel-sharding-strategy optim_grads_params")
                  .error()
                  .message(),
              HasSubstr("goes not with --use-megatron-fsdp"));
  EXPECT_THAT(
      read("--bf16 --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params")
          .error()
          .message(),
      HasSubstr("--use-megatron-fsdp state sharding parameters beside a pipeline"));
  Imported wide;
  wide.widths = kWide;
  setWidths(wide, "", stack);
  EXPECT_EQ(setWidths(wide, "", stack), "");  // nothing is new
  // What the file says is not what a profile has for bf16 again.
  spec::StackProfile deepspeed = spec::loadStack("megatron-deepspeed").value();
  ASSERT_GT(deepspeed.description.bf16GradientBytes, 0);
  setWidths(wide, "", deepspeed);
  EXPECT_EQ(spec::stackOn(deepspeed, spec::Precision::kBf16, {}).description.gradientBytes, 4);
  EXPECT_EQ(stack.description.stepGradientBytes, 0);
  EXPECT_TRUE(stack.description.gathersF8);
  EXPECT_EQ(read("--bf16 --grad-reduce-in-bf16 --accumulate-allreduce-grads-in-fp32")->widths,
            (ParameterWidths{2.0, 2.0, {}}));
  EXPECT_THAT(read("--bf16 --fp8-format hybrid --fp8-param-gather").error().message(),
              HasSubstr("--fp8-param-gather needs --use-distributed-optimizer"));
  EXPECT_THAT(read("--bf16 --num-distributed-optimizer-instances 2").error().message(),
              HasSubstr("--num-distributed-optimizer-instances needs --use-distributed-optimizer"));
  EXPECT_THAT(read("--bf16 --fp8-param-gather").error().message(),
              HasSubstr("run.sh:14: --fp8-param-gather needs --fp8-format: without it"));
}

std::string refusalOfRun(const std::string& text) {
  const Result<Imported> imported =
      importedRun(text, "run.sh", spec::loadModel("gpt3-175b").value(), 960);
  return imported.has_value() ? "read" : imported.error().message();
}

std::string replacedInRun(const std::string& what, const std::string& by) {
  std::string text = kPublishedRun;
  return text.replace(text.find(what), what.size(), by);
}

TEST(ImportMegatron, RefusesWithTheLine) {
  EXPECT_THAT(refusalOfRun(kPublishedRun),
              HasSubstr("run.sh: (P7)"));  // 152 microbatches, 12 stages
  EXPECT_THAT(refusalOfRun(replacedInRun("--hidden-size 12288", "--hidden-size 1024")),
              HasSubstr("run.sh:7: --hidden-size is 1024, but the model has 12288"));
  EXPECT_THAT(refusalOfRun(replacedInRun("--fp16", "--num-experts 8")),
              HasSubstr("run.sh:14: --num-experts cannot be priced"));
  for (const char* flag : {"--fp32-residual-connection", "--use-custom-fsdp"})
    EXPECT_THAT(refusalOfRun(replacedInRun("--fp16", flag)),
                HasSubstr(std::string(flag) + " cannot be priced"));
  EXPECT_THAT(refusalOfRun(replacedInRun("-size 8 ", "-size eight ")),
              HasSubstr("run.sh:5: --tensor-model-parallel-size is 'eight'; expected a whole"));
  EXPECT_THAT(refusalOfRun(replacedInRun("full", "fulll")),
              HasSubstr("--recompute-granularity is 'fulll'; did you mean 'full'?"));
  EXPECT_THAT(refusalOfRun(replacedInRun("--seq-length 2048", "")),
              HasSubstr("--seq-length is missing"));
  EXPECT_THAT(refusalOfRun(replacedInRun("-size 12 ", "-size 7 ")),
              HasSubstr("does not divide 960 ranks; nearest: 952"));
  EXPECT_THAT(
      refusalOfRun(replacedInRun("--fp16", "--bf16 --use-megatron-fsdp --use-tp-pp-dp-mapping")),
      HasSubstr("run.sh:14: --use-tp-pp-dp-mapping excludes --use-megatron-fsdp"));
  // Of what is not given: the line of the command.
  EXPECT_THAT(refusalOfRun(replacedInRun("--num-layers 96 ", "")),
              HasSubstr("run.sh:4: --num-layers is missing"));
  EXPECT_THAT(refusalOfRun(replacedInRun("--fp16", "--attention-backend unfused")),
              HasSubstr("--attention-backend is unfused: attention in parts cannot be priced"));
}

// What nobody knows is a note, but not what is spelled nearly like a flag that is missed.
TEST(ImportMegatron, RefusesFlagsThatAreNearlyKnown) {
  EXPECT_EQ(refusalOfRun(replacedInRun("--tensor-model-parallel", "--tensor-model-paralel")),
            "run.sh:5: unknown flag --tensor-model-paralel-size; did you mean "
            "--tensor-model-parallel-size?");
  EXPECT_THAT(refusalOfRun(replacedInRun("--fp16", "--sequence_parallel")),
              HasSubstr("did you mean --sequence-parallel?"));
  EXPECT_THAT(refusalOfRun(replacedInRun("--fp16", "--our-own-logging")), HasSubstr("(P7)"));
}

// What changes the time or the memory and that no profile has; Megatron's own values are priced.
TEST(ImportMegatron, RefusesSoftwareThatIsNotPriced) {
  const std::pair<const char*, const char*> kCases[] = {
      {"--transformer-impl local",
       "--transformer-impl is 'local', which cannot be priced; nearest: transformer_engine"},
      {"--fp4-format e2m1", "--fp4-format cannot be priced"},
      {"--use-precision-aware-optimizer", "--use-precision-aware-optimizer cannot be priced"},
      {"--exp-avg-dtype bf16", "--exp-avg-dtype is 'bf16', which cannot be priced; nearest: fp32"},
      {"--exp-avg-sq-dtype fp8", "--exp-avg-sq-dtype is 'fp8'"},
      {"--main-grads-dtype bf16", "--main-grads-dtype is 'bf16'"},
      {"--main-params-dtype fp16", "--main-params-dtype is 'fp16'"},
      {"--optimizer sgd", "--optimizer is 'sgd', which cannot be priced; nearest: adam"}};
  for (const auto& [flags, message] : kCases)
    EXPECT_THAT(refusalOfRun(replacedInRun("--fp16", flags)),
                HasSubstr(std::string("run.sh:14: ") + message));
  EXPECT_THAT(refusalOfRun(replacedInRun("--fp16",
                                         "--optimizer adam --transformer-impl transformer_engine "
                                         "--main-grads-dtype fp32")),
              HasSubstr("run.sh: (P7)"));
}

// TransformerConfig of Megatron-Core raises a ValueError for each but the modules, of which
// core_attn alone is its own and priced.
TEST(ImportMegatron, RefusesRecomputationThatMegatronRefuses) {
  const auto with = [](const std::string& flags) {
    std::string text = kPublishedRun;
    const size_t begin = text.find("--recompute-granularity"), end = text.find(" \\", begin);
    return refusalOfRun(text.replace(begin, end - begin, flags));
  };
  EXPECT_THAT(with("--recompute-granularity full"),
              HasSubstr("--recompute-method is missing: Megatron refuses --recompute-granularity "
                        "full without it"));
  EXPECT_THAT(with("--recompute-granularity full --recompute-method uniform"),
              HasSubstr("--recompute-num-layers is missing"));
  EXPECT_THAT(with("--recompute-granularity selective --recompute-num-layers 1"),
              HasSubstr("--recompute-num-layers goes not with --recompute-granularity selective"));
  EXPECT_THAT(with("--recompute-granularity selective --recompute-modules core_attn mlp"),
              HasSubstr("--recompute-modules has 'mlp', which cannot be priced; nearest: "
                        "core_attn"));
  EXPECT_THAT(with("--recompute-granularity selective --recompute-modules core_attn"),
              HasSubstr("run.sh: (P7)"));
}

// The arguments in variables, and the ranks in #SBATCH lines: 120 nodes x 8 devices, as torchrun
// says in kPublishedRun.
TEST(ImportMegatron, ReadsArgumentsInVariablesAndSbatchLines) {
  const spec::ModelSpec model = spec::loadModel("gpt3-175b").value();
  std::string text = kPublishedRun;
  text.replace(text.find("1520"), 4, "1560");
  const Plan expected = importedRun(text, "run.sh", model, {})->plan;
  const size_t begin = text.find("    --tensor"), end = text.find("    --our-logs");
  std::string arguments = text.substr(begin, end - begin);
  arguments.replace(arguments.find("-size 8 "), 8, "-size ${TP} ");
  const std::string script =
      "#!/bin/bash\n#SBATCH --nodes=120\n#SBATCH --gres=gpu:a100:8  # all of "
      "them\nTP=8\nARGS=\"\n" +
      arguments +
      "\"\nsrun torchrun --nnodes $SLURM_NNODES --nproc_per_node $N pretrain_gpt.py $ARGS\n";
  const Result<Imported> imported = importedRun(script, "run.sh", model, {});
  ASSERT_TRUE(imported.has_value()) << imported.error().message();
  EXPECT_EQ(plan::printPlan(imported->plan), plan::printPlan(expected));
  EXPECT_THAT(imported->unpriced, ElementsAre());
}

// NeMo's profiles describe Megatron-Core with these recipes.
TEST(ImportMegatron, TheFp8RecipeChoosesTheProfile) {
  const spec::ModelSpec model = spec::loadModel("gpt3-175b").value();
  const auto stack = [&](const std::string& flags) {
    std::string text = replacedInRun("--fp16", "--bf16 " + flags);
    text.replace(text.find("1520"), 4, "1560");
    const auto imported = importedRun(text, "run.sh", model, {});
    return imported.has_value() ? imported->plan.stack : imported.error().message();
  };
  EXPECT_EQ(stack("--fp8-format hybrid"), "megatron-core");
  EXPECT_EQ(stack("--fp8-format hybrid --fp8-recipe delayed"), "megatron-core");
  EXPECT_EQ(stack("--fp8-format hybrid --fp8-recipe tensorwise"), "nemo-fp8-current");
  EXPECT_EQ(stack("--fp8-format e4m3 --fp8-recipe mxfp8"), "nemo-fp8-mx");
  EXPECT_EQ(stack("--fp8-recipe mxfp8"), "megatron-core");  // does nothing without a format
  EXPECT_THAT(stack("--fp8-format e4m3 --fp8-recipe blockwise"),
              HasSubstr("--fp8-recipe is 'blockwise', which cannot be priced; nearest: delayed"));
  EXPECT_THAT(stack("--fp8-format e4m3 --fp8-recipe tensor"),
              HasSubstr("--fp8-recipe is 'tensor'; valid: delayed, tensorwise, mxfp8"));
}

// load_args_from_checkpoint() sets what is missing; what is given must be the model's.
TEST(ImportMegatron, ACheckpointHasTheModelThatTheScriptLeavesOut) {
  const spec::ModelSpec model = spec::loadModel("llama2-13b").value();
  const auto read = [&](const std::string& more) {
    return importedRun("--micro-batch-size 1 --seq-length 4096 --bf16 " + more, "run.sh", model, 8);
  };
  const Result<Imported> imported =
      read("--use-checkpoint-args --use-rotary-position-embeddings --no-overlap-p2p-communication");
  ASSERT_TRUE(imported.has_value()) << imported.error().message();
  EXPECT_EQ(imported->plan.model, model.name);
  EXPECT_THAT(imported->unpriced, ElementsAre());
  EXPECT_THAT(imported->notes, ElementsAre(HasSubstr("is taken from --model")));
  EXPECT_THAT(read("").error().message(), HasSubstr("--num-layers is missing"));
  EXPECT_THAT(read("--use-checkpoint-args --num-layers 32").error().message(),
              HasSubstr("--num-layers is 32, but the model has 40"));
  EXPECT_THAT(read("--use-checkpoint-args --add-qkv-bias").error().message(),
              HasSubstr("--add-qkv-bias is given, but the model has it not"));
}

TEST(ImportMegatron, NamesWhatMegatronWillNotStartWith) {
  const spec::ModelSpec model = spec::loadModel("gpt3-175b").value();
  std::string text = replacedInRun("--fp16", "--fp16 --train-iters 9 --rampup-batch-size 8 8 99");
  text.replace(text.find("1520"), 4, "1560");
  EXPECT_THAT(importedRun(text, "run.sh", model, {})->notes,
              ::testing::Contains("Megatron refuses --rampup-batch-size beside --train-iters, and "
                                  "will not start"));
}

TEST(ImportMegatron, AnOptionThatTheTextContradictsIsAnError) {
  const spec::ModelSpec model = spec::loadModel("gpt3-175b").value();
  const auto with = [&](const LaunchOptions& launch) {
    const auto imported =
        importPlan(Framework::kMegatron, replacedInRun("1520", "1560"), "run.sh", model, launch);
    return imported.has_value() ? "read" : imported.error().message();
  };
  EXPECT_EQ(with({.tp = 8, .sequence = 2048, .batch = 1560, .microbatch = 1}), "read");
  EXPECT_EQ(with({.tp = 4}), "run.sh: it says tensor parallel 8, but --tp is 4");
  EXPECT_EQ(with({.sequence = 4096}), "run.sh: it says a sequence of 2048, but --seq is 4096");
  EXPECT_EQ(with({.batch = 64}), "run.sh: it says a batch of 1560, but --batch is 64");
}

TEST(ImportMegatron, AsksForTheNumberOfDevices) {
  const std::string text = replacedInRun("torchrun --nnodes 120 --nproc-per-node 8", "python");
  const spec::ModelSpec model = spec::loadModel("gpt3-175b").value();
  EXPECT_THAT(importedRun(text, "run.sh", model, {}).error().message(),
              HasSubstr("run.sh does not say the number of devices (--gpus)"));
  EXPECT_THAT(importedRun(kPublishedRun, "run.sh", model, 64).error().message(),
              HasSubstr("is 960, but --gpus is 64"));
}

// 96 layers on 12 stages are 8 each.
TEST(ImportMegatron, RefusesWhatMegatronReadsDifferently) {
  EXPECT_THAT(refusalOfRun(replacedInRun("-virtual-pipeline-stage 4", "-virtual-pipeline-stage 3")),
              HasSubstr("is 3, which does not divide the 96 layers of 12 stages"));
  EXPECT_THAT(refusalOfRun(replacedInRun("--fp16", "--num-virtual-stages-per-pipeline-rank 2")),
              HasSubstr("goes not with --num-virtual-stages-per-pipeline-rank"));
  EXPECT_THAT(refusalOfRun(replacedInRun("--vocab-size 51200", "--vocab-size 128256")),
              HasSubstr("--vocab-size is 128256, but the model has 51200"));
  EXPECT_THAT(refusalOfRun(replacedInRun("embeddings 2048", "embeddings 4096")),
              HasSubstr("--max-position-embeddings is 4096, but the model has 2048"));
  EXPECT_THAT(refusalOfRun(replacedInRun("--max-position-embeddings 2048", "")),
              HasSubstr("--max-position-embeddings is missing"));
  // GPT-2's 50257 is padded to 51200, as the model's vocabulary: 50 x 128 x 8.
  EXPECT_THAT(refusalOfRun(replacedInRun("--vocab-size 51200", "--vocab-size 50257")),
              HasSubstr("(P7)"));
  const spec::ModelSpec llama = spec::loadModel("llama3-8b").value();
  const std::string text =
      "--micro-batch-size 1 --seq-length 8192 --num-layers 32 --hidden-size 4096 "
      "--num-attention-heads 32 --max-position-embeddings 8192 --ffn-hidden-size 14336 --swiglu "
      "--normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights "
      "--position-embedding-type rope --rotary-base 500000 --num-query-groups 8 ";
  const auto read = [&](const std::string& more) {
    return importedRun(text + more, "run.sh", llama, 16);
  };
  EXPECT_THAT(read("").error().message(),
              HasSubstr("--num-query-groups does nothing without --group-query-attention"));
  EXPECT_THAT(read("--group-query-attention --rotary-base 10000").error().message(),
              HasSubstr("--rotary-base is 10000, but the model has 500000"));
  std::string without = text;
  without.replace(without.find("--ffn-hidden-size 14336 --swiglu "), 33, "");
  EXPECT_THAT(importedRun(without, "run.sh", llama, 16).error().message(),
              HasSubstr("--ffn-hidden-size is missing, which means 16384"));
  without = text;
  without.replace(without.find("--ffn-hidden-size 14336 "), 24, "");
  EXPECT_THAT(importedRun(without, "run.sh", llama, 16).error().message(),
              HasSubstr("--ffn-hidden-size is missing, which means 10880"));
  without = text;
  without.replace(without.find("--rotary-base 500000 "), 21, "");
  EXPECT_THAT(
      importedRun(without + "--group-query-attention", "run.sh", llama, 16).error().message(),
      HasSubstr("--rotary-base is missing, which means 10000, but the model has 500000"));
  spec::ModelSpec scaled = llama;
  scaled.ropeScaling = kLlama31Scaling;
  const auto readScaled = [&](const std::string& more) {
    return importedRun(text + "--group-query-attention " + more, "run.sh", scaled, 16);
  };
  EXPECT_TRUE(readScaled("--use-rope-scaling").has_value());
  EXPECT_TRUE(readScaled("--use-rope-scaling --rope-scaling-factor 8.0").has_value());
  EXPECT_THAT(readScaled("--use-rope-scaling --rope-scaling-factor 32").error().message(),
              HasSubstr("--use-rope-scaling is {type: llama3, factor: 32, low_freq_factor: 1, "
                        "high_freq_factor: 4, original_max_position_embeddings: 8192}, but the "
                        "model has {type: llama3, factor: 8,"));
  EXPECT_THAT(
      readScaled("").error().message(),
      HasSubstr("--use-rope-scaling is missing, which means none, but the model has {type: "));
  EXPECT_THAT(
      readScaled("--use-rope-scaling --rotary-seq-len-interpolation-factor 2").error().message(),
      HasSubstr("--rotary-seq-len-interpolation-factor cannot be priced beside"));
  EXPECT_THAT(read("--group-query-attention --use-rope-scaling").error().message(),
              HasSubstr("but the model has none"));
  EXPECT_TRUE(read("--group-query-attention --use-rope-scaling --rope-scaling-factor 1"));
  EXPECT_TRUE(read("--group-query-attention --rope-scaling-factor 4"));
  scaled.ropeScaling = {.kind = RopeScalingKind::kLinear, .factor = 4};
  EXPECT_TRUE(readScaled("--rotary-seq-len-interpolation-factor 4").has_value());
  EXPECT_THAT(
      readScaled("").error().message(),
      HasSubstr(
          "--rotary-seq-len-interpolation-factor is missing, which means none, but the model has "
          "{type: linear, factor: 4}"));
  const Result<Imported> plain = read("--group-query-attention");
  ASSERT_TRUE(plain.has_value()) << plain.error().message();
  EXPECT_EQ(plain->plan.training.globalBatchSize, 16);  // one microbatch of each of 16 replicas
  const auto sharding = [&](const std::string& more) {
    return read("--group-query-attention --use-distributed-optimizer " + more)->plan.stateSharding;
  };
  EXPECT_EQ(sharding(""), plan::StateSharding::kOptimizer);
  EXPECT_EQ(sharding("--use-megatron-fsdp"), plan::StateSharding::kNone);
  EXPECT_EQ(sharding("--use-megatron-fsdp --data-parallel-sharding-strategy optim"),
            plan::StateSharding::kOptimizer);
  EXPECT_EQ(sharding("--data-parallel-sharding-strategy optim_grads"),
            plan::StateSharding::kOptimizer);  // ignored without FSDP
}

// Whatever the bytes: a legal plan, or a message with the file.
TEST(ImportMegatron, DamagedTextIsReadOrRefused) {
  const spec::ModelSpec model = spec::loadModel("gpt3-175b").value();
  const auto check = [&](const std::string& text) {
    const Result<Imported> imported = importedRun(text, "run.sh", model, 960);
    if (imported.has_value())
      EXPECT_TRUE(plan::verifyPlan(imported->plan, model).ok()) << text;
    else
      EXPECT_THAT(imported.error().message(), HasSubstr("run.sh")) << text;
  };
  damageBytes(kPublishedRun, "0123456789-'\"\\#()|*EtL \n=\x01\xff", 1500, 4, check);
  const char* const kNumbers[] = {"0",     "-1", "3", "2147483648", "9223372036854775808",
                                  "1e999", "nan"};
  damageNumbers(kPublishedRun, kNumbers, check);
  endEarly(kPublishedRun, 1, check);
}

}  // namespace
}  // namespace trireme::codegen
