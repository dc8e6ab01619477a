#include "ir/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace trireme::plan {
namespace {

using ::testing::ElementsAre;

TEST(EvenLayers, DivideEquallyInVirtualStageOrder) {
  // Virtual stage = chunk * pp + stage: stage 0 holds virtual stages 0 and 2.
  EXPECT_THAT(evenLayers(8, 2, 2), ElementsAre(ElementsAre(LayerRange{0, 2}, LayerRange{4, 2}),
                                               ElementsAre(LayerRange{2, 2}, LayerRange{6, 2})));
}

// 30 layers on 4 stages are 8 + 8 + 7 + 7, never 28.
TEST(EvenLayers, TheFirstVirtualStagesGetOneMore) {
  EXPECT_THAT(evenLayers(30, 4, 1),
              ElementsAre(ElementsAre(LayerRange{0, 8}), ElementsAre(LayerRange{8, 8}),
                          ElementsAre(LayerRange{16, 7}), ElementsAre(LayerRange{23, 7})));
}

// The head first, then the embedding as well.
TEST(EvenLayers, TheEndsMayHaveNone) {
  EXPECT_THAT(evenLayers(3, 2, 2), ElementsAre(ElementsAre(LayerRange{0, 1}, LayerRange{2, 1}),
                                               ElementsAre(LayerRange{1, 1}, LayerRange{3, 0})));
  EXPECT_THAT(evenLayers(2, 2, 2), ElementsAre(ElementsAre(LayerRange{0, 0}, LayerRange{1, 1}),
                                               ElementsAre(LayerRange{0, 1}, LayerRange{2, 0})));
}

TEST(EvenLayers, CoverEveryModelWithPartsThatDifferByOneAtMost) {
  for (int64_t layers = 1; layers <= 40; ++layers)
    for (int64_t pp = 1; pp <= 6; ++pp)
      for (int64_t v = 1; pp * v <= layers && v <= 4; ++v) {
        const auto stages = evenLayers(layers, pp, v);
        int64_t next = 0, fewest = layers, most = 0;
        for (int64_t virtualStage = 0; virtualStage < pp * v; ++virtualStage) {
          const LayerRange& range = stages[static_cast<size_t>(virtualStage % pp)]
                                          [static_cast<size_t>(virtualStage / pp)];
          EXPECT_EQ(range.first, next);
          next += range.count;
          fewest = std::min(fewest, range.count);
          most = std::max(most, range.count);
        }
        EXPECT_EQ(next, layers);
        EXPECT_LE(most - fewest, 1);
        EXPECT_GE(fewest, 1);
      }
}

// GPT-2's 50,257 rows: 50,304 = 393 * 128 on one rank, 51,200 = 50 * 1,024 on eight.
TEST(PaddedVocab, IsAMultipleForEveryRank) {
  const spec::ModelSpec model{.vocabSize = 50'257};
  Plan plan;
  EXPECT_EQ(paddedVocab(plan, model), 50'304);
  plan.tp = 8;
  EXPECT_EQ(paddedVocab(plan, model), 51'200);
  EXPECT_EQ(paddedVocab(plan, {.vocabSize = 51'200}), 51'200);
}

TEST(Plan, CountsRanksAndMicrobatches) {
  Plan plan;
  plan.tp = 2;
  plan.pp = 3;
  plan.dpReplicate = 4;
  plan.dpShard = 5;
  plan.microbatchSize = 6;
  plan.training.globalBatchSize = 4 * 5 * 6 * 7;
  EXPECT_EQ(plan.dp(), 20);
  EXPECT_EQ(plan.numRanks(), 120);
  EXPECT_EQ(plan.numMicrobatches(), 7);
  plan.cp = 2;  // the same samples, in parts
  EXPECT_EQ(plan.numRanks(), 240);
  EXPECT_EQ(plan.numMicrobatches(), 7);
}

TEST(Plan, SharesStateOverShardsAndContextButNotOverReplicas) {
  Plan plan;
  plan.tp = 2, plan.cp = 3, plan.dpReplicate = 4, plan.dpShard = 5;
  EXPECT_EQ(plan.stateShards(), 1);
  plan.stateSharding = StateSharding::kParameters;
  EXPECT_EQ(plan.stateShards(), 15);
}

TEST(Fingerprint, ChangesWithEveryNumberOfTheModel) {
  spec::ModelSpec model{.numLayers = 1, .hiddenSize = 2};
  const uint64_t before = fingerprintOf(model);
  std::swap(model.numLayers, model.hiddenSize);
  EXPECT_NE(fingerprintOf(model), before);
  std::swap(model.numLayers, model.hiddenSize);
  EXPECT_EQ(fingerprintOf(model), before);
  model.tiedEmbeddings = false;
  EXPECT_NE(fingerprintOf(model), before);
  model.tiedEmbeddings = true;
  model.ropeScaling = {.kind = RopeScalingKind::kLinear, .factor = 2};
  const uint64_t scaled = fingerprintOf(model);
  EXPECT_NE(scaled, before);
  model.ropeScaling = {RopeScalingKind::kLlama3, 2, 1, 4, 64};
  EXPECT_NE(fingerprintOf(model), scaled);
}

// Stored in files: a change of the computation would refuse all plans that exist.
// FNV-1a of "0 0 0 0 0 0 0 0 0 0 1e-05 0 0 10000 true true true 0.02", computed apart.
TEST(Fingerprint, NeverChangesForTheSameModel) {
  EXPECT_EQ(fingerprintOf({}), 16195528227316757342u);
}

}  // namespace
}  // namespace trireme::plan
