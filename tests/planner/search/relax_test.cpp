// When nothing fits: by how much, and what would.
#include "planner/search/relax.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "planner/answer/report.h"
#include "planner/cuts/best_cut.h"
#include "planner/plan_text.h"
#include "planner/search/relaxed_search.h"
#include "tests/planner/small_query.h"

namespace trireme::planner {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

// Every plan of the pins that the query has.
Bytes leastMemoryOf(const Query& query) {
  const CostFunctions costs = modelCosts(query);
  Bytes least(1e18);
  for (const plan::Plan& plan : everyPlan(query, query.cluster.numDevices, costs))
    least = std::min(least, costs.estimate(plan)->memory.total());
  return least;
}

Shortfall askForShortfall(const Query& query, const std::vector<spec::StackProfile>& stacks = {}) {
  const auto result = searchPlan(query, modelCosts(query));
  EXPECT_FALSE(result.has_value());
  return shortfallOf(query, result.error(), stacks).value();
}

// Pins with which nothing fits, by much or by little, and each of which may be given up.
std::vector<Query> pinnedQueries() {
  std::vector<Pins> pins(4);
  pins[0].microbatchSize = 8;
  pins[0].dp = 1;
  pins[0].recompute = plan::Recompute::kNone;
  pins[1].microbatchSize = 4;
  pins[1].tp = 1;
  pins[1].recompute = plan::Recompute::kNone;
  pins[2].pp = 4;
  pins[2].microbatchSize = 2;
  pins[2].recompute = plan::Recompute::kSelective;
  pins[3].dp = 4;
  pins[3].stateSharding = plan::StateSharding::kNone;
  std::vector<Query> queries;
  for (const Pins& each : pins)
    for (const double part : {0.9999, 0.85}) {
      Query query = smallQuery(4, 4, 8);
      query.pins = each;
      query.cluster.device.memory = leastMemoryOf(query) * part;
      queries.push_back(query);
    }
  return queries;
}

Query withoutPin(Query query, const std::string& change) {
  if (change.starts_with("tp")) query.pins.tp.reset();
  if (change.starts_with("pp")) query.pins.pp.reset();
  if (change.starts_with("dp")) query.pins.dp.reset();
  if (change.starts_with("microbatch")) query.pins.microbatchSize.reset();
  if (change.starts_with("recompute")) query.pins.recompute.reset();
  if (change.starts_with("state sharding")) query.pins.stateSharding.reset();
  return query;
}

TEST(Shortfall, NearestMissIsTheLeanestOfAllPlans) {
  for (const Query& query : pinnedQueries()) {
    const Shortfall shortfall = askForShortfall(query);
    ASSERT_TRUE(shortfall.nearest.has_value());
    EXPECT_EQ(shortfall.nearest->estimate.memory.total(), leastMemoryOf(query));
    EXPECT_EQ(shortfall.nearest->estimate.missing(),
              leastMemoryOf(query) - query.cluster.device.memory);
  }
}

// Every number of layers per stage, spread evenly over its chunks, the last ones one more.
void addSpreadCuts(const Query& query, const plan::Plan& plan,
                   std::vector<std::vector<int64_t>> stages, int64_t left,
                   std::vector<std::vector<std::vector<plan::LayerRange>>>& cuts) {
  if (static_cast<int64_t>(stages.size()) == plan.pp) {
    if (left == 0) cuts.push_back(rangesFrom(stages));
    return;
  }
  for (int64_t layers = plan.virtualStages; layers <= left; ++layers) {
    std::vector<std::vector<int64_t>> more = stages;
    more.push_back(spreadOver(layers, plan.virtualStages));
    addSpreadCuts(query, plan, std::move(more), left - layers, cuts);
  }
}

Bytes leastOverAllCuts(const Query& query) {
  const CostFunctions costs = modelCosts(query);
  Bytes least(1e18);
  std::vector<Rejection> rejections;
  for (const Group& group : groupsFor(query, query.cluster.numDevices, rejections))
    forEachPlan(query, group, [&](plan::Plan plan) {
      std::vector<std::vector<std::vector<plan::LayerRange>>> cuts;
      addSpreadCuts(query, plan, {}, query.model.numLayers, cuts);
      for (auto& cut : cuts) {
        plan.layers = std::move(cut);
        least = std::min(least, costs.estimate(plan)->memory.total());
      }
    });
  return least;
}

// Pipelines whose last stage has a head worth many layers, or whose first stages hold many
// microbatches, so that no even cut is the leanest.
TEST(Shortfall, NearestMissIsTheLeanestOfAllCuts) {
  int uneven = 0;
  for (const int64_t layers : {5, 6, 7})
    for (const int64_t vocab : {64, 2000, 8000}) {
      Query query = smallQuery(4, layers, 8);
      query.model.vocabSize = vocab;
      query.pins.pp = 4;
      query.cluster.device.memory = Bytes(1);
      const Shortfall shortfall = askForShortfall(query);
      ASSERT_TRUE(shortfall.nearest.has_value());
      EXPECT_EQ(shortfall.nearest->estimate.memory.total(), leastOverAllCuts(query))
          << layers << " layers, " << vocab << " rows: " << summary(shortfall.nearest->plan);
      uneven += shortfall.nearest->plan.layers != plan::evenLayers(layers, 4, 1);
    }
  EXPECT_GT(uneven, 3);
}

TEST(Shortfall, EveryChangeIsTheAnswerOfASearchAndTheCheapestIsFirst) {
  int numPins = 0;
  for (const Query& query : pinnedQueries()) {
    const Shortfall shortfall = askForShortfall(query);
    for (const Relaxation& change : shortfall.changes) {
      EXPECT_TRUE(change.estimate.fits()) << change.change;
      if (change.kind != ChangeKind::kPin) continue;
      ++numPins;
      const Query changed = withoutPin(query, change.change);
      const CostFunctions costs = modelCosts(changed);
      EXPECT_EQ(change.estimate.step, costs.estimate(change.plan)->step) << change.change;
      for (const plan::Plan& plan : everyPlan(changed, 4, costs)) {
        const auto estimate = costs.estimate(plan);
        if (!estimate->fits()) continue;
        EXPECT_LE(change.estimate.step, estimate->step) << change.change;
      }
    }
    for (size_t i = 1; i < shortfall.changes.size(); ++i) {
      const Relaxation &a = shortfall.changes[i - 1], &b = shortfall.changes[i];
      EXPECT_LE(std::pair(a.plan.numRanks(), a.estimate.step.count()),
                std::pair(b.plan.numRanks(), b.estimate.step.count()))
          << b.change;
    }
  }
  EXPECT_GE(numPins, 8);
}

// Two devices, and memory for what the leanest plan on six of them needs: four are too few, eight
// are more than it takes. Twelve heads, so that any of these numbers can share a layer.
TEST(Shortfall, FewestDevicesThatDo) {
  const auto ofDevices = [](int64_t devices) {
    Query query = smallQuery(devices, 12, 24);
    query.model = small::gpt(12, 96, 12);
    return query;
  };
  Query query = ofDevices(2);
  query.cluster.device.memory = leastMemoryOf(ofDevices(6)) * 1.0001;
  ASSERT_GT(leastMemoryOf(ofDevices(4)).count(), query.cluster.device.memory.count());
  const Shortfall shortfall = askForShortfall(query);
  ASSERT_EQ(shortfall.changes.size(), 1u);
  EXPECT_EQ(shortfall.changes.front().kind, ChangeKind::kDevices);
  EXPECT_EQ(shortfall.changes.front().change,
            "6 devices (there are 2; num_devices: 6 in the cluster file)");
  EXPECT_EQ(shortfall.changes.front().plan.numRanks(), 6);
}

// Two nodes of two, and memory for what three need: four would be twice as many, and one too many.
TEST(Shortfall, FewestDevicesAreCountedInNodes) {
  const auto ofDevices = [](int64_t devices) {
    Query query = smallQuery(devices, 12, 24);
    query.model = small::gpt(12, 96, 12);
    return query;
  };
  Query query = ofDevices(4);
  query.cluster.device.memory = leastMemoryOf(ofDevices(6)) * 1.0001;
  const Shortfall shortfall = askForShortfall(query);
  ASSERT_EQ(shortfall.changes.size(), 1u);
  EXPECT_EQ(shortfall.changes.front().change,
            "6 devices (there are 4; num_devices: 6 in the cluster file)");
}

// Eight are two thirds of a fourth block of three: the file counts whole blocks.
TEST(Shortfall, TheClusterFileHasWholeBlocks) {
  Query query = smallQuery(6, 16, 16);
  query.cluster.tiers.front().devices = 3;
  query.cluster.device.memory = leastMemoryOf(smallQuery(8, 16, 16)) * 1.01;
  const Shortfall shortfall = askForShortfall(query);
  const auto devices =
      std::find_if(shortfall.changes.begin(), shortfall.changes.end(),
                   [](const Relaxation& r) { return r.kind == ChangeKind::kDevices; });
  ASSERT_NE(devices, shortfall.changes.end());
  EXPECT_EQ(devices->change, "8 devices (there are 6; num_devices: 9 in the cluster file)");
}

// Nodes are hosts, whatever the links join: here two of a block of four. Less than one is counted
// in devices.
TEST(Shortfall, FewestDevicesAreCountedInHosts) {
  const auto ofDevices = [](int64_t devices) {
    Query query = smallQuery(devices, 12, 24);
    query.model = small::gpt(12, 96, 12);
    return query;
  };
  for (const auto& [given, needed] : {std::pair{4, 6}, std::pair{1, 3}}) {
    Query query = ofDevices(12);
    query.cluster.tiers.front().devices = 4;
    query.cluster.hostDevices = 2;
    query.pins.gpus = given;
    query.cluster.device.memory = leastMemoryOf(ofDevices(needed)) * 1.0001;
    const Shortfall shortfall = askForShortfall(query);
    const auto devices =
        std::find_if(shortfall.changes.begin(), shortfall.changes.end(),
                     [](const Relaxation& r) { return r.kind == ChangeKind::kDevices; });
    ASSERT_NE(devices, shortfall.changes.end());
    EXPECT_EQ(devices->change, fmt::format("{} devices (there are {})", needed, given));
  }
}

// The fewest of the devices that there are, twice, three times... as many that have a plan, and the
// fastest one of them, by searches in full.
std::optional<PlanResult> fewestBySearches(Query query) {
  const int64_t base = query.cluster.numDevices;
  for (int64_t times = 2; times <= 8; ++times) {
    query.cluster = *spec::withNumDevices(query.cluster, base * times);
    query.pins.gpus = base * times;
    if (auto found = searchPlan(query, modelCosts(query))) return *std::move(found);
  }
  return std::nullopt;
}

TEST(Shortfall, FewestDevicesAreThoseOfSearchesInFull) {
  const auto ofDevices = [](int64_t devices, bool isOwn) {
    Query query = smallQuery(devices, 12, 12);
    query.model = small::gpt(12, 96, 12);
    query.cluster.scalable = true;
    if (isOwn) return query;
    query.stack.name = "described";
    query.stack.ownPrograms = false;
    return query;
  };
  std::set<int64_t> numbers;
  for (const bool isOwn : {true, false})
    for (const int64_t enough : {3, 4, 6, 8})
      for (const double part : {0.99, 1.0001}) {
        if (isOwn && enough % 3 != 0) continue;  // each takes a second
        Query query = ofDevices(2, isOwn);
        query.cluster.device.memory = leastMemoryOf(ofDevices(enough, isOwn)) * part;
        if (searchPlan(query, modelCosts(query)).has_value()) continue;
        const Shortfall shortfall = askForShortfall(query);
        const std::optional<PlanResult> expected = fewestBySearches(query);
        ASSERT_EQ(shortfall.changes.size(), expected ? 1u : 0u);
        if (!expected) continue;
        plan::Plan found = shortfall.changes.front().plan;
        found.devicesPerHost = expected->plan.devicesPerHost;  // a search leaves it open
        EXPECT_EQ(found, expected->plan);
        EXPECT_EQ(shortfall.changes.front().estimate.step, expected->estimate.step);
        numbers.insert(expected->gpusUsed);
      }
  EXPECT_GE(numbers.size(), 4u);
}

// What is known not to fit may be left out; the winner is the same.
TEST(RelaxedSearch, WinnerIsThatOfTheSearchInFull) {
  for (const int64_t devices : {6, 8})
    for (const double part : {1.0001, 2.0}) {
      Query query = smallQuery(devices, 6, 24);
      query.cluster.device.memory = leastMemoryOf(query) * part;
      const auto whole = searchPlan(query, modelCosts(query));
      ASSERT_TRUE(whole.has_value());
      const auto found = searchWithin(query, {false}, modelCosts(query), {});
      ASSERT_TRUE(found.has_value());
      EXPECT_EQ(found->plan, whole->plan);
      EXPECT_EQ(found->certificate.bound, whole->certificate.bound);
      const auto any = searchWithin(query, {false, true}, modelCosts(query), {});
      ASSERT_TRUE(any.has_value());
      EXPECT_TRUE(any->estimate.fits());
      EXPECT_LE(any->certificate.numCosted, whole->certificate.numCosted);
      // Plans on as few are promised not to be, so that none is looked for.
      EXPECT_FALSE(searchWithin(query, {false, false, devices}, modelCosts(query), {}).has_value());
    }
}

// Each pin alone is in the way of the other.
TEST(Shortfall, AllPinsTogetherWhereNoneAloneHelps) {
  Query query = smallQuery(4, 4, 8);
  query.cluster.device.memory = leastMemoryOf(query) * 1.01;
  query.pins.recompute = plan::Recompute::kNone;
  query.pins.microbatchSize = 8;
  query.pins.tp = 1;
  query.pins.pp = 1;
  const Shortfall shortfall = askForShortfall(query);
  ASSERT_FALSE(shortfall.changes.empty());
  EXPECT_EQ(shortfall.changes.front().kind, ChangeKind::kAllPins);
  EXPECT_THAT(toStatus(shortfall).message(), HasSubstr("no pinned choice and no limit (tp "));
}

TEST(Shortfall, MemoryKeptFreeMayBeGivenUp) {
  Query query = smallQuery(4, 4, 8);
  query.pins.recompute = plan::Recompute::kNone;
  query.cluster.device.memory = leastMemoryOf(query) * 1.01;
  const auto all = searchPlan(query);
  ASSERT_TRUE(all.has_value());
  query.cluster.device.headroom = query.cluster.device.memory * 0.1;
  query.cluster.device.memory = query.cluster.device.memory * 0.9;
  const Shortfall shortfall = askForShortfall(query);
  EXPECT_THAT(shortfall.reason.message(), HasSubstr(" that --headroom keeps free, "));
  const auto given =
      std::find_if(shortfall.changes.begin(), shortfall.changes.end(),
                   [](const Relaxation& change) { return change.kind == ChangeKind::kHeadroom; });
  ASSERT_NE(given, shortfall.changes.end());
  EXPECT_EQ(given->plan, all->plan);
  EXPECT_THAT(given->change, HasSubstr("no --headroom (now: "));
  EXPECT_THAT(toJson(shortfall)["changes"].dump(), HasSubstr("\"kind\":\"headroom\""));
}

TEST(Shortfall, ALimitIsGivenUpAsAPinIs) {
  Query query = smallQuery(4, 4, 8);
  query.cluster.device.memory = leastMemoryOf(query) * 1.01;
  query.pins.mostMicrobatchSize = 1;
  const auto found = searchPlan(query);
  ASSERT_TRUE(found.has_value()) << found.error().message();
  ASSERT_GT(found->plan.tp, 1);
  query.pins.mostTp = 1;
  const Shortfall shortfall = askForShortfall(query);
  ASSERT_FALSE(shortfall.changes.empty());
  EXPECT_THAT(toStatus(shortfall).message(),
              HasSubstr(fmt::format("tp {} (limit: 1)", found->plan.tp)));
}

TEST(Shortfall, OtherSoftwareMayShareMore) {
  Query query = smallQuery(4, 4, 8);
  query.stack.name = "plain";
  query.stack.ownPrograms = false;
  query.stack.choices = {};
  spec::StackProfile sharing = query.stack;
  sharing.name = "sharing";
  sharing.choices = {spec::StackChoice::kShardParameters};
  query.cluster.device.memory = leastMemoryOf(query) * 0.99;
  const Shortfall shortfall = askForShortfall(query, {query.stack, sharing});
  ASSERT_FALSE(shortfall.changes.empty());
  const Relaxation& change = shortfall.changes.front();
  EXPECT_EQ(change.kind, ChangeKind::kStack);
  EXPECT_EQ(change.change, "stack sharing (now: plain)");
  EXPECT_EQ(change.plan.stateSharding, plan::StateSharding::kParameters);
}

TEST(Shortfall, FastestOfOtherSoftwareCounts) {
  Query query = smallQuery(4, 4, 8);
  query.stack.name = "plain";
  query.stack.ownPrograms = false;
  query.stack.choices = {};
  std::vector<spec::StackProfile> stacks;
  for (const double factor : {3.0, 1.0, 2.0}) {
    stacks.push_back(query.stack);
    stacks.back().name = fmt::format("{} times", factor);
    stacks.back().choices = {spec::StackChoice::kShardParameters};
    stacks.back().description.matmulFactor = 1 / factor;
  }
  query.cluster.device.memory = leastMemoryOf(query) * 0.99;
  const Shortfall shortfall = askForShortfall(query, stacks);
  ASSERT_FALSE(shortfall.changes.empty());
  EXPECT_EQ(shortfall.changes.front().change, "stack 1 times (now: plain)");
}

// Software that trains in fp32 alone, and other software that does not: there as is usual, unless
// somebody asked for fp32.
TEST(Shortfall, OtherSoftwareTrainsInWhatIsUsualThere) {
  Query query = smallQuery(4, 4, 8);
  query.stack.name = "plain";
  query.stack.ownPrograms = false;
  query.stack.choices = {};
  query.stack.precisions = {spec::Precision::kFp32};
  query.training.precision = spec::Precision::kFp32;
  spec::StackProfile sharing = query.stack;
  sharing.name = "sharing";
  sharing.choices = {spec::StackChoice::kShardParameters};
  sharing.precisions = {spec::Precision::kBf16};
  sharing.vocabMultiple = 3;
  query.cluster.device.memory = leastMemoryOf(query) * 0.99;
  EXPECT_THAT(toStatus(askForShortfall(query, {sharing})).message(),
              Not(HasSubstr("stack sharing")));
  query.usualPrecision = true;
  const auto change = [&] { return askForShortfall(query, {sharing}).changes.at(0); };
  EXPECT_EQ(change().change, "stack sharing in bf16 (now: plain in fp32)");
  EXPECT_EQ(change().plan.training.precision, spec::Precision::kBf16);
  EXPECT_EQ(change().plan.vocabMultiple, 128);
  query.usualVocabMultiple = true;
  EXPECT_EQ(change().plan.vocabMultiple, 3);
}

// 5, 2 or 1 replicas; of pinned ones those alone, with whole microbatches.
TEST(Shortfall, NearBatchesAreWhatReplicasCanShare) {
  Query query = smallQuery(5, 4, 13);
  EXPECT_THAT(nearBatches(query), ElementsAre(12, 14, 15, 10));
  query.training.globalBatchSize = 20;  // of 5 and of 2
  EXPECT_THAT(nearBatches(query), ElementsAre());
  query.training.globalBatchSize = 3;  // not 0
  EXPECT_THAT(nearBatches(query), ElementsAre(2, 4, 5));
  query.pins.tp = 2;  // leaves 2 replicas
  EXPECT_THAT(nearBatches(query), ElementsAre(2, 4));
  query.pins.dp = 2;
  query.pins.microbatchSize = 4;
  EXPECT_THAT(nearBatches(query), ElementsAre(8));
}

// 13 sequences are for 1 or 13 replicas: of 5 devices one alone would be used, which has no room.
// With 14 two have, with 15 all.
TEST(Shortfall, BatchesThatMoreReplicasShareAreTried) {
  Query query = smallQuery(5, 4, 13);
  query.stack.name = "described";
  query.stack.ownPrograms = false;
  query.stack.choices = {spec::StackChoice::kShardParameters};
  query.pins.tp = query.pins.pp = query.pins.cp = 1;
  query.pins.stateSharding = plan::StateSharding::kParameters;
  query = computeBound(query);
  const Shortfall shortfall = askForShortfall(query);
  std::vector<std::string> changes;
  for (const Relaxation& change : shortfall.changes) {
    if (change.kind != ChangeKind::kBatch) continue;
    changes.push_back(change.change);
    Query other = query;
    other.training.globalBatchSize = change.plan.training.globalBatchSize;
    const auto found = searchPlan(other);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(change.estimate.step, found->estimate.step) << change.change;
  }
  EXPECT_THAT(changes, UnorderedElementsAre("batch 12 (now: 13)", "batch 10 (now: 13)",
                                            "batch 14 (now: 13)", "batch 15 (now: 13)"));
}

// No batch is near that a pinned microbatch divides.
TEST(Shortfall, MicrobatchesOfAnySizeHaveNearBatchesOrNone) {
  Query query = smallQuery(16, 4, 60);
  for (const int64_t microbatch : {int64_t{1} << 60, int64_t{1} << 62,
                                   std::numeric_limits<int64_t>::max(), cost::kMostSamples + 1}) {
    query.pins.microbatchSize = microbatch;
    EXPECT_THAT(nearBatches(query), ::testing::IsEmpty()) << microbatch;
    query.pins.dp = 8;
    EXPECT_THAT(nearBatches(query), ::testing::IsEmpty()) << microbatch;
    query.pins.dp.reset();
  }
  query.pins.microbatchSize = cost::kMostSamples / 16;
  EXPECT_THAT(nearBatches(query), ::testing::Contains(cost::kMostSamples));
}

TEST(Shortfall, WhatWasTriedInVainIsSaid) {
  Query query = smallQuery(5, 4, 13);
  query.cluster.device.memory = Bytes(1);
  query.pins.tp = 1;
  spec::StackProfile other = query.stack;
  other.name = "other";
  EXPECT_THAT(toStatus(askForShortfall(query, {query.stack, other})).message(),
              HasSubstr("; no single change of the query that was tried (each pinned choice and "
                        "limit given up; 1 other stack; up to 320 devices; batch 12, 14, 15, 10) "
                        "gives a plan"));
}

// A program with as many ranks on every host: 5 on hosts of 4 are one on each of five, so that 6
// devices, on two hosts, do not help, though they are more than the ranks.
TEST(Shortfall, DevicesAreThoseOfHostsThatHoldRanksAlike) {
  Query query = smallQuery(20, 4, 5);
  query.cluster = small::cluster(20, 4);
  query.cluster.scalable = true;
  query.stack.name = "described";
  query.stack.ownPrograms = false;
  query.stack.choices = {spec::StackChoice::kShardParameters};
  query.stack.rules = {spec::StackRule::kAlikeHosts};
  query.pins.tp = query.pins.pp = query.pins.cp = 1;
  query.pins.microbatchSize = 1;
  query.pins.stateSharding = plan::StateSharding::kParameters;
  query.pins.gpus = 3;
  const Shortfall shortfall = askForShortfall(query);
  const auto devices =
      std::find_if(shortfall.changes.begin(), shortfall.changes.end(),
                   [](const Relaxation& r) { return r.kind == ChangeKind::kDevices; });
  ASSERT_NE(devices, shortfall.changes.end()) << toStatus(shortfall).message();
  EXPECT_EQ(devices->change, "20 devices (there are 3)");
  EXPECT_EQ(devices->devices, 20);
  EXPECT_EQ(devices->plan.numRanks(), 5);
  query.pins.gpus = 20;
  EXPECT_TRUE(searchPlan(query).has_value());
}

// What six ranks need, three on each of two hosts of four: all eight are faster, and there.
TEST(Shortfall, TimeOfMoreDevicesIsThatOfTheAnswerOnThem) {
  Query query = computeBound(smallQuery(8, 12, 24));
  query.model = small::gpt(12, 96, 12);
  query.cluster.tiers.front().devices = query.cluster.hostDevices = 4;
  query.stack.name = "described";
  query.stack.ownPrograms = false;
  query.stack.rules = {spec::StackRule::kAlikeHosts};
  Bytes least(1e18);
  for (const plan::Plan& plan : everyPlan(query, 6, modelCosts(query)))
    least = std::min(least, modelCosts(query).estimate(plan)->memory.total());
  query.cluster.device.memory = least * 1.0001;
  query.pins.gpus = 2;
  const Shortfall shortfall = askForShortfall(query);
  const auto change =
      std::find_if(shortfall.changes.begin(), shortfall.changes.end(),
                   [](const Relaxation& r) { return r.kind == ChangeKind::kDevices; });
  ASSERT_NE(change, shortfall.changes.end()) << toStatus(shortfall).message();
  EXPECT_EQ(change->change, "8 devices (there are 2)");
  query.pins.gpus = 8;
  const auto answer = searchPlan(query);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->plan.numRanks(), 8);
  EXPECT_EQ(change->estimate.step, answer->estimate.step);
}

TEST(Shortfall, TextAndJsonSayTheSame) {
  const Shortfall shortfall = askForShortfall(pinnedQueries().front());
  const std::string text = toStatus(shortfall).message();
  const nlohmann::json json = toJson(shortfall);
  EXPECT_THAT(text, HasSubstr("; would work, fewest devices first: "));
  EXPECT_EQ(json.at("fits"), false);
  EXPECT_EQ(json.at("nearest").at("missingBytes").get<double>(),
            shortfall.nearest->estimate.missing().count());
  ASSERT_EQ(json.at("changes").size(), shortfall.changes.size());
  size_t from = 0;
  for (const nlohmann::json& change : json.at("changes")) {
    from = text.find(change.at("change").get<std::string>(), from);
    EXPECT_NE(from, std::string::npos) << text;
    EXPECT_GT(change.at("estimate").at("stepSeconds").get<double>(), 0);
  }
}

}  // namespace
}  // namespace trireme::planner
