#include "planner/answer/outlook.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "planner/answer/recommend.h"
#include "planner/answer/report.h"
#include "planner/plan_text.h"
#include "tests/planner/small_query.h"

namespace trireme::planner {
namespace {

using ::testing::HasSubstr;

struct ResultWithOutlook {
  PlanResult result;
  Outlook outlook;
};

ResultWithOutlook askWithOutlook(const Query& query) {
  const auto result = searchPlan(query);
  EXPECT_TRUE(result.has_value());
  const auto outlook = lookAround(query, *result);
  EXPECT_TRUE(outlook.has_value()) << outlook.error().message();
  return {*result, *outlook};
}

const Sensitivity& change(const Outlook& outlook, const std::string& name) {
  const auto found = std::find_if(outlook.sensitivities.begin(), outlook.sensitivities.end(),
                                  [&](const Sensitivity& s) { return s.change == name; });
  EXPECT_NE(found, outlook.sensitivities.end()) << name;
  return *found;
}

Query described(Query query) {
  query.stack.name = "described";
  query.stack.ownPrograms = false;
  query.stack.choices.push_back(spec::StackChoice::kShardParameters);
  query.stack.description.hostLaunch = Seconds(1e-5);
  query.stack.description.gradientExposed = 0.3;
  query.stack.description.tensorParallelExposed = 0.7;
  return query;
}

std::vector<Query> variedQueries() {
  std::vector<Query> queries;
  for (const int64_t devices : {1, 4, 6})
    for (const int64_t layers : {3, 4}) {
      const Query query = smallQuery(devices, layers, 12);
      queries.push_back(query);
      queries.push_back(described(query));
    }
  // So little memory that it binds.
  for (size_t i = 0, n = queries.size(); i < n; ++i) {
    Query tight = queries[i];
    tight.cluster.device.memory = searchPlan(tight)->estimate.memory.total() - Bytes(1);
    if (searchPlan(tight).has_value()) queries.push_back(tight);
  }
  return queries;
}

TEST(LookAround, MoreOfAnythingIsNeverSlower) {
  for (const Query& query : variedQueries()) {
    const ResultWithOutlook answer = askWithOutlook(query);
    // Rate, memory bandwidth, each tier, memory, batch.
    EXPECT_EQ(answer.outlook.sensitivities.size(), 4 + query.cluster.tiers.size());
    for (const Sensitivity& s : answer.outlook.sensitivities) {
      if (s.change == "twice the batch") continue;
      EXPECT_LE(s.step, answer.result.estimate.step)
          << s.change << ": " << summary(s.plan) << " | " << summary(answer.result.plan);
      EXPECT_GE(s.gain, 0) << s.change;
      EXPECT_EQ(s.samePlan, s.plan == answer.result.plan) << s.change;
    }
  }
}

// One device whose memory and launches take no time: a step is its matrix products, so that 10 %
// more rate shortens it by 1.1, more memory bandwidth by nothing, and twice the batch takes twice
// as long.
TEST(LookAround, ChangesOfAComputeBoundStepAreThoseOfItsRate) {
  Query query = smallQuery(1, 4, 8);
  query.cluster.device.memoryBandwidth = BytesPerSecond(1e30);
  query.cluster.device.launchOverhead = Seconds(0);
  const ResultWithOutlook answer = askWithOutlook(query);
  const Outlook& outlook = answer.outlook;
  EXPECT_NEAR(answer.result.estimate.step / change(outlook, "10 % more matmul rate").step, 1.1,
              1e-6);
  EXPECT_NEAR(change(outlook, "10 % more matmul rate").gain, 0.1, 1e-6);
  EXPECT_NEAR(change(outlook, "10 % more memory bandwidth").gain, 0, 1e-6);
  EXPECT_NEAR(change(outlook, "10 % more outer link bandwidth").gain, 0, 1e-12);
  const Sensitivity& twice = change(outlook, "twice the batch");
  EXPECT_NEAR(twice.step / answer.result.estimate.step, 2, 1e-6);
  EXPECT_NEAR(twice.gain, 0, 1e-6);
  EXPECT_EQ(twice.plan.training.globalBatchSize, 16);
}

// The limit of memory by enumeration: the fastest plan of all, and of those that are faster than
// the winner the one that needs least.
TEST(LookAround, MemoryLimitEqualsBruteForce) {
  Query query = smallQuery(4, 4, 8);
  const CostFunctions costs = modelCosts(query);
  const std::vector<plan::Plan> plans = everyPlanUpTo(query, 4, costs);
  std::vector<cost::Estimate> estimates;
  for (const plan::Plan& plan : plans) estimates.push_back(*costs.estimate(plan));
  std::vector<double> needs;
  for (const cost::Estimate& e : estimates) needs.push_back(e.memory.total().count());
  std::sort(needs.begin(), needs.end());
  int bound = 0;
  for (const size_t place : {needs.size() / 50, needs.size() / 20, needs.size() / 8}) {
    query.cluster.device.memory = Bytes(needs[place]);
    const ResultWithOutlook answer = askWithOutlook(query);
    Seconds fastest = answer.result.estimate.step;
    double least = 1e30;
    for (const cost::Estimate& e : estimates) {
      if (e.step < answer.result.estimate.step * (1 - 1e-9))
        least = std::min(least, e.memory.total().count());
      fastest = std::min(fastest, e.step);
    }
    if (fastest == answer.result.estimate.step) {
      EXPECT_TRUE(answer.outlook.limits.empty());
      continue;
    }
    ++bound;
    ASSERT_EQ(answer.outlook.limits.size(), 1u);
    const Limit& limit = answer.outlook.limits.front();
    EXPECT_EQ(limit.kind, LimitKind::kMemory);
    EXPECT_EQ(limit.step, fastest);
    EXPECT_LT(limit.nearestStep, answer.result.estimate.step);
    const Bytes missing(least - needs[place]);
    EXPECT_NEAR(limit.nearestMissing.count(), missing.count(),
                limitTolerance(Bytes(needs[place]), missing).count());
    EXPECT_GE(limit.missing, limit.nearestMissing);
    EXPECT_THAT(toTable(answer.outlook, answer.result), HasSubstr("binding       memory: "));
  }
  EXPECT_GE(bound, 1);
}

// As if the search had missed the winner: what fits and obeys the pins is no limit of either.
TEST(LookAround, FindsABetterPlanThatFits) {
  Query query = smallQuery(4, 4, 8);
  for (const bool isPinned : {false, true}) {
    if (isPinned) query.pins.recompute = plan::Recompute::kNone;
    const PlanResult answer = *searchPlan(query);
    PlanResult missed = answer;
    missed.plan = answer.runnersUp.front().plan;
    missed.estimate = answer.runnersUp.front().estimate;
    const auto outlook = lookAround(query, missed);
    ASSERT_TRUE(outlook.has_value()) << outlook.error().message();
    ASSERT_TRUE(outlook->better.has_value());
    EXPECT_EQ(outlook->better->plan, answer.plan);
    EXPECT_EQ(outlook->better->estimate.memoryAvailable, query.cluster.device.memory);
    EXPECT_TRUE(outlook->limits.empty());
    // And is the answer then, explained anew.
    const auto recommended = recommend(query, missed, {.looksAround = true});
    ASSERT_TRUE(recommended.has_value()) << recommended.error().message();
    EXPECT_EQ(recommended->result.plan, answer.plan);
    ASSERT_TRUE(recommended->outlook.has_value());
    EXPECT_FALSE(recommended->outlook->better.has_value());
    EXPECT_FALSE(recommended->outlook->sensitivities.empty());
    EXPECT_EQ(recommended->path.simulated, recommended->played.simulation.makespan);
  }
}

TEST(LookAround, NothingBindsWithAmpleMemoryAndNoPins) {
  const ResultWithOutlook answer = askWithOutlook(smallQuery(4, 4, 8));
  EXPECT_TRUE(answer.outlook.limits.empty());
  EXPECT_THAT(toTable(answer.outlook, answer.result), HasSubstr("binding       nothing"));
}

// Twice as many would be more than searches take.
TEST(LookAround, TheLargestBatchesHaveNoTwice) {
  Query query = smallQuery(2, 1, cost::kMostSamples / 2);
  const auto saysTwice = [](const Query& asked) {
    const Outlook outlook = lookAround(asked, searchPlan(asked).value()).value();
    return std::any_of(outlook.sensitivities.begin(), outlook.sensitivities.end(),
                       [](const Sensitivity& s) { return s.change == "twice the batch"; });
  };
  EXPECT_TRUE(saysTwice(query));
  query.training.globalBatchSize *= 2;
  EXPECT_FALSE(saysTwice(query));
}

TEST(LookAround, APinThatCostsTimeIsNamedWithWhatItKeepsOut) {
  Query query = smallQuery(4, 4, 8);
  const auto free = searchPlan(query);
  ASSERT_TRUE(free.has_value());
  query.pins.recompute = plan::Recompute::kFull;
  query.pins.tp = free->plan.tp;  // the best choice anyway: no limit
  const ResultWithOutlook answer = askWithOutlook(query);
  ASSERT_EQ(answer.outlook.limits.size(), 1u);
  const Limit& limit = answer.outlook.limits.front();
  EXPECT_EQ(limit.kind, LimitKind::kPin);
  EXPECT_EQ(limit.what, "recompute");
  EXPECT_EQ(limit.plan, free->plan);
}

TEST(LookAround, ALimitThatCostsTimeIsNamedWithWhatItKeepsOut) {
  Query query = smallQuery(4, 4, 8);
  const auto free = searchPlan(query);
  ASSERT_TRUE(free.has_value());
  ASSERT_GT(free->plan.pp, 1);
  query.pins.mostPp = free->plan.pp - 1;
  query.pins.mostDp = 4;  // of 4 devices: no limit
  const ResultWithOutlook answer = askWithOutlook(query);
  ASSERT_EQ(answer.outlook.limits.size(), 1u);
  EXPECT_EQ(answer.outlook.limits.front().kind, LimitKind::kMost);
  EXPECT_EQ(answer.outlook.limits.front().what, "pp");
  EXPECT_EQ(answer.outlook.limits.front().plan, free->plan);
  EXPECT_THAT(toTable(answer.outlook, answer.result),
              HasSubstr("binding       the limit of pp: tp "));
}

// 5 devices: 4 heads, 4 layers and a batch of 8 have no divisor 5 and not 5 layers.
TEST(LookAround, ARuleThatLeavesDevicesIdleIsNamed) {
  const ResultWithOutlook answer = askWithOutlook(computeBound(smallQuery(5, 4, 8)));
  ASSERT_LT(answer.result.gpusUsed, 5);
  ASSERT_EQ(answer.outlook.limits.size(), 1u);
  EXPECT_EQ(answer.outlook.limits.front().kind, LimitKind::kRule);
  EXPECT_THAT(answer.outlook.limits.front().what, HasSubstr("(P"));
  EXPECT_THAT(toTable(answer.outlook, answer.result), HasSubstr("idle: 1"));
}

// 31 samples are shared by 31 replicas or one, 32 by four, which nothing else divides a model
// among.
TEST(LookAround, ABatchThatDividesBadlyIsNamedWithTheNextThatDoesNot) {
  Query query = computeBound(smallQuery(4, 4, 31));
  query.pins.tp = query.pins.pp = query.pins.cp = 1;
  const ResultWithOutlook answer = askWithOutlook(query);
  ASSERT_FALSE(answer.outlook.limits.empty());
  const Limit& limit = answer.outlook.limits.back();
  EXPECT_EQ(limit.kind, LimitKind::kBatch);
  EXPECT_EQ(limit.what, "batch 31");
  Query even = query;
  even.training.globalBatchSize = 32;
  const auto best = searchPlan(even);
  ASSERT_TRUE(best.has_value());
  EXPECT_EQ(limit.plan, best->plan);
  EXPECT_EQ(limit.step, best->estimate.step);
  EXPECT_LT(limit.step.count(), answer.result.estimate.step.count());
  EXPECT_EQ(answer.outlook.sensitivities.back().change, "a batch of 32");
  const std::string table = toTable(answer.outlook, answer.result);
  EXPECT_THAT(table, HasSubstr("batch 31: 32 take "));
  // 32 need no other.
  for (const Limit& other : askWithOutlook(even).outlook.limits)
    EXPECT_NE(other.kind, LimitKind::kBatch);
}

TEST(LookAround, SaysHowFarItIs) {
  const Query query = smallQuery(2, 3, 6);
  const auto result = searchPlan(query);
  ASSERT_TRUE(result.has_value());
  double before = 0;
  std::vector<std::string> said;
  const auto outlook = lookAround(query, *result, [&](double done, const std::string& what) {
    EXPECT_GE(done, before);
    EXPECT_LE(done, 1);
    before = done;
    said.push_back(what);
  });
  ASSERT_TRUE(outlook.has_value());
  EXPECT_EQ(said.back(), "twice the batch");
}

TEST(OutlookTable, FitsIntoAHundredColumns) {
  Query query = smallQuery(8, 6, 24);
  query.pins.recompute = plan::Recompute::kFull;
  const ResultWithOutlook answer = askWithOutlook(query);
  std::istringstream lines(toTable(answer.outlook, answer.result));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  const nlohmann::json json = toJson(answer.outlook);
  EXPECT_EQ(json["binding"].size(), answer.outlook.limits.size());
  EXPECT_EQ(json["sensitivities"].size(), answer.outlook.sensitivities.size());
}

// Only where that makes a change one for the worse.
TEST(OutlookTable, SaysWhyMoreOfALinkGivesLess) {
  ResultWithOutlook answer = askWithOutlook(smallQuery(8, 6, 24));
  const auto table = [&] { return toTable(answer.outlook, answer.result); };
  Sensitivity& link = answer.outlook.sensitivities.at(2);
  EXPECT_EQ(link.missing, Bytes());
  link.missing = Bytes(3 << 20);
  EXPECT_EQ(table().find("lacks"), std::string::npos);
  link.gain = -0.01;
  const std::string text = std::regex_replace(table(), std::regex("\\s+"), " ");
  EXPECT_NE(text.find("today's plan lacks 3.00 MiB there, for buffers of the links"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace trireme::planner
