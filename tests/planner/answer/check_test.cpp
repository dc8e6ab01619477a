#include "planner/answer/check.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "cost_models/estimate.h"
#include "ir/base/format.h"
#include "ir/spec/load.h"
#include "planner/answer/report.h"
#include "planner/plan_text.h"
#include "tests/planner/small_query.h"

namespace trireme::planner {
namespace {

using ::testing::HasSubstr;

plan::Plan bestPlan(const Query& query) {
  const auto result = searchPlan(query);
  EXPECT_TRUE(result.has_value());
  return result->plan;
}

PlanCheck checked(const plan::Plan& plan, const Query& query) {
  const auto check = checkPlan(plan, queryOf(plan, query.model, query.cluster, query.stack));
  EXPECT_TRUE(check.has_value()) << check.error().message();
  return *check;
}

std::string refusalOfPlan(const plan::Plan& plan, const Query& query) {
  const auto check = checkPlan(plan, queryOf(plan, query.model, query.cluster, query.stack));
  EXPECT_FALSE(check.has_value());
  return check.has_value() ? "" : check.error().message();
}

TEST(CheckPlan, TheOptimumIsNotBehindItself) {
  const Query query = smallQuery(8, 6, 24);
  plan::Plan best = bestPlan(query);
  best.devicesPerHost = 3;  // which changes no number
  const PlanCheck check = checked(best, query);
  ASSERT_TRUE(check.optimum);
  EXPECT_EQ(check.plan, check.optimum->plan);
  EXPECT_EQ(check.behind(), Seconds(0));
  EXPECT_FALSE(check.bestChange);
  EXPECT_THAT(toTable(check, query.cluster), HasSubstr("0.0 %: the plan is the optimum"));
}

// The optimum with one choice spoiled: undoing that is a single change, and no plan is faster than
// what it leads to.
TEST(CheckPlan, FindsTheOneChangeThatLeadsBackToTheOptimum) {
  const Query query = smallQuery(8, 6, 24);
  const plan::Plan best = bestPlan(query);
  plan::Plan spoiled = best;
  spoiled.recompute = plan::Recompute::kFull;
  ASSERT_NE(best.recompute, spoiled.recompute);
  const PlanCheck check = checked(spoiled, query);
  ASSERT_TRUE(check.optimum && check.bestChange);
  EXPECT_GT(check.behind(), Seconds(0));
  EXPECT_NEAR(check.behind().count(), -check.bestChange->difference.count(), 1e-15);
  EXPECT_EQ(check.bestChange->plan, best);
  EXPECT_EQ(check.optimum->plan, best);
}

// Choices in which two plans on as many devices differ; dp follows from the other degrees.
int numDifferences(const plan::Plan& a, const plan::Plan& b) {
  const bool stages = a.pp != b.pp;
  const bool schedule = a.schedule != b.schedule || a.virtualStages != b.virtualStages;
  return (a.tp != b.tp) + stages + (a.cp != b.cp) + schedule +
         (a.microbatchSize != b.microbatchSize) +
         (a.recompute != b.recompute || a.recomputeLayers != b.recomputeLayers) +
         (a.stateSharding != b.stateSharding) + (a.sequenceParallel != b.sequenceParallel) +
         (a.scatterGather != b.scatterGather) + (a.overlapReductions != b.overlapReductions) +
         (a.rankOrder != b.rankOrder) + (!stages && !schedule && a.layers != b.layers);
}

bool isEven(const plan::Plan& plan) {
  return plan.layers ==
         plan::evenLayers(plan.layers.back().back().first + plan.layers.back().back().count,
                          plan.pp, plan.virtualStages);
}

// However far the one choice is from the plan's: tp 8 of 1, microbatch 8 of 1.
TEST(CheckPlan, TheBestChangeIsTheBestOfAllPlansThatDifferInOneChoice) {
  const Query query = smallQuery(8, 4, 16);
  const CostFunctions costs = modelCosts(query);
  std::vector<std::pair<plan::Plan, Seconds>> fitting;
  for (const plan::Plan& plan : everyPlan(query, 8, costs))
    if (const auto estimate = costs.estimate(plan); estimate.has_value() && estimate->fits())
      fitting.emplace_back(plan, estimate->step);
  int far = 0;
  for (size_t i = 0; i < fitting.size(); i += 101) {
    const auto& [plan, step] = fitting[i];
    Seconds fastest = step;
    for (const auto& [other, otherStep] : fitting)
      if (numDifferences(plan, other) == 1 &&
          (isEven(other) || other.layers == plan.layers || other.pp != plan.pp ||
           other.virtualStages != plan.virtualStages))
        fastest = std::min(fastest, otherStep);
    const PlanCheck check = checked(plan, query);
    const Seconds gain = check.bestChange ? check.bestChange->difference * -1 : Seconds(0);
    EXPECT_GE(gain.count(), (step - fastest).count() - 1e-15) << summary(plan);
    const auto& near = check.explanation.alternatives;
    far += check.bestChange && std::none_of(near.begin(), near.end(), [&](const Alternative& a) {
             return a.plan == check.bestChange->plan;
           });
  }
  EXPECT_GT(far, 0);
}

// Every legal plan: never faster than the optimum of its space, and the best change is at least as
// good as every single change that is shown, priced again.
TEST(CheckPlan, DistanceAndBestChangeAgreeWithPrices) {
  const Query query = smallQuery(4, 4, 8);
  const CostFunctions costs = modelCosts(query);
  const std::vector<plan::Plan> plans = everyPlan(query, 4, costs);
  for (size_t i = 0; i < plans.size(); i += TRIREME_SANITIZED ? 370 : 37) {
    const PlanCheck check = checked(plans[i], query);
    ASSERT_TRUE(check.optimum);
    EXPECT_GE(check.behind(), Seconds(0)) << summary(plans[i]);
    Seconds fastest = check.estimate.step;
    for (const Alternative& a : check.explanation.alternatives) {
      if (a.outcome == Outcome::kForbidden) continue;
      const auto estimate = costs.estimate(a.plan);
      ASSERT_TRUE(estimate.has_value());
      if (estimate->fits()) fastest = std::min(fastest, estimate->step);
    }
    const Seconds gain = check.bestChange ? check.bestChange->difference * -1 : Seconds(0);
    EXPECT_GE(gain.count(), (check.estimate.step - fastest).count() - 1e-15) << summary(plans[i]);
  }
}

// With the embedding and the head alone on the first and the last chunk there are two more.
TEST(CheckPlan, KnowsPlansWithMoreChunksThanLayers) {
  Query query = smallQuery(4, 6, 16);
  query.stack.ownPrograms = false;
  plan::Plan plan = small::plan(query.model, query.training, 1, 4, 1);
  plan.stack = query.stack.name;
  plan.schedule = plan::ScheduleKind::kInterleaved;
  plan.virtualStages = 2;
  plan.layers = plan::evenLayers(6, 4, 2);
  const PlanCheck check = checked(plan, query);
  ASSERT_TRUE(check.optimum);
  EXPECT_GE(check.behind(), Seconds(0));
  query.model.numLayers = 2;  // and no change has more stages than layers
  plan = small::plan(query.model, query.training, 1, 2, 2);
  plan.stack = query.stack.name;
  for (const Alternative& a : checked(plan, query).explanation.alternatives)
    EXPECT_LE(a.plan.pp, 2) << a.choice << " " << a.other;
}

TEST(CheckPlan, SaysByHowManyBytesAPlanDoesNotFit) {
  Query query = smallQuery(4, 4, 8);
  const plan::Plan best = bestPlan(query);
  const Bytes need = checked(best, query).estimate.memory.total();
  query.cluster.device.memory = need - Bytes(4096);
  const PlanCheck check = checked(best, query);
  EXPECT_FALSE(check.estimate.fits());
  EXPECT_EQ(check.estimate.missing(), Bytes(4096));
  // Some single change fits, and the fastest of those is named, although none is faster.
  ASSERT_TRUE(check.bestChange);
  const auto changed = modelCosts(query).estimate(check.bestChange->plan);
  ASSERT_TRUE(changed.has_value());
  EXPECT_TRUE(changed->fits());
  const std::string table = toTable(check, query.cluster);
  EXPECT_THAT(table, HasSubstr("fits          no: 4.00 KiB (4096 bytes) too much on stage "));
  EXPECT_THAT(table, HasSubstr("; fits"));
}

TEST(CheckPlan, SaysWhenThereIsNoOptimumAtAll) {
  Query query = smallQuery(4, 4, 8);
  const plan::Plan best = bestPlan(query);
  query.cluster.device.memory = Bytes(4096);
  const PlanCheck check = checked(best, query);
  EXPECT_FALSE(check.optimum);
  EXPECT_THAT(check.noOptimum, HasSubstr("no plan fits in memory"));
  EXPECT_THAT(toTable(check, query.cluster), HasSubstr("optimum       none: no plan fits"));
  // What comes nearest to fitting.
  ASSERT_TRUE(check.bestChange);
  EXPECT_LT(check.bestChange->missing, check.estimate.missing());
  for (const Alternative& a : check.explanation.alternatives)
    if (a.outcome == Outcome::kDoesNotFit) {
      EXPECT_GE(a.missing, check.bestChange->missing);
    }
}

TEST(CheckPlan, AsksForTheSameTrainingOnAsManyDevices) {
  Query query = smallQuery(8, 6, 24);
  query.pins.gpus = 2;
  query.vocabMultiple = 16;
  plan::Plan plan = bestPlan(query);
  const Query asked = queryOf(plan, query.model, query.cluster, query.stack);
  EXPECT_EQ(asked.pins.gpus, 2);
  EXPECT_EQ(asked.training, query.training);
  EXPECT_EQ(asked.vocabMultiple, 16);
  EXPECT_EQ(checked(plan, query).optimum->gpusUsed, 2);
}

TEST(CheckPlan, TheStackIsTheOneThatIsNamedOrThePlansOwn) {
  plan::Plan plan;
  EXPECT_EQ(stackFor(plan, "p.yaml", "")->name, "trireme");
  plan.stack = "nemo";
  EXPECT_EQ(stackFor(plan, "p.yaml", "")->name, "nemo");
  EXPECT_EQ(stackFor(plan, "p.yaml", "torchtitan")->name, "torchtitan");
  plan.stack = "mine";
  const auto unknown = stackFor(plan, "p.yaml", "");
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().message(),
            "p.yaml: the plan was made for stack 'mine': give its profile with --stack");
}

TEST(CheckPlan, RefusesWhatCannotBePriced) {
  Query query = smallQuery(4, 4, 8);
  const plan::Plan best = bestPlan(query);
  plan::Plan large = small::plan(query.model, query.training, 4, 2, 2);
  EXPECT_EQ(refusalOfPlan(large, query),
            "the plan needs 16 devices (tp 4 x pp 2 x cp 1 x dp 2), cluster 'small' has 4");
  Query other = query;
  other.model.numLayers = 5;
  EXPECT_THAT(refusalOfPlan(best, other), HasSubstr("(P2)"));
  plan::Plan illegal = best;
  illegal.microbatchSize = 3;
  EXPECT_THAT(refusalOfPlan(illegal, query), HasSubstr("(P3)"));
  plan::Plan endless = small::plan(query.model, query.training, 1, 1, 1);
  endless.training.globalBatchSize = 4'000'000;
  EXPECT_THAT(refusalOfPlan(endless, query), HasSubstr("(E7)"));
  Query poor = query;
  poor.stack.ownPrograms = false;
  EXPECT_THAT(refusalOfPlan(endless, poor),
              HasSubstr("batch 4000000: estimates are of up to 131072 samples per step"));
  poor.stack.name = "poor";
  poor.stack.choices.clear();
  EXPECT_EQ(refusalOfPlan(small::plan(query.model, query.training, 2, 2, 1), poor),
            "stack 'poor' has no tp 2; nearest: tp 1");
}

TEST(CheckTable, FitsIntoAHundredColumnsAndNamesAFasterPlan) {
  const Query query = smallQuery(8, 6, 24);
  PlanCheck check = checked(small::plan(query.model, query.training, 2, 2, 2), query);
  std::istringstream lines(toTable(check, query.cluster));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  // 10 % faster than the best that was found: outside the space, or within the search's gap.
  check.estimate.step = check.optimum->estimate.step * 0.9;
  EXPECT_THAT(toTable(check, query.cluster),
              HasSubstr("faster than the best plan that the search found"));
  EXPECT_NEAR(toJson(check)["behindPercent"].get<double>(), -10, 1e-9);
  // The bound is of plans like this one, or of even chunks alone.
  check.optimum->certificate.bound = check.optimum->estimate.step;
  const auto isFault = [&] {
    std::istringstream table(toTable(check, query.cluster));
    std::string words;  // wherever lines break
    for (std::string word; table >> word;) words += word + " ";
    return words.find("certificate rules that out") != std::string::npos;
  };
  EXPECT_TRUE(isFault());
  check.optimum->certificate.bound = check.estimate.step;
  EXPECT_FALSE(isFault());
  check.optimum->certificate.bound = check.optimum->estimate.step;
  check.optimum->certificate.ofEvenChunks = true;
  EXPECT_TRUE(isFault());
  check.plan.virtualStages = 2;
  check.plan.layers = {{{0, 1}, {2, 2}}, {{1, 1}, {4, 2}}};
  EXPECT_TRUE(isFault());
  check.plan.layers = {{{0, 1}, {2, 3}}, {{1, 1}, {5, 1}}};
  EXPECT_FALSE(isFault());
}

// The certificate is the optimum's, whatever the plan's cut is.
TEST(CheckTable, UnevenChunksAreTheOptimums) {
  const Query query = smallQuery(8, 6, 24);
  PlanCheck check = checked(small::plan(query.model, query.training, 2, 2, 2), query);
  check.optimum->plan.virtualStages = 2;
  check.optimum->plan.layers = {{{0, 1}, {2, 3}}, {{1, 1}, {5, 1}}};
  check.optimum->certificate.ofEvenChunks = true;
  check.optimum->seconds = 0.01;  // where lines break depends on the digits
  EXPECT_THAT(toTable(check, query.cluster), HasSubstr("optimum's are not even"));
  EXPECT_THAT(toTable(*check.optimum), HasSubstr("plan's are not even"));
}

// Hosts of 4 in blocks of 16, two of which have all links of one.
TEST(OtherHosts, AreNotedWhereTheirLinksAreOthers) {
  spec::ClusterSpec cluster = small::cluster(64, 16);
  cluster.hostDevices = 4;
  plan::Plan plan;
  plan.dpReplicate = 8;
  const auto note = [&](int64_t launched) {
    return otherHostsNote(plan, "run.sh", launched, cluster);
  };
  for (const int64_t fewer : {0, 1, 2, 4}) EXPECT_EQ(note(fewer), "");  // are priced
  EXPECT_EQ(note(8), "");                                               // one block, or one host
  plan.dpReplicate = 16;
  EXPECT_THAT(note(8),
              HasSubstr("launches 8 ranks on each of 2 hosts; priced are all 16 on 4 hosts "
                        "of 4 devices, those of cluster 'small': all lie within a block "
                        "of 16 here"));
  plan.dpReplicate = 32;
  EXPECT_THAT(note(8), HasSubstr("groups that lie across hosts here may lie within one of 8"));
  plan.dpReplicate = 8;
  cluster.hostDevices = 16;
  EXPECT_EQ(note(8), "");
}

// Made where hosts have 4.
TEST(OtherHosts, AreNotedWhereThePlanSaysThatItDoesNotFillThem) {
  const spec::ClusterSpec cluster = small::cluster(64, 8);
  plan::Plan plan;
  plan.dpReplicate = 16;
  plan.devicesPerHost = 4;
  EXPECT_EQ(otherHostsNote(plan, "p.yaml", 0, cluster),
            "p.yaml: devices_per_host 4: priced are 4 ranks on each of 4 hosts of 8 devices, which "
            "cluster 'small' has; without it they fill 2 hosts");
  plan.devicesPerHost = 8;
  EXPECT_EQ(otherHostsNote(plan, "p.yaml", 0, cluster), "");
  spec::ClusterSpec unknown = cluster;  // one switch of 64, of which no host is known
  unknown.tiers.erase(unknown.tiers.begin());
  ASSERT_EQ(unknown.devicesPerHost(), 0);
  EXPECT_EQ(otherHostsNote(plan, "p.yaml", 0, unknown), "");
  EXPECT_EQ(otherHostsNote(plan, "p.yaml", 8, unknown), "");
  EXPECT_EQ(asLaunched(plan, 4, unknown), plan);
  plan.dpReplicate = 20;  // which fill none
  plan.devicesPerHost = 5;
  EXPECT_EQ(otherHostsNote(plan, "p.yaml", 0, cluster), "");
  plan.devicesPerHost = 3;
  EXPECT_EQ(otherHostsNote(plan, "p.yaml", 0, cluster),
            "p.yaml: devices_per_host 3: 20 ranks do not divide over such hosts; priced as on full "
            "ones of 8 devices");
}

// 20 ranks fill two hosts of 8 and half of a third. Of 11 one on each would be alike, for which
// there are no hosts; a plan that says how many it puts on each is priced so.
TEST(OtherHosts, AreNotedWhereTheLastIsPartlyEmpty) {
  const spec::ClusterSpec cluster = small::cluster(64, 8);
  plan::Plan plan;
  plan.dpReplicate = 20;
  EXPECT_EQ(otherHostsNote(plan, "ds.json", 0, cluster),
            "ds.json: does not say how many of its 20 ranks a host has: priced on full hosts of 8 "
            "devices, with 4 on the last; 5 on each of 4 hosts take another time (devices_per_host "
            "of a plan)");
  plan.devicesPerHost = 8;
  EXPECT_EQ(otherHostsNote(plan, "p.yaml", 0, cluster), "");
  plan.devicesPerHost = 0;
  plan.dpReplicate = 24;
  EXPECT_EQ(otherHostsNote(plan, "ds.json", 0, cluster), "");
  plan.dpReplicate = 11;
  EXPECT_EQ(otherHostsNote(plan, "ds.json", 0, cluster), "");
}

// Of searches' own places a plan says nothing, and what it says itself stands.
TEST(AsLaunched, FewerRanksOnAHostThanItHasDevicesAreThePlans) {
  const spec::ClusterSpec cluster = small::cluster(64, 8);
  plan::Plan plan;
  plan.dpReplicate = 20;
  const auto hostOf = [&](int64_t launched) {
    return asLaunched(plan, launched, cluster).devicesPerHost;
  };
  EXPECT_EQ(hostOf(0), 0);
  EXPECT_EQ(hostOf(5), 5);
  EXPECT_EQ(hostOf(4), 4);
  EXPECT_EQ(hostOf(1), 1);
  EXPECT_EQ(hostOf(10), 0);
  plan.dpReplicate = 12;
  EXPECT_EQ(hostOf(6), 0);  // which two hosts have anyway
  plan.devicesPerHost = 8;
  EXPECT_EQ(hostOf(4), 8);
}

// 8 ranks on two hosts of 8, which they half fill: the best plan on 8 devices, not on all 16.
TEST(CheckPlan, IsHeldAgainstPlansOnAsManyDevices) {
  const Query query = smallQuery(16, 6, 24);
  const spec::ClusterSpec cluster = small::cluster(16, 8);
  plan::Plan plan = small::plan(query.model, query.training, 1, 1, 8);
  plan.devicesPerHost = 4;
  ASSERT_EQ(cluster.devicesPerHost(), 8);
  EXPECT_EQ(queryOf(plan, query.model, cluster, query.stack).pins.gpus, 8);
}

TEST(OverlapNote, SaysWhatTheSwitchesAreWorth) {
  Query query = smallQuery(8, 6, 24);
  query.stack.ownPrograms = false;
  const spec::StackProfile full = query.stack;
  const plan::Plan plan = bestPlan(query);
  EXPECT_EQ(overlapNote(plan, "run.sh", {}, query, full), "");
  spec::StackProfile without = full;  // checkPlan refuses the plan, and a price would contradict it
  without.choices.clear();
  EXPECT_EQ(overlapNote(plan, "run.sh", {"--a"}, query, without), "");
  EXPECT_THAT(overlapNote(plan, "run.sh", {"--a", "--b"}, query, full),
              AllOf(HasSubstr("run.sh: without --a and --b communication"),
                    HasSubstr("in full for the optimum; it changes nothing of the plan")));
  query.stack.description.gradientExposed = 1;
  spec::StackProfile hidden = query.stack;
  hidden.description.gradientExposed = 0;
  plan::Plan replicas = small::plan(query.model, query.training, 1, 1, 8);
  const Seconds step = cost::estimate(query.model, replicas, query.cluster, hidden)->step;
  ASSERT_LT(step, cost::estimate(query.model, replicas, query.cluster, query.stack)->step);
  EXPECT_THAT(overlapNote(replicas, "run.sh", {"--a"}, query, hidden),
              HasSubstr("the step takes " + formatSeconds(step) + " with"));
}

// Memory has no room for even chunks of most numbers of virtual stages, and the work for others is
// limited: the answer's own neighbours come first. Here no pin makes a faster one, and no change of
// one choice is faster than the optimum.
TEST(CheckPlan, NoNeighbourOfTheOptimumIsFaster) {
  Query query;
  query.model = *spec::loadModel("qwen2-72b");
  query.cluster = *spec::withNumDevices(*spec::loadCluster("dgx-h100"), 128);
  query.stack = *spec::loadStack("megatron-core");
  query.training = small::training(256, 4096);
  query.topK = 1;
  const plan::Plan best = bestPlan(query);
  const Seconds step = cost::estimate(query.model, best, query.cluster, query.stack)->step;
  for (const int64_t virtualStages : {5, 6, 7, 8}) {
    Query pinned = query;
    pinned.pins.virtualStages = virtualStages;
    const auto other = searchPlan(pinned);
    ASSERT_TRUE(other.has_value());
    EXPECT_LE(step.count(), other->estimate.step.count() * (1 + 1e-9)) << virtualStages;
    const PlanCheck check = checked(other->plan, query);
    ASSERT_TRUE(check.optimum.has_value());
    const Seconds gain = check.bestChange ? check.bestChange->difference : Seconds(0);
    EXPECT_LE(check.optimum->estimate.step.count(),
              (check.estimate.step + gain).count() * (1 + 1e-9));
  }
}

TEST(CheckJson, HasThePlanTheOptimumAndTheChanges) {
  const Query query = smallQuery(8, 6, 24);
  const PlanCheck check = checked(small::plan(query.model, query.training, 2, 2, 2), query);
  const nlohmann::json json = toJson(check);
  EXPECT_EQ(json["plan"].get<std::string>(), plan::printPlan(check.plan));
  EXPECT_EQ(json["stageBytes"].size(), 2u);
  EXPECT_TRUE(json["fits"].get<bool>());
  EXPECT_EQ(json["changes"].size(), check.explanation.alternatives.size());
  EXPECT_EQ(json["optimum"]["plan"].get<std::string>(), plan::printPlan(check.optimum->plan));
  EXPECT_DOUBLE_EQ(json["behindSeconds"].get<double>(), check.behind().count());
}

}  // namespace
}  // namespace trireme::planner
