// One negative test per rule of verifyPlan, and the legal plan that they start from.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "ir/plan/plan.h"
#include "ir/spec/load.h"

namespace trireme::plan {
namespace {

using ::testing::HasSubstr;

spec::ModelSpec eightHeads() {
  return {.name = "eight-heads",
          .numLayers = 10,
          .hiddenSize = 96,
          .numHeads = 8,
          .numKvHeads = 8,
          .headSize = 12,
          .ffnSize = 384,
          .vocabSize = 1000,
          .maxSequence = 64};
}

// 2 x 2 x 2 ranks; 48 samples in 24 microbatches per replica; 10 layers in 4 uneven virtual stages.
Plan legalPlan() {
  Plan plan;
  plan.model = "eight-heads";
  plan.fingerprint = fingerprintOf(eightHeads());
  plan.training.sequenceLength = 64;
  plan.training.globalBatchSize = 48;
  plan.tp = 2;
  plan.pp = 2;
  plan.dpReplicate = 2;
  plan.virtualStages = 2;
  plan.schedule = ScheduleKind::kInterleaved;
  plan.layers = {{{0, 3}, {5, 2}}, {{3, 2}, {7, 3}}};
  return plan;
}

// The message of the plan after `change`, or "" if it is legal.
std::string messageAfterChange(const std::function<void(Plan&)>& change,
                               const spec::ModelSpec& model = eightHeads()) {
  Plan plan = legalPlan();
  change(plan);
  return verifyPlan(plan, model).message();
}

// Without interleaving, for rules about other things.
void simplify(Plan& plan) {
  plan.virtualStages = 1;
  plan.schedule = ScheduleKind::k1F1B;
  plan.layers = evenLayers(10, plan.pp, 1);
}

TEST(VerifyPlan, AcceptsLegalPlans) {
  EXPECT_EQ(messageAfterChange([](Plan&) {}), "");
  EXPECT_EQ(messageAfterChange(simplify), "");
  EXPECT_EQ(messageAfterChange([](Plan& p) { p.sequenceParallel = true; }), "");
  EXPECT_EQ(messageAfterChange([](Plan& p) { p.scatterGather = true; }), "");
  EXPECT_EQ(messageAfterChange([](Plan& p) {
              p.dpReplicate = 1;
              p.dpShard = 2;
              p.stateSharding = StateSharding::kOptimizer;
            }),
            "");
}

TEST(P1CountsAreAtLeastOne, EachOfThem) {
  int64_t Plan::* const kCounts[] = {&Plan::tp,
                                     &Plan::pp,
                                     &Plan::cp,
                                     &Plan::ep,
                                     &Plan::dpShard,
                                     &Plan::dpReplicate,
                                     &Plan::vocabMultiple,
                                     &Plan::virtualStages,
                                     &Plan::microbatchSize};
  for (const auto count : kCounts)
    for (const int64_t wrong : {int64_t{0}, int64_t{-3}, INT64_MIN, INT64_MAX})
      EXPECT_THAT(messageAfterChange([&](Plan& p) { p.*count = wrong; }), HasSubstr("(P1)"));
  EXPECT_EQ(messageAfterChange([](Plan& p) { p.dpShard = 0; }),
            "(P1) dp_shard is 0; it must be at least 1 and at most 2147483647; nearest: 1");
}

TEST(P1CountsAreAtLeastOne, AndTheirProductsAreCountable) {
  EXPECT_THAT(messageAfterChange([](Plan& p) { p.tp = p.pp = p.dpShard = 100'000; }),
              HasSubstr("(P1) tp 100000 x pp 100000"));
  EXPECT_THAT(messageAfterChange([](Plan& p) { p.vocabMultiple = 1 << 30; }),
              HasSubstr("(P1) vocab_multiple 1073741824 x tp 2"));
  EXPECT_THAT(messageAfterChange([](Plan& p) {
                p.training.globalBatchSize = 1 << 30;
                p.virtualStages = 1 << 20;
              }),
              HasSubstr("(P1) 536870912 microbatches x 1048576 virtual stages"));
}

TEST(P2MadeForThisModel, AnotherModelIsRefused) {
  spec::ModelSpec other = eightHeads();
  other.normEpsilon = 1e-6;
  other.name = "other";
  EXPECT_THAT(messageAfterChange([](Plan&) {}, other),
              HasSubstr("(P2) the plan was made for model 'eight-heads'"));
}

TEST(P2MadeForThisModel, APlanByHandGoesByTheName) {
  const spec::ModelSpec model = small::gpt();
  Plan plan = small::plan(model, small::training());
  plan.fingerprint = 0;
  EXPECT_TRUE(verifyPlan(plan, model).ok());
  plan.model = "another";
  EXPECT_THAT(verifyPlan(plan, model).message(),
              HasSubstr("(P2) the plan says no fingerprint and is for model 'another', not for"));
}

// What follows from a field in a model's file follows here.
TEST(P2MadeForThisModel, TheFieldInWhichTheModelsDifferIsNamed) {
  const auto messageOf = [](const std::function<void(spec::ModelSpec&)>& change) {
    spec::ModelSpec other = eightHeads();
    change(other);
    return messageAfterChange([](Plan&) {}, other);
  };
  const auto expected = [](const std::string& plans, const std::string& models) {
    return fmt::format(
        "(P2) the plan was made for model 'eight-heads' with {}, but model 'eight-heads' has {}",
        plans, models);
  };
  EXPECT_EQ(messageOf([](auto& m) { m.numLayers = 12; }), expected("layers: 10", "layers: 12"));
  EXPECT_EQ(messageOf([](auto& m) { m.vocabSize = 500'000; }),
            expected("vocab_size: 1000", "vocab_size: 500000"));
  EXPECT_EQ(messageOf([](auto& m) { m.numKvHeads = 2; }), expected("kv_heads: 8", "kv_heads: 2"));
  EXPECT_EQ(messageOf([](auto& m) { m.hiddenSize = 192, m.headSize = 24; }),
            expected("hidden_size: 96, head_size: 12", "hidden_size: 192, head_size: 24"));
  EXPECT_EQ(
      messageOf([](auto& m) { m.numHeads = m.numKvHeads = 4, m.headSize = 24; }),
      expected("heads: 8, kv_heads: 8, head_size: 12", "heads: 4, kv_heads: 4, head_size: 24"));
  EXPECT_EQ(messageOf([](auto& m) { m.tiedEmbeddings = false; }),
            expected("tied_embeddings: true", "tied_embeddings: false"));
  EXPECT_EQ(messageOf([](auto& m) { m.activation = spec::ActivationKind::kSwiGlu; }),
            expected("activation: gelu_tanh", "activation: swiglu"));
  EXPECT_EQ(messageOf([](auto& m) { m.initStd = 0.006; }),
            expected("init_std: 0.02", "init_std: 0.006"));
}

TEST(P2MadeForThisModel, AShippedModelIsKnown) {
  const auto shipped = spec::loadModel("gpt2-124m");
  ASSERT_TRUE(shipped.has_value()) << shipped.error().message();
  EXPECT_THAT(messageAfterChange([&](Plan& p) { p.fingerprint = fingerprintOf(*shipped); }),
              ::testing::AllOf(HasSubstr(" with layers: 12, hidden_size: 768, heads: 12, "),
                               HasSubstr(" has layers: 10, hidden_size: 96, heads: 8, ")));
}

// Of a model that cannot be found the plan still has the layers, which may be no layers at all.
TEST(P2MadeForThisModel, ElseItsLayersAreNamedAndElseTheFingerprints) {
  const auto changed = [](Plan& p) { p.fingerprint = 1; };
  spec::ModelSpec other = eightHeads();
  other.numLayers = 12;
  EXPECT_THAT(messageAfterChange(changed, other),
              HasSubstr("with layers: 10, but model 'eight-heads' has layers: 12, among other "));
  EXPECT_THAT(messageAfterChange(changed), HasSubstr("with fingerprint 1, but model"));
  EXPECT_THAT(messageAfterChange(
                  [&](Plan& p) {
                    changed(p);
                    p.layers = {{{INT64_MAX, INT64_MAX}, {5, 2}}, {{3, 2}, {7, 3}}};
                  },
                  other),
              HasSubstr("with fingerprint 1, but model"));
}

TEST(P2MadeForThisModel, ANameChangesNoComputation) {
  spec::ModelSpec renamed = eightHeads();
  renamed.name = "renamed";
  EXPECT_EQ(messageAfterChange([](Plan&) {}, renamed), "");
}

TEST(P3BatchIsAMultiple, OfReplicasTimesMicrobatchSize) {
  EXPECT_EQ(messageAfterChange([](Plan& p) { p.microbatchSize = 7; }),
            "(P3) global batch size 48 is not a multiple of dp 2 x microbatch size 7 = 14; "
            "nearest: 42 or 56");
  EXPECT_THAT(messageAfterChange([](Plan& p) { p.microbatchSize = 25; }), HasSubstr("nearest: 50"));
}

TEST(P4TpDividesHeads, NearestAreNamed) {
  EXPECT_EQ(messageAfterChange([](Plan& p) { p.tp = 3; }),
            "(P4) tp 3 does not divide 8 key/value heads; nearest: 2 or 4");
  EXPECT_EQ(messageAfterChange([](Plan& p) { p.tp = 1'000'000; }),
            "(P4) tp 1000000 does not divide 8 key/value heads; nearest: 8");
}

TEST(P5TpDividesFfn, NearestAreNamed) {
  spec::ModelSpec model = eightHeads();
  model.ffnSize = 386;
  EXPECT_EQ(messageAfterChange(
                [&](Plan& p) {
                  p.tp = 4;
                  p.fingerprint = fingerprintOf(model);
                },
                model),
            "(P5) tp 4 does not divide the ffn size 386; nearest: 2");
}

TEST(P6VirtualStagesNeedInterleaving, AndInterleavingNeedsThem) {
  EXPECT_THAT(messageAfterChange([](Plan& p) { p.schedule = ScheduleKind::kGpipe; }),
              HasSubstr("(P6) 2 virtual stages need schedule interleaved, not gpipe"));
  EXPECT_THAT(messageAfterChange([](Plan& p) { p.virtualStages = 1; }),
              HasSubstr("(P6) schedule interleaved needs more than 1 virtual stage"));
  EXPECT_THAT(messageAfterChange([](Plan& p) { p.pp = 1; }),
              HasSubstr("(P6) 2 virtual stages need pp > 1, but pp is 1"));
}

TEST(P7InterleavedGroupsAreFull, NearestAreNamed) {
  EXPECT_EQ(
      messageAfterChange([](Plan& p) { p.training.globalBatchSize = 46; }),  // 23 microbatches
      "(P7) schedule interleaved: 23 microbatches per replica are not a multiple of pp 2; "
      "nearest: 22 or 24 microbatches");
  EXPECT_EQ(messageAfterChange([](Plan& p) {
              simplify(p);
              p.training.globalBatchSize = 46;
            }),
            "");
}

TEST(P8LayersCoverTheModel, StagesAndChunksAreAsMany) {
  EXPECT_EQ(messageAfterChange([](Plan& p) { p.layers.pop_back(); }),
            "(P8) layers has 1 stages, expected pp = 2");
  EXPECT_EQ(messageAfterChange([](Plan& p) { p.layers[1].pop_back(); }),
            "(P8) layers: stage 1 has 1 chunks, expected 2");
}

TEST(P8LayersCoverTheModel, RangesFollowEachOther) {
  EXPECT_EQ(messageAfterChange([](Plan& p) { p.layers[1][0] = {4, 1}; }),
            "(P8) layers: stage 1, chunk 0 starts at layer 4, but the virtual stage before it ends "
            "at 3; nearest: 3");
  // In the order of ranks instead of that of virtual stages.
  EXPECT_THAT(messageAfterChange([](Plan& p) { p.layers = {{{0, 3}, {3, 2}}, {{5, 2}, {7, 3}}}; }),
              HasSubstr("(P8) layers: stage 1, chunk 0 starts at layer 5"));
}

TEST(P8LayersCoverTheModel, NoneIsEmptyBetweenTheFirstAndTheLast) {
  EXPECT_EQ(messageAfterChange([](Plan& p) { p.layers[1][0].count = 0; }),
            "(P8) layers: stage 1, chunk 0 has 0 layers; nearest: 1");
  EXPECT_EQ(messageAfterChange([](Plan& p) { p.layers = {{{0, 5}, {10, 0}}, {{5, 5}, {10, 0}}}; }),
            "(P8) layers: stage 0, chunk 1 has 0 layers; nearest: 1");
}

// 126 layers of Llama 3.1 405B in 128 virtual stages: only the embedding, only the head.
TEST(P8LayersCoverTheModel, TheFirstAndTheLastMayHoldNoLayer) {
  EXPECT_EQ(messageAfterChange([](Plan& p) { p.layers = {{{0, 0}, {5, 5}}, {{0, 5}, {10, 0}}}; }),
            "");
  EXPECT_EQ(messageAfterChange([](Plan& p) { p.layers[0][0].count = -1; }),
            "(P8) layers: stage 0, chunk 0 has -1 layers; nearest: 0");
}

TEST(P8LayersCoverTheModel, NoLayerIsLeftOutOrInvented) {
  EXPECT_EQ(messageAfterChange([](Plan& p) { p.layers[1][1].count = 2; }),
            "(P8) layers cover 9 layers, the model has 10");
  EXPECT_EQ(messageAfterChange([](Plan& p) { p.layers[1][1].count = INT64_MAX; }),
            "(P8) layers: stage 1, chunk 1 has 9223372036854775807 layers, but only 3 of the "
            "model's 10 are left");
}

TEST(P9SequenceParallelSplits, TheSequenceOverMoreThanOneRank) {
  EXPECT_THAT(messageAfterChange([](Plan& p) {
                p.tp = 1;
                p.sequenceParallel = true;
              }),
              HasSubstr("(P9) sequence parallel needs tp > 1"));
  EXPECT_EQ(messageAfterChange([](Plan& p) {
              p.tp = 8;
              p.sequenceParallel = true;
              p.training.sequenceLength = 60;
            }),
            "(P9) sequence parallel: tp 8 does not divide the sequence length 60; nearest: 4");
  // 8 heads: what divides 33 tokens does not divide them.
  EXPECT_EQ(messageAfterChange([](Plan& p) {
              p.tp = 2;
              p.sequenceParallel = true;
              p.training.sequenceLength = 33;
            }),
            "(P9) sequence parallel: tp 2 does not divide the sequence length 33; nearest: "
            "sequence_parallel false");
}

TEST(P10ScatterGatherApplies, OnlyToReplicatedStageBorders) {
  EXPECT_THAT(messageAfterChange([](Plan& p) {
                p.tp = 1;
                p.scatterGather = true;
              }),
              HasSubstr("(P10) scatter-gather needs tp > 1 and pp > 1, but tp is 1 and pp is 2"));
  EXPECT_THAT(messageAfterChange([](Plan& p) {
                p.pp = 1;
                simplify(p);
                p.scatterGather = true;
              }),
              HasSubstr("(P10) scatter-gather needs tp > 1 and pp > 1, but tp is 2 and pp is 1"));
  EXPECT_THAT(messageAfterChange([](Plan& p) { p.scatterGather = p.sequenceParallel = true; }),
              HasSubstr("(P10) scatter-gather excludes sequence parallel"));
}

TEST(P10ScatterGatherApplies, ToEqualParts) {
  spec::ModelSpec model = eightHeads();
  model.hiddenSize = 95;
  const auto scatter = [&](int64_t microbatchSize, int64_t sequenceLength) {
    return messageAfterChange(
        [&](Plan& p) {
          p.fingerprint = fingerprintOf(model);
          p.scatterGather = true;
          p.microbatchSize = microbatchSize;
          p.training.sequenceLength = sequenceLength;
        },
        model);
  };
  EXPECT_THAT(scatter(1, 63), HasSubstr("(P10) scatter-gather: tp 2 does not divide microbatch "
                                        "size 1 x sequence length 63 x hidden size 95"));
  EXPECT_EQ(scatter(1, 64), "");
  EXPECT_EQ(scatter(2, 63), "");
}

TEST(P11StateShardingHasRanks, AndShardsHaveState) {
  const auto shard = [](StateSharding sharding, int64_t dpReplicate, int64_t dpShard,
                        int64_t cp = 1) {
    return messageAfterChange([&](Plan& p) {
      p.stateSharding = sharding;
      p.dpReplicate = dpReplicate;
      p.dpShard = dpShard;
      p.cp = cp;
    });
  };
  EXPECT_EQ(shard(StateSharding::kOptimizer, 1, 1),
            "(P11) state sharding optimizer needs dp_shard > 1 or cp > 1, but both are 1; nearest: "
            "state_sharding none, or dp_shard 2");
  EXPECT_EQ(shard(StateSharding::kGradients, 2, 1),
            "(P11) state sharding gradients needs dp_shard > 1 or cp > 1, but both are 1; nearest: "
            "state_sharding none, or dp_replicate 1 and dp_shard 2");
  EXPECT_EQ(shard(StateSharding::kNone, 2, 3),
            "(P11) dp_shard 3 shards nothing with state_sharding none; nearest: dp_replicate 6 and "
            "dp_shard 1, or state_sharding optimizer");
  EXPECT_EQ(shard(StateSharding::kNone, 6, 1), "");
  EXPECT_EQ(shard(StateSharding::kOptimizer, 2, 2), "");
  EXPECT_EQ(shard(StateSharding::kGradients, 1, 2), "");
  EXPECT_EQ(shard(StateSharding::kParameters, 2, 2), "");
  EXPECT_EQ(shard(StateSharding::kParameters, 1, 1, 2), "");
}

TEST(P12ThereAreNoExperts, ToSpread) {
  EXPECT_EQ(messageAfterChange([](Plan& p) { p.ep = 2; }),
            "(P12) ep 2: the model has no experts to spread; nearest: ep 1");
}

TEST(P14RecomputedLayersExist, OnlyUnderFullRecomputation) {
  const auto recompute = [](Recompute kind, int64_t layers) {
    return messageAfterChange([&](Plan& p) {
      p.recompute = kind;
      p.recomputeLayers = layers;
    });
  };
  EXPECT_EQ(recompute(Recompute::kSelective, 1),
            "(P14) recompute_layers 1 needs recompute full, not selective; nearest: "
            "recompute_layers 0");
  EXPECT_THAT(recompute(Recompute::kNone, -1), HasSubstr("(P14) recompute_layers -1 needs"));
  EXPECT_EQ(recompute(Recompute::kSelective, 0), "");
  EXPECT_EQ(recompute(Recompute::kFull, 0), "");
}

// The virtual stages of the legal plan have 3, 2, 2 and 3 layers.
TEST(P14RecomputedLayersExist, AreNoMoreThanAVirtualStageHas) {
  const auto recompute = [](int64_t layers) {
    return messageAfterChange([&](Plan& p) {
      p.recompute = Recompute::kFull;
      p.recomputeLayers = layers;
    });
  };
  EXPECT_EQ(recompute(1), "");
  EXPECT_EQ(recompute(3), "");
  EXPECT_EQ(recompute(4),
            "(P14) recompute_layers 4: the longest virtual stage has 3 layers; nearest: 3");
  EXPECT_EQ(recompute(INT64_MIN),
            "(P14) recompute_layers -9223372036854775808: the longest virtual stage has 3 layers; "
            "nearest: 1");
}

// 64 tokens over cp 4 are 8 parts of 8; cp 3 would need a multiple of 6.
TEST(P15ContextDivides, TheSequenceIntoTwoPartsPerRank) {
  EXPECT_EQ(messageAfterChange([](Plan& p) { p.cp = 4; }), "");
  EXPECT_EQ(messageAfterChange([](Plan& p) { p.cp = 32; }), "");
  EXPECT_EQ(messageAfterChange([](Plan& p) { p.cp = 3; }),
            "(P15) cp 3 needs a sequence length that is a multiple of 2 x cp, not 64; nearest: 2 "
            "or 4");
  // Without a mirror image for the one part.
  EXPECT_THAT(messageAfterChange([](Plan& p) { p.cp = 64; }), HasSubstr("(P15) cp 64"));
  EXPECT_THAT(messageAfterChange([](Plan& p) {
                p.cp = 2;
                p.training.sequenceLength = 63;
              }),
              HasSubstr("(P15) cp 2 needs a sequence length that is a multiple of 2 x cp, not 63; "
                        "nearest: 1"));
}

// 60 tokens over cp 2 leave 30 to each rank, which tp 4 does not divide although it divides 60.
TEST(P15ContextDivides, BeforeSequenceParallelismDoes) {
  EXPECT_EQ(messageAfterChange([](Plan& p) {
              p.cp = 2;
              p.tp = 4;
              p.sequenceParallel = true;
              p.training.sequenceLength = 60;
            }),
            "(P9) sequence parallel: tp 4 does not divide the sequence length 30 of one of cp 2 "
            "ranks; nearest: 2");
}

// 36 / 2 tokens x 95: divisible by 2, not by 4, while 36 x 95 is.
TEST(P15ContextDivides, BeforeScatterGatherDoes) {
  spec::ModelSpec model = eightHeads();
  model.hiddenSize = 95;
  const auto scatter = [&](int64_t tp) {
    return messageAfterChange(
        [&](Plan& p) {
          p.fingerprint = fingerprintOf(model);
          p.cp = 2;
          p.tp = tp;
          p.scatterGather = true;
          p.training.sequenceLength = 36;
        },
        model);
  };
  EXPECT_EQ(scatter(2), "");
  EXPECT_THAT(scatter(4), HasSubstr("(P10) scatter-gather: tp 4 does not divide microbatch size 1 "
                                    "x sequence length 18 x hidden size 95"));
}

TEST(P16StackHasAName, OfPrintableText) {
  EXPECT_EQ(messageAfterChange([](Plan& p) { p.stack = "megatron-core"; }), "");
  EXPECT_EQ(messageAfterChange([](Plan& p) { p.stack = ""; }),
            "(P16) stack '': expected the name of a stack profile; nearest: trireme");
  EXPECT_THAT(messageAfterChange([](Plan& p) { p.stack = "a\nb"; }), HasSubstr("(P16) stack "));
  EXPECT_THAT(messageAfterChange([](Plan& p) { p.stack = "\xff"; }), HasSubstr("(P16) stack "));
}

TEST(P18RankOrder, NeedsStagesAndReplicas) {
  const auto reordered = [](int64_t pp, int64_t dp) {
    return messageAfterChange([&](Plan& p) {
      p.rankOrder = RankOrder::kTpCpPpDp;
      p.pp = pp;
      p.dpReplicate = dp;
      p.dpShard = 1;
      p.stateSharding = StateSharding::kNone;
      p.schedule = ScheduleKind::k1F1B;
      p.virtualStages = 1;
      p.scatterGather = false;
      p.layers = evenLayers(eightHeads().numLayers, pp, 1);
    });
  };
  EXPECT_EQ(reordered(2, 2), "");
  EXPECT_EQ(reordered(1, 2),
            "(P18) rank_order tp-cp-pp-dp needs pp > 1 and dp > 1, but pp is 1 and dp is 2; "
            "nearest: rank_order tp-cp-dp-pp");
  EXPECT_THAT(reordered(2, 1),
              HasSubstr("(P18) rank_order tp-cp-pp-dp needs pp > 1 and dp > 1, but "
                        "pp is 2 and dp is 1"));
}

TEST(P13TrainingFitsTheModel, ItsSettingsAreVerified) {
  EXPECT_THAT(messageAfterChange([](Plan& p) { p.training.sequenceLength = 65; }),
              HasSubstr("(P13) training: sequence_length"));
  EXPECT_THAT(messageAfterChange([](Plan& p) { p.training.beta1 = 1; }),
              HasSubstr("(P13) training: beta1"));
  EXPECT_THAT(messageAfterChange([](Plan& p) { p.training.globalBatchSize = 0; }),
              HasSubstr("(P13) training: global_batch_size"));
}

TEST(VerifyPlan, EveryErrorIsOneOfTheUser) {
  Plan plan = legalPlan();
  plan.tp = 3;
  EXPECT_EQ(verifyPlan(plan, eightHeads()).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace trireme::plan
