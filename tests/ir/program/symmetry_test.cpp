#include "ir/program/symmetry.h"

#include <gtest/gtest.h>

#include "tests/support/program_builder.h"

namespace trireme::program {
namespace {

TEST(Symmetry, RanksOfOneStageAreOneClass) {
  const Symmetry s = findSymmetry(testing::buildPipeline({4, 3, 8, 1, 1, 4}));
  EXPECT_EQ(s.numClasses(), 3);
}

TEST(Symmetry, RepresentativesShareAPipelineGroup) {
  const Program p = testing::buildPipeline({2, 4, 2, 1, 1, 4});
  const Symmetry s = findSymmetry(p);
  for (int32_t r : s.representative)
    EXPECT_EQ(p.ranks[static_cast<size_t>(r)].group[static_cast<size_t>(GroupKind::kPp)],
              p.ranks[static_cast<size_t>(s.representative[0])]
                  .group[static_cast<size_t>(GroupKind::kPp)]);
}

// One rank with a role of its own (tp 0, dp 0, pp 1 of 2 x 3 x 2). Told apart are, per stage: its
// pipeline, the others of its replica, those of its tp index in the other replica, and the rest;
// all in all 3 stages x 4.
TEST(Symmetry, AnOddRankSplitsOnlyThoseThatItCanInfluence) {
  Program p = testing::buildPipeline({2, 3, 2, 1, 1, 2});
  p.roles.push_back(Role(p.roles[1]));
  p.ranks[4].role = 3;
  const Symmetry s = findSymmetry(p);
  EXPECT_EQ(s.numClasses(), 3 * 4);
  EXPECT_NE(s.classOfRank[4], s.classOfRank[5]);
}

TEST(Symmetry, OfManyRanksWithOneOddRankStaysSmall) {
  Program p = testing::buildPipeline({8, 4, 16, 1, 1, 4});
  p.roles.push_back(Role(p.roles[2]));
  p.ranks[300].role = 4;  // 512 ranks; rank 300 is of stage 2
  EXPECT_EQ(findSymmetry(p).numClasses(), 4 * 4);
  EXPECT_EQ(findSymmetry(p, true).numClasses(), 512);
}

}  // namespace
}  // namespace trireme::program
