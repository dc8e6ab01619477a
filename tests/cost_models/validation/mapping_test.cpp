// Each rule of mapping.h by its label.
#include "cost_models/validation/mapping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "cost_models/validation/row_model.h"
#include "tests/cost_models/validation/rows.h"

namespace trireme::cost {
namespace {

using plan::LayerRange;
using plan::Recompute;
using plan::ScheduleKind;
using plan::StateSharding;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

spec::ClusterSpec clusterWith(const std::string& device) {
  spec::ClusterSpec cluster;
  cluster.name = device;
  cluster.device.name = device;
  cluster.numDevices = 64;
  cluster.tiers.push_back({"nvlink", 8, BytesPerSecond(300e9), Seconds(1e-6)});
  cluster.tiers.push_back({"ib", 64, BytesPerSecond(25e9), Seconds(1e-5)});
  return cluster;
}

Catalogue catalogue() {
  Catalogue known;
  known.clusters = {clusterWith("A100-80GB-SXM"), clusterWith("H100-80GB-SXM")};
  for (const char* name : {"megatron-lm-2021", "megatron-deepspeed", "megatron-core", "nemo",
                           "torchtitan", "composer-fsdp", "alpa"}) {
    known.stacks.emplace_back();
    known.stacks.back().name = name;
    known.stacks.back().choices.clear();
  }
  known.stacks[0].choices = {spec::StackChoice::kScatterGather};
  known.stacks[3].precisions.push_back(spec::Precision::kFp8);
  return known;
}

RunQuery queryFor(const Row& row) {
  Result<RunQuery> query = queryOf(row, catalogue());
  EXPECT_TRUE(query.has_value()) << query.error().message();
  return query.has_value() ? *std::move(query) : RunQuery{};
}

RunQuery queryAfter(const std::function<void(Row&)>& change, Row row = gptRow()) {
  change(row);
  return queryFor(row);
}

std::string skipAfter(const std::function<void(Row&)>& change, Row row = gptRow()) {
  change(row);
  const Result<RunQuery> query = queryOf(row, catalogue());
  return query.has_value() ? "" : query.error().message();
}

TEST(QueryOf, ACompleteRowNeedsNoAssumptionButKvHeadsAndDropout) {
  const RunQuery query = queryAfter([](Row& r) { r.paramsB = 174.6; });
  EXPECT_THAT(query.assumptions, ElementsAre("(R4) kv_heads unpublished: as many as heads",
                                             "(R14) dropout unpublished: 0.1, as in the scripts"));
  EXPECT_EQ(query.cluster.name, "A100-80GB-SXM");
  EXPECT_EQ(query.cluster.numDevices, 768);
  EXPECT_EQ(query.stack.name, "megatron-lm-2021");
  EXPECT_EQ(query.plan.stack, "megatron-lm-2021");
  EXPECT_EQ(query.plan.numRanks(), 768);
  EXPECT_EQ(query.plan.numMicrobatches(), 192);
  EXPECT_EQ(query.plan.training.precision, spec::Precision::kFp16);
  EXPECT_EQ(query.model.numLayers, 96);
  EXPECT_EQ(query.model.headSize, 128);
  EXPECT_TRUE(plan::verifyPlan(query.plan, query.model).ok());
}

TEST(R1MissingCells, AreAllNamed) {
  EXPECT_EQ(skipAfter([](Row& r) {
              r.microBatch.reset();
              r.pp.reset();
              r.precision.clear();
            }),
            "unpublished: micro_batch, pp, precision");
  EXPECT_EQ(queryAfter([](Row& r) { r.dp.reset(), r.cp.reset(); }).plan.dp(), 8);
  EXPECT_EQ(skipAfter([](Row& r) { r.dp = 9; }), "tp 8 x pp 12 x cp 1 x dp 9 are not the 768 GPUs");
  EXPECT_EQ(skipAfter([](Row& r) { r.dp.reset(), r.pp = 5; }),
            "tp 8 x pp 5 x cp 1 x dp 19 are not the 768 GPUs");
}

TEST(R2Experts, AreSkipped) {
  EXPECT_EQ(skipAfter([](Row& r) { r.experts = 8; }),
            "a model with 8 experts; only dense ones are known");
  EXPECT_EQ(skipAfter([](Row& r) { r.experts = 1; }), "");
  EXPECT_EQ(skipAfter([](Row& r) { r.ep = 8; }),
            "ep 8 of a dense model, which has no experts to share");
}

TEST(R3KindOfModel, FollowsFromTheName) {
  const auto model = [](const std::string& name) {
    return queryAfter([&](Row& r) { r.model = name; }, llamaRow()).model;
  };
  EXPECT_TRUE(model("Gemma-2B").tiedEmbeddings);
  for (const char* name : {"Llama3.1-8B", "Mistral-7B", "llama3-70b (cut to 12 layers)"}) {
    EXPECT_EQ(model(name).family, spec::ModelFamily::kLlama);
    EXPECT_EQ(model(name).activation, spec::ActivationKind::kSwiGlu);
    EXPECT_FALSE(model(name).qkvBias || model(name).linearBias || model(name).tiedEmbeddings);
  }
  EXPECT_TRUE(model("Qwen2-7B").qkvBias);
  EXPECT_EQ(model("Nemotron-15B").activation, spec::ActivationKind::kGeluTanh);
  EXPECT_EQ(model("Nemotron-15B").position, spec::PositionKind::kRotary);
  EXPECT_FALSE(model("Nemotron-15B").tiedEmbeddings);
  EXPECT_FALSE(model("MPT-7b").qkvBias || model("MPT-7b").linearBias);
  EXPECT_TRUE(model("MPT-7b").tiedEmbeddings);
  EXPECT_TRUE(model("GPT-3 175B").qkvBias && model("GPT-3 175B").linearBias);
  EXPECT_EQ(model("GPT-3 175B").position, spec::PositionKind::kLearned);
}

TEST(R3KindOfModel, OfUnknownNamesFollowsFromTheShape) {
  const RunQuery llama = queryAfter([](Row& r) { r.model = "ours"; }, llamaRow());
  EXPECT_EQ(llama.model.family, spec::ModelFamily::kLlama);
  EXPECT_THAT(llama.assumptions, Contains("(R3) unknown kind of model: as llama"));
  const RunQuery gpt = queryAfter([](Row& r) { r.model = "ours"; });
  EXPECT_EQ(gpt.model.family, spec::ModelFamily::kGpt);
  EXPECT_THAT(gpt.assumptions, Contains("(R3) unknown kind of model: as gpt"));
}

TEST(R4UnpublishedSizes, AreThoseOfGpt) {
  const RunQuery query = queryAfter([](Row& r) { r.ffn.reset(), r.vocab.reset(); });
  EXPECT_EQ(query.model.numKvHeads, 96);
  EXPECT_EQ(query.model.ffnSize, 4 * 12288);
  EXPECT_EQ(query.model.vocabSize, 51200);
  EXPECT_THAT(query.assumptions, Contains("(R4) vocab unpublished: 51200"));
  EXPECT_THAT(skipAfter([](Row& r) { r.ffn.reset(); }, llamaRow()), HasSubstr("unpublished: ffn"));
}

TEST(R5HeadSize, HasToBeWhole) {
  EXPECT_EQ(queryFor(gptRow()).model.maxSequence, 2048);
  EXPECT_EQ(skipAfter([](Row& r) { r.hidden = 12290; }), "96 heads do not divide hidden 12290");
}

// Published models on eight devices, by the columns that tell them from each other.
Row rowOf(const std::string& model, std::optional<double> paramsB, std::vector<int64_t> sizes) {
  Row row = llamaRow();
  row.model = model;
  row.paramsB = paramsB;
  row.layers = sizes[0], row.hidden = sizes[1], row.heads = sizes[2], row.kvHeads = sizes[3];
  row.ffn = sizes[4], row.vocab = sizes[5];
  return row;
}
const std::vector<int64_t> kQwen332b = {64, 5120, 64, 8, 25600, 151936};
const std::vector<int64_t> kMistralSmall = {40, 5120, 32, 8, 32768, 131072};
const std::vector<int64_t> kGemma7b = {28, 3072, 16, 16, 24576, 256000};
const std::vector<int64_t> kLlama323b = {28, 3072, 24, 8, 8192, 128256};

// Counts are those of the models' own files.
TEST(R5HeadSize, IsThatWithWhichTheCountIsTheOneStated) {
  const RunQuery mistral = queryFor(rowOf("Mistral-Small-24B", 23.6, kMistralSmall));
  EXPECT_EQ(mistral.model.headSize, 128);  // 160 would make 24.1 billion
  EXPECT_EQ(mistral.model.numParameters(), 23'572'403'200);
  EXPECT_THAT(mistral.assumptions, Contains("(R5) head size unpublished: 128, from params_b"));
  const RunQuery gemma = queryFor(rowOf("Gemma-7B", 8.54, kGemma7b));
  EXPECT_EQ(gemma.model.headSize, 256);
  EXPECT_EQ(gemma.model.numParameters(), 8'537'680'896);
  EXPECT_THAT(gemma.assumptions, Contains("(R5) head size unpublished: 256, from params_b"));
}

TEST(R5HeadSize, OfQwen3IsInItsName) {
  for (const std::optional<double> paramsB : {std::optional(32.8), std::optional<double>()}) {
    const RunQuery query = queryFor(rowOf("Qwen3-32B", paramsB, kQwen332b));
    EXPECT_EQ(query.model.headSize, 128);
    EXPECT_FALSE(query.model.qkvBias);
    EXPECT_THAT(query.assumptions, Contains("(R5) head size unpublished: 128, as of Qwen3"));
  }
  const RunQuery even = queryFor(rowOf("qwen 3 14B", 14.8, {40, 5120, 40, 8, 17408, 151936}));
  EXPECT_THAT(even.assumptions, Not(Contains(HasSubstr("(R5)"))));
  EXPECT_FALSE(even.model.qkvBias);
  EXPECT_TRUE(queryFor(rowOf("Qwen-32B", {}, kQwen332b)).model.qkvBias);
  EXPECT_TRUE(queryFor(rowOf("Qwen 3B", {}, kQwen332b)).model.qkvBias);
  // 596 million with a shared table; heads of 64 with a table of its own would make 0.6, too.
  const RunQuery small = queryFor(rowOf("Qwen3-0.6B", 0.6, {28, 1024, 16, 8, 3072, 151936}));
  EXPECT_EQ(small.model.headSize, 128);
  EXPECT_TRUE(small.model.tiedEmbeddings);
}

TEST(R5OutputTable, IsTheEmbeddingsWhereTheCountSaysSo) {
  const RunQuery llama = queryFor(rowOf("Llama-3.2-3B", 3.21, kLlama323b));
  EXPECT_TRUE(llama.model.tiedEmbeddings);
  EXPECT_EQ(llama.model.headSize, 128);
  EXPECT_THAT(llama.assumptions,
              Contains("(R5) output table unpublished: the embedding's, from params_b"));
  // 16.1 billion; 15.3 with the embedding's.
  Row gpt = rowOf("GPT-16B", 16, {32, 6144, 48, 0, 24576, 131072});
  gpt.kvHeads.reset();
  gpt.seq = 4096;
  const RunQuery untied = queryFor(gpt);
  EXPECT_FALSE(untied.model.tiedEmbeddings);
  EXPECT_THAT(untied.assumptions,
              Contains("(R5) output table unpublished: its own, from params_b"));
}

TEST(R5HeadSize, IsAnAssumptionWhereNoCountSettlesIt) {
  const std::string hiddenByHeads = "(R5) head size unpublished: hidden / heads";
  EXPECT_THAT(queryFor(gptRow()).assumptions, Contains(hiddenByHeads));  // no count
  const auto ofMistral = [](double paramsB) {
    return queryFor(rowOf("Mistral-Small-24B", paramsB, kMistralSmall));
  };
  EXPECT_THAT(ofMistral(24.11).assumptions, Not(Contains(hiddenByHeads)));
  EXPECT_EQ(ofMistral(24).model.headSize, 160);  // 23.5 to 25 billion are with 128 as well
  EXPECT_THAT(ofMistral(24).assumptions, Contains(hiddenByHeads));
  // 8.19 billion; heads of 64, 80, 96 and 128 all make 7.5 to 7.9.
  const RunQuery crude = queryFor(rowOf("Gemma-7B", 7, kGemma7b));
  EXPECT_EQ(crude.model.headSize, 192);
  EXPECT_THAT(crude.assumptions, Contains(hiddenByHeads));
  EXPECT_THAT(crude.assumptions, Contains("(R15) params_b unexplained: what the other columns "
                                          "make"));
}

// Without kv_heads Llama 3 8B has as many as heads, and 8.84 billion parameters. Heads of 80 would
// make 8.03 of it.
TEST(R5HeadSize, IsNotToldByACountWhereOtherSizesAreAssumed) {
  const RunQuery query =
      queryAfter([](Row& r) { r.kvHeads.reset(), r.paramsB = 8.03; }, llamaRow());
  EXPECT_EQ(query.model.headSize, 128);
  EXPECT_THAT(query.assumptions, Contains("(R15) params_b unexplained: what the other columns "
                                          "make"));
}

TEST(IsCountOf, HeedsTheDigitsRoundedOrCutOff) {
  EXPECT_TRUE(isCountOf(8, 8.54e9) && isCountOf(8, 7.51e9));
  EXPECT_FALSE(isCountOf(8, 9.01e9) || isCountOf(8, 7.49e9));
  EXPECT_TRUE(isCountOf(1.7, 1.6523e9) && isCountOf(1.7, 1.754e9));
  EXPECT_FALSE(isCountOf(1.7, 1.649e9) || isCountOf(1.7, 1.801e9));
  EXPECT_TRUE(isCountOf(70.0, 70.55e9) && isCountOf(405.9, 405.853e9));
  EXPECT_TRUE(isCountOf(0.455288, 455'288'000) && isCountOf(0.1, 0.1e9));
  EXPECT_FALSE(isCountOf(0.455288, 457'400'000));
}

// 22 layers and 8 stages: embedding and head make it 24, three each.
TEST(R6Layers, EmbeddingAndHeadStandForALayerEach) {
  const auto cut = [](int64_t layers, int64_t vp) {
    return queryAfter([&](Row& r) { r.layers = layers, r.pp = 8, r.tp = 1, r.dp = 96, r.vp = vp; })
        .plan.layers;
  };
  const auto ends = cut(22, 1);
  EXPECT_THAT(ends[0], ElementsAre(LayerRange{0, 2}));
  EXPECT_THAT(ends[1], ElementsAre(LayerRange{2, 3}));
  EXPECT_THAT(ends[7], ElementsAre(LayerRange{20, 2}));
  // 24 chunks of one: the first and the last have none.
  const auto chunks = cut(22, 3);
  EXPECT_THAT(chunks[0], ElementsAre(LayerRange{0, 0}, LayerRange{7, 1}, LayerRange{15, 1}));
  EXPECT_THAT(chunks[7], ElementsAre(LayerRange{6, 1}, LayerRange{14, 1}, LayerRange{22, 0}));
  // 25 layers: neither divides, so the first stage has one more.
  EXPECT_THAT(cut(25, 1)[0], ElementsAre(LayerRange{0, 4}));
  EXPECT_THAT(cut(24, 1)[0], ElementsAre(LayerRange{0, 3}));
  EXPECT_EQ(skipAfter([](Row& r) { r.layers = 11; }),
            "pp 12 x 1 virtual stages are more than 11 layers");
}

TEST(R7Schedule, IsInterleavedWithVirtualStages) {
  EXPECT_EQ(queryFor(gptRow()).plan.schedule, ScheduleKind::k1F1B);
  const plan::Plan interleaved = queryAfter([](Row& r) { r.vp = 2; }).plan;
  EXPECT_EQ(interleaved.schedule, ScheduleKind::kInterleaved);
  EXPECT_EQ(interleaved.virtualStages, 2);
  EXPECT_EQ(queryAfter([](Row& r) { r.schedule = "GPipe"; }).plan.schedule, ScheduleKind::kGpipe);
  EXPECT_THAT(queryAfter([](Row& r) { r.vp.reset(); }).assumptions,
              Contains("(R7) vp unpublished: 1"));
  EXPECT_EQ(skipAfter([](Row& r) { r.vp.reset(), r.schedule = "interleaved 1F1B"; }),
            "unpublished: vp, of an interleaved schedule");
  EXPECT_EQ(queryAfter([](Row& r) { r.schedule = "ZB-1p", r.vp = 1; }).plan.schedule,
            ScheduleKind::kZeroBubbleH1);
  const RunQuery twice = queryAfter([](Row& r) { r.schedule = "ZB-2p", r.vp = 1; });
  EXPECT_EQ(twice.plan.schedule, ScheduleKind::kZeroBubbleH2);
  EXPECT_THAT(twice.assumptions,
              Contains("(R7) the schedule drawn by hand instead of the published search's"));
  EXPECT_THAT(skipAfter([](Row& r) { r.schedule = "zero-bubble"; }), HasSubstr("unknown"));
  EXPECT_THAT(skipAfter([](Row& r) { r.schedule = "ZB-V"; }),
              HasSubstr("schedule 'ZB-V': unknown"));
  EXPECT_THAT(skipAfter([](Row& r) { r.schedule = "zigzag"; }),
              HasSubstr("schedule 'zigzag': unknown"));
  EXPECT_THAT(skipAfter([](Row& r) { r.schedule = "zigzag", r.vp = 2; }),
              HasSubstr("schedule 'zigzag': unknown"));
}

TEST(R7Schedule, HasTheVirtualStagesThatItCanHave) {
  EXPECT_EQ(skipAfter([](Row& r) { r.schedule = "GPipe", r.vp = 4; }),
            "vp 4 contradicts schedule 'GPipe': only interleaved 1F1B has virtual stages");
  EXPECT_EQ(skipAfter([](Row& r) { r.schedule = "interleaved 1F1B", r.vp = 1; }),
            "vp 1 contradicts schedule 'interleaved 1F1B', which takes at least 2");
  EXPECT_EQ(skipAfter([](Row& r) { r.schedule = "Interleaved 1F1B", r.vp = 2; }), "");
  EXPECT_EQ(skipAfter([](Row& r) { r.schedule.clear(), r.vp = 2; }), "");
}

TEST(R7Schedule, OfNemosRecipesHasALayerPerChunk) {
  const RunQuery query = queryAfter([](Row& r) {
    r.stack = "nemo";
    r.vp.reset();
    r.schedule.clear();
  });
  EXPECT_EQ(query.plan.virtualStages, 8);
  EXPECT_THAT(query.assumptions, Contains("(R7) vp unpublished: NeMo's recipe, a layer per chunk"));
}

TEST(R8Zero, IsStateShardingOverAllReplicas) {
  const auto sharded = [](std::optional<int64_t> zero) {
    return queryAfter([&](Row& r) { r.zero = zero; }).plan;
  };
  EXPECT_EQ(sharded(0).stateSharding, StateSharding::kNone);
  EXPECT_EQ(sharded(0).dpReplicate, 8);
  EXPECT_EQ(sharded(std::nullopt).stateSharding, StateSharding::kNone);
  EXPECT_EQ(sharded(1).stateSharding, StateSharding::kOptimizer);
  EXPECT_EQ(sharded(2).stateSharding, StateSharding::kGradients);
  EXPECT_EQ(sharded(3).stateSharding, StateSharding::kParameters);
  EXPECT_EQ(sharded(3).dpShard, 8);
  EXPECT_EQ(sharded(3).dpReplicate, 1);
}

TEST(R8Zero, UnpublishedIsASharedOptimizerUnderAlpa) {
  const auto alpa = [](std::optional<int64_t> zero) {
    return queryAfter([&](Row& r) { r.stack = "alpa", r.zero = zero; });
  };
  EXPECT_EQ(alpa(std::nullopt).plan.stateSharding, StateSharding::kOptimizer);
  EXPECT_THAT(alpa(std::nullopt).assumptions, Contains("(R8) zero unpublished: 1"));
  EXPECT_EQ(alpa(0).plan.stateSharding, StateSharding::kNone);
}

TEST(R8Zero, OfOneReplicaIsNothing) {
  const auto one = [](int64_t cp) {
    return queryAfter([&](Row& r) { r.gpus = cp, r.dp = 1, r.cp = cp, r.zero = 1; }, llamaRow())
        .plan.stateSharding;
  };
  EXPECT_EQ(one(1), StateSharding::kNone);
  EXPECT_EQ(one(2), StateSharding::kOptimizer);  // the context's ranks share
}

TEST(R9SequenceParallel, IsOnWhereTheStackAlwaysHasIt) {
  const auto on = [](const std::string& stack, int64_t tp, std::optional<bool> published) {
    return queryAfter([&](Row& r) {
             r.stack = stack, r.tp = tp, r.pp = 12, r.dp = 64 / tp, r.seqParallel = published;
           })
        .plan.sequenceParallel;
  };
  EXPECT_TRUE(on("nemo", 8, std::nullopt));
  EXPECT_TRUE(on("torchtitan", 8, std::nullopt));
  EXPECT_FALSE(on("megatron-core", 8, std::nullopt));
  EXPECT_TRUE(on("megatron-core", 8, true));
  EXPECT_FALSE(on("nemo", 8, false));
  EXPECT_FALSE(on("nemo", 1, true));
}

TEST(R10Recompute, UnpublishedIsNone) {
  const auto recompute = [](const std::string& text) {
    return queryAfter([&](Row& r) { r.recompute = text; }).plan.recompute;
  };
  EXPECT_EQ(recompute(""), Recompute::kNone);
  EXPECT_EQ(recompute("full"), Recompute::kFull);
  EXPECT_EQ(recompute("selective(per-op)"), Recompute::kSelective);
  EXPECT_THAT(skipAfter([](Row& r) { r.recompute = "half"; }), HasSubstr("recompute 'half'"));
}

// What that is, the profile says.
TEST(R10Recompute, SelectiveOfFsdp1IsAsOfOthers) {
  const plan::Plan plan = queryAfter([](Row& r) { r.schedule = "FSDP1"; }, llamaRow()).plan;
  EXPECT_EQ(plan.recompute, Recompute::kSelective);
  EXPECT_EQ(plan.recomputeLayers, 0);
}

TEST(R10Recompute, OfASimulatorsConfigurationIsNotThatOfTheRun) {
  const RunQuery query =
      queryAfter([](Row& r) { r.source = "VIA-Research/vTrain data/ground_truth_single.csv"; });
  EXPECT_EQ(query.plan.recompute, Recompute::kNone);
  EXPECT_THAT(query.assumptions, Contains(HasSubstr("(R10) recompute full of a simulator's")));
}

TEST(R11Vocabulary, IsPaddedByMegatronsFamily) {
  EXPECT_EQ(queryFor(gptRow()).plan.vocabMultiple, 128);
  EXPECT_EQ(queryFor(llamaRow()).plan.vocabMultiple, 1);
}

TEST(R12ScatterGather, IsOnWhereTheStackCanAndThePlanMay) {
  EXPECT_TRUE(queryFor(gptRow()).plan.scatterGather);
  EXPECT_FALSE(queryAfter([](Row& r) { r.stack = "nemo"; }).plan.scatterGather);
  EXPECT_FALSE(queryAfter([](Row& r) { r.seqParallel = true; }).plan.scatterGather);
  EXPECT_FALSE(queryAfter([](Row& r) { r.pp = 1, r.dp = 96; }).plan.scatterGather);
}

TEST(R13Precision, OfAnyRecipe) {
  const auto precision = [](const std::string& text) {
    return queryAfter([&](Row& r) { r.stack = "nemo", r.precision = text; })
        .plan.training.precision;
  };
  EXPECT_EQ(precision("BF16"), spec::Precision::kBf16);
  EXPECT_EQ(precision("bf16 (mixed)"), spec::Precision::kBf16);
  for (const char* text : {"fp8(TE)", "FP8-CS", "MXFP8", "fp8(rowwise)"})
    EXPECT_EQ(precision(text), spec::Precision::kFp8);
  EXPECT_THAT(skipAfter([](Row& r) { r.precision = "NVFP4"; }),
              HasSubstr("precision 'NVFP4': four bits are not known"));
  EXPECT_THAT(skipAfter([](Row& r) { r.precision = "bf17"; }),
              HasSubstr("precision 'bf17': unknown; did you mean 'bf16'?"));
}

TEST(R13Precision, IsOneThatTheStackTrainsIn) {
  EXPECT_THAT(skipAfter([](Row& r) { r.precision = "fp8"; }),
              HasSubstr("stack 'megatron-lm-2021' does not train in fp8; valid: "));
}

TEST(R14Dropout, IsThatOfMegatronsScripts) {
  EXPECT_EQ(queryFor(gptRow()).plan.training.attentionDropout, 0.1);
  EXPECT_EQ(queryAfter([](Row& r) { r.stack = "nemo"; }).plan.training.attentionDropout, 0);
  EXPECT_EQ(queryFor(llamaRow()).plan.training.residualDropout, 0);
}

// 1536 sequences of 2048 in 39.42 s on 768 GPUs are 103.9 tokens/s each, and GPT-3 has 174.6
// billion parameters.
TEST(R16Loss, OfTorchtitanWasNotCompiledUntil2024) {
  const auto keptIn = [](const std::string& stack, std::optional<int64_t> year) {
    Catalogue known = catalogue();
    for (spec::StackProfile& profile : known.stacks) {
      profile.description.logitBytes = 4;
      profile.description.eagerLogitBytes = profile.name == "torchtitan" ? 14 : 0;
    }
    Row row = gptRow();
    row.stack = stack;
    row.year = year;
    const Result<RunQuery> query = queryOf(row, known);
    EXPECT_TRUE(query.has_value()) << query.error().message();
    const bool isSaid = std::ranges::any_of(
        query->assumptions, [](const std::string& said) { return said.starts_with("(R16)"); });
    EXPECT_EQ(isSaid, query->stack.description.logitBytes == 14);
    return query->stack.description.logitBytes;
  };
  EXPECT_EQ(keptIn("torchtitan", 2024), 14);
  EXPECT_EQ(keptIn("torchtitan", 2025), 4);
  EXPECT_EQ(keptIn("torchtitan", std::nullopt), 4);
  EXPECT_EQ(keptIn("megatron-core", 2024), 4);
}

TEST(R15Contradictions, AreSkipped) {
  EXPECT_EQ(skipAfter([](Row& r) { r.tokensPerSecondPerGpu = 104.5; }), "");
  EXPECT_EQ(skipAfter([](Row& r) { r.tokensPerSecondPerGpu = 200; }),
            "iter_time_s 39.42 contradicts tokens_per_s_per_gpu 200, from which 20.48 s follow");
  EXPECT_EQ(skipAfter([](Row& r) { r.paramsB = 175; }), "");
  // 0.6 % from it, 6 %, and 60 %.
  const auto assumed = [](double paramsB) {
    return queryAfter([&](Row& r) { r.paramsB = paramsB; }).assumptions;
  };
  EXPECT_THAT(assumed(173.5), Not(Contains(HasSubstr("(R15)"))));
  EXPECT_THAT(assumed(165), Contains(HasSubstr("(R15) params_b unexplained")));
  EXPECT_EQ(skipAfter([](Row& r) { r.paramsB = 70; }),
            "params_b 70 contradicts layers, hidden, ffn and vocab, which make 174.6");
}

TEST(QueryOf, PlansThatBreakARuleAreSkippedWithItsLabel) {
  EXPECT_THAT(skipAfter([](Row& r) { r.microBatch = 7; }), HasSubstr("(P3) global batch size"));
  EXPECT_THAT(skipAfter([](Row& r) { r.kvHeads = 4; }), HasSubstr("(P4) tp 8"));
  EXPECT_THAT(skipAfter([](Row& r) { r.gpu = "H101"; }), HasSubstr("gpu 'H101'"));
  EXPECT_THAT(skipAfter([](Row& r) { r.stack = "nemox"; }), HasSubstr("stack 'nemox'"));
}

// Numbers at the end of their range neither overflow nor take long.
TEST(QueryOf, ExtremeNumbersAreSkipped) {
  static constexpr int64_t kMost = int64_t{1} << 30;
  for (const auto field : {&Row::hidden, &Row::heads, &Row::tp, &Row::pp, &Row::cp, &Row::vp,
                           &Row::microBatch, &Row::gpus, &Row::dp, &Row::experts, &Row::layers})
    EXPECT_NE(skipAfter([&](Row& r) { r.*field = kMost; }), "");
  // A model that is small but for its depth, in a cut that memory would not hold.
  EXPECT_EQ(skipAfter([](Row& r) {
              r.layers = kMost, r.vp = kMost / 16;
              r.hidden = r.heads = r.ffn = r.tp = 1, r.dp = 64;
            }),
            "1073741824 layers; at most 65536 are known");
}

}  // namespace
}  // namespace trireme::cost
