#include "ir/plan/sharding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <tuple>

namespace trireme::plan {
namespace {

using graph::Dim;
using graph::Label;
using graph::Tensor;
using ::testing::ElementsAre;

Tensor tensorOf(std::vector<Dim> dims, bool sequenceRegion = false) {
  Tensor tensor;
  tensor.dims = std::move(dims);
  tensor.sequenceRegion = sequenceRegion;
  return tensor;
}

std::vector<int64_t> localOf(const Tensor& tensor, const MeshShape& mesh) {
  return localShape(tensor.dims, homeSharding(tensor, mesh), mesh);
}

const Dim kS{Label::kSequence, 16}, kB{Label::kBatch, 3}, kH{Label::kHidden, 32};
const MeshShape kTp4{.tp = 4}, kTp4Sp{.tp = 4, .sequenceParallel = true};

TEST(HomeSharding, SplitsGroupsHeadsFfnAndVocabulary) {
  EXPECT_THAT(localOf(tensorOf({kS, kB, {Label::kGroup, 8}, {Label::kHeadWidth, 24}}), kTp4),
              ElementsAre(16, 3, 2, 24));
  EXPECT_THAT(localOf(tensorOf({kB, {Label::kHead, 16}, kS}), kTp4), ElementsAre(3, 4, 16));
  EXPECT_THAT(localOf(tensorOf({{Label::kGateUp, 2}, {Label::kFfn, 64}, kH}), kTp4),
              ElementsAre(2, 16, 32));
  EXPECT_THAT(localOf(tensorOf({{Label::kVocab, 512}, kH}), kTp4), ElementsAre(128, 32));
}

TEST(HomeSharding, ReplicatesTheRest) {
  EXPECT_EQ(homeSharding(tensorOf({kS, kB, kH}, true), kTp4), Sharding{});
  EXPECT_EQ(homeSharding(tensorOf({{Label::kPosition, 64}, kH}), kTp4Sp), Sharding{});
}

TEST(HomeSharding, SplitsTheSequenceOfItsRegionUnderSequenceParallelism) {
  EXPECT_THAT(localOf(tensorOf({kS, kB, kH}, true), kTp4Sp), ElementsAre(4, 3, 32));
  EXPECT_THAT(localOf(tensorOf({kS, kB, kH}, false), kTp4Sp), ElementsAre(16, 3, 32));
  // Another dim is split: a tensor is split once.
  EXPECT_THAT(localOf(tensorOf({kS, kB, {Label::kFfn, 64}}, true), kTp4Sp), ElementsAre(16, 3, 16));
}

TEST(HomeSharding, OfOneRankIsWhole) {
  EXPECT_EQ(homeSharding(tensorOf({{Label::kVocab, 512}, kH}), {.tp = 1}), Sharding{});
}

TEST(HomeSharding, PartsMakeUpTheWhole) {
  for (const Tensor& tensor : {tensorOf({kS, kB, kH}, true), tensorOf({{Label::kVocab, 512}, kH}),
                               tensorOf({kS, kB, {Label::kGroup, 8}, {Label::kContextWidth, 4}})}) {
    int64_t whole = 1, part = 1;
    for (const Dim& dim : tensor.dims) whole *= dim.size;
    for (const int64_t size : localOf(tensor, kTp4Sp)) part *= size;
    EXPECT_EQ(part * 4, whole);
  }
}

Plan meshOf(int64_t tp, int64_t cp, int64_t dpShard, int64_t dpReplicate, int64_t pp) {
  Plan plan;
  plan.tp = tp, plan.cp = cp, plan.dpShard = dpShard, plan.dpReplicate = dpReplicate, plan.pp = pp;
  return plan;
}

// Megatron-Core's order "tp-cp-ep-dp-pp", of which torchtitan cuts dp into shards within replicas.
// One step along an axis is as many ranks as all inner degrees make: 1, 2, 2 * 3, 2 * 3 * 5,
// 2 * 3 * 5 * 7.
TEST(Ranks, AreLaidOutTensorInnermostPipelineOutermost) {
  const Plan mesh = meshOf(2, 3, 5, 7, 11);
  EXPECT_EQ(rankOf({.tp = 1}, mesh), 1);
  EXPECT_EQ(rankOf({.cp = 1}, mesh), 2);
  EXPECT_EQ(rankOf({.dpShard = 1}, mesh), 6);
  EXPECT_EQ(rankOf({.dpReplicate = 1}, mesh), 30);
  EXPECT_EQ(rankOf({.pp = 1}, mesh), 210);
  // 1 + 2 (2 + 3 (4 + 5 (6 + 7 * 10))) = 2309, the last of 2310.
  EXPECT_EQ(coordinatesOf(2309, mesh),
            (RankCoordinates{.tp = 1, .cp = 2, .dpShard = 4, .dpReplicate = 6, .pp = 10}));
}

// Its order "tp-cp-ep-pp-dp" (--use-tp-pp-dp-mapping): 1, 2, 2 * 3, 2 * 3 * 11, 2 * 3 * 11 * 5.
TEST(Ranks, MayHaveTheStagesOfAReplicaNextToEachOther) {
  Plan mesh = meshOf(2, 3, 5, 7, 11);
  mesh.rankOrder = RankOrder::kTpCpPpDp;
  EXPECT_EQ(rankOf({.tp = 1}, mesh), 1);
  EXPECT_EQ(rankOf({.cp = 1}, mesh), 2);
  EXPECT_EQ(rankOf({.pp = 1}, mesh), 6);
  EXPECT_EQ(rankOf({.dpShard = 1}, mesh), 66);
  EXPECT_EQ(rankOf({.dpReplicate = 1}, mesh), 330);
  EXPECT_EQ(stageStride(mesh), 6);
  EXPECT_EQ(replicaStride(mesh), 66);
  // 1 + 2 (2 + 3 (3 + 11 (4 + 5 * 6))) = 5 + 6 (3 + 11 * 34) = 2267.
  EXPECT_EQ(coordinatesOf(2267, mesh),
            (RankCoordinates{.tp = 1, .cp = 2, .dpShard = 4, .dpReplicate = 6, .pp = 3}));
}

// The drawing of sharding.h: stage and replica of every second rank.
TEST(Ranks, OfEitherOrderAreAsDrawn) {
  Plan mesh = meshOf(2, 1, 1, 2, 2);
  const auto drawn = [&] {
    std::vector<std::pair<int64_t, int64_t>> places;
    for (int64_t rank = 0; rank < 8; rank += 2) {
      const RankCoordinates c = coordinatesOf(rank, mesh);
      EXPECT_EQ(coordinatesOf(rank + 1, mesh),
                (RankCoordinates{.tp = 1, .dpReplicate = c.dpReplicate, .pp = c.pp}));
      places.emplace_back(c.pp, c.dpReplicate);
    }
    return places;
  };
  using Places = std::vector<std::pair<int64_t, int64_t>>;
  EXPECT_EQ(drawn(), (Places{{0, 0}, {0, 1}, {1, 0}, {1, 1}}));
  mesh.rankOrder = RankOrder::kTpCpPpDp;
  EXPECT_EQ(drawn(), (Places{{0, 0}, {1, 0}, {0, 1}, {1, 1}}));
}

TEST(Ranks, CoordinatesAreOneToOne) {
  for (const RankOrder order : {RankOrder::kTpCpDpPp, RankOrder::kTpCpPpDp}) {
    Plan mesh = meshOf(4, 3, 2, 2, 5);
    mesh.rankOrder = order;
    std::set<std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t>> seen;
    for (int64_t rank = 0; rank < mesh.numRanks(); ++rank) {
      const RankCoordinates c = coordinatesOf(rank, mesh);
      EXPECT_EQ(rankOf(c, mesh), rank);
      EXPECT_TRUE(seen.insert({c.tp, c.cp, c.dpShard, c.dpReplicate, c.pp}).second);
      EXPECT_TRUE(c.tp < 4 && c.cp < 3 && c.dpShard < 2 && c.dpReplicate < 2 && c.pp < 5);
    }
  }
}

}  // namespace
}  // namespace trireme::plan
