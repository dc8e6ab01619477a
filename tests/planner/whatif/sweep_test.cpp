#include "planner/whatif/sweep.h"

#include <gmock/gmock.h>

#include <limits>

#include "planner/certainty.h"
#include "planner/plan_text.h"
#include "planner/whatif/rows.h"
#include "tests/planner/small_query.h"

namespace trireme::planner {
namespace {

using ::testing::HasSubstr;

// Nodes of two devices, in any number.
Sweep smallSweep(bool isDescribed) {
  Sweep sweep;
  sweep.base = computeBound(smallQuery(8, 4, 8));
  if (isDescribed) {
    sweep.base.stack.name = "described";
    sweep.base.stack.ownPrograms = false;
    sweep.base.stack.choices.push_back(spec::StackChoice::kShardParameters);
    sweep.base.stack.choices.push_back(spec::StackChoice::kContextParallel);
    sweep.base.stack.description.hostLaunch = Seconds(1e-5);
    sweep.base.stack.description.gradientExposed = 0.3;
    sweep.base.stack.description.tensorParallelExposed = 0.7;
  }
  sweep.base.cluster.scalable = true;
  sweep.hardware = {{"small", sweep.base.cluster, sweep.base.training.precision}};
  const BytesPerSecond rate = sweep.base.cluster.tiers.back().bandwidth;
  sweep.axes.gpus = {2, 4, 6, 8, 16};
  sweep.axes.interNode = {rate * 0.25, rate, rate * 4};
  sweep.axes.batch = {8, 24};
  return sweep;
}

TEST(Sweep, PointsAreAllCombinationsAndDevicesVaryFastest) {
  Sweep sweep = smallSweep(false);
  sweep.axes.minusNodes = {0, 1};
  const std::vector<SweepPoint> points = pointsOf(sweep);
  ASSERT_EQ(points.size(), 5u * 3 * 2 * 2);
  EXPECT_EQ(points[0].gpus, 2);
  EXPECT_EQ(points[1].gpus, 4);
  EXPECT_EQ(points[5].minusNodes, 1);
  EXPECT_EQ(points.back().batch, 24);
}

TEST(Sweep, EveryPointIsTheAnswerOfASearchOfItsOwn) {
  for (const bool isDescribed : {false, true}) {
    const Sweep sweep = smallSweep(isDescribed);
    PointPlanner planner(sweep);  // one for all, so that it uses what it knows of neighbours
    for (const SweepPoint& point : pointsOf(sweep)) {
      const PointAnswer answer = planner.answer(point);
      const Result<Query> query = queryAt(sweep, point);
      ASSERT_TRUE(query.has_value());
      const Result<PlanResult> alone = searchPlan(*query);
      ASSERT_TRUE(alone.has_value() && answer.ok()) << answer.reason;
      EXPECT_EQ(answer.plan, summary(alone->plan));
      EXPECT_EQ(answer.step, alone->estimate.step);
      EXPECT_EQ(answer.memory, alone->estimate.memory.total());
      EXPECT_EQ(answer.memoryTight, isTight(alone->estimate));
      EXPECT_EQ(answer.gpusUsed, alone->gpusUsed);
    }
  }
}

TEST(Sweep, NodesUsedAreThoseThatHaveARank) {
  const spec::ClusterSpec cluster = small::cluster(32, 4);
  plan::Plan plan;
  plan.dpReplicate = 5;
  EXPECT_EQ(nodesUsed(plan, cluster), 2);
  plan.devicesPerHost = 4;
  EXPECT_EQ(nodesUsed(plan, cluster), 2);
  plan.devicesPerHost = 1;
  EXPECT_EQ(nodesUsed(plan, cluster), 5);
  // Blocks of 32 are no hosts: they fail as a whole.
  EXPECT_EQ(nodesUsed(plan, small::cluster(64, 32)), 1);
}

// A cluster that is one node, four times: nothing of it waits while all devices are in use.
TEST(Sweep, MoreThanAClusterOfOneTierAreMoreNodesOfIt) {
  Answers answers;
  Sweep& sweep = answers.sweep;
  sweep.base = computeBound(smallQuery(4, 4, 16));
  sweep.base.cluster = small::cluster(4, 4);
  sweep.base.cluster.device = smallQuery().cluster.device;
  sweep.base.cluster.scalable = true;
  sweep.hardware = {{"small", sweep.base.cluster, sweep.base.training.precision}};
  sweep.axes.gpus = {16};
  sweep.base.pins.dp = 16;
  answers.points = pointsOf(sweep);
  answers.answers = {PointPlanner(sweep).answer(answers.points[0])};
  answers.scenarios.tokens = {1e6};
  answers.scenarios.mtbf = {1e9};
  answers.scenarios.checkpointBandwidth = 1e9;
  answers.scenarios.repair = 1;
  answers.scenarios.spares = 0;
  ASSERT_TRUE(answers.answers[0]->ok()) << answers.answers[0]->reason;
  EXPECT_EQ(answers.answers[0]->gpusUsed, 16);
  EXPECT_EQ(answers.answers[0]->nodesUsed, 4);
  EXPECT_EQ(rowsOf(answers, 0)[0].economics->goodput->spares, 0);
}

// How tensor-parallel groups of 3 lie in nodes of 8 depends on how many ranks there are.
TEST(Sweep, PointsKnowHowTheirRanksLie) {
  Sweep sweep = smallSweep(true);
  sweep.base.model = small::gpt(2, 96, 6);
  sweep.base.training = small::training(12, 36);
  sweep.base.cluster = small::cluster(32, 8);
  sweep.base.cluster.tiers.back().latency = Seconds(1e-3);
  sweep.base.cluster.scalable = true;
  sweep.base.stack.description.tensorParallelExposed = 1;
  sweep.base.pins.tp = sweep.base.pins.cp = 3;
  sweep.base.pins.microbatchSize = 1;
  sweep.hardware = {{"small", sweep.base.cluster, sweep.base.training.precision}};
  sweep.axes = {};
  sweep.axes.gpus = {9, 18, 24, 32, 40};
  PointPlanner planner(sweep);
  for (const SweepPoint& point : pointsOf(sweep)) {
    const PointAnswer answer = planner.answer(point);
    const Result<Query> query = queryAt(sweep, point);
    ASSERT_TRUE(query.has_value()) << query.error().message();
    const Result<PlanResult> alone = searchPlan(*query);
    ASSERT_TRUE(alone.has_value() && answer.ok()) << answer.reason;
    EXPECT_EQ(answer.step, alone->estimate.step) << point.gpus;
    EXPECT_EQ(answer.gpusUsed, alone->gpusUsed);
  }
}

TEST(Sweep, AWrongGuessOfTheLimitDoesNotChangeTheAnswer) {
  // No plan is as fast as a nanosecond, so that a search with that limit finds none.
  Query query = smallQuery();
  query.slowest = Seconds(1e-9);
  const Result<PlanResult> none = searchPlan(query, modelCosts(query));
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code(), StatusCode::kInfeasible);
  // The winner's own time is the tightest limit that leaves it.
  query.slowest.reset();
  const Result<PlanResult> best = searchPlan(query);
  query.slowest = best->estimate.step;
  const Result<PlanResult> again = searchPlan(query, modelCosts(query));
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->plan, best->plan);
}

// --gpus is an upper limit, and bandwidth only shortens transfers: neither can make a step slower.
TEST(Sweep, MoreDevicesAndMoreBandwidthAreNeverSlower) {
  for (const bool isDescribed : {false, true}) {
    const Sweep sweep = smallSweep(isDescribed);
    const std::vector<SweepPoint> points = pointsOf(sweep);
    PointPlanner planner(sweep);
    std::vector<PointAnswer> answers;
    for (const SweepPoint& point : points) answers.push_back(planner.answer(point));
    int numCompared = 0;
    for (size_t a = 0; a < points.size(); ++a)
      for (size_t b = 0; b < points.size(); ++b) {
        if (points[a].batch != points[b].batch || points[a].gpus > points[b].gpus ||
            points[a].interNode > points[b].interNode)
          continue;
        EXPECT_LE(answers[b].step, answers[a].step * (1 + 1e-12));
        ++numCompared;
      }
    EXPECT_GT(numCompared, 100);
  }
}

TEST(Sweep, ThreadsDoNotChangeAnswers) {
  const Sweep sweep = smallSweep(true);
  const std::vector<SweepPoint> points = pointsOf(sweep);
  const auto answersOn = [&](int numThreads) {
    std::vector<std::pair<std::string, double>> answers(points.size());
    answerPoints(sweep, points, numThreads, [&](size_t i, const PointAnswer& answer) {
      answers[i] = {answer.plan, answer.step.count()};
      return true;
    });
    return answers;
  };
  EXPECT_EQ(answersOn(1), answersOn(3));
}

TEST(Sweep, StopsWhenItIsToldTo) {
  const Sweep sweep = smallSweep(true);
  int numHeard = 0;
  answerPoints(sweep, pointsOf(sweep), 2,
               [&](size_t, const PointAnswer&) { return ++numHeard < 3; });
  EXPECT_EQ(numHeard, 3);
}

TEST(Sweep, PointsWithoutAClusterSayWhy) {
  Sweep sweep = smallSweep(false);
  PointPlanner planner(sweep);
  const std::vector<SweepPoint> points = pointsOf(sweep);
  SweepPoint point = points[1];  // 4 devices, 2 nodes
  point.minusNodes = 2;
  EXPECT_THAT(planner.answer(point).reason, HasSubstr("none of 4 is left"));
  point = points[0];
  point.gpus = 5;  // no whole number of nodes is no reason below the cluster's size
  EXPECT_TRUE(planner.answer(point).ok());
  sweep.hardware[0].cluster.scalable = false;
  point.gpus = 16;
  EXPECT_THAT(planner.answer(point).reason, HasSubstr("has 8 devices"));
  sweep.hardware[0].cluster.tiers.resize(1);
  point.gpus = 4;
  EXPECT_THAT(planner.answer(point).reason, HasSubstr("nothing is between nodes"));
}

// Pods of 16 devices in hosts of two below a spine that carries a quarter of what pods can send.
spec::ClusterSpec podsOfHosts() {
  spec::ClusterSpec cluster = small::cluster(64, 2);
  cluster.scalable = true;
  cluster.hostDevices = 2;
  cluster.tiers.push_back(cluster.tiers[1]);
  cluster.tiers[1].devices = 16;
  cluster.tiers[2].oversubscription = 4;
  return cluster;
}

TEST(Sweep, ANodeIsAHostHoweverManyTiersThereAre) {
  spec::ClusterSpec cluster = podsOfHosts();
  EXPECT_EQ(devicesPerNode(cluster), 2);
  cluster.hostDevices = 0;
  cluster.tiers[1].devices = 32;  // more than hosts have
  EXPECT_EQ(devicesPerNode(cluster), 2);
  cluster.tiers[0].devices = 8;
  cluster.hostDevices = 4;  // two in one block of the first tier
  EXPECT_EQ(devicesPerNode(cluster), 4);
  cluster.tiers.resize(1);
  EXPECT_EQ(devicesPerNode(cluster), 4);
  cluster.hostDevices = 0;
  EXPECT_EQ(devicesPerNode(cluster), 64);  // all there are
  cluster = small::cluster(64, 32);
  EXPECT_EQ(devicesPerNode(cluster), 32);
}

// The spine keeps its share of what pods send: both get four times what they had.
TEST(Sweep, TheNetworkBetweenNodesIsAllThatIsAboveThem) {
  const spec::ClusterSpec before = podsOfHosts();
  const BytesPerSecond rate = interNodeOf(before);
  EXPECT_EQ(rate, before.tiers[1].bandwidth);
  const spec::ClusterSpec after = withInterNode(before, rate * 4).value();
  EXPECT_EQ(after.tiers[0], before.tiers[0]);
  EXPECT_EQ(after.tiers[1].bandwidth, rate * 4);
  EXPECT_EQ(after.tiers[2].bandwidth, before.tiers[2].bandwidth * 4);
  EXPECT_EQ(after.tiers[2].oversubscription, 4);
  // Racks share the first tier, which is no network between them.
  spec::ClusterSpec racks = small::cluster(64, 32);
  racks.hostDevices = 4;
  EXPECT_EQ(interNodeOf(racks), racks.tiers[1].bandwidth);
  // Hosts of two blocks: what joins the blocks is within the host.
  spec::ClusterSpec pairs = podsOfHosts();
  pairs.hostDevices = 0;
  pairs.tiers[1].devices = 8;
  EXPECT_EQ(devicesPerNode(pairs), 8);
  EXPECT_EQ(withInterNode(pairs, rate * 4)->tiers[1], pairs.tiers[1]);
}

TEST(Sweep, TheOnlyTierIsTheNetworkOfHostsThatAreSmaller) {
  spec::ClusterSpec cluster = small::cluster(64, 64);
  const BytesPerSecond rate = cluster.tiers[0].bandwidth;
  EXPECT_EQ(interNodeOf(cluster), BytesPerSecond(0));
  cluster.hostDevices = 64;
  EXPECT_EQ(interNodeOf(cluster), BytesPerSecond(0));
  EXPECT_FALSE(withInterNode(cluster, rate).has_value());
  cluster.hostDevices = 1;
  EXPECT_EQ(interNodeOf(cluster), rate);
  EXPECT_EQ(withInterNode(cluster, rate * 4)->tiers[0].bandwidth, rate * 4);
}

// One host less than a pod, and one more than the cluster: parts of a cluster, which grows by whole
// pods.
TEST(Sweep, HostsMayBeMissingFromPods) {
  Sweep sweep = smallSweep(true);
  sweep.base.cluster = podsOfHosts();
  sweep.hardware = {{"small", sweep.base.cluster, sweep.base.training.precision}};
  sweep.axes = {};
  sweep.axes.gpus = {16, 66};
  sweep.axes.minusNodes = {0, 1};
  sweep.axes.interNode = {interNodeOf(sweep.base.cluster), interNodeOf(sweep.base.cluster) * 2};
  PointPlanner planner(sweep);
  for (const SweepPoint& point : pointsOf(sweep)) {
    EXPECT_EQ(presentDevices(sweep, point), point.gpus - 2 * point.minusNodes);
    const PointAnswer answer = planner.answer(point);
    const Result<Query> query = queryAt(sweep, point);
    ASSERT_TRUE(query.has_value()) << query.error().message();
    EXPECT_EQ(query->cluster.numDevices, presentDevices(sweep, point) > 64 ? 80 : 64);
    const Result<PlanResult> alone = searchPlan(*query);
    ASSERT_TRUE(alone.has_value() && answer.ok()) << answer.reason;
    EXPECT_EQ(answer.step, alone->estimate.step);
    EXPECT_LE(answer.gpusUsed, presentDevices(sweep, point));
  }
}

TEST(Sweep, MoreNodesThanCanBeCountedLeaveNone) {
  const Sweep sweep = smallSweep(false);
  SweepPoint point = pointsOf(sweep)[0];
  point.minusNodes = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(presentDevices(sweep, point), 0);
  EXPECT_THAT(PointPlanner(sweep).answer(point).reason, HasSubstr("none of 2 is left"));
  point.minusNodes = 0;
  point.gpus = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(PointPlanner(sweep).answer(point).reason,
              HasSubstr("1 to 16777216 devices, not 9223372036854775807"));
}

TEST(Sweep, WithoutANodeIsTheAnswerForTheRest) {
  const Sweep sweep = smallSweep(false);
  PointPlanner planner(sweep);
  SweepPoint eight = pointsOf(sweep)[3], four = pointsOf(sweep)[1];
  eight.minusNodes = 2;  // of two devices
  ASSERT_EQ(eight.gpus, 8);
  EXPECT_EQ(planner.answer(eight).step, planner.answer(four).step);
}

}  // namespace
}  // namespace trireme::planner
