#include "planner/whatif/refine.h"

#include <gtest/gtest.h>

#include <tuple>

#include "planner/whatif/answers.h"
#include "tests/planner/small_query.h"

namespace trireme::planner {
namespace {

// Nodes of two devices, in any number; a million tokens.
Answers smallAnswers(std::vector<int64_t> gpus) {
  Answers answers;
  Sweep& sweep = answers.sweep;
  sweep.base = computeBound(smallQuery(8, 4, 24));
  sweep.base.stack.name = "described";
  sweep.base.stack.ownPrograms = false;
  sweep.base.cluster.scalable = true;
  sweep.hardware = {{"small", sweep.base.cluster, sweep.base.training.precision}};
  sweep.axes.gpus = std::move(gpus);
  answers.scenarios.tokens = {1e6};
  answers.scenarios.price = {2};
  return answers;
}

void answerAll(Answers& answers) {
  answers.points = pointsOf(answers.sweep);
  PointPlanner planner(answers.sweep);
  for (const SweepPoint& point : answers.points)
    answers.answers.emplace_back(planner.answer(point));
}

std::vector<Refinement> refined(Answers answers) {
  answerAll(answers);
  refineAnswers(answers, [] { return true; });
  return answers.refinements;
}

int64_t gpusOf(const Answers& answers, const AnswerRow& row) {
  return answers.points[row.point].gpus;
}

// Time and cost of every whole number of nodes, as those of `answers` are asked.
std::vector<SweepOutcome> everyNumber(int64_t first, int64_t last,
                                      Answers answers = smallAnswers({})) {
  answers.sweep.axes.gpus.clear();
  for (int64_t n = first; n <= last; n += 2) answers.sweep.axes.gpus.push_back(n);
  answerAll(answers);
  std::vector<SweepOutcome> outcomes;
  for (const AnswerRow& row : rowsOf(answers))
    if (row.economics->cost)
      outcomes.push_back({gpusOf(answers, row), row.economics->wall, *row.economics->cost});
  return outcomes;
}

// The answers of `answers` to a deadline and a budget against those of all numbers of devices.
void expectBestOfAll(Answers answers, const std::vector<SweepOutcome>& all, Seconds deadline,
                     double budget) {
  answers.scenarios.deadlines = {deadline.count()};
  answers.scenarios.budgets = {budget};
  answerAll(answers);
  refineAnswers(answers, [] { return true; });
  const Condition condition = conditionOf(answers, rowsOf(answers)[0]);
  using Goal = Refinement::Goal;
  for (const auto& [goal, limit, expected] :
       {std::tuple(Goal::kFewest, deadline.count(), fewestWithin(all, deadline)),
        std::tuple(Goal::kCheapest, deadline.count(), cheapestWithin(all, deadline)),
        std::tuple(Goal::kFastest, budget, fastestFor(all, budget))}) {
    const Refinement* found = answers.refinement(goal, limit, condition);
    ASSERT_EQ(found != nullptr, expected.has_value()) << deadline.count() << " " << budget;
    if (!found) continue;
    EXPECT_EQ(gpusOf(answers, found->row), all[*expected].gpus);
    EXPECT_EQ(found->row.economics->wall, all[*expected].wall);
    EXPECT_EQ(*found->row.economics->cost, all[*expected].cost);
  }
}

// Going through all of them finds no fewer.
TEST(Refine, ADeadlineIsMetByTheFewestDevicesOfAll) {
  const std::vector<SweepOutcome> all = everyNumber(2, 32);
  for (size_t i = 0; i < all.size(); ++i)
    for (const double slack : {0.999999, 1.0, 1.1}) {
      Answers answers = smallAnswers({2, 32});
      answers.scenarios.deadlines = {all[i].wall.count() * slack};
      answerAll(answers);
      size_t numHeard = 0;
      refineAnswers(answers, [&] { return ++numHeard > 0; });
      const auto expected = fewestWithin(all, Seconds(answers.scenarios.deadlines[0]));
      ASSERT_EQ(answers.refinements.size(), expected ? 2u : 0u);
      if (!expected) continue;
      const Refinement& found = answers.refinements[0];
      EXPECT_EQ(gpusOf(answers, found.row), all[*expected].gpus);
      EXPECT_EQ(found.row.economics->wall, all[*expected].wall);
      EXPECT_LE(numHeard, found.numPlanned + answers.refinements[1].numPlanned);
      EXPECT_EQ(answers.points.size(), answers.numSwept() + numHeard);
      EXPECT_EQ(rowsOf(answers).size(), 2u);  // of the sweep alone
      if (all[*expected].gpus == 2) continue;
      ASSERT_TRUE(found.beyond.has_value());
      EXPECT_EQ(gpusOf(answers, *found.beyond), all[*expected].gpus - 2);
      EXPECT_GT(found.beyond->economics->wall.count(), answers.scenarios.deadlines[0]);
    }
}

// The cheapest in time may be any number of them, far from the fewest.
TEST(Refine, TheCheapestInTimeIsTheCheapestOfAll) {
  const std::vector<SweepOutcome> all = everyNumber(2, 32);
  int numBetween = 0;
  for (const SweepOutcome& outcome : all) {
    Answers answers = smallAnswers({2, 32});
    answers.scenarios.deadlines = {outcome.wall.count()};
    answerAll(answers);
    refineAnswers(answers, [] { return true; });
    const auto expected = cheapestWithin(all, outcome.wall);
    const auto fewest = fewestWithin(all, outcome.wall);
    const Refinement* found = answers.refinement(Refinement::Goal::kCheapest, outcome.wall.count(),
                                                 conditionOf(answers, rowsOf(answers)[0]));
    ASSERT_TRUE(expected && found);
    EXPECT_EQ(*found->row.economics->cost, all[*expected].cost);
    EXPECT_EQ(found->row.economics->wall, all[*expected].wall);
    numBetween += all[*expected].gpus != all[*fewest].gpus || all[*expected].gpus < 32;
  }
  EXPECT_GT(numBetween, 3);
}

// Of two curves that need as many, the cheaper and faster one, whichever comes first.
TEST(Refine, OfCurvesThatNeedAsManyTheBetterOneWins) {
  const std::vector<SweepOutcome> all = everyNumber(2, 32);
  for (const bool fasterFirst : {false, true}) {
    Answers answers = smallAnswers({2, 32});
    const BytesPerSecond rate = answers.sweep.base.cluster.tiers.back().bandwidth;
    answers.sweep.axes.interNode = {rate * (fasterFirst ? 1 : 0.999),
                                    rate * (fasterFirst ? 0.999 : 1)};
    answers.scenarios.deadlines = {all[4].wall.count() * 1.01};
    answerAll(answers);
    refineAnswers(answers, [] { return true; });
    const AnswerRow& row = answers.refinements[0].row;
    EXPECT_EQ(answers.points[row.point].interNode, rate) << fasterFirst;
  }
}

// All devices are paid for, used or not: what they cost is not monotone in their number. Going
// through all of them finds nothing faster for the money.
TEST(Refine, ABudgetBuysTheFastestOfAll) {
  const std::vector<SweepOutcome> all = everyNumber(2, 32);
  int numBetween = 0, numFewer = 0;
  for (const SweepOutcome& outcome : all)
    for (const double slack : {1.0, 1.01}) {
      const double budget = outcome.cost * slack;
      Answers answers = smallAnswers({2, 32});
      answers.scenarios.budgets = {budget};
      answerAll(answers);
      size_t numHeard = 0;
      refineAnswers(answers, [&] { return ++numHeard > 0; });
      const auto expected = fastestFor(all, budget);
      ASSERT_TRUE(expected.has_value());
      ASSERT_EQ(answers.refinements.size(), 1u);
      const Refinement& found = answers.refinements[0];
      EXPECT_EQ(found.row.economics->wall, all[*expected].wall);
      EXPECT_EQ(*found.row.economics->cost, all[*expected].cost);
      EXPECT_FALSE(found.beyond.has_value());
      numBetween += gpusOf(answers, found.row) > 2 && gpusOf(answers, found.row) < 32;
      numFewer += numHeard < all.size() - 2;
    }
  EXPECT_GT(numBetween, 1);
  EXPECT_GT(numFewer, 1);  // not everything has to be planned
}

// Those that are missing are not paid for, however many they are.
TEST(Refine, MissingNodesCostNothing) {
  for (const int64_t minus : {1, 200}) {
    const int64_t first = 2 + 2 * minus, last = 32 + 2 * minus;
    Answers answers = smallAnswers({first, last});
    answers.sweep.axes.minusNodes = {minus};
    const std::vector<SweepOutcome> all = everyNumber(first, last, answers);
    for (const SweepOutcome& outcome : all)
      for (const double slack : {1.0, 1.01})
        expectBestOfAll(answers, all, outcome.wall * slack, outcome.cost * slack);
  }
}

// Idle nodes are spares: with failures and repairs more devices may take longer, and fewer nodes in
// use may be faster.
TEST(Refine, FailuresAndSparesNeedNotBeMonotone) {
  int numSlower = 0;
  for (const std::optional<int64_t> spares : {std::optional<int64_t>(), {0}, {3}}) {
    Answers answers = smallAnswers({4, 32});
    ScenarioAxes& s = answers.scenarios;
    s.mtbf = {1e4};
    s.checkpointBandwidth = 1e6;
    s.restart = 1;
    s.repair = 500;
    s.spares = spares;
    const std::vector<SweepOutcome> all = everyNumber(4, 32, answers);
    for (size_t i = 0; i < all.size(); ++i) {
      numSlower += i > 0 && all[i].wall > all[i - 1].wall;
      for (const double slack : {1.0, 1.01})
        expectBestOfAll(answers, all, all[i].wall * slack, all[i].cost * slack);
    }
  }
  EXPECT_GT(numSlower, 1);
}

// The only number is the most that there may be: it is held against none.
TEST(Refine, OneNumberIsTheMostThatThereMayBe) {
  const std::vector<SweepOutcome> all = everyNumber(2, 32);
  Answers one = smallAnswers({32}), two = smallAnswers({16, 32});
  one.scenarios.deadlines = two.scenarios.deadlines = {all[2].wall.count()};
  const auto expected = fewestWithin(all, all[2].wall);
  const std::vector<Refinement> below = refined(one), among = refined(two);
  EXPECT_EQ(below[0].row.economics->wall, all[*expected].wall);
  EXPECT_GT(below[0].numPlanned, 0u);
  EXPECT_EQ(among[0].numPlanned, 0u);  // 16 are enough, and fewer were not asked about
  EXPECT_EQ(among[0].row.point, 0u);
}

// Of two networks the better one needs no more devices; the other is asked about once: whether it
// could do with fewer.
TEST(Refine, TheBestOfSeveralCurvesWins) {
  const std::vector<SweepOutcome> all = everyNumber(2, 32);
  for (const bool fasterFirst : {false, true}) {
    Answers answers = smallAnswers({2, 32});
    const BytesPerSecond rate = answers.sweep.base.cluster.tiers.back().bandwidth;
    answers.sweep.axes.interNode = {rate * (fasterFirst ? 1 : 0.01),
                                    rate * (fasterFirst ? 0.01 : 1)};
    answers.scenarios.deadlines = {all[4].wall.count()};
    answerAll(answers);
    refineAnswers(answers, [] { return true; });
    const auto expected = fewestWithin(all, all[4].wall);
    ASSERT_EQ(answers.refinements.size(), 2u);
    EXPECT_EQ(gpusOf(answers, answers.refinements[0].row), all[*expected].gpus);
    EXPECT_EQ(answers.points[answers.refinements[0].row.point].interNode, rate);
  }
}

// Pods of eight devices: what may be between two numbers are their hosts of two.
TEST(Refine, IsInHostsWhereTheyAreInPods) {
  Answers answers = smallAnswers({8, 32});
  spec::ClusterSpec& cluster = answers.sweep.hardware[0].cluster;
  cluster = small::cluster(32, 2);
  cluster.device = answers.sweep.base.cluster.device;
  cluster.scalable = true;
  cluster.tiers.push_back(cluster.tiers[1]);
  cluster.tiers[1].devices = 8;
  cluster.hostDevices = 2;
  EXPECT_EQ(devicesAtOnce(cluster), 2);
  answerAll(answers);
  answers.scenarios.deadlines = {rowsOf(answers)[0].economics->wall.count() * 0.99};
  refineAnswers(answers, [] { return true; });
  const Refinement& found = answers.refinements.at(0);
  EXPECT_EQ(gpusOf(answers, found.row), 12);
  ASSERT_TRUE(found.beyond.has_value());
  EXPECT_EQ(gpusOf(answers, *found.beyond), 10);
}

// A device that fails often needs more devices in time than one that does not; each MTBF has its
// own answer, as if it were asked alone.
TEST(Refine, EveryConditionHasAnAnswerOfItsOwn) {
  const auto with = [](const std::vector<double>& mtbf) {
    Answers answers = smallAnswers({2, 32});
    answers.scenarios.mtbf = mtbf;
    answers.scenarios.checkpointBandwidth = 1e6;
    answers.scenarios.restart = 10;
    answerAll(answers);
    answers.scenarios.deadlines = {rowsOf(answers)[0].economics->busy.count() * 0.52};
    answers.scenarios.budgets = {1e9};
    refineAnswers(answers, [] { return true; });
    return answers;
  };
  const double few = 2e3, many = 1e9;
  const Answers both = with({few, many});
  const std::vector<Condition> conditions = conditionsOf(both, rowsOf(both));
  ASSERT_EQ(conditions.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const Answers alone = with({i == 0 ? few : many});
    for (const Refinement& expected : alone.refinements) {
      const Refinement* found = both.refinement(expected.goal, expected.limit, conditions[i]);
      ASSERT_TRUE(found);
      EXPECT_EQ(gpusOf(both, found->row), gpusOf(alone, expected.row));
      EXPECT_EQ(found->row.economics->wall, expected.row.economics->wall);
    }
  }
  const auto fewest = [&](size_t i) {
    return gpusOf(
        both, both.refinement(Refinement::Goal::kFewest, both.scenarios.deadlines[0], conditions[i])
                  ->row);
  };
  EXPECT_GT(fewest(0), fewest(1));
  // The front has the fastest row of each.
  const std::vector<AnswerRow> rows = rowsOf(both);
  std::vector<double> mtbf;
  for (const size_t place : frontOf(both, rows))
    mtbf.push_back(rows[place].scenario.failures->deviceMeanBetween.count());
  EXPECT_NE(std::find(mtbf.begin(), mtbf.end(), few), mtbf.end());
  EXPECT_NE(std::find(mtbf.begin(), mtbf.end(), many), mtbf.end());
}

TEST(Refine, StopsWhenItIsToldTo) {
  Answers answers = smallAnswers({2, 32});
  answerAll(answers);
  answers.scenarios.deadlines = {rowsOf(answers)[1].economics->wall.count()};
  refineAnswers(answers, [] { return false; });
  EXPECT_EQ(answers.points.size(), 3u);
  EXPECT_TRUE(answers.refinements.empty());
}

}  // namespace
}  // namespace trireme::planner
