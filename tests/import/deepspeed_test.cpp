// DeepSpeed's files: what is exported comes back as the same plan; batch sizes follow from each
// other as DeepSpeed has them; what the script decides is asked for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codegen/export/export.h"
#include "codegen/import/import.h"
#include "ir/spec/load.h"
#include "tests/support/damaged_text.h"
#include "tests/support/small_plan.h"

namespace trireme::codegen {
namespace {

using plan::Plan;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const LaunchOptions kLaunch = {.gpus = 8,
                               .tp = 1,
                               .sequence = 32,
                               .batch = {},
                               .microbatch = {},
                               .recompute = plan::Recompute::kNone};

Result<Imported> readDeepspeed(const std::string& text, const LaunchOptions& launch = kLaunch) {
  return importPlan(Framework::kDeepspeed, text, "ds.json", small::gpt(4), launch);
}

std::string refusalOfDeepspeed(const std::string& text, const LaunchOptions& launch = kLaunch) {
  const Result<Imported> imported = readDeepspeed(text, launch);
  return imported.has_value() ? "read" : imported.error().message();
}

TEST(ImportDeepspeed, ReadsBackWhatIsExported) {
  const spec::ModelSpec model = small::gpt(4);
  size_t trips = 0;
  for (int sharding = 0; sharding <= 3; ++sharding)
    for (int64_t micro : {1, 2})
      for (const auto precision :
           {spec::Precision::kFp32, spec::Precision::kFp16, spec::Precision::kBf16})
        for (const auto recompute : {plan::Recompute::kNone, plan::Recompute::kFull}) {
          Plan p = small::plan(model, small::training(32, 32), 1, 1, 8);
          p.stack = "deepspeed";
          p.vocabMultiple = 1;
          p.training.precision = precision;
          p.microbatchSize = micro;
          p.recompute = recompute;
          p.stateSharding = static_cast<plan::StateSharding>(sharding);
          if (sharding > 0) std::swap(p.dpReplicate, p.dpShard);
          ASSERT_TRUE(plan::verifyPlan(p, model).ok());
          if (sharding == 0 && precision == spec::Precision::kBf16) continue;  // not expressed
          const auto file = exportPlan(p, model, Framework::kDeepspeed);
          ASSERT_TRUE(file.has_value()) << file.error().message();
          LaunchOptions launch = kLaunch;
          launch.recompute = recompute;
          const Result<Imported> back = readDeepspeed(file->text, launch);
          ASSERT_TRUE(back.has_value()) << back.error().message();
          EXPECT_EQ(plan::printPlan(back->plan), plan::printPlan(p)) << file->text;
          EXPECT_THAT(back->unpriced, ElementsAre());
          ++trips;
        }
  EXPECT_EQ(trips, 44u);
}

spec::TrainingSpec fp16(double initial, int64_t window, double least) {
  spec::TrainingSpec training = small::training(64, 32);
  training.precision = spec::Precision::kFp16;
  training.initialLossScale = initial;
  training.lossScaleWindow = window;
  training.minLossScale = least;
  return training;
}

// precision_config.py: 2^16, 1000 steps, 1 if the file says nothing of them.
TEST(ImportDeepspeed, LossesAreScaledAsTheFileSays) {
  const auto scaling = [](const std::string& fp16) {
    const Result<Imported> imported =
        readDeepspeed(R"({"train_batch_size": 64, "fp16": {"enabled": true)" + fp16 + "}}");
    EXPECT_TRUE(imported.has_value()) << imported.error().message();
    EXPECT_THAT(imported->unpriced, ElementsAre());
    const spec::TrainingSpec& t = imported->plan.training;
    EXPECT_EQ(t.precision, spec::Precision::kFp16);
    return std::tuple(t.initialLossScale, t.lossScaleWindow, t.minLossScale);
  };
  using Scaling = std::tuple<double, int64_t, double>;
  EXPECT_EQ(scaling(""), Scaling(65536, 1000, 1));
  EXPECT_EQ(scaling(R"(, "loss_scale": 0, "initial_scale_power": 12, "loss_scale_window": 200,
                       "min_loss_scale": 4, "auto_cast": true)"),
            Scaling(4096, 200, 4));
  EXPECT_EQ(scaling(R"(, "loss_scale": 128, "loss_scale_window": 200)"),
            Scaling(128, int64_t{1} << 53, 128));
}

TEST(ImportDeepspeed, LossScalesOfExportedPlansComeBack) {
  for (const spec::TrainingSpec& training :
       {fp16(65536, 2000, 1), fp16(4096, 7, 16), fp16(0x1p126, 1, 1), fp16(1, 1000, 1),
        fp16(96.5, int64_t{1} << 53, 96.5)}) {
    Plan p = small::plan(small::gpt(4), training, 1, 1, 8);
    p.stack = "deepspeed";
    p.vocabMultiple = 1;
    const auto file = exportPlan(p, small::gpt(4), Framework::kDeepspeed);
    ASSERT_TRUE(file.has_value()) << file.error().message();
    for (const std::string& note : file->notes)
      EXPECT_EQ(note.find("scaled"), std::string::npos) << note;
    const Result<Imported> back = readDeepspeed(file->text);
    ASSERT_TRUE(back.has_value()) << back.error().message();
    EXPECT_EQ(plan::printPlan(back->plan), plan::printPlan(p)) << file->text;
    EXPECT_THAT(back->notes, ElementsAre());
  }
}

TEST(ImportDeepspeed, LossScalesOfNoSenseAreRefusedByName) {
  const auto with = [](const std::string& fp16) {
    return refusalOfDeepspeed(R"({"train_batch_size": 64, "fp16": {)" + fp16 + "}}");
  };
  const std::tuple<std::string, std::string> cases[] = {
      {R"("initial_scale_power": 127)", "fp16.initial_scale_power is 127; expected 0 to 126"},
      {R"("loss_scale_window": 0)", "fp16.loss_scale_window is 0; expected 1 to"},
      {R"("min_loss_scale": 0)", "fp16.min_loss_scale is 0; expected more than 0"},
      {R"("min_loss_scale": 32, "initial_scale_power": 4)", "expected more than 0 and at most 16"},
      {R"("loss_scale": -1)", "fp16.loss_scale is '-1'; expected a number of at least 0"},
      {R"("loss_scale": 1e39)", "fp16.loss_scale is 1e+39; expected more than 0 and at most"}};
  for (const auto& [setting, message] : cases) {
    EXPECT_THAT(with("\"enabled\": true, " + setting), HasSubstr(message));
    EXPECT_EQ(with("\"enabled\": false, " + setting), "read");  // Nothing is scaled.
  }
  for (const char* state : {R"("fp16": {"fp16_master_weights_and_grads": true})",
                            R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true})",
                            R"("bf16": {"enabled": true, "bf16_optimizer_states": true})",
                            R"("torch_autocast": {"enabled": true})"})
    EXPECT_THAT(refusalOfDeepspeed(std::string(R"({"train_batch_size": 64, )") + state + "}"),
                HasSubstr("cannot be priced"));
}

TEST(ImportDeepspeed, AFixedScaleIsMegatronsToo) {
  spec::ModelSpec model = small::gpt(4);
  const spec::TrainingSpec training = fp16(128, int64_t{1} << 53, 128);
  model.maxSequence = training.sequenceLength;
  const Plan p = small::plan(model, training, 1, 1, 8);
  const auto megatron = exportPlan(p, model, Framework::kMegatron);
  ASSERT_TRUE(megatron.has_value()) << megatron.error().message();
  EXPECT_THAT(megatron->text, HasSubstr("--loss-scale 128"));
  EXPECT_EQ(megatron->text.find("--loss-scale-window"), std::string::npos);
  const auto nemo = exportPlan(p, model, Framework::kNemo);
  ASSERT_TRUE(nemo.has_value()) << nemo.error().message();
  EXPECT_THAT(nemo->notes, ::testing::Contains(HasSubstr("not by 128 all the time")));
}

// Hysteresis lets overflows pass; a misspelt switch would train in another precision.
TEST(ImportDeepspeed, HysteresisIsNotedAndMisspeltSwitchesAreListed) {
  const Result<Imported> patient = readDeepspeed(
      R"({"train_batch_size": 64, "fp16": {"enabled": true, "hysteresis": 2,
          "consecutive_hysteresis": true}})");
  ASSERT_TRUE(patient.has_value());
  EXPECT_THAT(patient->notes, Contains(HasSubstr("fp16.hysteresis is not kept")));
  const Result<Imported> misspelt =
      readDeepspeed(R"({"train_batch_size": 64, "fp16": {"enabeld": true, "hysteresis": 2}})");
  ASSERT_TRUE(misspelt.has_value());
  EXPECT_THAT(misspelt->unpriced, ElementsAre("fp16.enabeld"));
  EXPECT_THAT(misspelt->notes, ::testing::Not(Contains(HasSubstr("hysteresis"))));
}

TEST(ImportDeepspeed, LossScalesThatTheFileCannotSayAreRefusedWithTheNearest) {
  const auto refused = [](const spec::TrainingSpec& training) {
    const auto file = exportPlan(small::plan(small::gpt(4), training, 1, 1, 8), small::gpt(4),
                                 Framework::kDeepspeed);
    return file.has_value() ? "written" : file.error().message();
  };
  EXPECT_EQ(refused(fp16(65536, 2000, 1)), "written");
  EXPECT_THAT(refused(fp16(50000, 2000, 1)),
              HasSubstr("initial_loss_scale 50000 (nearest: 65536)"));
  EXPECT_THAT(refused(fp16(0.5, 2000, 0.5)), HasSubstr("initial_loss_scale 0.5 (nearest: 1)"));
  EXPECT_THAT(refused(fp16(16, 2000, 2.5)), HasSubstr("min_loss_scale 2.5 (nearest: 3)"));
}

// The settings of a published file for 70 B parameters on 32 GPUs (DeepSpeedExamples d6b8036e,
// llama_70b_multi_node.json): 256 = 1 x 8 x 32, ZeRO 3, bf16. Its optimizer, OneBitAdam, cannot be
// priced; Adam in its place can.
TEST(ImportDeepspeed, ReadsThePublishedSettingsOf70B) {
  const spec::ModelSpec model = spec::loadModel("llama2-70b").value();
  std::string text = R"({
  "train_batch_size": 256,
  "train_micro_batch_size_per_gpu": 1,
  "gradient_accumulation_steps": 8,
  "gradient_clipping": 1.0,
  "steps_per_print": 50,
  "bf16": {"enabled": true},
  "zero_optimization": {"stage": 3, "overlap_comm": true, "contiguous_gradients": true,
    "reduce_bucket_size": 500000000, "stage3_prefetch_bucket_size": 300000000},
  "optimizer": {"type": "OneBitAdam",
    "params": {"lr": 1e-5, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}}
})";
  LaunchOptions launch = kLaunch;
  launch.gpus = 32;
  launch.sequence = 4096;
  const auto import = [&] {
    return importPlan(Framework::kDeepspeed, text, "ds.json", model, launch);
  };
  EXPECT_THAT(import().error().message(),
              HasSubstr("ds.json:10:25: optimizer.type is 'OneBitAdam', which cannot be priced"));
  text.replace(text.find("OneBitAdam"), 10, "Adam");
  const Result<Imported> imported = import();
  ASSERT_TRUE(imported.has_value()) << imported.error().message();
  EXPECT_EQ(imported->plan.dpShard, 32);
  EXPECT_EQ(imported->plan.microbatchSize, 1);
  EXPECT_EQ(imported->plan.numMicrobatches(), 8);
  EXPECT_EQ(imported->plan.stateSharding, plan::StateSharding::kParameters);
  EXPECT_EQ(imported->plan.training.precision, spec::Precision::kBf16);
  EXPECT_THAT(imported->unpriced, ElementsAre());
}

TEST(ImportDeepspeed, CommentsAreBlanks) {
  const Result<Imported> imported = readDeepspeed(R"(// of "ours"
{"train_batch_size": 64, /* {"zero */"optimizer": {"type": "Adam"}, // 32
  "csv_monitor": {"output_path": "a // b \" /* c"}, "steps_per_print": 10})");
  ASSERT_TRUE(imported.has_value()) << imported.error().message();
  EXPECT_EQ(imported->plan.training.globalBatchSize, 64);
  const Result<Imported> commas =
      readDeepspeed("# mine\n{\"train_batch_size\": 64, \"a#,\": [1, 2 , ], # 3\n /* , */ }");
  ASSERT_TRUE(commas.has_value()) << commas.error().message();
  EXPECT_THAT(commas->unpriced, ElementsAre("a#,"));
  EXPECT_THAT(refusalOfDeepspeed("{\"train_batch_size\": 64,, }"), HasSubstr("not valid JSON"));
  // In its place.
  const std::string bad = "{\"train_batch_size\": 64, /* a */\n \"amp\": 1x}";
  EXPECT_THAT(refusalOfDeepspeed(bad), HasSubstr("ds.json:2:11: not valid JSON"));
  EXPECT_THAT(refusalOfDeepspeed("{\"train_batch_size\": 64 /* }"), HasSubstr("not valid JSON"));
}

TEST(ImportDeepspeed, WhatItsCommunicationIsPricedAsIsSaid) {
  const auto zero = [](int stage, const std::string& more) {
    return "{\"train_batch_size\": 64, \"zero_optimization\": {\"stage\": " +
           std::to_string(stage) + more + "}}";
  };
  const auto missing = [&](int stage, const std::string& more) {
    return readDeepspeed(zero(stage, more))->missing.gradients;
  };
  EXPECT_EQ(missing(0, ""), "");
  EXPECT_EQ(missing(2, ""), "zero_optimization.overlap_comm");
  EXPECT_EQ(missing(2, ", \"overlap_comm\": true"), "");
  EXPECT_EQ(missing(3, ""), "");  // its default
  EXPECT_EQ(missing(3, ", \"overlap_comm\": false"), "zero_optimization.overlap_comm");
  spec::StackProfile stack = spec::loadStack("deepspeed").value();
  EXPECT_THAT(setOverlap(*readDeepspeed(zero(3, ", \"overlap_comm\": false")), stack),
              ElementsAre("zero_optimization.overlap_comm"));
  EXPECT_EQ(stack.description.gatherExposed, 1);
  EXPECT_THAT(readDeepspeed(zero(1, ", \"reduce_bucket_size\": 2e9"))->notes,
              ::testing::Contains("zero_optimization.reduce_bucket_size is 2000000000: the memory "
                                  "of buckets above 1000000000 elements is not counted"));
  EXPECT_THAT(refusalOfDeepspeed(zero(2, ", \"reduce_scatter\": false")),
              HasSubstr("zero_optimization.reduce_scatter is false: gradients that every rank "
                        "reduces whole cannot be priced; nearest: true"));
  const std::string whole = ", \"stage3_param_persistence_threshold\": 2e7";
  EXPECT_THAT(
      refusalOfDeepspeed(zero(3, whole)),
      HasSubstr("stage3_param_persistence_threshold is 20000000: parameters of up to so many "
                "elements stay whole on every rank, which cannot be priced; nearest: "
                "10000000"));
  EXPECT_EQ(refusalOfDeepspeed(zero(2, whole)), "read");
}

TEST(ImportDeepspeed, ActivationsThatTensorParallelRanksShareAreRefused) {
  const std::string text =
      "{\"train_batch_size\": 64, \"activation_checkpointing\": {\"partition_activations\": "
      "true}}";
  LaunchOptions launch = kLaunch;
  EXPECT_EQ(refusalOfDeepspeed(text, launch), "read");
  launch.tp = 2;
  EXPECT_THAT(refusalOfDeepspeed(text, launch),
              HasSubstr("activation_checkpointing.partition_activations is true: activations that "
                        "2 tensor-parallel ranks share cannot be priced; nearest: false"));
}

// Its YAML is no plan.
TEST(ReadPlan, SaysThatFilesOfAccelerateAreNotRead) {
  const Result<Imported> read =
      readPlan("compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\n", "accelerate.yaml",
               small::gpt(4), kLaunch);
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().message(),
            "accelerate.yaml: files of Accelerate are not read: give DeepSpeed's JSON if it names "
            "one (deepspeed_config_file), or a plan of trireme");
}

// As `trireme export --to slurm` writes one.
TEST(ReadPlan, AsksForTheFileThatAScriptIsAround) {
  for (const char* inside :
       {"[model]\n[training]\n", "{\"train_batch_size\": 8}\n", "distributed_type: FSDP\n"}) {
    const auto imported =
        readPlan(std::string("#!/bin/bash\ncat > file <<'END'\n") + inside + "END\n", "job.sh",
                 small::gpt(4), kLaunch);
    ASSERT_FALSE(imported.has_value());
    EXPECT_THAT(
        imported.error().message(),
        ::testing::HasSubstr("job.sh: of scripts those with Megatron-LM's arguments are read"));
  }
}

struct Batch {
  const char* text;
  int64_t batch, micro;
};

// On 8 devices: batch = micro x steps x 8, of which any two give the third, and a lone one has 1
// step.
TEST(ImportDeepspeed, BatchSizesFollowFromEachOther) {
  for (const Batch& b :
       {Batch{R"("train_batch_size": 64, "train_micro_batch_size_per_gpu": 2)", 64, 2},
        Batch{R"("train_batch_size": 64, "gradient_accumulation_steps": 4)", 64, 2},
        Batch{R"("train_micro_batch_size_per_gpu": 2,
                                  "gradient_accumulation_steps": 4)",
              64, 2},
        Batch{R"("train_batch_size": 64)", 64, 8},
        Batch{R"("train_micro_batch_size_per_gpu": 2)", 16, 2}}) {
    const Result<Imported> imported = readDeepspeed(std::string("{") + b.text + "}");
    ASSERT_TRUE(imported.has_value()) << imported.error().message();
    EXPECT_EQ(imported->plan.training.globalBatchSize, b.batch) << b.text;
    EXPECT_EQ(imported->plan.microbatchSize, b.micro) << b.text;
  }
  EXPECT_THAT(
      refusalOfDeepspeed(R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 3})"),
      HasSubstr("train_batch_size is 64, but micro batch 3"));
  EXPECT_THAT(refusalOfDeepspeed(R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2,
                          "gradient_accumulation_steps": 2})"),
              HasSubstr("accumulation 2 x 8 replicas is 32"));
}

TEST(ImportDeepspeed, AsksForAllThatTheScriptDecides) {
  const std::string message = refusalOfDeepspeed(R"({"train_batch_size": 64})", {});
  for (const char* flag : {"(--gpus)", "--tp", "(--seq)", "--recompute none or full"})
    EXPECT_THAT(message, HasSubstr(flag));
  EXPECT_THAT(
      refusalOfDeepspeed(R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
                          "gradient_accumulation_steps": "auto"})"),
      HasSubstr("the batch size (--batch)"));
  LaunchOptions launch = kLaunch;
  launch.batch = 64;
  EXPECT_THAT(
      refusalOfDeepspeed(R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
                          "gradient_accumulation_steps": "auto"})",
                         launch),
      HasSubstr("the microbatch size (--microbatch)"));
  launch.microbatch = 2;
  EXPECT_EQ(
      refusalOfDeepspeed(R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
                        "gradient_accumulation_steps": "auto"})",
                         launch),
      "read");
  EXPECT_THAT(
      refusalOfDeepspeed(R"({"train_batch_size": 32, "gradient_accumulation_steps": 1})", launch),
      HasSubstr("train_batch_size is 32, but --batch is 64"));
  EXPECT_THAT(refusalOfDeepspeed(R"({"train_batch_size": 64, "bf16": {"enabled": "auto"}})"),
              HasSubstr("the precision, which is 'auto'"));
}

TEST(ImportDeepspeed, RefusesWhatWouldBePricedWronglyAndListsTheUnknown) {
  EXPECT_THAT(refusalOfDeepspeed(R"({"train_batch_size": 64,
 "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}})"),
              HasSubstr("ds.json:2:68: zero_optimization.offload_optimizer.device is 'cpu'"));
  EXPECT_THAT(refusalOfDeepspeed(R"({"train_batch_size": 64, "activation_checkpointing":
                          {"partition_activations": false, "cpu_checkpointing": true}})"),
              HasSubstr("activation_checkpointing.cpu_checkpointing cannot be priced"));
  EXPECT_THAT(refusalOfDeepspeed(R"({"train_batch_size": 64, "communication_data_type": "fp23"})"),
              HasSubstr("did you mean 'fp32'"));
  EXPECT_THAT(refusalOfDeepspeed(R"({"train_batch_size": 64, "zero_optimization": {"stage": 4}})"),
              HasSubstr("zero_optimization.stage is 4; expected 0 to 3"));
  EXPECT_THAT(refusalOfDeepspeed(R"({"train_batch_size": 64, "fp16": {"enabled": true},
                          "bf16": {"enabled": true}})"),
              HasSubstr("goes not with bf16"));
  const Result<Imported> imported = readDeepspeed(
      R"({"train_batch_size": 64, "zero_optimization": {"stage": 2, "mystery": 3}, "moe": {}})");
  ASSERT_TRUE(imported.has_value()) << imported.error().message();
  EXPECT_THAT(imported->unpriced, ElementsAre("zero_optimization.mystery", "moe"));
}

// Ranks that share sequences, stages of a pipeline and gradients of another type take other times
// and memory. 1, "auto" and the type of the computation are what is priced.
TEST(ImportDeepspeed, RefusesOtherParallelismAndAccumulation) {
  const auto with = [](const std::string& more) {
    return refusalOfDeepspeed(R"({"train_batch_size": 64, "bf16": {"enabled": true},
                                  "zero_optimization": {"stage": 1}, )" +
                              more + "}");
  };
  EXPECT_THAT(with(R"("sequence_parallel_size": 4)"),
              HasSubstr("sequence_parallel_size cannot be priced: sequences that ranks share "
                        "(Ulysses); nearest: 1"));
  EXPECT_THAT(with(R"("pipeline": {"stages": 2})"),
              HasSubstr("pipeline.stages cannot be priced: a pipeline of DeepSpeed; nearest: 1"));
  EXPECT_THAT(with(R"("data_types": {"grad_accum_dtype": "fp32"})"),
              HasSubstr("data_types.grad_accum_dtype cannot be priced beside bf16; nearest: "
                        "\"bf16\""));
  EXPECT_THAT(with(R"("data_types": {"grad_accum_dtype": "fp23"})"),
              HasSubstr("did you mean 'fp32'"));
  for (const char* priced : {R"("sequence_parallel_size": 1)", R"("pipeline": {"stages": "auto"})",
                             R"("data_types": {"grad_accum_dtype": "bf16"})",
                             R"("data_types": {"grad_accum_dtype": null})"})
    EXPECT_EQ(with(priced), "read") << priced;
}

// Without ZeRO bf16 has gradients in f32 besides (BF16_Optimizer), on one rank as well: a plan of
// one has a file with ZeRO, which shards nothing there.
TEST(ImportDeepspeed, Bf16GoesWithZero) {
  const char* const kWithout = R"({"train_batch_size": 64, "bf16": {"enabled": true}})";
  for (const int64_t gpus : {1, 8}) {
    LaunchOptions launch = kLaunch;
    launch.gpus = gpus;
    EXPECT_THAT(refusalOfDeepspeed(kWithout, launch),
                HasSubstr("zero_optimization.stage is 0: bf16 without ZeRO"));
  }
  EXPECT_EQ(refusalOfDeepspeed(R"({"train_batch_size": 64, "bf16": {"enabled": true},
                                   "data_types": {"grad_accum_dtype": "bf16"}})"),
            "read");
  const spec::ModelSpec model = small::gpt(4);
  Plan p = small::plan(model, small::training(32, 32), 1, 1, 1);
  p.stack = "deepspeed";
  p.vocabMultiple = 1;
  p.training.precision = spec::Precision::kBf16;
  const auto file = exportPlan(p, model, Framework::kDeepspeed);
  ASSERT_TRUE(file.has_value()) << file.error().message();
  EXPECT_EQ(nlohmann::json::parse(file->text)["zero_optimization"]["stage"], 1);
  LaunchOptions launch = kLaunch;
  launch.gpus = 1;
  const Result<Imported> back = readDeepspeed(file->text, launch);
  ASSERT_TRUE(back.has_value()) << back.error().message();
  EXPECT_EQ(plan::printPlan(back->plan), plan::printPlan(p));
}

// What "bf_16" turns on DeepSpeed never does: it would be a run in fp32.
TEST(ImportDeepspeed, RefusesSlipsOfThePen) {
  EXPECT_THAT(refusalOfDeepspeed(R"({"train_batch_size": 64, "bf_16": {"enabled": true}})"),
              HasSubstr("ds.json:1:35: bf_16 is not known; did you mean 'bf16'?"));
  EXPECT_THAT(refusalOfDeepspeed(R"({"train_batch_size": 64, "BF16": {"enabled": true}})"),
              HasSubstr("BF16 is not known; did you mean 'bf16'?"));
  EXPECT_THAT(refusalOfDeepspeed(R"({"train_batch_size": 64, "zero_optimisation": {"stage": 2}})"),
              HasSubstr("did you mean 'zero_optimization'?"));
  EXPECT_THAT(refusalOfDeepspeed(
                  R"({"train_batch_size": 64, "zero_optimization": {"stage": 2, "stagee": 3}})"),
              HasSubstr("zero_optimization.stagee is not known; did you mean 'stage'?"));
}

TEST(ImportDeepspeed, GradientsTravelInTheTypeThatIsAskedFor) {
  const auto bytes = [](const std::string& more) {
    return readDeepspeed(R"({"train_batch_size": 64, "bf16": {"enabled": true},
                             "zero_optimization": {"stage": 1})" +
                         more + "}")
        ->widths.reducedGradient;
  };
  EXPECT_EQ(bytes(""), std::nullopt);
  EXPECT_EQ(bytes(R"(, "communication_data_type": "fp32")"), 4);
  EXPECT_EQ(bytes(R"(, "communication_data_type": "bf16")"), 2);
  EXPECT_EQ(bytes(R"(, "communication_data_type": null)"), std::nullopt);
}

// _initialize_params() of DeepSpeed's runtime/config.py: its own optimizers in any case. FusedAdam
// is none of them, nor of torch.optim: DeepSpeed refuses it, too.
TEST(ImportDeepspeed, OptimizersAreAdamInAnyCase) {
  const auto with = [](const std::string& type) {
    return refusalOfDeepspeed(R"({"train_batch_size": 64, "optimizer": {"type": ")" + type +
                              "\"}}");
  };
  for (const char* type : {"AdamW", "adamw", "ADAMW", "Adam", "adam", "aDaM"})
    EXPECT_EQ(with(type), "read") << type;
  for (const char* type : {"Lamb", "OneBitAdam", "FusedAdam", "auto", ""})
    EXPECT_THAT(with(type), HasSubstr("which cannot be priced; nearest: 'AdamW'")) << type;
}

// Whatever Hugging Face's Trainer (integrations/deepspeed.py) and Accelerate fill in: asked for
// where it counts, passed over where it does not.
TEST(ImportDeepspeed, AutoIsAskedForWhereItCounts) {
  const std::string trainer = R"({
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
    "bf16": {"enabled": true}, "amp": {"enabled": "auto", "opt_level": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto",
                                              "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
                                                 "warmup_num_steps": "auto"}},
    "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto",
      "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto",
      "stage3_gather_16bit_weights_on_model_save": "auto", "overlap_comm": true,
      "offload_optimizer": {"device": "none", "nvme_path": "auto"}}})";
  LaunchOptions launch = kLaunch;
  launch.batch = 64;
  launch.microbatch = 2;
  const Result<Imported> imported = readDeepspeed(trainer, launch);
  ASSERT_TRUE(imported.has_value()) << imported.error().message();
  EXPECT_EQ(imported->plan.training.globalBatchSize, 64);
  EXPECT_EQ(imported->plan.stateSharding, plan::StateSharding::kParameters);
  EXPECT_THAT(imported->unpriced, ElementsAre("amp.opt_level"));
  // All of it at once.
  const std::string message = refusalOfDeepspeed(R"({"train_batch_size": "auto",
      "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
      "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"},
      "zero_optimization": {"stage": "auto", "offload_param": {"device": "auto"}}})",
                                                 {.gpus = 8, .tp = 1});
  for (const char* missing : {"the batch size (--batch)", "the precision, which is 'auto'",
                              "the ZeRO stage, which is 'auto' (write 0 to 3)",
                              "zero_optimization.offload_param.device, which is 'auto'",
                              "the sequence length (--seq)", "--recompute none or full"})
    EXPECT_THAT(message, HasSubstr(missing));
}

// PyTorch's AdamW, by torch_adam or for want of an optimizer, holds 4 bytes a parameter besides the
// 4 of gradients in f32; of groups of 1e9 elements, 8 GB. Fused it does not, and profiles of other
// programs have steps of their own.
TEST(ImportDeepspeed, AnOptimizerOfPytorchHoldsMoreInItsStep) {
  const auto stepOf = [](const std::string& optimizer, const char* profile = "deepspeed") {
    const Result<Imported> imported =
        readDeepspeed(R"({"train_batch_size": 64, "bf16": {"enabled": true},)" + optimizer +
                      R"("zero_optimization": {"stage": 3}})");
    EXPECT_TRUE(imported.has_value()) << imported.error().message();
    spec::StackProfile stack = spec::loadStack(profile).value();
    const spec::StackDescription before = stack.description;
    const std::string said = setWidths(*imported, "ds.json", stack);
    EXPECT_EQ(said.empty(), stack.description == before);
    EXPECT_THAT(said,
                said.empty() ? HasSubstr("") : HasSubstr(": the optimizer's step of 8 B (4 B);"));
    EXPECT_EQ(stack.description.stepGradientsAtOnce,
              said.empty() ? before.stepGradientsAtOnce : Bytes(8e9));
    return stack.description.stepGradientBytes;
  };
  EXPECT_EQ(stepOf(""), 8);
  EXPECT_EQ(stepOf(R"("optimizer": {"type": "AdamW"},)"), 4);
  EXPECT_EQ(stepOf(R"("optimizer": {"type": "Adam", "params": {"torch_adam": true}},)"), 8);
  EXPECT_EQ(
      stepOf(R"("optimizer": {"type": "Adam", "params": {"torch_adam": true, "fused": true}},)"),
      4);
  EXPECT_EQ(stepOf("", "accelerate"), spec::loadStack("accelerate")->description.stepGradientBytes);
  EXPECT_EQ(stepOf("", "torchtitan"), 0);
  EXPECT_THAT(readDeepspeed(R"({"train_batch_size": 64})")->notes,
              Contains(HasSubstr("it has no optimizer: the script's is taken to be")));
}

TEST(ImportDeepspeed, TheOldFormOfZeroIsRefused) {
  EXPECT_THAT(refusalOfDeepspeed("{\"train_batch_size\": 64,\n\"zero_optimization\": true}"),
              HasSubstr("ds.json:2:22: zero_optimization is 'true', an old form that is not read; "
                        "nearest: {\"stage\": 1}"));
  EXPECT_THAT(refusalOfDeepspeed(R"({"train_batch_size": 64, "zero_optimization": false})"),
              HasSubstr("nearest: {\"stage\": 0}"));
}

TEST(ImportDeepspeed, FilesAreToldApart) {
  EXPECT_EQ(frameworkOfFile("{\"train_batch_size\": 8}", "x.json"), Framework::kDeepspeed);
  EXPECT_EQ(frameworkOfFile("[model]", "x.toml"), Framework::kTorchtitan);
  EXPECT_EQ(frameworkOfFile("# a run\n[model]\n[training]\n", "x"), Framework::kTorchtitan);
  EXPECT_EQ(frameworkOfFile("--micro-batch-size 1", "x.sh"), Framework::kMegatron);
  EXPECT_EQ(frameworkOfFile("version: 1\n", "x.plan.yaml"), std::nullopt);
}

// Whatever the bytes: a legal plan, or a message with the file.
TEST(ImportDeepspeed, DamagedTextIsReadOrRefused) {
  const std::string good =
      R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true},
          "zero_optimization": {"stage": 2, "overlap_comm": true}, "gradient_clipping": 1.0,
          "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.95]}}})";
  const auto check = [&](const std::string& text) {
    const Result<Imported> imported = readDeepspeed(text);
    if (imported.has_value())
      EXPECT_TRUE(plan::verifyPlan(imported->plan, small::gpt(4)).ok()) << text;
    else
      EXPECT_THAT(imported.error().message(), HasSubstr("ds.json")) << text;
  };
  damageBytes(good, "0123456789-\"{}[]:, \n\x01\xff", 800, 3, check);
  const char* const kNumbers[] = {"0", "-1", "3", "2147483648", "1e999"};
  damageNumbers(good, kNumbers, check);
  endEarly(good, 2, check);
}

}  // namespace
}  // namespace trireme::codegen
