// As many ranks on every host, by rule or where that is faster.
#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "ir/plan/choices.h"
#include "tests/planner/small_query.h"

namespace trireme::planner {
namespace {

// Hosts of 4: whatever the number of devices, a launcher can start the plan, and no such plan on
// fewer is faster; without the rule none is slower.
TEST(StackRules, AlikeHosts) {
  int changed = 0;
  std::optional<Seconds> before;
  for (const int64_t gpus : {1, 3, 4, 5, 6, 7, 8, 10, 11, 12}) {
    Query query = computeBound(smallQuery(gpus, 2, 30));
    query.cluster.hostDevices = 4;
    const auto free = searchPlan(query);
    query.stack.rules = {spec::StackRule::kAlikeHosts};
    const auto alike = searchPlan(query);
    ASSERT_TRUE(free.has_value() && alike.has_value());
    EXPECT_TRUE(plan::ranksPerHost(alike->plan).has_value()) << gpus;
    EXPECT_LE(free->estimate.step, alike->estimate.step) << gpus;
    EXPECT_TRUE(free->plan == alike->plan || !plan::ranksPerHost(free->plan)) << gpus;
    EXPECT_LE(alike->estimate.step, before.value_or(alike->estimate.step)) << gpus;
    before = alike->estimate.step;
    changed += free->plan != alike->plan;
  }
  EXPECT_GT(changed, 0);
}

// Hosts of 4: what a rule of the program asks for is a choice of all others, and so are full hosts,
// which fit blocks of 6 where two on each do not.
TEST(StackRules, HostsAreFullOrAlikeWhereThatIsFaster) {
  int alike = 0, full = 0;
  for (const bool isOwn : {true, false})
    for (const int64_t block : {4, 6, 24})
      for (const int64_t gpus : {7, 10, 20, 24}) {
        Query query = smallQuery(gpus, 2, 30);
        query.cluster = small::cluster(gpus, block);
        query.cluster.hostDevices = 4;
        query = computeBound(std::move(query));
        query.stack.ownPrograms = isOwn;
        query.pins.tp = query.pins.pp = query.pins.cp = 1;
        const auto free = searchPlan(query);
        query.stack.rules = {spec::StackRule::kAlikeHosts};
        const auto ruled = searchPlan(query);
        ASSERT_TRUE(free.has_value() && ruled.has_value());
        EXPECT_LE(free->estimate.step, ruled->estimate.step) << gpus;
        plan::Plan filled = free->plan;
        filled.devicesPerHost = 4;
        EXPECT_LE(free->estimate.step, modelCosts(query).estimate(filled)->step);
        const bool isAlike = free->plan.devicesPerHost < 4;
        alike += isAlike;
        full += !isAlike && free->estimate.step < ruled->estimate.step;
      }
  EXPECT_GT(alike, 0);
  EXPECT_GT(full, 0);
}

// 10 replicas on hosts of 4: 2 on each of five, if there are five. Neither they nor 5 are as many
// on each of three.
TEST(StackRules, AlikeHostsMayBeMoreThanTheFewest) {
  for (const int64_t devices : {12, 20}) {
    Query query = computeBound(smallQuery(devices, 2, 10));
    query.cluster.hostDevices = 4;
    query.stack.rules = {spec::StackRule::kAlikeHosts};
    query.pins.tp = query.pins.pp = 1;
    const auto found = searchPlan(query);
    ASSERT_TRUE(found.has_value()) << found.error().message();
    EXPECT_EQ(found->plan.numRanks(), devices == 20 ? 10 : 2);
    EXPECT_EQ(ranksPerHost(found->plan), 2);
  }
}

// Of 5 groups of tp 4 there is one on each of five hosts, not 5 ranks on each of four.
TEST(StackRules, AlikeHostsHaveWholeGroups) {
  Query query = computeBound(smallQuery(40, 2, 10));
  query.cluster.hostDevices = 8;
  query.stack.rules = {spec::StackRule::kAlikeHosts};
  query.pins.tp = 4;
  query.pins.pp = 1;
  query.pins.dp = 5;
  const auto found = searchPlan(query);
  ASSERT_TRUE(found.has_value()) << found.error().message();
  EXPECT_EQ(found->plan.devicesPerHost, 4);
}

// 15 ranks are 5 on each of three hosts of 8: the third has one of 17 devices, five of 21.
TEST(StackRules, AlikeHostsHaveAsManyDevices) {
  for (const int64_t devices : {16, 17, 20, 21, 24}) {
    Query query = computeBound(smallQuery(devices, 2, 15));
    query.cluster.hostDevices = 8;
    query.stack.rules = {spec::StackRule::kAlikeHosts};
    query.pins.dp = 15;
    const auto found = searchPlan(query);
    ASSERT_EQ(found.has_value(), devices >= 21) << devices;
    if (found.has_value()) {
      EXPECT_EQ(found->plan.devicesPerHost, 5);
    }
  }
}

}  // namespace
}  // namespace trireme::planner
