#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/spec/load.h"
#include "tests/ir/spec/spec_test_util.h"

namespace trireme::spec {
namespace {
using ::testing::HasSubstr;
using namespace trireme::literals;

const char* kStack =
    "name: s\n"
    "flash_attention: false\n"
    "overlap_reductions: false\n"
    "overlap_pipeline_transfers: false\n"
    "fixed_reserve: {value: 2 GiB, source: a}\n"
    "gpu_reserve: {value: 1 GiB, source: b}\n"
    "nccl_connection: {value: 10 MiB, source: c}\n";

TEST(ParseStack, ReadsEveryChoice) {
  const StackProfile s = parseStack(kStack, "s.yaml").value();
  std::vector<StackChoice> choices = ownChoices();
  std::erase(choices, StackChoice::kOverlapReductions);
  EXPECT_EQ(
      s, (StackProfile{
             .name = "s",
             .choices = choices,
             .flashAttention = false,
             .optimizerBytesPerParameter = 0,
             .overlapPipelineTransfers = false,
             .fixedReserve = 2_GiB,
             .gpuReserve = 1_GiB,
             .ncclConnection = Bytes(10.0 * 1024 * 1024),
             .sources = {{"fixed_reserve", "a"}, {"gpu_reserve", "b"}, {"nccl_connection", "c"}}}));
}

TEST(ParseStack, OptimizerBytesNeedASource) {
  const std::string key = "optimizer_bytes_per_parameter: ";
  EXPECT_THAT(messageOf(parseStack(kStack + key + "12\n", "s.yaml")),
              HasSubstr("s.yaml:8:32: optimizer_bytes_per_parameter: a number needs a source"));
  EXPECT_EQ(
      parseStack(kStack + key + "{value: 12, source: a}\n", "s.yaml")->optimizerBytesPerParameter,
      12);
}

TEST(ParseStack, NothingIsDefaulted) {
  EXPECT_EQ(
      messageOf(parseStack("name: s\n", "s.yaml")),
      "s.yaml:1:1: flash_attention, overlap_reductions, overlap_pipeline_transfers, fixed_reserve, "
      "gpu_reserve, nccl_connection: missing");
}

TEST(ParseStack, OverlappingReductionsIsAChoiceOfOwnProgramsAlone) {
  const std::string text = kStack;
  const size_t at = text.find("overlap_reductions: false");
  const auto can = parseStack(
      text.substr(0, at) + "overlap_reductions: true" + text.substr(text.find('\n', at)), "s.yaml");
  ASSERT_TRUE(can.has_value());
  EXPECT_EQ(can->choices, ownChoices());
}

const char* kDescribed =
    "name: d\n"
    "programs: described\n"
    "choices: [tensor_parallel, pipeline, recompute_full]\n"
    "precisions: [fp16, fp32]\n"
    "attention: fused_softmax\n"
    "gradient_accumulation: separate_f32\n"
    "scatter_gather: true\n"
    "elementwise_factor: {value: 1.5, source: a}\n"
    "host_launch: {value: 9 us, source: b}\n"
    "parameter_bytes: {value: 2, source: c}\n"
    "gradient_bytes: {value: 4, source: c}\n"
    "optimizer_bytes: {value: 12, source: c}\n"
    "reduced_gradient_bytes: {value: 4, source: c}\n"
    "gathered_parameter_bytes: {value: 2, source: c}\n"
    "optimizer_traffic: {value: 60, source: d}\n"
    "loss_bytes: {value: 50, source: e}\n"
    "reserve: {value: 1 GiB, source: f}\n"
    "fragmentation: {value: 0.02, source: g}\n";

StackProfile described(const std::string& more = "") {
  const auto stack = parseStack(kDescribed + more, "d.yaml");
  EXPECT_TRUE(stack.has_value()) << messageOf(stack);
  return stack.value_or(StackProfile{});
}
std::string refusalOfStack(const std::string& from, const std::string& to) {
  return messageOf(parseStack(replaced(kDescribed, from, to), "d.yaml"));
}

TEST(ParseStack, VocabulariesArePaddedUnlessSaidOtherwise) {
  EXPECT_EQ(parseStack(kDescribed, "d.yaml")->vocabMultiple, 128);
  EXPECT_EQ(parseStack(std::string(kDescribed) + "vocab_multiple: 1\n", "d.yaml")->vocabMultiple,
            1);
  EXPECT_THAT(messageOf(parseStack(std::string(kDescribed) + "vocab_multiple: 0\n", "d.yaml")),
              HasSubstr("vocab_multiple: must be 1 to 1048576, got 0"));
  EXPECT_EQ(loadStack("torchtitan")->vocabMultiple, 1);
}

TEST(ParseStack, WhatADescriptionOverlapsIsNoChoice) {
  EXPECT_EQ(
      refusalOfStack("recompute_full]", "recompute_full, overlap_reductions]"),
      "d.yaml:3:10: choices: overlap_reductions is a choice of programs: own; what a described "
      "stack overlaps is said by gradient_exposed and tensor_parallel_exposed");
}

TEST(ParseStack, WhatADescriptionDoesNotSayIsNotThere) {
  const StackProfile s = described();
  EXPECT_FALSE(s.ownPrograms);
  EXPECT_EQ(s.choices,
            (std::vector<StackChoice>{StackChoice::kTensorParallel, StackChoice::kPipeline,
                                      StackChoice::kRecomputeFull}));
  EXPECT_EQ(s.precisions, (std::vector<Precision>{Precision::kFp16, Precision::kFp32}));
  StackDescription d;
  d.attention = AttentionKind::kFusedSoftmax;
  d.gradientAccumulation = GradientAccumulation::kSeparateF32;
  d.scatterGather = true;
  d.elementwiseFactor = 1.5;
  d.hostLaunch = 9_us;
  d.optimizerTraffic = 60;
  d.reserve = 1_GiB;
  d.fragmentation = 0.02;
  EXPECT_EQ(s.description, d);
  // Nothing overlaps, products are the device's, the CPU costs nothing but launches.
  EXPECT_EQ(d.gradientExposed, 1);
  EXPECT_EQ(d.gatherExposed, 1);
  EXPECT_EQ(d.tensorParallelExposed, 1);
  EXPECT_EQ(d.transferExposed, 1);
  EXPECT_EQ(d.matmulFactor, 1);
  EXPECT_EQ(d.f8MatmulFactor, 1);
  EXPECT_TRUE(d.gathersF8Activations);
  EXPECT_EQ(d.wholeHeadEfficiency, 1);
  EXPECT_EQ(d.parameterTraffic, 0);
  EXPECT_EQ(d.contextExchange, ContextExchange::kRing);
  EXPECT_EQ(d.ringBytes, 0);
  EXPECT_EQ(d.blockAttentionEfficiency, 1);
  EXPECT_EQ(d.slowdownPerDoubling, 0);
  EXPECT_EQ(d.hostStep, Seconds(0));
}

TEST(ParseStack, EveryOptionalKeyIsRead) {
  const StackDescription d = described(
                                 "selective_recompute: every_other\n"
                                 "matmul_factor: {value: 0.9, source: a}\n"
                                 "f8_matmul_factor: {value: 0.7, source: a}\n"
                                 "gathers_f8_activations: false\n"
                                 "cast_bytes: {value: 12, source: a}\n"
                                 "context_exchange: all_gather\n"
                                 "ring_bytes: {value: 12, source: a}\n"
                                 "block_attention_efficiency: {value: 0.85, source: a}\n"
                                 "parameter_traffic: {value: 3, source: a}\n"
                                 "logit_bytes: {value: 6, source: a}\n"
                                 "working_layers: {value: 2.5, source: a}\n"
                                 "keeps_f8: true\n"
                                 "pipeline_keeps_whole: true\n"
                                 "post_validation: true\n"
                                 "replica_reduction: of_shards_per_microbatch\n"
                                 "bucket_bytes: {value: 4, source: a}\n"
                                 "autocast_bytes: {value: 2, source: a}\n"
                                 "sharded_port_efficiency: {value: 0.5, source: a}\n"
                                 "gradient_exposed: {value: 0.1, source: a}\n"
                                 "gather_exposed: {value: 0.2, source: a}\n"
                                 "tensor_parallel_exposed: {value: 0.3, source: a}\n"
                                 "transfer_exposed: {value: 0, source: a}\n"
                                 "hides_between_chunks: true\n"
                                 "keeps_layer_buffers: true\n"
                                 "loader_masks: true\n"
                                 "eager_layers: true\n"
                                 "eager_norms: true\n"
                                 "keeps_gathered_inputs: true\n"
                                 "keeps_gathered_weights: true\n"
                                 "eager_logit_bytes: {value: 12, source: counted}\n"
                                 "host_backward: {value: 1.1, source: a}\n"
                                 "host_exponent: {value: 2, source: a}\n"
                                 "host_exposed: {value: 0.4, source: a}\n"
                                 "host_growth: {value: 0.05, source: a}\n"
                                 "transfer_sync: {value: 1 ms, source: a}\n"
                                 "whole_head_efficiency: {value: 0.6, source: a}\n"
                                 "host_microbatch: {value: 2 ms, source: a}\n"
                                 "host_step: {value: 3 ms, source: a}\n"
                                 "slowdown_per_doubling: {value: 0.01, source: a}\n"
                                 "faster_runs: {value: 0.06, source: a}\n"
                                 "slower_runs: {value: 0.08, source: a}\n"
                                 "faster_elsewhere: {value: 0.09, source: a}\n"
                                 "slower_elsewhere: {value: 0.3, source: a}\n"
                                 "memory_doubt: {value: 0.2, source: a}\n"
                                 "compared_on: [H100, RTX-3090]\n")
                                 .description;
  EXPECT_EQ(d.selective, SelectiveRecompute::kEveryOther);
  EXPECT_EQ(d.matmulFactor, 0.9);
  EXPECT_EQ(d.f8MatmulFactor, 0.7);
  EXPECT_FALSE(d.gathersF8Activations);
  EXPECT_EQ(d.castBytes, 12);
  EXPECT_EQ(d.contextExchange, ContextExchange::kAllGather);
  EXPECT_EQ(d.ringBytes, 12);
  EXPECT_EQ(d.blockAttentionEfficiency, 0.85);
  EXPECT_EQ(d.parameterTraffic, 3);
  EXPECT_EQ(d.logitBytes, 6);
  EXPECT_TRUE(d.keepsGatheredInputs);
  EXPECT_TRUE(d.keepsGatheredWeights);
  EXPECT_EQ(d.workingLayers, 2.5);
  EXPECT_TRUE(d.keepsNarrow && d.pipelineKeepsWhole && d.postValidation);
  EXPECT_EQ(d.replicaReduction, ReplicaReduction::kOfShardsPerMicrobatch);
  EXPECT_EQ(d.bucketBytes, 4);
  EXPECT_EQ(d.autocastBytes, 2);
  EXPECT_EQ(d.shardedPortEfficiency, 0.5);
  EXPECT_EQ(d.gradientExposed, 0.1);
  EXPECT_EQ(d.gatherExposed, 0.2);
  EXPECT_EQ(d.tensorParallelExposed, 0.3);
  EXPECT_EQ(d.transferExposed, 0);
  EXPECT_TRUE(d.hidesBetweenChunks && d.keepsLayerBuffers && d.loaderMasks);
  EXPECT_TRUE(d.eagerLayers && d.eagerNorms);
  EXPECT_EQ(d.eagerLogitBytes, 12);
  EXPECT_EQ(d.hostBackward, 1.1);
  EXPECT_EQ(d.hostExponent, 2);
  EXPECT_EQ(d.hostExposed, 0.4);
  EXPECT_EQ(d.hostGrowth, 0.05);
  EXPECT_EQ(d.transferSync, 1_ms);
  EXPECT_EQ(d.wholeHeadEfficiency, 0.6);
  EXPECT_EQ(d.hostMicrobatch, 2_ms);
  EXPECT_EQ(d.hostStep, 3_ms);
  EXPECT_EQ(d.slowdownPerDoubling, 0.01);
  EXPECT_EQ(d.fasterRuns, 0.06);
  EXPECT_EQ(d.slowerRuns, 0.08);
  EXPECT_EQ(d.fasterElsewhere, 0.09);
  EXPECT_EQ(d.slowerElsewhere, 0.3);
  EXPECT_EQ(d.memoryDoubt, 0.2);
  for (const char* device : {"H100-80GB-SXM", "NVIDIA H100 80GB HBM3", "h100", "RTX-3090-24GB",
                             "NVIDIA GeForce RTX 3090"})
    EXPECT_TRUE(d.isComparedOn(device)) << device;
  for (const char* device : {"H1000", "GH100-80GB", "NVIDIA H200", "RTX-3090Ti", "RTX", ""})
    EXPECT_FALSE(d.isComparedOn(device)) << device;
  EXPECT_TRUE(StackDescription{}.isComparedOn("H200"));  // nobody knows
}

TEST(ParseStack, DescriptionsKeepTheSourceOfEveryNumber) {
  const Sources sources = described().sources;
  EXPECT_EQ(sources.at("loss_bytes"), "e");
  EXPECT_EQ(sources.size(), 11u);
}

TEST(ParseStack, DescriptionsMustMakeSense) {
  EXPECT_EQ(refusalOfStack("pipeline, ", "piplines, "),
            "d.yaml:3:28: choices: unknown value 'piplines'; did you mean 'pipeline'?");
  EXPECT_EQ(refusalOfStack("pipeline, ", "tensor_parallel, "),
            "d.yaml:3:28: choices: 'tensor_parallel' is there twice");
  EXPECT_EQ(refusalOfStack("[tensor_parallel, pipeline, recompute_full]", "all"),
            "d.yaml:3:10: choices: expected a list of names, got 'all'");
  EXPECT_EQ(refusalOfStack("[fp16, fp32]", "[fp16, tf32]"),
            "d.yaml:4:20: precisions: unknown value 'tf32'; did you mean 'fp32'?");
  EXPECT_EQ(refusalOfStack("[fp16, fp32]", "[]"), "d.yaml:4:13: precisions: needs at least one");
  EXPECT_THAT(refusalOfStack("precisions: [fp16, fp32]\n", ""), HasSubstr("precisions: missing"));
  EXPECT_THAT(refusalOfStack("value: 0.02", "value: 1.02"),
              HasSubstr("fragmentation: a share is at most 1, got 1.02"));
  EXPECT_THAT(refusalOfStack("value: 60", "value: -60"),
              HasSubstr("optimizer_traffic: must not be negative"));
  EXPECT_THAT(refusalOfStack("fused_softmax", "flash5"),
              HasSubstr("attention: unknown value 'flash5'; did you mean 'flash'?"));
  EXPECT_THAT(refusalOfStack("loss_bytes: {value: 50, source: e}\n", ""),
              HasSubstr("loss_bytes: missing"));
  EXPECT_THAT(refusalOfStack("loss_bytes", "gradient_exposd: {value: 1, source: a}\nloss_bytes"),
              HasSubstr("unknown key 'gradient_exposd'; did you mean 'gradient_exposed'?"));
}

// Of a sane size, so that no product or power of them overflows, vanishes or takes forever.
TEST(ParseStack, ComparedOnIsAListOfNames) {
  const auto refusal = [](const std::string& value) {
    return messageOf(parseStack(kDescribed + ("compared_on: " + value + "\n"), "d.yaml"));
  };
  EXPECT_THAT(refusal("H100"), HasSubstr("compared_on: expected a list of names, got 'H100'"));
  EXPECT_THAT(refusal("[]"), HasSubstr("compared_on: expected a list of names, got an empty one"));
  EXPECT_THAT(refusal("[H100, []]"), HasSubstr("compared_on: expected names, got "));
}

TEST(ParseStack, NumbersHaveLimits) {
  EXPECT_THAT(refusalOfStack("value: 1.5", "value: 1e300"),
              HasSubstr("elementwise_factor: must be at most 1000000, got 1e+300"));
  EXPECT_THAT(refusalOfStack("value: 1.5", "value: 1e-300"),
              HasSubstr("elementwise_factor: must be at least 1e-06, got 1e-300"));
  EXPECT_THAT(refusalOfStack("value: 60", "value: 1e30"),
              HasSubstr("optimizer_traffic: must be at most 1000000, got 1e+30"));
  EXPECT_THAT(refusalOfStack("value: 9 us", "value: 2e6 s"),
              HasSubstr("host_launch: must be at most 3600 s, got 2e+06 s"));
  EXPECT_THAT(refusalOfStack("value: 1 GiB", "value: 1e30 B"),
              HasSubstr("reserve: must be at most 1e+18 B, got 1e+30 B"));
  const auto withMore = [](const std::string& more) {
    return messageOf(parseStack(kDescribed + more, "d.yaml"));
  };
  EXPECT_THAT(
      withMore("host_exponent: {value: 1e-9, source: a}\n"),
      HasSubstr("host_exponent: must be 0 (the longer of both) or at least 1 (the sum), got "
                "1e-09"));
  EXPECT_EQ(described("host_exponent: {value: 1000, source: a}\n").description.hostExponent, 1000);
  EXPECT_THAT(withMore("vocab_multiple: 9000000000000000000\n"),
              HasSubstr("vocab_multiple: must be 1 to 1048576, got 9000000000000000000"));
}

// What a cast into fp8 moves, and whence its scales come, are no details that may be left out where
// there is fp8.
TEST(ParseStack, F8NeedsTheBytesOfACastAndItsRecipe) {
  EXPECT_THAT(refusalOfStack("[fp16, fp32]", "[fp16, fp8]"),
              HasSubstr("cast_bytes, fp8_recipe: missing"));
  const std::string cast = "cast_bytes: {value: 8, source: a}\n";
  EXPECT_THAT(refusalOfStack("[fp16, fp32]\n", "[fp16, fp8]\n" + cast),
              HasSubstr("fp8_recipe: missing"));
  EXPECT_THAT(refusalOfStack("[fp16, fp32]\n", "[fp16, fp8]\nfp8_recipe: rowwize\n" + cast),
              HasSubstr("did you mean 'rowwise'?"));
  const auto stack = parseStack(
      replaced(kDescribed, "[fp16, fp32]\n", "[fp16, fp8]\nfp8_recipe: mx\n" + cast), "d.yaml");
  ASSERT_TRUE(stack.has_value()) << messageOf(stack);
  EXPECT_EQ(stack->settings.fp8, Fp8Recipe::kMx);
  EXPECT_FALSE(described().settings.fp8);
}

// Multiples are whole, and of fp8; without their keys any number will do.
TEST(ParseStack, F8MayMultiplyMultiplesAlone) {
  const std::string f8 = "[fp16, fp8]\nfp8_recipe: mx\ncast_bytes: {value: 8, source: a}\n";
  const auto stack = parseStack(replaced(kDescribed, "[fp16, fp32]\n",
                                         f8 + "fp8_rows: {value: 8, source: a}\n"
                                              "fp8_columns: {value: 32, source: a}\n"),
                                "d.yaml");
  ASSERT_TRUE(stack.has_value()) << messageOf(stack);
  EXPECT_EQ(stack->settings.fp8Rows, 8);
  EXPECT_EQ(stack->settings.fp8Columns, 32);
  EXPECT_EQ(described().settings.fp8Rows, 1);
  EXPECT_THAT(refusalOfStack("[fp16, fp32]\n", f8 + "fp8_rows: {value: 8.5, source: a}\n"),
              HasSubstr("must be a whole number, got 8.5"));
  EXPECT_THAT(refusalOfStack("[fp16, fp32]\n", "[fp16, fp32]\nfp8_rows: {value: 8, source: a}\n"),
              HasSubstr("is of fp8, which is none of the precisions"));
}

TEST(ParseStack, TheKeyToBlameIsTheOneThatIsWrong) {
  const std::string stack = "name: s\nprograms: foo\nchoices: [pipeline]\n";
  EXPECT_THAT(parseStack(stack, "s.yaml").error().message(),
              HasSubstr("s.yaml:2:11: programs: unknown value 'foo'"));
  const std::string f8 =
      "name: s\nprograms: described\nchoices: [pipeline]\nprecisions: [bf17]\n"
      "fp8_recipe: delayed\n";
  EXPECT_THAT(parseStack(f8, "s.yaml").error().message(),
              HasSubstr("s.yaml:4:14: precisions: unknown value 'bf17'; did you mean 'bf16'?"));
}

TEST(ParseStack, SaysHowTorchtitanIsAskedForIt) {
  EXPECT_EQ(described().settings, StackSettings{});
  const StackSettings s = described("compiled: true\nasync_tensor_parallel: true\n").settings;
  EXPECT_TRUE(s.compiled && s.asyncTensorParallel);
}

TEST(CheckPrecision, NamesWhatThereIsAndTheNearest) {
  const auto in = [](Precision precision) { return TrainingSpec{.precision = precision}; };
  EXPECT_TRUE(checkPrecision(described(), in(Precision::kFp16)).ok());
  EXPECT_EQ(messageOf(checkPrecision(described(), in(Precision::kBf16))),
            "stack 'd' does not train in bf16; valid: fp16, fp32; nearest: fp16");
  EXPECT_EQ(messageOf(checkPrecision(StackProfile{}, in(Precision::kFp8))),
            "stack 'trireme' does not train in fp8; valid: fp64, fp32, bf16, fp16; nearest: bf16");
  TrainingSpec f8;
  f8.precision = Precision::kFp8;
  EXPECT_EQ(checkPrecision(loadStack("torchtitan").value(), f8).message(),
            "stack 'torchtitan' does not train in fp8; valid: bf16, fp32; nearest: bf16, or stack "
            "torchtitan-compiled (--stack) on GPUs that multiply in it");
}

TEST(CheckPrecision, OnlyOurOwnProgramsChooseTf32) {
  const TrainingSpec tf32{.precision = Precision::kFp32, .tf32 = true};
  EXPECT_TRUE(checkPrecision(StackProfile{}, tf32).ok());
  EXPECT_EQ(
      messageOf(checkPrecision(described(), tf32)),
      "stack 'd' has no setting for tf32: its script says what PyTorch multiplies in; nearest: "
      "tf32 false");
}

TEST(UsualPrecision, IsTheFirstOfThoseInUseThatStackAndDeviceHave) {
  StackProfile stack = described();  // trains in fp16 and fp32
  DeviceSpec device;
  device.matmul = {{MathFormat::kF32, FlopsPerSecond(1e13)},
                   {MathFormat::kBf16, FlopsPerSecond(1e14)}};
  EXPECT_EQ(usualPrecision(stack, device), Precision::kFp32);  // no fp16 on the device
  device.matmul.push_back({MathFormat::kF16, FlopsPerSecond(1e14)});
  EXPECT_EQ(usualPrecision(stack, device), Precision::kFp16);
  stack.precisions.push_back(Precision::kBf16);
  EXPECT_EQ(usualPrecision(stack, device), Precision::kBf16);
  EXPECT_EQ(usualPrecision(StackProfile{}, device), Precision::kBf16);
  device.matmul.erase(device.matmul.begin() + 1);
  EXPECT_EQ(usualPrecision(StackProfile{}, device), Precision::kFp16);  // as on a V100
  device.kind = DeviceKind::kHost;
  EXPECT_EQ(usualPrecision(StackProfile{}, device), Precision::kFp32);
}

}  // namespace
}  // namespace trireme::spec
