// torchtitan's files: what is exported comes back as the same plan; what others published has the
// settings that they published; what is left to the launcher is asked for.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codegen/export/export.h"
#include "codegen/import/import.h"
#include "ir/spec/load.h"
#include "tests/support/damaged_text.h"

namespace trireme::codegen {
namespace {

using plan::Plan;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Result<Imported> readToml(const std::string& text, const spec::ModelSpec& model,
                          const LaunchOptions& launch = {}) {
  return importPlan(Framework::kTorchtitan, text, "run.toml", model, launch);
}

std::string refusalOfToml(const std::string& text, const spec::ModelSpec& model,
                          const LaunchOptions& launch = {.gpus = 64}) {
  const Result<Imported> imported = readToml(text, model, launch);
  return imported.has_value() ? "read" : imported.error().message();
}

Plan planOf(const spec::ModelSpec& model) {
  Plan p;
  p.model = model.name;
  p.fingerprint = plan::fingerprintOf(model);
  p.training.globalBatchSize = 64;
  p.training.sequenceLength = 8192;
  p.training.precision = spec::Precision::kBf16;
  p.training.warmupSteps = 20;
  p.training.decaySteps = 80;
  p.vocabMultiple = 1;
  return p;
}

constexpr std::pair<const char*, spec::Precision> kStacks[] = {
    {"torchtitan", spec::Precision::kBf16},
    {"torchtitan-compiled", spec::Precision::kFp8},
    {"torchtitan-compiled-fp8-rowwise", spec::Precision::kFp8},
    {"torchtitan-compiled-async-tp-fp8-rowwise", spec::Precision::kFp8},
    {"torchtitan-compiled-async-tp", spec::Precision::kBf16}};

spec::StackSettings settingsOf(const char* stack) { return spec::loadStack(stack)->settings; }

// All that torchtitan's file says, so that only the padding of the vocabulary, which it does not
// do, has to be set.
TEST(ImportTorchtitan, ReadsBackWhatIsExported) {
  const spec::ModelSpec model = spec::loadModel("llama3-8b").value();
  size_t trips = 0;
  for (int64_t tp : {1, 4})
    for (int64_t pp : {1, 2})
      for (int64_t v : {1, 2})
        for (int64_t cp : {1, 2})
          for (int64_t replicate : {1, 2})
            for (int sharding = 0; sharding <= 3; ++sharding)
              for (int recompute = 0; recompute <= 2; ++recompute)
                for (const auto& [stack, precision] : kStacks) {
                  Plan p = planOf(model);
                  p.stack = stack;
                  p.training.precision = precision;
                  p.tp = tp;
                  p.pp = pp;
                  p.cp = cp;
                  p.dpReplicate = replicate;
                  p.dpShard = sharding > 0 ? 4 : 1;
                  p.virtualStages = v;
                  p.microbatchSize = pp > 1 ? 2 : 4;
                  p.layers = plan::evenLayers(model.numLayers, pp, v);
                  if (v > 1) p.schedule = plan::ScheduleKind::kInterleaved;
                  p.stateSharding = static_cast<plan::StateSharding>(sharding);
                  p.recompute = static_cast<plan::Recompute>(recompute);
                  p.sequenceParallel = tp > 1;
                  const ExportOptions options{.steps = {}, .settings = settingsOf(stack)};
                  Plan onNodes = p;
                  onNodes.devicesPerHost = 1;
                  if (!plan::verifyPlan(p, model).ok()) continue;
                  const auto file = exportPlan(onNodes, model, Framework::kTorchtitan, options);
                  if (!file.has_value()) continue;  // torchtitan cannot do it
                  const Result<Imported> back = readToml(file->text, model);
                  ASSERT_TRUE(back.has_value()) << back.error().message() << "\n" << file->text;
                  Plan expected = p;
                  expected.training.seed = back->plan.training.seed;  // says nothing of the price
                  EXPECT_EQ(plan::printPlan(back->plan), plan::printPlan(expected)) << file->text;
                  EXPECT_THAT(back->unpriced, ElementsAre());
                  ++trips;
                }
  EXPECT_GT(trips, 50u);
}

// The settings of torchtitan/models/llama3/train_configs/llama3_405b.toml (commit 01424cb2), a
// preset for 128 H100: batch 2, sequence 8192, tp 8 with async tp, compiled, full recomputation,
// tensorwise float8, and a shard degree of -1: 128 / 8 = 16 devices, 32 sequences a step.
constexpr const char* kPublishedToml = R"([job]
description = "Llama 3 405B"
[model]
name = "llama3"
flavor = "405B"
converters = "float8"
[optimizer]
name = "AdamW"
lr = 8e-5
[lr_scheduler]
warmup_steps = 600
[training]
batch_size = 2
seq_len = 8192
max_norm = 1.0
steps = 3000
compile = true
dataset = "c4"
[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
tensor_parallel_degree = 8
enable_async_tensor_parallel = true
pipeline_parallel_degree = 1
context_parallel_degree = 1
[checkpoint]
interval = 500
[activation_checkpoint]
mode = 'full'
[float8]
enable_fsdp_float8_all_gather = true
precompute_float8_dynamic_scale_for_fsdp = true
filter_fqns = "output"
)";

std::string replacedInToml(const std::string& what, const std::string& by) {
  std::string text = kPublishedToml;
  return text.replace(text.find(what), what.size(), by);
}

TEST(ImportTorchtitan, ReadsThePublishedPresetFor405B) {
  const spec::ModelSpec model = spec::loadModel("llama3-405b").value();
  const Result<Imported> imported = readToml(kPublishedToml, model, {.gpus = 128});
  ASSERT_TRUE(imported.has_value()) << imported.error().message();
  const Plan& p = imported->plan;
  EXPECT_EQ(p.tp, 8);
  EXPECT_EQ(p.dpShard, 16);
  EXPECT_EQ(p.training.globalBatchSize, 32);
  EXPECT_EQ(p.microbatchSize, 2);
  EXPECT_TRUE(p.sequenceParallel);
  EXPECT_EQ(p.stateSharding, plan::StateSharding::kParameters);
  EXPECT_EQ(p.recompute, plan::Recompute::kFull);
  EXPECT_EQ(p.training.precision, spec::Precision::kFp8);
  EXPECT_EQ(p.stack, "torchtitan-compiled-async-tp");
  EXPECT_EQ(p.training.decaySteps, 2400);
  EXPECT_THAT(imported->unpriced, ElementsAre("float8.enable_fsdp_float8_all_gather",
                                              "float8.precompute_float8_dynamic_scale_for_fsdp"));
  EXPECT_THAT(imported->notes, ElementsAre());
}

// What torchtitan's own files have, unlike its default.
TEST(ImportTorchtitan, NotesProductsInAnotherFormat) {
  const spec::ModelSpec model = spec::loadModel("llama3-405b").value();
  const auto notes = [&](const std::string& filter) {
    return readToml(replacedInToml("filter_fqns = \"output\"", filter), model, {.gpus = 128})
        ->notes;
  };
  EXPECT_THAT(notes("filter_fqns = [\"output\"]"), ElementsAre());
  EXPECT_THAT(notes(""), ElementsAre(HasSubstr("filter_fqns is missing, which puts the output")));
  EXPECT_THAT(notes("filter_fqns = []"),
              ElementsAre(HasSubstr("filter_fqns is [], which puts the output in fp8 as well")));
  EXPECT_THAT(notes("filter_fqns = \"attention,output\""),
              ElementsAre(HasSubstr("float8.filter_fqns is [\"attention\", \"output\"]: priced")));
}

// kPublishedToml with a sequence for each of four stages.
std::string inFourStages(const std::string& more) {
  std::string text =
      replacedInToml("pipeline_parallel_degree = 1", "pipeline_parallel_degree = 4" + more);
  return text.replace(text.find("batch_size = 2"), 14, "batch_size = 4");
}

// 126 layers + 1 + 1 are 128 on 4 stages: 32 each, one less on the first and the last.
// generate_llm_fqn_per_model_part() says so.
TEST(ImportTorchtitan, EmbeddingAndHeadCountAsLayersOfAPipeline) {
  const spec::ModelSpec model = spec::loadModel("llama3-405b").value();
  const Result<Imported> imported =
      readToml(inFourStages("\nfsdp_reshard_after_forward = \"never\""), model, {.gpus = 128});
  ASSERT_TRUE(imported.has_value()) << imported.error().message();
  std::vector<int64_t> counts;
  for (const auto& stage : imported->plan.layers) counts.push_back(stage[0].count);
  EXPECT_THAT(counts, ElementsAre(31, 32, 32, 31));
  EXPECT_EQ(imported->plan.microbatchSize, 1);  // pipeline_parallel_microbatch_size
  EXPECT_EQ(imported->plan.stateSharding, plan::StateSharding::kParameters);
}

TEST(ImportTorchtitan, UnderAPipelineParametersAreGatheredOncePerStep) {
  const spec::ModelSpec model = spec::loadModel("llama3-405b").value();
  const auto read = [&](const std::string& more) {
    return refusalOfToml(inFourStages(more), model, {.gpus = 128});
  };
  EXPECT_EQ(read(""), "read");
  EXPECT_THAT(read("\nfsdp_reshard_after_forward = \"always\""),
              HasSubstr("is 'always', which under a pipeline gathers parameters for every "
                        "microbatch"));
}

TEST(ImportTorchtitan, AsksForWhatTheLauncherSays) {
  const spec::ModelSpec model = spec::loadModel("llama3-405b").value();
  EXPECT_THAT(refusalOfToml(kPublishedToml, model, {}),
              HasSubstr("run.toml does not say the number of devices"));
  EXPECT_THAT(refusalOfToml(replacedInToml("'full'", "'selective'"), model),
              HasSubstr("selective_ac_option, whose default is '2' or 'op', depending on "
                        "torchtitan's version (--recompute selective says"));
  const Result<Imported> answered =
      readToml(replacedInToml("'full'", "'selective'"), model,
               {.gpus = 64, .recompute = plan::Recompute::kSelective});
  ASSERT_TRUE(answered.has_value()) << answered.error().message();
  EXPECT_EQ(answered->plan.recompute, plan::Recompute::kSelective);
  EXPECT_THAT(refusalOfToml(replacedInToml("shard_degree = -1", "shard_degree = 4"), model),
              HasSubstr("make 32 devices, but --gpus is 64"));
}

TEST(ImportTorchtitan, RefusesWithTheLine) {
  const spec::ModelSpec model = spec::loadModel("llama3-405b").value();
  EXPECT_THAT(
      refusalOfToml(replacedInToml("\"405B\"", "\"8B\""), model),
      HasSubstr("run.toml:5:10: model.flavor is '8B', but the model llama3-405b is '405B'"));
  EXPECT_THAT(refusalOfToml(replacedInToml("'full'", "'fulll'"), model),
              HasSubstr("activation_checkpoint.mode is 'fulll'; did you mean 'full'?"));
  EXPECT_THAT(refusalOfToml(replacedInToml("\"float8\"", "\"mx\""), model),
              HasSubstr("has 'mx', which cannot"));
  EXPECT_THAT(
      refusalOfToml(replacedInToml("tensor_parallel_degree = 8", "tensor_parallel_degree = 0"),
                    model),
      HasSubstr("tensor_parallel_degree is 0; expected at least 1"));
  EXPECT_THAT(
      refusalOfToml(replacedInToml("seq_len = 8192", "seq_len = 8200"), model),
      HasSubstr("training.seq_len gives a sequence 8200 with tp 8 and cp 1, which 2 x tp x cp does "
                "not divide; nearest: tp 4"));
  EXPECT_THAT(refusalOfToml(replacedInToml("tensor_parallel_degree = 8",
                                           "tensor_parallel_degree = 1073741824"),
                            model),
              HasSubstr("which does not divide 64 devices"));
  EXPECT_THAT(refusalOfToml("[model\n", model), HasSubstr("run.toml:"));
  EXPECT_THAT(refusalOfToml(replacedInToml("dataset = \"c4\"", "enable_cpu_offload = true"), model),
              HasSubstr("training.enable_cpu_offload cannot be priced"));
}

// maybe_enable_async_tp() raises a RuntimeError; of one rank it is never called.
TEST(ImportTorchtitan, AsyncTensorParallelismNeedsTheModelCompiled) {
  const spec::ModelSpec model = spec::loadModel("llama3-405b").value();
  std::string text = replacedInToml("compile = true\n", "");
  text.replace(text.find("converters = \"float8\"\n"), 22, "");
  EXPECT_THAT(refusalOfToml(text, model, {.gpus = 128}),
              HasSubstr("run.toml:21:32: parallelism.enable_async_tensor_parallel needs the model "
                        "compiled: torchtitan refuses it without [compile] enable = true"));
  text.replace(text.find("tensor_parallel_degree = 8"), 26, "tensor_parallel_degree = 1");
  EXPECT_EQ(refusalOfToml(text, model, {.gpus = 128}), "read");
}

TEST(ImportTorchtitan, ReadsTheNamesOfLaterVersions) {
  const spec::ModelSpec model = spec::loadModel("llama3-405b").value();
  std::string text = replacedInToml("compile = true\n", "");
  text.replace(text.find("[float8]"), 8,
               "[compile]\nenable = true\ncomponents = [\"model\", \"loss\"]\n"
               "[quantize.linear.float8]\nrecipe_name = \"rowwise\"");
  const Result<Imported> imported = readToml(text, model, {.gpus = 128});
  ASSERT_TRUE(imported.has_value()) << imported.error().message();
  EXPECT_EQ(imported->plan.stack, "torchtitan-compiled-async-tp-fp8-rowwise");
  EXPECT_THAT(imported->unpriced,
              ElementsAre("quantize.linear.float8.enable_fsdp_float8_all_gather",
                          "quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp"));
  EXPECT_THAT(imported->notes, Not(Contains(HasSubstr("logits"))));
  spec::StackProfile stack = spec::loadStack(imported->plan.stack).value();
  const double compiled = stack.description.logitBytes;
  setWidths(*imported, "run.toml", stack);
  EXPECT_EQ(stack.description.logitBytes, compiled);
  // A loss that is not keeps copies of the logits in f32.
  std::string eager = text;
  eager.replace(eager.find(", \"loss\""), 8, "");
  const Imported without = readToml(eager, model, {.gpus = 128}).value();
  EXPECT_THAT(without.notes, Contains(HasSubstr("compile.components leave out \"loss\"")));
  setWidths(without, "run.toml", stack);
  EXPECT_GE(stack.description.logitBytes, compiled + 8);
  // A compiled loss compiles no layer.
  text.replace(text.find("\"model\", "), 9, "");
  EXPECT_THAT(refusalOfToml(text, model, {.gpus = 128}),
              HasSubstr("compile.enable is needed beside"));
}

TEST(ImportTorchtitan, EveryConverterCounts) {
  const spec::ModelSpec model = spec::loadModel("llama3-405b").value();
  EXPECT_THAT(refusalOfToml(replacedInToml("\"float8\"", "[\"float8\", \"mx\"]"), model),
              HasSubstr("model.converters has 'mx', which cannot be priced"));
}

// The settings of train_configs/llama3_405b.toml (commit 37c4b818), of before [parallelism].
constexpr const char* kOld405B = R"([model]
name = "llama3"
flavor = "405B"
norm_type = "rmsnorm"
[optimizer]
name = "AdamW"
lr = 8e-5
[training]
batch_size = 2
seq_len = 8192
warmup_steps = 600
max_norm = 1.0
steps = 3000
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
tensor_parallel_degree = 8
compile = true
dataset = "c4"
[experimental]
context_parallel_degree = 1
pipeline_parallel_degree = 1
enable_async_tensor_parallel = true
[activation_checkpoint]
mode = 'full'
[float8]
enable_float8_linear = true
enable_fsdp_float8_all_gather = true
precompute_float8_dynamic_scale_for_fsdp = true
)";

// The settings of train_configs/llama3_8b.toml (commit 0011fb90), a preset for 64 A100.
constexpr const char* kOld8B = R"([model]
name = "llama3"
flavor = "8B"
norm_type = "rmsnorm"
[optimizer]
name = "AdamW"
lr = 3e-4
[training]
seed=2020
batch_size = 1
seq_len = 8192
warmup_steps = 200
max_norm = 1.0
steps = 1000
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
tensor_parallel_degree = 1
compile = false
dataset = "c4"
[experimental]
pipeline_parallel_degree = 1
[activation_checkpoint]
mode = 'selective'
selective_ac_option = 'op'
[float8]
enable_float8_linear = false
)";

std::string old8B(const std::string& what, const std::string& by) {
  std::string text = kOld8B;
  return text.replace(text.find(what), what.size(), by);
}

// The same plan as the preset of 2025 that says it in [parallelism].
TEST(ImportTorchtitan, TheLayoutOf2024IsRead) {
  const spec::ModelSpec model = spec::loadModel("llama3-405b").value();
  const Result<Imported> old = readToml(kOld405B, model, {.gpus = 128});
  const Result<Imported> now = readToml(kPublishedToml, model, {.gpus = 128});
  ASSERT_TRUE(old.has_value()) << old.error().message();
  EXPECT_EQ(plan::printPlan(old->plan), plan::printPlan(now->plan));
  EXPECT_EQ(old->unpriced, now->unpriced);
  // Its loss was not compiled, and its filter left the output out of fp8 unasked.
  EXPECT_FALSE(old->compilesLoss);
  EXPECT_TRUE(now->compilesLoss);
  EXPECT_THAT(old->notes, ElementsAre(HasSubstr("in this version the loss is not compiled")));
  EXPECT_THAT(refusalOfToml(replacedInToml("steps = 3000", "steps = 3000\ndtype = \"bfloat16\""),
                            model, {.gpus = 128}),
              HasSubstr("training.dtype is 'bfloat16', which cannot be priced"));
  const spec::ModelSpec small = spec::loadModel("llama3-8b").value();
  const Result<Imported> of8B = readToml(kOld8B, small, {.gpus = 64});
  ASSERT_TRUE(of8B.has_value()) << of8B.error().message();
  EXPECT_EQ(of8B->plan.dpShard, 64);
  EXPECT_EQ(of8B->plan.training.precision, spec::Precision::kBf16);
  EXPECT_EQ(of8B->plan.training.warmupSteps, 200);
  EXPECT_EQ(of8B->plan.training.decaySteps, 800);
  EXPECT_EQ(of8B->plan.recompute, plan::Recompute::kSelective);
  EXPECT_THAT(of8B->unpriced, ElementsAre());
}

TEST(ImportTorchtitan, ASettingInTwoPlacesHasOneValue) {
  const spec::ModelSpec model = spec::loadModel("llama3-8b").value();
  const auto with = [&](const std::string& more) {
    return refusalOfToml(std::string(kOld8B) + more, model);
  };
  EXPECT_EQ(with("[parallelism]\ntensor_parallel_degree = 1\n"), "read");
  EXPECT_THAT(with("[parallelism]\ntensor_parallel_degree = 4\n"),
              HasSubstr("training.tensor_parallel_degree is '1', but "
                        "parallelism.tensor_parallel_degree, which is the same setting, is '4'"));
  EXPECT_THAT(
      refusalOfToml(old8B("tensor_parallel_degree = 1", "tensor_parallel_degree = 0"), model),
      HasSubstr("run.toml:17:26: training.tensor_parallel_degree is 0"));
  EXPECT_THAT(refusalOfToml(replacedInToml("[float8]", "[float8]\nenable_float8_linear = false"),
                            spec::loadModel("llama3-405b").value(), {.gpus = 128}),
              HasSubstr("float8.enable_float8_linear is off, but model.converters has float8"));
}

// Four microbatches, the pipeline's degree, of a batch of 8; layers 0 to 6, 7 to 15, 16 and on.
TEST(ImportTorchtitan, PipelinesOf2024AreSplitAtPointsIntoPieces) {
  const spec::ModelSpec model = spec::loadModel("llama3-8b").value();
  const auto text = [&](const std::string& more) {
    std::string result = old8B("pipeline_parallel_degree = 1",
                               "pipeline_parallel_degree = 4\n"
                               "pipeline_parallel_schedule = \"gpipe\"\n" +
                                   more);
    result.replace(result.find("batch_size = 1"), 14, "batch_size = 8");
    return result.replace(result.find("seed=2020"), 9, "fsdp_reshard_after_forward = \"never\"");
  };
  const auto imported =
      readToml(text("pipeline_parallel_split_points = \"layers.7,layers.16,layers.24\"\n"), model,
               {.gpus = 64});
  ASSERT_TRUE(imported.has_value()) << imported.error().message();
  EXPECT_EQ(imported->plan.schedule, plan::ScheduleKind::kGpipe);
  EXPECT_EQ(imported->plan.microbatchSize, 2);
  std::vector<int64_t> counts;
  for (const auto& stage : imported->plan.layers) counts.push_back(stage[0].count);
  EXPECT_THAT(counts, ElementsAre(7, 9, 8, 8));
  const auto even = readToml(text("pipeline_parallel_microbatches = 8\n"), model, {.gpus = 64});
  ASSERT_TRUE(even.has_value()) << even.error().message();
  EXPECT_EQ(even->plan.microbatchSize, 1);
  EXPECT_EQ(even->plan.layers[0][0].count, 8);
  EXPECT_THAT(refusalOfToml(text("pipeline_parallel_microbatches = 3\n"), model),
              HasSubstr("pipeline_parallel_microbatches is 3, which does not divide"));
  EXPECT_THAT(
      refusalOfToml(text("pipeline_parallel_split_points = \"layers.7,layers.7\"\n"), model),
      HasSubstr("pipeline_parallel_split_points has 'layers.7'; expected layers.8"));
}

TEST(ImportTorchtitan, PipelinesThatPyTorchRefusesAreRefused) {
  const spec::ModelSpec model = spec::loadModel("llama3-8b").value();
  const auto with = [&](int local, const std::string& more, int pp = 4) {
    return refusalOfToml(
        fmt::format("[model]\nflavor = \"8B\"\n[training]\nlocal_batch_size = {}\n[parallelism]\n"
                    "pipeline_parallel_degree = {}\n{}[activation_checkpoint]\nmode = \"none\"\n",
                    local, pp, more),
        model);
  };
  EXPECT_EQ(with(4, ""), "read");
  EXPECT_EQ(with(2, "", 1), "read");
  EXPECT_THAT(with(2, ""),
              HasSubstr("run.toml:4:20: training.local_batch_size gives 2 microbatches in 4 "
                        "stages, which PyTorch refuses; nearest: pp 2"));
  EXPECT_THAT(with(8,
                   "pipeline_parallel_schedule = \"GPipe\"\n"
                   "pipeline_parallel_microbatch_size = 8\n"),
              HasSubstr("gives 1 microbatch in 4 stages, which PyTorch refuses; nearest: "
                        "microbatches of 2"));
  const std::string orders = "pipeline_parallel_schedule_csv = \"zbv.csv\"\n";
  EXPECT_THAT(with(4, orders),
              HasSubstr("parallelism.pipeline_parallel_schedule_csv is 'zbv.csv': orders of a file "
                        "cannot be priced"));
  EXPECT_EQ(with(4, orders, 1), "read");
}

// maybe_enable_amp() of torchtitan/distributed/utils.py.
TEST(ImportTorchtitan, WhatIsNotShardedBesideTensorParallelismIsFp32) {
  const spec::ModelSpec model = spec::loadModel("llama3-8b").value();
  const auto text = [&](int tp, int replicate, const std::string& more) {
    return fmt::format(
        "[model]\nflavor = \"8B\"\n[training]\n{}[parallelism]\ntensor_parallel_degree = {}\n"
        "data_parallel_replicate_degree = {}\n[activation_checkpoint]\nmode = \"full\"\n",
        more, tp, replicate);
  };
  const auto imported = readToml(text(8, 1, ""), model, {.gpus = 8});
  ASSERT_TRUE(imported.has_value()) << imported.error().message();
  EXPECT_EQ(imported->plan.training.precision, spec::Precision::kFp32);
  EXPECT_THAT(imported->unpriced, ElementsAre());
  EXPECT_THAT(notesOf(*imported, "run.toml"),
              ElementsAre("run.toml: training.mixed_precision_param has no effect, since nothing "
                          "is sharded beside tp or pp: priced in fp32, as torchtitan computes"));
  EXPECT_THAT(
      readToml(text(8, 1, "mixed_precision_param = \"float32\"\n"), model, {.gpus = 8})->notes,
      ElementsAre());
  EXPECT_THAT(
      refusalOfToml(text(8, 1, "mixed_precision_reduce = \"bfloat16\"\n"), model, {.gpus = 8}),
      HasSubstr("mixed_precision_reduce"));
  EXPECT_EQ(readToml(text(4, 1, ""), model, {.gpus = 8})->plan.training.precision,
            spec::Precision::kBf16);
  EXPECT_EQ(readToml(text(1, 8, ""), model, {.gpus = 8})->plan.training.precision,
            spec::Precision::kBf16);  // autocast
  EXPECT_THAT(refusalOfToml(text(4, 2, ""), model, {.gpus = 8}),
              HasSubstr("nearest: data_parallel_shard_degree 2 and data_parallel_replicate_degree "
                        "1"));
}

TEST(ImportTorchtitan, AnOptionThatTheFileContradictsIsAnError) {
  const spec::ModelSpec model = spec::loadModel("llama3-405b").value();
  const auto with = [&](LaunchOptions launch) {
    launch.gpus = 128;
    return refusalOfToml(kPublishedToml, model, launch);
  };
  EXPECT_EQ(with({.tp = 8, .sequence = 8192, .batch = 32, .microbatch = 2}), "read");
  EXPECT_EQ(with({.tp = 4}), "run.toml: it says tensor parallel 8, but --tp is 4");
  EXPECT_THAT(with({.sequence = 4096}), HasSubstr("makes 8192, but --seq is 4096"));
  EXPECT_THAT(with({.batch = 64}), HasSubstr("makes 32, but --batch is 64"));
  EXPECT_EQ(with({.microbatch = 1}), "run.toml: it says microbatch 2, but --microbatch is 1");
  EXPECT_EQ(with({.recompute = plan::Recompute::kNone}),
            "run.toml: it says recompute full, but --recompute is none");
}

TEST(ImportTorchtitan, UnknownSettingsAreListed) {
  const spec::ModelSpec model = spec::loadModel("llama3-405b").value();
  const Result<Imported> imported =
      readToml(replacedInToml("dataset = \"c4\"", "corpus = \"c4\"") + "[extra]\nx = 1\ny = 2\n",
               model, {.gpus = 64});
  ASSERT_TRUE(imported.has_value()) << imported.error().message();
  EXPECT_THAT(imported->unpriced,
              ElementsAre("training.corpus", "extra", "float8.enable_fsdp_float8_all_gather",
                          "float8.precompute_float8_dynamic_scale_for_fsdp"));
}

// A slip of the pen would be priced as if it were not there.
TEST(ImportTorchtitan, MisspeltSettingsAreRefused) {
  const spec::ModelSpec model = spec::loadModel("llama3-405b").value();
  const Result<Imported> imported = readToml(
      replacedInToml("tensor_parallel_degree", "tensor_parallel_degre"), model, {.gpus = 64});
  ASSERT_FALSE(imported.has_value());
  EXPECT_THAT(imported.error().message(),
              HasSubstr("parallelism.tensor_parallel_degre is not known; did you mean "
                        "'tensor_parallel_degree'?"));
}

// Whatever the bytes: a legal plan, or a message with the file.
TEST(ImportTorchtitan, DamagedTextIsReadOrRefused) {
  const spec::ModelSpec model = spec::loadModel("llama3-405b").value();
  const auto check = [&](const std::string& text) {
    const Result<Imported> imported = readToml(text, model, {.gpus = 128});
    if (imported.has_value())
      EXPECT_TRUE(plan::verifyPlan(imported->plan, model).ok()) << text;
    else
      EXPECT_THAT(imported.error().message(), HasSubstr("run.toml")) << text;
  };
  damageBytes(kPublishedToml, "0123456789-'\"[]=.{} \n\x01\xff", 800, 3, check);
  const char* const kNumbers[] = {"0", "-1", "3", "2147483648", "1e999", "nan"};
  damageNumbers(kPublishedToml, kNumbers, check);
  endEarly(kPublishedToml, 3, check);
}

}  // namespace
}  // namespace trireme::codegen
