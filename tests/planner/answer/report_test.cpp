#include "planner/answer/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "ir/base/format.h"
#include "planner/answer/recommend.h"
#include "planner/certainty.h"
#include "planner/parts.h"
#include "planner/plan_text.h"
#include "planner/question.h"
#include "tests/planner/small_query.h"

namespace trireme::planner {
namespace {

PlanResult answer() {
  Query query = smallQuery(12, 6, 24);
  query.model = small::gpt(6, 48, 3);
  query.cluster = small::cluster(12, 6);
  auto result = searchPlan(computeBound(query));
  EXPECT_TRUE(result.has_value());
  result->seconds = 0.01;  // where lines break depends on the digits
  return *result;
}

TEST(ToTable, FitsIntoAHundredColumns) {
  std::istringstream lines(toTable(answer()));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_LE(line.size(), 100u) << line;
  EXPECT_GT(count, 15);
}

TEST(ToTable, NamesOfAnyLengthFit) {
  Query query = smallQuery(12, 6, 24);
  query.model.name = query.cluster.name = std::string(150, 'x');
  std::istringstream lines(toText(query));
  std::string names;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 100u) << line;
    names += line;
  }
  EXPECT_EQ(std::count(names.begin(), names.end(), 'x'), 300);
}

TEST(ToTable, SharesAddUpToTheStep) {
  const PlanResult result = answer();
  double sum = 0;
  for (const BreakdownPart& part : breakdownParts(result.estimate.breakdown))
    sum += part.time / result.estimate.step;
  EXPECT_NEAR(sum, 1, 1e-12);
}

// The line that begins with `name`, and those that go on with it, joined.
std::string fieldOf(const std::string& table, const std::string& name) {
  std::istringstream lines(table);
  std::string field;
  for (std::string line; std::getline(lines, line);) {
    if (field.empty() && line.starts_with(name + " "))
      field = line;
    else if (!field.empty() && line.starts_with("              "))
      field += line.substr(13);
    else if (!field.empty())
      break;
  }
  return field;
}

TEST(ToTable, TheCertificateIsOneLineWithItsGap) {
  PlanResult result = answer();
  Certificate& c = result.certificate;
  c.bound = Seconds(15.2);
  c.numBounded = 2586;
  c.numCosted = 21;
  c.pruned = {{"bound", 1000}, {"memory", 234}};
  const auto saysOfGap = [&](double gap) {
    c.gap = gap;
    const std::string table = toTable(result);
    const size_t begin = table.find("certificate ");
    return table.substr(begin, table.find('\n', begin) - begin);
  };
  const std::string counts = "; 2586 bounded, 21 costed, 1234 pruned";
  EXPECT_EQ(saysOfGap(0), "certificate   optimal: gap 0 %, bound 15.200 s" + counts);
  EXPECT_EQ(saysOfGap(0.0084), "certificate   gap 0.84 %, bound 15.200 s" + counts);
  EXPECT_EQ(saysOfGap(0.1234), "certificate   gap 12.34 %, bound 15.200 s" + counts);
  EXPECT_EQ(saysOfGap(3e-5), "certificate   gap 0.003 %, bound 15.200 s" + counts);
  EXPECT_EQ(saysOfGap(2.6e-9), "certificate   gap 0.0000003 %, bound 15.200 s" + counts);
  EXPECT_EQ(saysOfGap(1e-15), "certificate   gap below 1e-9 %, bound 15.200 s" + counts);
}

TEST(ToTable, TheCertificateIsOneLineOfTheLargestSearches) {
  PlanResult result = answer();
  Certificate& c = result.certificate;
  c.bound = Seconds(1234.5);
  c.gap = 0.1234;
  c.numBounded = 123456789;
  c.numCosted = 123456;
  c.pruned = {{"bound", 1234567890}};
  EXPECT_NE(toTable(result).find("1234567890 pruned\n"), std::string::npos) << toTable(result);
}

TEST(ToTable, SaysHowMuchFasterOtherCutsMayBe) {
  PlanResult result = answer();
  const std::string caveat = "; of uneven cuts only the likely ones were costed";
  result.certificate.gap = 0;
  EXPECT_EQ(fieldOf(toTable(result), "search").find(caveat), std::string::npos);
  result.certificate.gap = 4e-5;
  EXPECT_NE(fieldOf(toTable(result), "search").find(caveat), std::string::npos);
  result.certificate.pruned = {{"bound", 12}, {"memory", 3}};
  EXPECT_NE(fieldOf(toTable(result), "search").find("; pruned 12 by bound, 3 by memory; of uneven"),
            std::string::npos);
}

// 3 GiB and 5 bytes.
TEST(ToTable, SaysByHowManyBytesTheNextBetterPlanMisses) {
  const PlanResult result = answer();
  Limit limit;
  limit.plan = limit.nearest = result.plan;
  limit.step = limit.nearestStep = result.estimate.step * 0.9;
  limit.missing = limit.nearestMissing = Bytes(3.0 * 1024 * 1024 * 1024 + 5);
  limit.nearest.microbatchSize += 1;
  Outlook outlook;
  outlook.limits = {limit};
  const std::string binding = fieldOf(toTable(outlook, result), "binding");
  const std::string missing = " is 3.00 GiB (3221225477 bytes) short: ";
  EXPECT_NE(binding.find("the next better plan" + missing), std::string::npos) << binding;
  EXPECT_NE(binding.find("the best without a limit" + missing), std::string::npos) << binding;
}

TEST(ToTable, SaysWhatRunnersUpTakeWhenTheyArePlayed) {
  PlanResult result = answer();
  ASSERT_FALSE(result.runnersUp.empty());
  EXPECT_EQ(toTable(result).find("; simulated"), std::string::npos);
  EXPECT_FALSE(toJson(result)["runnersUp"][0].contains("simulatedSeconds"));
  result.runnersUp[0].simulated = Seconds(1.5);
  EXPECT_NE(toTable(result).find("simulated 1.500 s"), std::string::npos) << toTable(result);
  EXPECT_EQ(toJson(result)["runnersUp"][0]["simulatedSeconds"], 1.5);
}

TEST(ToTable, SaysThatChunksOfAStageAreEvenAndThatMemoryIsTight) {
  PlanResult result = answer();
  constexpr std::string_view kChunks = "those of a stage differ", kTight = "tight: peaks are";
  EXPECT_EQ(toTable(result).find(kChunks), std::string::npos);
  result.certificate.ofEvenChunks = true;
  EXPECT_NE(toTable(result).find(kChunks), std::string::npos);
  EXPECT_NE(toTable(result).find(" among even chunks, bound"), std::string::npos)
      << toTable(result);
  EXPECT_TRUE(toJson(result)["certificate"]["ofEvenChunks"].get<bool>());
  // A winner that is none of these is not the optimum of what was bounded.
  constexpr std::string_view kBeyond = "no even chunks are faster: gap 0 % among even chunks";
  result.certificate.gap = 0;
  EXPECT_EQ(toTable(result).find(kBeyond), std::string::npos);
  const auto layers = result.plan.layers;
  result.plan.layers.front() = {{0, 1}, {1, 2}};
  EXPECT_EQ(toTable(result).find(kBeyond), std::string::npos);
  EXPECT_FALSE(toJson(result)["certificate"]["planIsBeyond"].get<bool>());
  result.plan.layers.front() = {{0, 1}, {1, 3}};
  EXPECT_NE(toTable(result).find(kBeyond), std::string::npos) << toTable(result);
  EXPECT_NE(toTable(result).find("others like it are not bounded"), std::string::npos);
  EXPECT_TRUE(toJson(result)["certificate"]["planIsBeyond"].get<bool>());
  EXPECT_TRUE(toJson(result)["certificate"]["allCuts"].is_null());
  // Of Trireme's own programs something is known of the others as well.
  result.certificate.boundOfAllCuts = Seconds(0.99);
  result.certificate.gapOfAllCuts = 0.01;
  EXPECT_NE(toTable(result).find("(all cuts: gap"), std::string::npos) << toTable(result);
  EXPECT_EQ(toTable(result).find("others like it are not bounded"), std::string::npos);
  EXPECT_EQ(toJson(result)["certificate"]["allCuts"]["gap"], 0.01);
  result.certificate.boundOfAllCuts.reset();
  result.plan.layers = layers;
  // Of software of others; above 93 % of what there is.
  cost::Estimate& estimate = result.estimate;
  estimate.memoryOfStages.clear();
  for (const auto& [share, isTight] :
       {std::pair{0.92, false}, std::pair{0.94, true}, std::pair{1.01, false}}) {
    estimate.memoryAvailable = estimate.memory.total() * (1 / share);
    EXPECT_EQ(toTable(result).find(kTight) != std::string::npos, isTight) << share;
    EXPECT_NE(
        toJson(result).dump().find(isTight ? "\"memoryTight\":true" : "\"memoryTight\":false"),
        std::string::npos)
        << share;
  }
}

TEST(MemoryParts, AddUpToTheTotal) {
  const PlanResult result = answer();
  Bytes sum;
  for (const MemoryPart& part : memoryParts(result.estimate.memory)) sum += part.bytes;
  EXPECT_EQ(sum, result.estimate.memory.total());
}

TEST(ToTable, SaysHowFarOffTheStepMayBe) {
  PlanResult result = answer();
  EXPECT_EQ(toTable(result).find("nine of ten runs"), std::string::npos);
  EXPECT_FALSE(toJson(result)["estimate"].contains("intervalSeconds"));
  result.estimate.interval = cost::Interval{{Seconds(1.5), Seconds(2)}};
  EXPECT_NE(toTable(result).find("interval      1.500 s to 2.000 s for nine of ten runs like "
                                 "those compared; fewer of others\n"),
            std::string::npos);
  EXPECT_EQ(toJson(result)["estimate"]["intervalSeconds"], nlohmann::json({1.5, 2.0}));
  EXPECT_FALSE(toJson(result)["estimate"].contains("intervalOfOthersSeconds"));
  result.estimate.interval->ofOthers = {Seconds(1.25), Seconds(3)};
  EXPECT_NE(toTable(result).find("those compared\n  of others   1.250 s to 3.000 s for nine of "
                                 "ten\n"),
            std::string::npos);
  EXPECT_EQ(toJson(result)["estimate"]["intervalOfOthersSeconds"], nlohmann::json({1.25, 3.0}));
  result.estimate.interval->ofOthers.reset();
  result.estimate.interval->isOfOtherDevices = true;
  EXPECT_NE(toTable(result).find("those compared, on their GPUs; fewer of"), std::string::npos);
}

// Memory for the winner to the byte: beside it stands the fastest that takes 93 % of it at most.
TEST(Recommend, ShowsThePlanThatIsSureToFit) {
  Query query = computeBound(smallQuery(4, 8, 16));
  query.stack.ownPrograms = false;
  const auto recommended = [](const Query& asked) {
    return recommend(asked, searchPlan(asked).value(), {}).value();
  };
  const Recommendation ample = recommended(query);
  EXPECT_FALSE(ample.roomier.has_value());
  EXPECT_EQ(toText(ample, query, false).find("with room"), std::string::npos);
  query.cluster.device.memory = ample.result.estimate.memory.total();
  const Recommendation tight = recommended(query);
  ASSERT_TRUE(tight.roomier.has_value() && tight.roomier->plan.has_value());
  const CostedPlan& roomier = *tight.roomier->plan;
  EXPECT_LE(roomier.estimate.memory.total(), query.cluster.device.memory * 0.93);
  EXPECT_GE(roomier.estimate.step, tight.result.estimate.step);
  EXPECT_NE(toText(tight, query, false).find("with room     "), std::string::npos);
  EXPECT_EQ(toJson(tight, false)["roomier"]["summary"], summary(roomier.plan));
  // Asked to keep as much free, it is the answer, and not tight.
  Query free = query;
  ASSERT_TRUE(keepFree("7%", free.cluster.device).ok());
  const Recommendation kept = recommended(free);
  EXPECT_EQ(kept.result.plan, roomier.plan);
  EXPECT_FALSE(kept.roomier.has_value());
  EXPECT_NE(toTable(kept.result).find(" kept free"), std::string::npos);
  // A plan that fills what is left of that is sure to fit, unless its memory is more in doubt.
  Query filled = query;
  filled.cluster.device.memory = query.cluster.device.memory * (1 / 0.9299);
  ASSERT_TRUE(keepFree("7%", filled.cluster.device).ok());
  EXPECT_EQ(recommended(filled).result.plan, tight.result.plan);
  EXPECT_FALSE(isTight(recommended(filled).result.estimate));
  filled.stack.description.memoryDoubt = 0.15;
  EXPECT_TRUE(isTight(recommended(filled).result.estimate));
  EXPECT_EQ(toJson(kept.result)["estimate"]["headroomBytes"],
            query.cluster.device.memory.count() * 0.07);
  // That plan alone, and nothing else.
  query.pins.layers = {8};
  query.pins.tp = tight.result.plan.tp;
  query.pins.dp = query.cluster.numDevices / tight.result.plan.tp;
  query.pins.recompute = plan::Recompute::kNone;
  query.pins.stateSharding = plan::StateSharding::kNone;
  query.pins.microbatchSize = 1;
  query.pins.sequenceParallel = false;
  query.cluster.device.memory = Bytes(1e12);
  query.cluster.device.memory = searchPlan(query).value().estimate.memory.total();
  const Recommendation alone = recommended(query);
  ASSERT_TRUE(alone.roomier.has_value());
  EXPECT_FALSE(alone.roomier->plan.has_value());
  EXPECT_NE(toText(alone, query, false).find("none: no plan leaves 7 % of memory free"),
            std::string::npos);
  EXPECT_TRUE(toJson(alone, false)["roomier"].is_null());
}

// A search with less memory may find a faster plan: it is the answer then, and its bound no larger.
TEST(Recommend, TakesAFasterPlanThatIsSureToFit) {
  Query query = computeBound(smallQuery(4, 8, 16));
  query.stack.ownPrograms = false;
  const PlanResult best = searchPlan(query).value();
  Query worse = query;
  worse.pins.recompute = plan::Recompute::kFull;
  PlanResult slow = searchPlan(worse).value();
  ASSERT_GT(slow.estimate.step, best.estimate.step);
  slow.estimate.memoryAvailable = best.estimate.memory.total() / 0.92;
  slow.estimate.memory.reserve +=
      slow.estimate.memoryAvailable * 0.99 - slow.estimate.memory.total();
  ASSERT_TRUE(isTight(slow.estimate));
  const Seconds slower = slow.runnersUp.front().estimate.step - best.estimate.step;
  const Recommendation found = recommend(query, slow, {}).value();
  EXPECT_EQ(found.result.estimate.step, best.estimate.step);
  EXPECT_EQ(summary(found.result.plan), summary(best.plan));
  EXPECT_FALSE(found.roomier.has_value());
  EXPECT_FALSE(isTight(found.result.estimate));
  EXPECT_EQ(found.result.runnersUp.front().slower, slower);
  EXPECT_EQ(found.result.certificate.bound, best.estimate.step);
  EXPECT_EQ(found.result.certificate.gap, 0);
  EXPECT_EQ(found.why.slack, query.cluster.device.memory - best.estimate.memory.total());
}

// A single change that is faster is made, as long as there is one that the pins leave.
TEST(Recommend, TakesAFasterPlanThatItsExplanationFinds) {
  Query query = computeBound(smallQuery(4, 8, 16));
  Query worse = query;
  worse.pins.recompute = plan::Recompute::kFull;
  const PlanResult slow = searchPlan(worse).value();
  const auto isFaster = [](const Alternative& a) { return a.outcome == Outcome::kFaster; };
  const Recommendation pinned = recommend(worse, slow, {}).value();
  EXPECT_EQ(pinned.result.estimate.step, slow.estimate.step);
  EXPECT_TRUE(
      std::any_of(pinned.why.alternatives.begin(), pinned.why.alternatives.end(), isFaster));
  const Recommendation found = recommend(query, slow, {}).value();
  EXPECT_EQ(found.result.estimate.step, searchPlan(query)->estimate.step);
  EXPECT_EQ(found.result.plan.recompute, plan::Recompute::kNone);
  EXPECT_TRUE(std::none_of(found.why.alternatives.begin(), found.why.alternatives.end(), isFaster));
  EXPECT_LE(found.result.certificate.bound, found.result.estimate.step);
  EXPECT_NEAR(found.path.simulated / found.result.estimate.step, 1, 0.05);
}

// Trireme's own arenas are exact; what the driver and NCCL take beside them is estimated: half of
// it is in doubt.
TEST(ToTable, SaysWhenLessThanHalfTheReserveIsFree) {
  PlanResult result = answer();
  cost::Estimate& e = result.estimate;
  ASSERT_EQ(e.memory.reserve, Bytes(0));  // on a host
  e.memoryAvailable = e.memory.total();
  EXPECT_FALSE(isTight(e));
  e.memory.reserve = Bytes(1000);
  e.memoryAvailable = e.memory.total() + Bytes(500);
  EXPECT_FALSE(isTight(e));
  e.memoryAvailable = e.memory.total() + Bytes(499);
  EXPECT_TRUE(isTight(e));
  EXPECT_NE(toTable(result).find("the fullest; tight: the reserve is an estimate\n"),
            std::string::npos);
  EXPECT_NE(toTable(Roomier{}, result).find("none: no plan leaves 500 B of memory free"),
            std::string::npos);
}

// Of software that others make.
TEST(ToTable, SaysWhenMemoryIsWithinTheErrorOfTheLimit) {
  PlanResult result = answer();
  const auto isTight = [&](double share) {
    result.estimate.memoryAvailable = result.estimate.memory.total() / share;
    return toTable(result).find("the fullest; tight: peaks are 3 to 7 % off\n") !=
           std::string::npos;
  };
  EXPECT_FALSE(isTight(0.95));
  result.estimate.memoryOfStages.clear();
  EXPECT_TRUE(isTight(0.95));
  EXPECT_TRUE(isTight(0.999));
  EXPECT_FALSE(isTight(0.92));
  EXPECT_FALSE(isTight(1.01));  // it does not fit
  result.estimate.memoryDoubt = 0.15;
  EXPECT_FALSE(isTight(0.92));
  EXPECT_NE(toTable(result).find("the fullest; tight: peaks may be 15 % off\n"), std::string::npos);
}

TEST(ToTable, SaysOnceWhatForbidsManyDegrees) {
  PlanResult result = answer();
  result.rejections = {{"P8", "pp 16", "a layer per stage", "6 layers"},
                       {"P8", "pp 8", "a layer per stage", "6 layers"},
                       {"P4", "tp 8", "a divisor of the heads", "3 heads"}};
  const std::string table = toTable(result);
  EXPECT_NE(
      table.find("rejected\n"
                 "  pp 8 and 1 larger     (P8) needs a layer per stage, given 6 layers\n"
                 "  tp 8                  (P4) needs a divisor of the heads, given 3 heads\n"),
      std::string::npos)
      << table;
}

TEST(ToTable, SaysWhenDevicesAreLeftOver) {
  PlanResult result = answer();
  EXPECT_EQ(toTable(result).find("no legal layout"), std::string::npos);
  result.gpusAvailable = 13;
  EXPECT_NE(toTable(result).find("12 of 13: no legal layout has more"), std::string::npos);
  result.gpusAvailable = result.gpusWithLayout = 14;
  result.stepOfMost = result.estimate.step + Seconds(2);
  EXPECT_NE(toTable(result).find("12 of 14: the best plan of 14 takes 2.000 s more"),
            std::string::npos);
  EXPECT_EQ(toJson(result)["idleBecause"], idleReason(result));
  result.stepOfMost.reset();
  result.gpusAvailable = 15;
  EXPECT_EQ(idleReason(result), "no plan of 14 fits in memory, and no legal layout has more");
  result.isPinned = true;
  EXPECT_EQ(idleReason(result),
            "no plan of 14 fits in memory, and no legal layout with these pins has more");
}

TEST(ToJson, HoldsThePlanItself) {
  const PlanResult result = answer();
  const nlohmann::json json = toJson(result);
  const auto plan = plan::parsePlan(json["plan"].get<std::string>(), "json");
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(*plan, result.plan);
  EXPECT_DOUBLE_EQ(json["estimate"]["stepSeconds"].get<double>(), result.estimate.step.count());
  EXPECT_EQ(json["runnersUp"].size(), result.runnersUp.size());
}

TEST(Format, UsesBinaryUnitsForBytes) {
  EXPECT_EQ(formatBytes(Bytes(17)), "17 B");
  EXPECT_EQ(formatBytes(Bytes(1536)), "1.50 KiB");
  EXPECT_EQ(formatBytes(Bytes(80.0 * 1024 * 1024 * 1024)), "80.00 GiB");
}

TEST(Format, SaysBytesInBothWaysWhereUnitsRound) {
  EXPECT_EQ(formatBytesExactly(Bytes(1023)), "1023 B");
  EXPECT_EQ(formatBytesExactly(Bytes(1024)), "1.00 KiB (1024 bytes)");
  EXPECT_EQ(formatBytesExactly(Bytes(80.0 * 1024 * 1024 * 1024 + 1)),
            "80.00 GiB (85899345921 bytes)");
  EXPECT_EQ(formatBytesExactly(Bytes(0.25)), "1 B");
}

TEST(Format, PicksTheUnitOfATime) {
  EXPECT_EQ(formatSeconds(Seconds(12.3456)), "12.346 s");
  EXPECT_EQ(formatSeconds(Seconds(0.0123)), "12.300 ms");
  EXPECT_EQ(formatSeconds(Seconds(4.5e-6)), "4.5 us");
}

}  // namespace
}  // namespace trireme::planner
