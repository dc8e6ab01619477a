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
using testing::ElementsAre;

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

// tensor innermost, then data, pipeline outermost: with tp 2, dp 3, rank 9 = 1 + 2 (1 + 3 * 1).
TEST(Ranks, AreLaidOutTensorInnermostPipelineOutermost) {
  const RankCoordinates c = coordinatesOf(9, 2, 3);
  EXPECT_EQ(std::tuple(c.tp, c.dp, c.pp), std::tuple(1, 1, 1));
  EXPECT_EQ(rankOf({.tp = 1, .dp = 2, .pp = 3}, 2, 3), 1 + 2 * (2 + 3 * 3));
}

TEST(Ranks, CoordinatesAreOneToOne) {
  for (int64_t rank = 0; rank < 4 * 3 * 5; ++rank)
    EXPECT_EQ(rankOf(coordinatesOf(rank, 4, 3), 4, 3), rank);
}

}  // namespace
}  // namespace trireme::plan
