#include "planner/partition/down_sets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/planner/partition/profiles.h"

namespace trireme::planner {
namespace {

using namespace trireme::planner::testing;
using ::testing::HasSubstr;

spec::ProfileSpec diamond() {
  spec::ProfileSpec p;
  for (const char* id : {"a", "b", "c", "d"}) p.layers.push_back(plainLayer(id, 1, 10, 1));
  p.layers[1].activation = Bytes(20);
  join(p, 0, 1);
  join(p, 0, 2);
  join(p, 1, 3);
  join(p, 2, 3);
  return p;
}

TEST(DownSets, ChainHasOneMoreThanLayers) {
  spec::ProfileSpec p;
  for (int i = 0; i < 70; ++i) p.layers.push_back(plainLayer(std::to_string(i), 1, 1, 1));
  joinAll(p);
  const DownSets sets = DownSets::of(p).value();
  EXPECT_EQ(sets.size(), 71u);
  EXPECT_EQ(sets.difference(63, 66), (std::vector<int32_t>{63, 64, 65}));
  EXPECT_EQ(sets.within(3), (std::vector<int32_t>{0, 1, 2}));
}

// {}, a, ab, ac, abc, abcd. ab and ac are not inside of each other.
TEST(DownSets, DiamondHasSix) {
  const DownSets sets = DownSets::of(diamond()).value();
  ASSERT_EQ(sets.size(), 6u);
  EXPECT_FALSE(sets.isSubset(2, 3));
  EXPECT_FALSE(sets.isSubset(3, 2));
  EXPECT_EQ(sets.within(3), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(sets.within(4), (std::vector<int32_t>{0, 1, 2, 3}));
}

// a's 10 bytes cross once although b and c both read them; behind ab they still cross, for c, and
// b's 20 do for d.
TEST(DownSets, TensorsCrossABorderOnce) {
  const spec::ProfileSpec p = diamond();
  const DownSets sets = DownSets::of(p).value();
  const std::vector<double> border = borderBytes(p, sets);
  EXPECT_EQ(border[0], 0);
  EXPECT_EQ(border[1], 10);
  std::multiset<double> branches = {border[2], border[3]};
  EXPECT_EQ(branches, (std::multiset<double>{10 + 20, 10 + 10}));
  EXPECT_EQ(border[4], 20 + 10);
  EXPECT_EQ(border[5], 0);
}

// Every subset of the layers, checked against the definition.
TEST(DownSets, AreAllOfThemAndNothingElse) {
  std::mt19937_64 rng(5);
  for (int round = 0; round < 100; ++round) {
    const auto n = static_cast<int32_t>(1 + rng() % 9);
    const spec::ProfileSpec p = shuffled(randomProfile(rng, n, 0.2), rng);
    const DownSets sets = DownSets::of(p).value();
    std::set<uint32_t> found;
    for (size_t s = 0; s < sets.size(); ++s) {
      uint32_t mask = 0;
      for (int32_t i = 0; i < n; ++i) mask |= sets.contains(s, i) ? 1u << i : 0u;
      found.insert(mask);
    }
    EXPECT_EQ(found.size(), sets.size());
    std::set<uint32_t> expected;
    for (uint32_t mask = 0; mask < 1u << n; ++mask) {
      bool closed = true;
      for (const spec::ProfileEdge& edge : p.edges)
        closed = closed && !((mask >> edge.to & 1) && !(mask >> edge.from & 1));
      if (closed) expected.insert(mask);
    }
    EXPECT_EQ(found, expected);
  }
}

// 20 layers side by side between two others: 2^20 cuts.
TEST(DownSets, TooManyBranchesAreRefused) {
  spec::ProfileSpec p;
  for (int i = 0; i < 22; ++i) p.layers.push_back(plainLayer(std::to_string(i), 1, 1, 1));
  for (int32_t i = 1; i < 21; ++i) {
    join(p, 0, i);
    join(p, i, 21);
  }
  const Result<DownSets> sets = DownSets::of(p);
  ASSERT_FALSE(sets.has_value());
  EXPECT_EQ(sets.error().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(sets.error().message(), HasSubstr("in more than 10000 ways, because many of its"));
}

// n layers in a row are cut in n + 1 ways.
TEST(DownSets, TooLongChainsAreRefused) {
  const auto chainOf = [](int32_t layers) {
    spec::ProfileSpec p;
    for (int32_t i = 0; i < layers; ++i) {
      p.layers.push_back(plainLayer(std::to_string(i), 1, 1, 1));
      if (i > 0) join(p, i - 1, i);
    }
    return p;
  };
  EXPECT_TRUE(DownSets::of(chainOf(9), 10).has_value());
  const Result<DownSets> sets = DownSets::of(chainOf(10), 10);
  ASSERT_FALSE(sets.has_value());
  EXPECT_EQ(sets.error().message(),
            "the profile can be cut in two in more than 10 ways, because it is a chain of so many "
            "layers; merge some that follow each other into one");
}

}  // namespace
}  // namespace trireme::planner
