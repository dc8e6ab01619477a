// Where the step's time goes, and the memory of its stages: complete, in text and in JSON.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "ir/spec/load.h"
#include "ir/spec/shipped.h"
#include "planner/answer/report.h"
#include "planner/parts.h"
#include "planner/plan_text.h"
#include "tests/planner/small_query.h"

namespace trireme::planner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Eight H100 in two nodes, a small model: of every shipped stack, in the precision it trains in.
std::vector<Query> queriesOfAllStacks() {
  std::vector<Query> queries;
  for (const std::string& name : spec::shippedNames(spec::ShippedKind::kStack)) {
    Query query = smallQuery(8, 8, 8);
    query.cluster = *spec::withNumDevices(*spec::loadCluster("dgx-h100"), 8);
    query.cluster.tiers.insert(query.cluster.tiers.begin(), query.cluster.tiers.front());
    query.cluster.tiers.front().devices = 4;
    query.stack = *spec::loadStack(name);
    if (query.stack.computeCapability > query.cluster.device.computeCapability)
      query.cluster.device.computeCapability = query.stack.computeCapability;
    query.training.precision = spec::usualPrecision(query.stack, query.cluster.device);
    queries.push_back(std::move(query));
  }
  return queries;
}

// The per cents of the lines between "step" or "interval" and "memory", in tenths.
int64_t printedTenths(const std::string& table) {
  std::istringstream lines(table);
  int64_t tenths = 0;
  bool isInside = false;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("  "))
      isInside = line.starts_with("step ") || line.starts_with("interval ");
    if (!isInside || !line.ends_with(" %")) continue;
    const double percent = std::atof(line.substr(34).c_str());
    tenths += static_cast<int64_t>(percent * 10 + 0.5);
  }
  return tenths;
}

TEST(Breakdown, AddsUpToAHundredPerCentForEveryStackAndKindOfPlan) {
  std::set<plan::ScheduleKind> schedules;
  std::set<plan::StateSharding> shardings;
  for (const Query& query : queriesOfAllStacks()) {
    const CostFunctions costs = modelCosts(query);
    const std::vector<plan::Plan> plans = everyPlan(query, 8, costs);
    ASSERT_FALSE(plans.empty()) << query.stack.name;
    for (size_t i = 0; i < plans.size(); i += 1 + plans.size() / 100) {
      PlanResult result;
      result.plan = plans[i];
      const auto estimate = costs.estimate(plans[i]);
      ASSERT_TRUE(estimate.has_value()) << estimate.error().message();
      result.estimate = *estimate;
      const std::string what = query.stack.name + ": " + summary(plans[i]);
      const nlohmann::json json = toJson(result).at("estimate");
      double seconds = 0, percent = 0;
      for (const auto& [name, value] : json.at("breakdownSeconds").items()) {
        EXPECT_GE(value.get<double>(), 0) << what << ", " << name;
        seconds += value.get<double>();
        percent += json.at("breakdownPercent").at(name).get<double>();
      }
      EXPECT_NEAR(seconds / json.at("stepSeconds").get<double>(), 1, 1e-12) << what;
      EXPECT_NEAR(percent, 100, 1e-9) << what;
      EXPECT_EQ(printedTenths(toTable(result)), 1000) << what << "\n" << toTable(result);
      schedules.insert(plans[i].schedule);
      shardings.insert(plans[i].stateSharding);
    }
  }
  EXPECT_EQ(schedules.size(), 5u);
  EXPECT_EQ(shardings.size(), 4u);
}

// Four ranks to a sequence: what they exchange is on a line of its own, and nothing else is.
TEST(Breakdown, ContextParallelismHasItsOwnLine) {
  Query query = smallQuery(4, 4, 4);
  query.cluster = *spec::withNumDevices(*spec::loadCluster("dgx-h100"), 8);
  for (spec::LinkTier& tier : query.cluster.tiers) tier.bandwidth *= 1e-3;  // more than attention
  query.stack = *spec::loadStack("nemo");
  query.training.precision = spec::Precision::kBf16;
  query.training.sequenceLength = 64;
  plan::Plan plan = small::plan(query.model, query.training, 1, 1, 1);
  plan.cp = 4;
  plan.layers = plan::evenLayers(query.model.numLayers, 1, 1);
  const auto divided = modelCosts(query).estimate(plan);
  ASSERT_TRUE(divided.has_value()) << divided.error().message();
  EXPECT_GT(divided->breakdown.contextParallel, Seconds(0));
  EXPECT_EQ(divided->breakdown.tensorParallel, Seconds(0));
  PlanResult result;
  result.plan = plan;
  result.estimate = *divided;
  EXPECT_NE(toTable(result).find("\n  context parallel "), std::string::npos) << toTable(result);
  result.estimate.breakdown.contextParallel = Seconds(0);  // hidden
  EXPECT_NE(toTable(result).find("\n  context parallel "), std::string::npos) << toTable(result);
  EXPECT_NE(toTable(result).find("attention in full"), std::string::npos) << toTable(result);
  plan.cp = 1;
  EXPECT_EQ(modelCosts(query).estimate(plan)->breakdown.contextParallel, Seconds(0));
}

TEST(StageMemory, FullestStageIsTheEstimatesAndDecidesWhetherThePlanFits) {
  for (const Query& query : queriesOfAllStacks()) {
    const CostFunctions costs = modelCosts(query);
    const std::vector<plan::Plan> plans = everyPlan(query, 8, costs);
    for (size_t i = 0; i < plans.size(); i += 1 + plans.size() / 20) {
      const auto stages = cost::memoryByStage(query.model, plans[i], query.cluster, query.stack);
      ASSERT_TRUE(stages.has_value());
      ASSERT_EQ(stages->size(), static_cast<size_t>(plans[i].pp));
      Bytes fullest;
      for (const cost::MemoryUse& use : *stages) fullest = std::max(fullest, use.total());
      EXPECT_EQ(fullest, costs.estimate(plans[i])->memory.total())
          << query.stack.name << ": " << summary(plans[i]);
    }
  }
}

// 1/3 each: 33.3 three times leaves a tenth, which goes to the first. 2/3 and 1/3 lose 0.67 and
// 0.33 tenths: 66.7 and 33.3.
TEST(Percentages, AreTenthsThatAddUpToAHundred) {
  EXPECT_THAT(percentages({Seconds(1), Seconds(1), Seconds(1)}), ElementsAre(33.4, 33.3, 33.3));
  EXPECT_THAT(percentages({Seconds(1), Seconds(0), Seconds(2)}), ElementsAre(33.3, 0, 66.7));
  EXPECT_THAT(percentages({Seconds(0)}), ElementsAre(0));
}

}  // namespace
}  // namespace trireme::planner
