#include "planner/search/pins.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <functional>
#include <limits>
#include <random>

#include "ir/base/format.h"
#include "ir/plan/choices.h"
#include "planner/search/relax.h"
#include "tests/planner/small_query.h"

namespace trireme::planner {
namespace {

using plan::ScheduleKind;
using plan::StateSharding;
using ::testing::HasSubstr;

// 4 layers, 4 heads, ffn 256, sequence 32, batch 8, on 8 devices.
std::string messageOf(const std::function<void(Pins&)>& pin) {
  Query query = smallQuery(8, 4, 8);
  pin(query.pins);
  const auto found = searchPlan(query, modelCosts(query));
  if (found.has_value()) return "";
  EXPECT_EQ(found.error().code(), StatusCode::kInfeasible);
  return found.error().message();
}

// What a program has to share is no choice of the user's, and nothing is shared on one device.
// With one replica the ranks of cp share the state, if the stack has them and cp is free.
TEST(Pins, OneReplicaMayShareItsStateAmongContextRanks) {
  Query query = smallQuery(4, 4, 8);
  query.stack.name = "described";
  query.stack.ownPrograms = false;
  query.stack.choices.push_back(spec::StackChoice::kContextParallel);
  query.stack.choices.push_back(spec::StackChoice::kShardParameters);
  query.pins.dp = 1;
  query.pins.stateSharding = plan::StateSharding::kParameters;
  const auto found = searchPlan(query);
  ASSERT_TRUE(found.has_value()) << found.error().message();
  EXPECT_GT(found->plan.cp, 1);
  query.pins.cp = 1;
  EXPECT_THAT(searchPlan(query).error().message(), ::testing::HasSubstr("(P11)"));
  EXPECT_THAT(searchPlan(query).error().message(),
              ::testing::Not(::testing::HasSubstr("parameters (pinned: parameters)")));
}

// Without a pipeline anything.
TEST(StackRules, PipelinesShareTheOptimizerAlone) {
  plan::Plan plan;
  for (const int64_t pp : {1, 2})
    for (int sharding = 0; sharding <= 3; ++sharding) {
      plan.pp = pp;
      plan.stateSharding = static_cast<plan::StateSharding>(sharding);
      const auto breach = plan::breachOf(plan, spec::StackRule::kOptimizerInPipeline);
      EXPECT_EQ(breach.has_value(), pp > 1 && sharding > 1) << pp << sharding;
      if (breach) {
        EXPECT_EQ(breach->nearest, "state sharding optimizer, or pp 1");
      }
    }
}

// A replica has 4 sequences for 4 stages.
TEST(StackRules, TorchPipelinesHaveAMicrobatchForEveryStage) {
  Query query = computeBound(smallQuery(8, 4, 8));
  query.pins.pp = 4;
  query.pins.dp = 2;
  query.pins.microbatchSize = 2;
  EXPECT_TRUE(searchPlan(query).has_value());
  query.stack.rules = {spec::StackRule::kEnoughMicrobatches};
  EXPECT_THAT(searchPlan(query).error().message(),
              ::testing::HasSubstr("2 microbatches in 4 stages needs microbatches of 1"));
  query.pins.microbatchSize.reset();
  const auto found = searchPlan(query);
  ASSERT_TRUE(found.has_value()) << found.error().message();
  EXPECT_EQ(found->plan.microbatchSize, 1);
}

TEST(StackRules, TheNearestOfTorchPipelinesHasEnoughMicrobatches) {
  plan::Plan plan;
  plan.training.globalBatchSize = 24;
  plan.pp = 4;
  plan.microbatchSize = 8;
  const auto nearest = [&] {
    const auto breach = plan::breachOf(plan, spec::StackRule::kEnoughMicrobatches);
    return breach ? breach->nearest : "none";
  };
  EXPECT_EQ(nearest(), "microbatches of 6");
  plan.microbatchSize = 6;
  EXPECT_EQ(nearest(), "none");
  plan.dpShard = 12;  // 2 sequences each
  plan.microbatchSize = 1;
  EXPECT_EQ(nearest(), "pp 2");
  plan.virtualStages = 2;  // (P7) refuses these
  EXPECT_EQ(nearest(), "none");
}

// Heads x head size is 16 on a rank of tp 4, and a sample has 16 tokens on one of tp 2 with
// sequence parallelism: no multiples of 32.
TEST(StackRules, Fp8ProductsAreMultiples) {
  Query query = computeBound(smallQuery(8, 4, 8));
  query.training.precision = spec::Precision::kFp8;
  query.stack.ownPrograms = false;
  query.stack.precisions = {spec::Precision::kFp8};
  query.stack.settings.fp8 = spec::Fp8Recipe::kDelayed;
  query.cluster.device.matmul.push_back({MathFormat::kF8, FlopsPerSecond(1e12)});
  query.cluster.device.matmul.push_back({MathFormat::kBf16, FlopsPerSecond(5e11)});
  const auto plans = [&] {
    std::vector<plan::Plan> all;
    std::vector<Rejection> rejections;
    for (const Group& group : groupsFor(query, 8, rejections))
      forEachPlan(query, group, [&](const plan::Plan& plan) { all.push_back(plan); });
    return all;
  };
  const std::vector<plan::Plan> any = plans();
  query.stack.settings.fp8Rows = 32;
  query.stack.settings.fp8Columns = 32;
  std::vector<plan::Plan> some;
  for (const plan::Plan& plan : any)
    if (!plan::fp8Breach(plan, query.model, query.stack.settings)) some.push_back(plan);
  EXPECT_EQ(plans(), some);
  const auto breaks = [&](const plan::Plan& plan) {
    return plan.tp == 2 && plan.sequenceParallel && plan.microbatchSize == 1;
  };
  EXPECT_TRUE(std::any_of(any.begin(), any.end(), breaks));
  EXPECT_TRUE(std::none_of(some.begin(), some.end(), breaks));
  EXPECT_LT(some.size(), any.size());
  EXPECT_GT(some.size(), 0u);
  query.pins.tp = 4;
  EXPECT_THAT(
      searchPlan(query).error().message(),
      HasSubstr("(stack) tp 4 needs a multiple of 32 as heads x head size / tp in fp8, there "
                "is 16"));
  query.pins.tp = 1;
  query.training.sequenceLength = 30;
  query.pins.microbatchSize = 1;
  EXPECT_THAT(searchPlan(query).error().message(),
              HasSubstr("needs a multiple of 32 as tokens of a pass in fp8, there is 30 of a "
                        "sequence"));
}

TEST(Pins, RefusalNamesRuleNumbersAndNearest) {
  const std::vector<std::pair<std::function<void(Pins&)>, std::string>> cases = {
      {[](Pins& p) { p.tp = 3; }, "(P4) tp 3 does not divide 4 key/value heads; nearest: 2 or 4"},
      {[](Pins& p) { p.tp = 16; }, "tp 16 needs 16 devices, there are 8; nearest: tp 4"},
      {[](Pins& p) { p.tp = 4, p.pp = 4; },
       "tp 4 x pp 4 need 16 devices, there are 8; nearest: tp 2 or pp 2"},
      // What divides 4 heads and 8 sequences; nothing helps where another one does not.
      {[](Pins& p) { p.tp = 4, p.pp = 3; },
       "tp 4 x pp 3 need 12 devices, there are 8; nearest: tp 2 or pp 2"},
      {[](Pins& p) { p.tp = 7, p.pp = 2; },
       "tp 7 x pp 2 need 14 devices, there are 8; nearest: tp 4"},
      {[](Pins& p) { p.dp = 16; }, "dp 16 needs 16 devices, there are 8; nearest: dp 8"},
      {[](Pins& p) { p.dp = 7, p.pp = 2, p.gpus = 7; },
       "pp 2 x dp 7 need 14 devices, there are 7; nearest: dp 2"},
      {[](Pins& p) { p.tp = 3, p.dp = 7; }, "tp 3 x dp 7 need 21 devices, there are 8"},
      {[](Pins& p) { p.pp = 5; },
       "(P8) pp 5 x 1 virtual stage need a layer each, the model has 4; nearest: pp 4"},
      {[](Pins& p) { p.pp = 4, p.virtualStages = 2; },
       "(P8) pp 4 x 2 virtual stages need a layer each, the model has 4; nearest: pp 2"},
      {[](Pins& p) { p.virtualStages = 5; }, "the model has 4; nearest: 2 virtual stages"},
      {[](Pins& p) { p.dp = 3; }, "(P3) dp 3 does not divide the global batch 8; nearest: 2 or 4"},
      {[](Pins& p) { p.dp = 2, p.microbatchSize = 3; },
       "(P3) microbatch size 3 does not divide the 4 sequences of a replica (batch 8, dp 2); "
       "nearest: 2 or 4"},
      {[](Pins& p) { p.schedule = ScheduleKind::kGpipe, p.virtualStages = 2; },
       "(P6) 2 virtual stages need schedule interleaved, not gpipe"},
      {[](Pins& p) { p.schedule = ScheduleKind::kInterleaved, p.pp = 1; }, "(P6) 2 virtual stages"},
      {[](Pins& p) { p.virtualStages = 2, p.pp = 2, p.microbatchSize = 8; },
       "(P7) schedule interleaved: 1 microbatch per replica is not a multiple of pp 2"},
      {[](Pins& p) { p.sequenceParallel = true, p.tp = 1; }, "(P9) sequence parallel needs tp > 1"},
      {[](Pins& p) { p.sequenceParallel = true, p.dp = 8; },
       "no layout of 8 devices or fewer obeys the pinned choices: (P9) sequence parallel needs tp "
       "> "
       "1 and a divisor of the sequence length, there is tp 1"},
      {[](Pins& p) { p.scatterGather = true, p.pp = 1; }, "(P10) scatter-gather needs tp > 1"},
      {[](Pins& p) { p.scatterGather = p.sequenceParallel = true; },
       "(P10) scatter-gather excludes sequence parallel"},
      {[](Pins& p) { p.overlapReductions = true, p.tp = p.dp = 1; },
       "(P17) overlap_reductions needs dp > 1 or tp > 1"},
      {[](Pins& p) { p.overlapReductions = true, p.tp = 1, p.pp = 4, p.gpus = 4; },
       "(P17) overlapped reductions needs dp > 1 or tp > 1"},
      {[](Pins& p) { p.rankOrder = plan::RankOrder::kTpCpPpDp, p.pp = 1; },
       "(P18) rank order tp-cp-pp-dp needs pp > 1 and dp > 1, pinned is pp 1; nearest: rank order "
       "tp-cp-dp-pp, or pp 2"},
      {[](Pins& p) { p.rankOrder = plan::RankOrder::kTpCpPpDp, p.tp = p.pp = 2, p.gpus = 4; },
       "(P18) rank order tp-cp-pp-dp needs pp > 1 and dp > 1, there is pp 2, dp 1"},
      {[](Pins& p) { p.stateSharding = StateSharding::kGradients; },
       "(E2) state sharding gradients cannot be compiled yet; nearest: optimizer"},
      {[](Pins& p) { p.stateSharding = StateSharding::kOptimizer, p.dp = 1; },
       "(P11) state sharding optimizer needs"},
      {[](Pins& p) { p.stateSharding = StateSharding::kOptimizer, p.tp = 4, p.pp = 2; },
       "(P11) sharded optimizer needs dp > 1, there is dp 1"},
      {[](Pins& p) { p.tp = 4, p.mostTp = 2; },
       "the pins need tp 4, the limit is 2; nearest: a limit of 4"},
      {[](Pins& p) { p.schedule = ScheduleKind::kInterleaved, p.mostPp = 1; },
       "the pins need pp 2, the limit is 1; nearest: a limit of 2"},
      {[](Pins& p) { p.schedule = ScheduleKind::kInterleaved, p.mostVirtualStages = 1; },
       "the pins need virtual stages 2, the limit is 1; nearest: a limit of 2"},
      {[](Pins& p) { p.layers = {1, 1, 2}, p.mostPp = 2; },
       "the pins need pp 3, the limit is 2; nearest: a limit of 3"},
      {[](Pins& p) { p.dpShard = 3, p.dp = 4; },
       "(P11) dp shard 3 does not divide dp 4; nearest: 2 or 4"},
      {[](Pins& p) { p.dpShard = 2, p.stateSharding = StateSharding::kNone; },
       "(P11) dp shard 2 needs state sharding, pinned is none; nearest: dp shard 1"},
      {[](Pins& p) { p.dpShard = 16; },
       "dp shard 16 needs 16 devices, there are 8; nearest: dp shard 8"},
      {[](Pins& p) { p.dpShard = 3; }, "(P3) dp shard 3 does not divide the global batch 8"},
      {[](Pins& p) { p.dpShard = 2, p.dp = 4; },
       "dp shard 2 needs a stack that shares among some replicas, there is trireme"},
      {[](Pins& p) { p.dpShard = 2, p.mostDp = 1; },
       "the pins need dp shard 2, the limit is 1; nearest: a limit of 2"},
      {[](Pins& p) { p.layers = {1, 2}; },
       "(P8) layers 1,2 cover 3 layers, the model has 4; nearest: 2,2"},
      {[](Pins& p) { p.layers = {4, 4, 1}; },
       "(P8) layers 4,4,1 cover 9 layers, the model has 4; nearest: 2,1,1"},
      {[](Pins& p) { p.layers = {3, 9, 3}; },
       "(P8) layers 3,9,3 cover 15 layers, the model has 4; nearest: 2,1,1"},
      {[](Pins& p) { p.layers = {0, 1, 1}; },
       "(P8) layers 0,1,1 cover 2 layers, the model has 4; nearest: 1,2,1"},
      {[](Pins& p) { p.layers = {0, 2, 2}; }, "(E6) layers: stage 0, chunk 0"},
      {[](Pins& p) { p.layers = {1, 2, 1}, p.pp = 2; },
       "(P8) layers for 3 virtual stages, but pp 2 x 1 virtual stage have 2"},
      {[](Pins& p) { p.layers = {1, 2, 1}, p.virtualStages = 2; },
       "(P8) layers for 3 virtual stages are no whole number of stages of 2; nearest: 2 or 4"}};
  for (const auto& [pin, message] : cases) EXPECT_THAT(messageOf(pin), HasSubstr(message));
}

// Each pin that the stack has not, whatever is left free.
TEST(Pins, RefusalNamesWhatTheStackHasNot) {
  Query query = smallQuery(8, 4, 8);
  query.stack.ownPrograms = false;
  query.stack.name = "plain";
  query.stack.choices = {spec::StackChoice::kShardGradients};
  const auto messageOf = [&](const Pins& pins) {
    Query pinned = query;
    pinned.pins = pins;
    const auto found = searchPlan(pinned, modelCosts(pinned));
    return found.has_value() ? "" : found.error().message();
  };
  EXPECT_EQ(messageOf({.tp = 4}), "stack 'plain' has no tp 4; nearest: tp 1");
  EXPECT_EQ(messageOf({.pp = 2}), "stack 'plain' has no pp 2; nearest: pp 1");
  EXPECT_EQ(messageOf({.recompute = plan::Recompute::kFull}),
            "stack 'plain' has no recompute full; nearest: recompute none");
  EXPECT_EQ(messageOf({.stateSharding = StateSharding::kParameters}),
            "stack 'plain' has no state sharding parameters; nearest: state sharding gradients");
  EXPECT_EQ(messageOf({.sequenceParallel = true}),
            "stack 'plain' has no sequence parallel on; nearest: off");
  for (const bool overlap : {true, false})
    EXPECT_EQ(messageOf({.overlapReductions = overlap}),
              "overlapped reductions are a choice of Trireme's own programs: stack 'plain' runs "
              "beside computation what its profile says; nearest: none pinned");
  EXPECT_EQ(messageOf({.rankOrder = plan::RankOrder::kTpCpPpDp}),
            "stack 'plain' has no rank order tp-cp-pp-dp; nearest: tp-cp-dp-pp");
  query.stack.choices.push_back(spec::StackChoice::kRankOrder);
  EXPECT_EQ(messageOf({.stateSharding = StateSharding::kGradients,
                       .rankOrder = plan::RankOrder::kTpCpPpDp}),
            "stack 'plain' has no rank order tp-cp-pp-dp with state sharding gradients; nearest: "
            "rank order tp-cp-dp-pp");
  query.stack.ownPrograms = true;
  EXPECT_EQ(messageOf({.overlapReductions = true}),
            "stack 'plain' has no overlapped reductions; nearest: off");
}

// The rules of the other pins, and what the stack can share.
TEST(Pins, RefusalOfShardsNamesWhatIsInTheWay) {
  Query query = smallQuery(8, 4, 8);
  query.stack.ownPrograms = false;
  query.stack.name = "sharing";
  query.stack.choices = {spec::StackChoice::kPipeline, spec::StackChoice::kRankOrder,
                         spec::StackChoice::kReplicatedShards, spec::StackChoice::kShardParameters};
  const auto messageOf = [&](const Pins& pins) {
    Query pinned = query;
    pinned.pins = pins;
    const auto found = searchPlan(pinned, modelCosts(pinned));
    return found.has_value() ? "" : found.error().message();
  };
  EXPECT_EQ(messageOf({.dp = 4, .dpShard = 2}), "");
  EXPECT_THAT(messageOf({.dpShard = 2, .rankOrder = plan::RankOrder::kTpCpPpDp}),
              HasSubstr("dp shard 2 needs rank order tp-cp-dp-pp, there is tp-cp-pp-dp"));
  EXPECT_THAT(messageOf({.dpShard = 1, .stateSharding = StateSharding::kParameters}),
              HasSubstr("(P11) dp shard 1 needs more ranks that share, or cp > 1, there is cp 1"));
  query.stack.choices = {spec::StackChoice::kPipeline};
  EXPECT_THAT(messageOf({.dpShard = 2}),
              HasSubstr("dp shard 2 needs a stack that shares state, there is sharing"));
}

TEST(Pins, LayersTakeAsManyVirtualStagesAsTheLimitOfStagesAsksFor) {
  Pins pins;
  pins.layers = {1, 1, 1, 1, 1, 1};
  EXPECT_EQ(resolvePins(pins)->pp, 6);
  pins.mostPp = 4;
  EXPECT_EQ(resolvePins(pins)->pp, 3);
  EXPECT_EQ(resolvePins(pins)->virtualStages, 2);
  pins.schedule = ScheduleKind::k1F1B;
  EXPECT_EQ(resolvePins(pins)->pp, 6);  // which the limit refuses
}

TEST(Pins, LayersOfAnInterleavedScheduleBelongToTheFewestVirtualStages) {
  Pins pins;
  pins.schedule = ScheduleKind::kInterleaved;
  pins.layers = {1, 1, 1, 1};
  const Result<Pins> resolved = resolvePins(pins);
  ASSERT_TRUE(resolved.has_value());
  EXPECT_EQ(resolved->virtualStages, 2);
  EXPECT_EQ(resolved->pp, 2);
}

TEST(Pins, NumbersBeyondAllBoundsAreCounted) {
  const int64_t huge = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(messageOf([&](Pins& p) { p.layers = {huge, huge, 2, 4}; }),
              HasSubstr("cover 18446744073709551620 layers"));
  EXPECT_THAT(messageOf([&](Pins& p) { p.tp = p.pp = p.dp = huge; }), HasSubstr("devices, there"));
  EXPECT_THAT(messageOf([](Pins& p) {
                p.layers = {1, 1, 1, 1};
                p.pp = int64_t{1} << 62;
                p.virtualStages = 4;
              }),
              HasSubstr("but pp 4611686018427387904 x 4 virtual stages have 18446744073709551616"));
  EXPECT_THAT(messageOf([](Pins& p) { p.virtualStages = 3; }),
              HasSubstr("nearest: 2 virtual stages"));
}

// Any of the plans that the search would enumerate, on any number of devices up to `devices`.
bool anyPlan(const Query& query, int64_t devices) {
  std::vector<Rejection> ignored;
  for (int64_t gpus = 1; gpus <= devices; ++gpus)
    for (const Group& group : groupsFor(query, gpus, ignored))
      if (firstPlan(query, group, ignored)) return true;
  return false;
}

template <typename T>
std::optional<T> maybe(std::mt19937& random, std::vector<T> values) {
  if (random() % 2 == 0) return std::nullopt;
  return values[random() % values.size()];
}

Pins randomPins(std::mt19937& random) {
  const std::vector<int64_t> degrees = {1, 2, 3, 4, 6, 8};
  Pins pins;
  pins.tp = maybe(random, degrees);
  pins.pp = maybe(random, degrees);
  pins.dp = maybe(random, degrees);
  pins.microbatchSize = maybe(random, degrees);
  pins.virtualStages = maybe<int64_t>(random, {1, 2, 3});
  pins.schedule = maybe<ScheduleKind>(
      random, {ScheduleKind::kGpipe, ScheduleKind::k1F1B, ScheduleKind::kInterleaved});
  pins.stateSharding = maybe<StateSharding>(
      random, {StateSharding::kNone, StateSharding::kOptimizer, StateSharding::kGradients});
  pins.sequenceParallel = maybe<bool>(random, {false, true});
  pins.scatterGather = maybe<bool>(random, {false, true});
  pins.overlapReductions = maybe<bool>(random, {false, true});
  pins.rankOrder =
      maybe<plan::RankOrder>(random, {plan::RankOrder::kTpCpDpPp, plan::RankOrder::kTpCpPpDp});
  pins.dpShard = maybe(random, degrees);
  pins.mostTp = maybe(random, degrees);
  pins.mostPp = maybe(random, degrees);
  pins.mostDp = maybe(random, degrees);
  pins.mostMicrobatchSize = maybe(random, degrees);
  pins.mostVirtualStages = maybe<int64_t>(random, {1, 2, 3});
  return pins;
}

TEST(Pins, NothingLegalIsRefused) {
  std::mt19937 random(1);
  int refused = 0, accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    const std::vector<int64_t> batches = {1, 6, 7, 8, 9, 12};
    Query query = smallQuery(12, 1 + static_cast<int64_t>(random() % 6), batches[random() % 6]);
    query.pins = randomPins(random);
    const bool legal = checkPins(query, 12).ok();
    ++(legal ? accepted : refused);
    EXPECT_TRUE(legal || !anyPlan(query, 12)) << checkPins(query, 12).message();
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(accepted, 1000);
}

TEST(LargestCount, IsThatOfTheLayouts) {
  std::vector<Rejection> ignored;
  for (int64_t layers : {1, 3, 5})
    for (int64_t batch : {1, 6, 8}) {
      Query query = smallQuery(64, layers, batch);
      Pins limited;
      limited.mostTp = limited.mostPp = 2;
      limited.mostDp = 3;
      for (const Pins& pins : {Pins(), limited}) {
        query.pins = pins;
        int64_t largest = 0;
        for (int64_t gpus = 1; gpus <= 64; ++gpus) {
          if (!groupsFor(query, gpus, ignored).empty()) largest = gpus;
          EXPECT_EQ(largestCount(query, gpus), largest) << gpus;
        }
      }
    }
}

// A head worth several layers leaves the last stage none, and a stage between others has some.
TEST(Pins, TheFirstAndTheLastStageMayHaveNoLayers) {
  Query query = computeBound(smallQuery(4, 6, 16));
  query.model.vocabSize = 8000;
  query.stack.ownPrograms = false;
  query.pins.tp = query.pins.dp = 1;
  query.pins.pp = 4;
  query.pins.virtualStages = 1;
  const auto found = searchPlan(query);
  ASSERT_TRUE(found.has_value()) << found.error().message();
  ASSERT_EQ(found->plan.layers.back().front().count, 0);
  for (const auto& stage : found->plan.layers) query.pins.layers.push_back(stage.front().count);
  const auto pinned = searchPlan(query);
  ASSERT_TRUE(pinned.has_value()) << pinned.error().message();
  EXPECT_EQ(pinned->plan, found->plan);
  EXPECT_EQ(pinned->estimate.step, found->estimate.step);
  query.pins.layers = {2, 0, 2, 2};
  const auto refused = searchPlan(query, modelCosts(query));
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(),
              HasSubstr("(P8) layers: stage 1, chunk 0 has 0 layers; nearest: 1"));
}

// 126 layers, embedding and head are 128 virtual stages, as Llama 3 405B is cut: 8 of 16 stages.
// Own programs want a layer in each.
TEST(Pins, TheFirstAndTheLastVirtualStageNeedNoLayers) {
  Query query = computeBound(smallQuery(4, 6, 16));
  query.stack.ownPrograms = false;
  query.pins.tp = query.pins.dp = 1;
  query.pins.pp = 4;
  query.pins.microbatchSize = 1;
  query.pins.virtualStages = 2;  // 8 of 6 layers
  const auto found = searchPlan(query, modelCosts(query));
  ASSERT_TRUE(found.has_value()) << found.error().message();
  EXPECT_EQ(found->plan.layers, plan::evenLayers(6, 4, 2));
  query.pins.virtualStages = std::nullopt;
  const auto whole = searchPlan(query, modelCosts(query));
  EXPECT_EQ(whole->plan.virtualStages, 2);
  query.pins.virtualStages = 3;
  EXPECT_THAT(
      searchPlan(query, modelCosts(query)).error().message(),
      HasSubstr("(P8) pp 4 x 3 virtual stages need a layer each but the first and the last, "
                "the model has 6; nearest: pp 2"));
  query.pins.virtualStages = 2;
  query.stack.ownPrograms = true;
  EXPECT_THAT(searchPlan(query, modelCosts(query)).error().message(),
              HasSubstr("(P8) pp 4 x 2 virtual stages need a layer each, the model has 6; nearest: "
                        "pp 3"));
}

// Not 8 x 1 layers, which is faster but answers another question.
TEST(Pins, RelaxedLayersKeepTheirNumberOfStages) {
  Query query = smallQuery(8, 8, 8);
  query.pins.layers = {2, 2, 2};
  const auto refused = searchPlan(query);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("nearest: 3,3,2"));
  std::vector<int64_t> fastest;
  Seconds least(std::numeric_limits<double>::infinity());
  for (int64_t first = 1; first <= 6; ++first)
    for (int64_t second = 1; first + second <= 7; ++second) {
      query.pins.layers = {first, second, 8 - first - second};
      const auto found = searchPlan(query);
      ASSERT_TRUE(found.has_value()) << found.error().message();
      if (found->estimate.step < least) least = found->estimate.step, fastest = query.pins.layers;
    }
  EXPECT_THAT(refused.error().message(),
              HasSubstr(fmt::format("would work: layers {} (pinned: 2,2,2): {} a step",
                                    fmt::join(fastest, ","), formatSeconds(least))));
}

TEST(Pins, LayersAreTakenAsTheyAre) {
  Query query = smallQuery(4, 5, 8);
  query.pins.layers = {2, 1, 1, 1};
  query.pins.pp = 2;
  const auto found = searchPlan(query);
  ASSERT_TRUE(found.has_value()) << found.error().message();
  EXPECT_EQ(found->plan.pp, 2);
  EXPECT_EQ(found->plan.virtualStages, 2);
  const std::vector<std::vector<plan::LayerRange>> layers = {{{0, 2}, {3, 1}}, {{2, 1}, {4, 1}}};
  EXPECT_EQ(found->plan.layers, layers);
}

// 8 layers on 4 devices, of a stack that recomputes some layers.
Query partlyRecomputed() {
  Query query = smallQuery(4, 8, 8);
  query.stack.name = "described";
  query.stack.ownPrograms = false;
  query.stack.choices.push_back(spec::StackChoice::kRecomputeLayers);
  return query;
}

TEST(Pins, RecomputedLayersArePinnedAndMeanFullRecomputation) {
  Query query = partlyRecomputed();
  query.pins.pp = 2;
  query.pins.recomputeLayers = 1;
  const auto found = searchPlan(query);
  ASSERT_TRUE(found.has_value()) << found.error().message();
  EXPECT_EQ(found->plan.recompute, plan::Recompute::kFull);
  EXPECT_EQ(found->plan.recomputeLayers, 1);
  for (const RunnerUp& other : found->runnersUp) EXPECT_EQ(other.plan.recomputeLayers, 1);
  query.pins.recompute = plan::Recompute::kFull;
  EXPECT_EQ(searchPlan(query)->estimate.step, found->estimate.step);
  query.pins.layers = {5, 3};
  const auto cut = searchPlan(query);
  ASSERT_TRUE(cut.has_value()) << cut.error().message();
  EXPECT_EQ(cut->plan.layers[0][0].count, 5);
  EXPECT_EQ(cut->plan.recomputeLayers, 1);
  query.pins.recomputeLayers = 5;  // of all: the longest has as many
  EXPECT_EQ(searchPlan(query)->plan.recomputeLayers, 0);
}

// Between the memory of all layers recomputed and of none: of a pinned cut as many as are fastest.
TEST(Pins, APinnedCutRecomputesAsManyLayersAsAreFastest) {
  Query query = partlyRecomputed();
  query.model.vocabSize = 64;
  query.training.sequenceLength = query.model.maxSequence;
  query.pins.layers = {5, 3};
  query.pins.tp = query.pins.cp = query.pins.microbatchSize = 1;
  query.topK = 1;
  const auto with = [&](std::optional<plan::Recompute> recompute,
                        std::optional<int64_t> layers = std::nullopt) {
    Query asked = query;
    asked.pins.recompute = recompute;
    asked.pins.recomputeLayers = layers;
    return searchPlan(asked);
  };
  const Bytes all = with(plan::Recompute::kFull)->estimate.memory.total();
  const Bytes none = with(plan::Recompute::kNone)->estimate.memory.total();
  ASSERT_LT(all, none);
  int partly = 0;
  for (const double share : {0.1, 0.3, 0.5, 0.7, 0.9}) {
    query.cluster.device.memory = all + (none - all) * share;
    const auto found = with(std::nullopt);
    ASSERT_TRUE(found.has_value()) << found.error().message();
    EXPECT_EQ(found->certificate.gap, 0);
    partly += found->plan.recomputeLayers > 0;
    for (int64_t layers = 1; layers <= 5; ++layers)
      if (const auto other = with(std::nullopt, layers); other.has_value()) {
        EXPECT_LE(found->estimate.step, other->estimate.step) << layers;
      }
  }
  EXPECT_GT(partly, 0);
}

TEST(Pins, RecomputedLayersAreRefusedWithTheNearest) {
  const auto messageOf = [](const Query& query) {
    const auto found = searchPlan(query, modelCosts(query));
    EXPECT_FALSE(found.has_value());
    return found.has_value() ? "" : found.error().message();
  };
  Query query = partlyRecomputed();
  query.pins.recomputeLayers = 9;
  EXPECT_THAT(messageOf(query), HasSubstr("(P14) recompute of 9 layers per virtual stage: the "
                                          "model has 8; nearest: 8"));
  query.pins.recomputeLayers = 2;
  query.pins.recompute = plan::Recompute::kNone;
  EXPECT_THAT(
      messageOf(query),
      HasSubstr("(P14) recompute of 2 layers per virtual stage needs recompute full, pinned "
                "is none; nearest: recompute full, or no number of layers"));
  query.pins.recompute.reset();
  query.stack.choices.pop_back();
  EXPECT_THAT(messageOf(query), HasSubstr("stack 'described' has no recompute of 2 layers per "
                                          "virtual stage; nearest: of all layers"));
  query = smallQuery(4, 8, 8);
  query.pins.recomputeLayers = 2;
  EXPECT_THAT(messageOf(query), HasSubstr("(E4) recompute_layers 2"));
}

// Where nothing fits the leanest is named all the same, and what the pin keeps away.
TEST(Pins, RecomputedLayersThatDoNotFitAreGivenUp) {
  Query query = partlyRecomputed();
  query.pins.pp = 4;
  const auto shortfall = [&](int64_t layers, Bytes memory) {
    query.pins.recomputeLayers = layers;
    query.cluster.device.memory = memory;
    return shortfallOf(query, infeasible("nothing fits"), {}, nullptr).value();
  };
  const Bytes least = shortfall(7, Bytes(1)).nearest->estimate.memory.total();
  const Shortfall found = shortfall(1, least);  // which keeps more
  std::vector<std::string> changes;
  for (const Relaxation& change : found.changes) changes.push_back(change.change);
  EXPECT_THAT(changes, ::testing::Contains(::testing::AllOf(
                           ::testing::StartsWith("recompute layers "), HasSubstr("(pinned: 1)"))))
      << fmt::format("{}", fmt::join(changes, "; "));
  query.cluster.device.memory = Bytes(1);
  query.pins.recomputeLayers = 8;  // more than any stage has
  EXPECT_THAT(searchPlan(query).error().message(), HasSubstr("no plan fits in memory"));
}

// What a search with the pins of a plan finds obeys them, and no pin of another value.
TEST(Obeys, EveryPinAndLimit) {
  Query query = smallQuery(4, 8, 8);
  const plan::Plan plan = searchPlan(query)->plan;
  EXPECT_TRUE(obeys({}, plan));
  Pins pins;
  for (const Degree& degree : kDegrees) {
    pins.*degree.pin = degree.of(plan);
    pins.*degree.most = degree.of(plan);
  }
  pins.gpus = plan.numRanks();
  pins.schedule = plan.schedule;
  pins.recompute = plan.recompute;
  pins.sequenceParallel = plan.sequenceParallel;
  pins.rankOrder = plan.rankOrder;
  pins.layers.resize(static_cast<size_t>(plan.pp * plan.virtualStages));
  for (int64_t chunk = 0; chunk < plan.pp * plan.virtualStages; ++chunk)
    pins.layers[static_cast<size_t>(chunk)] =
        plan.layers[static_cast<size_t>(chunk % plan.pp)][static_cast<size_t>(chunk / plan.pp)]
            .count;
  EXPECT_TRUE(obeys(pins, plan));
  for (const Degree& degree : kDegrees) {
    Pins other = pins;
    other.*degree.pin = degree.of(plan) + 1;
    EXPECT_FALSE(obeys(other, plan)) << degree.name;
    other = pins;
    other.*degree.most = degree.of(plan) - 1;
    EXPECT_FALSE(obeys(other, plan)) << degree.name;
  }
  Pins other = pins;
  other.recompute = plan::Recompute::kFull;
  EXPECT_FALSE(obeys(other, plan));
  // Without a number it is of all layers.
  plan::Plan full = plan;
  full.recompute = plan::Recompute::kFull;
  other.recompute = plan::Recompute::kFull;
  EXPECT_TRUE(obeys(other, full));
  full.recomputeLayers = 1;
  EXPECT_FALSE(obeys(other, full));
  other.recomputeLayers = 1;
  EXPECT_TRUE(obeys(other, full));
  other = pins;
  other.gpus = plan.numRanks() - 1;
  EXPECT_FALSE(obeys(other, plan));
  other = pins;
  ++other.layers.front();
  EXPECT_FALSE(obeys(other, plan));
}

}  // namespace
}  // namespace trireme::planner
