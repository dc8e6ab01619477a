#include "planner/explain.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/planner/small_query.h"

namespace trireme::planner {
namespace {

TEST(Explain, NoAlternativeIsFasterThanTheBest) {
  const Query query = smallQuery(8, 6, 24);
  const auto result = searchPlan(query);
  ASSERT_TRUE(result.has_value());
  const auto explanation = explain(query, *result);
  ASSERT_TRUE(explanation.has_value());
  EXPECT_GE(explanation->alternatives.size(), 4u);
  for (const Alternative& a : explanation->alternatives)
    EXPECT_NE(a.outcome, Outcome::kFaster) << toLine(a);
  EXPECT_FALSE(explanation->bottleneck.empty());
  EXPECT_GT(explanation->share, 1.0 / 8);
}

TEST(Explain, SaysThatLessRecomputationDoesNotFit) {
  Query query = smallQuery(1, 4, 8);
  query.pins.recompute = plan::Recompute::kFull;
  const auto wasteful = searchPlan(query);
  ASSERT_TRUE(wasteful.has_value());
  query.cluster.device.memory = wasteful->estimate.memory.total();
  const auto result = searchPlan(query);
  ASSERT_TRUE(result.has_value());
  const auto explanation = explain(query, *result);
  ASSERT_TRUE(explanation.has_value());
  const auto none = std::find_if(
      explanation->alternatives.begin(), explanation->alternatives.end(),
      [](const Alternative& a) { return a.choice == "recompute" && a.other == "none"; });
  ASSERT_NE(none, explanation->alternatives.end());
  EXPECT_EQ(none->outcome, Outcome::kDoesNotFit);
  EXPECT_GT(none->missing, Bytes(0));
}

TEST(Explain, ForbiddenChangesNameTheRule) {
  Query query = smallQuery(4, 4, 8);
  query.pins.pp = 4;
  query.pins.schedule = plan::ScheduleKind::k1F1B;
  query.pins.microbatchSize = 8;  // one microbatch: interleaving needs a multiple of pp
  const auto result = searchPlan(query);
  ASSERT_TRUE(result.has_value());
  const auto explanation = explain(query, *result);
  ASSERT_TRUE(explanation.has_value());
  EXPECT_TRUE(std::any_of(explanation->alternatives.begin(), explanation->alternatives.end(),
                          [](const Alternative& a) {
                            return a.outcome == Outcome::kForbidden && a.rule.starts_with("(P");
                          }));
}

TEST(ToLine, ReadsAsASentence) {
  Alternative a;
  a.choice = "recompute";
  a.chosen = "selective";
  a.other = "none";
  a.outcome = Outcome::kDoesNotFit;
  a.missing = Bytes(1024.0 * 1024 * 1024 * 3);
  EXPECT_EQ(toLine(a), "recompute none instead of selective: 3.00 GiB too much memory");
  a.outcome = Outcome::kSlower;
  a.difference = Seconds(0.002);
  a.part = "bubble";
  a.partDifference = Seconds(0.003);
  EXPECT_EQ(toLine(a), "recompute none instead of selective: 2.000 ms slower (bubble +3.000 ms)");
}

}  // namespace
}  // namespace trireme::planner
