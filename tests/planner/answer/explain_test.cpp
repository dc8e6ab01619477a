#include "planner/answer/explain.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "planner/answer/report.h"
#include "planner/parts.h"
#include "planner/plan_text.h"
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
  const auto parts = breakdownParts(result->estimate.breakdown);
  const auto largest = std::max_element(
      parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.time < b.time; });
  EXPECT_EQ(explanation->bottleneck, largest->name);
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

// A layer on two ranks may be sequence parallel, and send its activations in halves: one rank had
// no use for either. The answer to "what if" is the best of the three, once.
TEST(Explain, TensorParallelismComesWithWhatMakesItFastest) {
  Query query = smallQuery(4, 4, 32);
  query.pins.tp = 1;
  query.pins.pp = query.pins.dp = 2;
  const auto result = searchPlan(query);
  ASSERT_TRUE(result.has_value());
  const auto changes = explain(query, *result)->alternatives;
  const auto isTp = [](const Alternative& a) { return a.choice == "tp" && a.other == "2"; };
  ASSERT_EQ(std::count_if(changes.begin(), changes.end(), isTp), 1);
  const Alternative& shown = *std::find_if(changes.begin(), changes.end(), isTp);
  const auto every =
      singleChanges(query, result->plan, result->estimate, modelCosts(query), Reach::kAny);
  ASSERT_TRUE(every.has_value());
  int ways = 0;
  for (const Alternative& a : *every) {
    if (!isTp(a)) continue;
    ++ways;
    EXPECT_LE(shown.difference, a.difference) << toLine(a);
  }
  EXPECT_EQ(ways, 3);
}

// Two stages x two replicas on nodes of two. On one tier both orders are the same.
TEST(Explain, SaysWhatTheRankOrderIsWorth) {
  Query query = smallQuery(4, 4, 32);
  query.pins.tp = 1;
  query.pins.pp = query.pins.dp = 2;
  const auto linesOf = [&] {
    const auto result = searchPlan(query);
    EXPECT_TRUE(result.has_value());
    std::vector<std::string> lines;
    const Explanation explanation = explain(query, *result).value();
    for (const Alternative& a : explanation.alternatives)
      if (a.choice == "rank order") {
        EXPECT_NE(a.outcome, Outcome::kFaster);
        lines.push_back(toLine(a));
      }
    return lines;
  };
  for (const plan::RankOrder order : {plan::RankOrder::kTpCpDpPp, plan::RankOrder::kTpCpPpDp}) {
    query.pins.rankOrder = order;
    const auto result = searchPlan(query);
    ASSERT_TRUE(result.has_value());
    const auto changes = explain(query, *result)->alternatives;
    const auto found = std::find_if(changes.begin(), changes.end(),
                                    [](const Alternative& a) { return a.choice == "rank order"; });
    ASSERT_NE(found, changes.end());
    EXPECT_EQ(found->chosen, plan::rankOrderName(order));
    EXPECT_NE(found->plan.rankOrder, order);
    EXPECT_DOUBLE_EQ(
        (result->estimate.step + found->difference).count(),
        cost::estimate(query.model, found->plan, query.cluster, query.stack)->step.count());
  }
  query.pins.rankOrder.reset();
  EXPECT_EQ(linesOf().size(), 1u);
  query.cluster.tiers.erase(query.cluster.tiers.begin());
  EXPECT_TRUE(linesOf().empty());
}

// Everything but the cut.
Pins allButTheCut(const plan::Plan& plan) {
  Pins pins;
  pins.gpus = plan.numRanks();
  pins.tp = plan.tp;
  pins.pp = plan.pp;
  pins.cp = plan.cp;
  pins.dp = plan.dp();
  pins.microbatchSize = plan.microbatchSize;
  pins.virtualStages = plan.virtualStages;
  pins.schedule = plan.schedule;
  pins.recompute = plan.recompute;
  pins.stateSharding = plan.stateSharding;
  pins.sequenceParallel = plan.sequenceParallel;
  pins.scatterGather = plan.scatterGather;
  pins.overlapReductions = plan.overlapReductions;
  pins.rankOrder = plan.rankOrder;
  return pins;
}

// Every change of stages or virtual stages takes as long as the best plan with those. Returns how
// many of them have another cut than the even one.
int expectCutsOfTheSearch(const Query& query) {
  const auto result = searchPlan(query);
  EXPECT_TRUE(result.has_value());
  const auto changes =
      singleChanges(query, result->plan, result->estimate, modelCosts(query), Reach::kAny);
  EXPECT_TRUE(changes.has_value());
  int uneven = 0;
  for (const Alternative& a : *changes) {
    const bool isUncut =
        a.plan.pp != result->plan.pp || a.plan.virtualStages != result->plan.virtualStages;
    if (!isUncut || a.outcome == Outcome::kForbidden) continue;
    Query pinned = query;
    pinned.pins = allButTheCut(a.plan);
    if (!query.stack.ownPrograms) pinned.pins.overlapReductions.reset();
    const auto best = searchPlan(pinned, modelCosts(pinned));
    EXPECT_EQ(best.has_value(), a.outcome != Outcome::kDoesNotFit) << toLine(a);
    if (!best.has_value() || a.outcome == Outcome::kDoesNotFit) continue;
    EXPECT_NEAR((result->estimate.step + a.difference) / best->estimate.step, 1, 1e-9) << toLine(a);
    uneven +=
        a.plan.layers != plan::evenLayers(query.model.numLayers, a.plan.pp, a.plan.virtualStages);
  }
  return uneven;
}

// 13 layers and a head that takes as long as some: even cuts are seldom the best.
TEST(Explain, OtherStagesGetTheCutThatTheSearchWouldChoose) {
  Query query = computeBound(smallQuery(4, 13, 24));
  query.model.vocabSize = 4096;
  query.pins.pp = 2;
  query.pins.tp = 1;
  query.pins.dp = 2;
  EXPECT_GT(expectCutsOfTheSearch(query), 0);
  query.stack.name = "described";
  query.stack.ownPrograms = false;
  EXPECT_GT(expectCutsOfTheSearch(query), 2);
  const auto best = searchPlan(query);
  ASSERT_TRUE(best.has_value());
  query.cluster.device.memory = best->estimate.memory.total() * 1.02;
  expectCutsOfTheSearch(query);
}

// What a bound leaves out is slower or does not fit: of every plan that a search has come upon, as
// many changes are faster as without it, and by as much.
TEST(FasterChanges, AreThoseOfAllThatAreFaster) {
  size_t faster = 0;
  for (const bool ownPrograms : {true, false}) {
    Query query = computeBound(smallQuery(8, 13, 24));
    query.stack.name = ownPrograms ? query.stack.name : "described";
    query.stack.ownPrograms = ownPrograms;
    query.topK = 12;
    const auto roomy = searchPlan(query);
    ASSERT_TRUE(roomy.has_value());
    query.cluster.device.memory = roomy->estimate.memory.total() * 1.02;
    const auto result = searchPlan(query);
    ASSERT_TRUE(result.has_value());
    const CostFunctions costs = modelCosts(query);
    for (const RunnerUp& runner : result->runnersUp) {
      auto all = singleChanges(query, runner.plan, runner.estimate, costs, Reach::kAny);
      const auto found = fasterChanges(query, runner.plan, runner.estimate, costs);
      ASSERT_TRUE(all.has_value() && found.has_value());
      std::erase_if(*all, [](const Alternative& a) { return a.outcome != Outcome::kFaster; });
      ASSERT_EQ(found->size(), all->size()) << summary(runner.plan);
      for (size_t i = 0; i < all->size(); ++i) EXPECT_EQ(toLine((*found)[i]), toLine((*all)[i]));
      faster += all->size();
    }
  }
  EXPECT_GT(faster, 10u);
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

// With one stage there is nothing to fill, and a whole backward is an alternative; towards one
// stage it is a part of the change.
TEST(Explain, KnowsThatOneStageNeedsNoSplitBackward) {
  for (const int64_t stages : {1, 2}) {
    Query query = smallQuery(4, 4, 8);
    query.pins.schedule = plan::ScheduleKind::kZeroBubbleH1;
    query.pins.pp = stages;
    const auto result = searchPlan(query);
    ASSERT_TRUE(result.has_value()) << result.error().message();
    const auto explanation = explain(query, *result);
    ASSERT_TRUE(explanation.has_value());
    const auto has = [&](std::string_view choice, std::string_view end) {
      return std::any_of(explanation->alternatives.begin(), explanation->alternatives.end(),
                         [&](const Alternative& a) {
                           return a.choice == choice && (a.other + a.also).ends_with(end);
                         });
    };
    EXPECT_TRUE(has("schedule", "1f1b")) << stages;
    EXPECT_EQ(has("pp", "and schedule 1f1b"), stages == 2);
  }
}

TEST(ToLine, ReadsAsASentence) {
  Alternative a;
  a.choice = "recompute";
  a.chosen = "selective";
  a.other = "none";
  a.outcome = Outcome::kDoesNotFit;
  a.missing = Bytes(1024.0 * 1024 * 1024 * 3);
  EXPECT_EQ(toLine(a), "recompute none instead of selective: 3.00 GiB too much memory");
  a.also = "dp 16 and microbatch 2";
  EXPECT_EQ(toLine(a),
            "recompute none instead of selective, with dp 16 and microbatch 2: 3.00 GiB too much "
            "memory");
  a.also = "";
  a.outcome = Outcome::kSlower;
  a.difference = Seconds(0.002);
  a.part = "bubble";
  a.partDifference = Seconds(0.003);
  EXPECT_EQ(toLine(a), "recompute none instead of selective: 2.000 ms slower (bubble +3.000 ms)");
}

}  // namespace
}  // namespace trireme::planner
