#include "planner/whatif/economics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "ir/spec/load.h"
#include "planner/whatif/answers.h"

namespace trireme::planner {
namespace {

constexpr double kDay = 86400, kHour = 3600;

// Young 1974 gives an example in hours: C = 2, M = 100: sqrt(2 * 2 * 100) = 20.
TEST(Daly, YoungsIntervalByHand) {
  EXPECT_DOUBLE_EQ(youngInterval({Seconds(100), Seconds(2), Seconds(0)}).count(), 20);
}

// C = 2, M = 100: x = C / 2M = 0.01, sqrt(x) = 0.1:  20 (1 + 0.1 / 3 + 0.01 / 9) - 2
//   = 20 + 0.666667 + 0.022222 - 2 = 18.688889.  From C = 2 M on it is M.
TEST(Daly, DalysIntervalByHand) {
  EXPECT_NEAR(dalyInterval({Seconds(100), Seconds(2), Seconds(0)}).count(), 18.688889, 1e-6);
  EXPECT_DOUBLE_EQ(dalyInterval({Seconds(100), Seconds(200), Seconds(0)}).count(), 100);
  EXPECT_DOUBLE_EQ(dalyInterval({Seconds(100), Seconds(500), Seconds(0)}).count(), 100);
}

// t = 10, C = 2, R = 5, M = 100: wall = 100 e^0.05 (e^0.12 - 1) / 10 of a second of computing
//   = 100 * 1.0512711 * 0.1274969 / 10 = 1.3403376.
TEST(Daly, GoodputByHand) {
  EXPECT_NEAR(1 / goodputOf({Seconds(100), Seconds(2), Seconds(5)}, Seconds(10)), 1.3403376, 1e-6);
  // Without saving and restarting nothing is lost: the interval goes to 0.
  EXPECT_DOUBLE_EQ(goodputOf({Seconds(100), Seconds(0), Seconds(0)}, Seconds(0)), 1);
}

// The higher order is within 1 % of the best goodput of any interval, Young's is no better.
TEST(Daly, NoIntervalIsMuchBetterThanDalys) {
  for (const double save : {0.5, 2.0, 10.0, 60.0}) {
    const FailureRate rate{Seconds(100), Seconds(save), Seconds(5)};
    double best = 0;
    for (double t = 0.5; t < 300; t += 0.5) best = std::max(best, goodputOf(rate, Seconds(t)));
    const double daly = goodputOf(rate, dalyInterval(rate));
    EXPECT_GT(daly, best * 0.99);
    EXPECT_LE(goodputOf(rate, youngInterval(rate)), daly * (1 + 1e-9));
  }
}

// What a simulation of failures at random gives: seconds of computing over those that pass.
TEST(Daly, GoodputIsWhatASimulationGives) {
  const FailureRate rate{Seconds(1000), Seconds(20), Seconds(60)};
  const double interval = dalyInterval(rate).count(), wanted = 2e6;
  std::mt19937_64 random(7);
  std::exponential_distribution<double> next(1 / rate.meanBetween.count());
  double wall = 0, done = 0, untilFailure = next(random);
  const auto pass = [&](double time) {  // whether nothing fails in it
    const bool ok = time < untilFailure;
    wall += ok ? time : untilFailure;
    untilFailure = ok ? untilFailure - time : next(random);
    return ok;
  };
  while (done < wanted) {
    if (pass(interval + rate.save.count())) {
      done += interval;
      continue;
    }
    while (!pass(rate.restart.count())) {
    }
  }
  EXPECT_NEAR(done / wall, goodputOf(rate, Seconds(interval)), 0.005);
}

// Each of 3 nodes works with p = 9 / (9 + 1) = 0.9. At least 2 of 3: 3 * 0.81 * 0.1 + 0.729 =
// 0.972.
TEST(Availability, ByHand) {
  EXPECT_NEAR(availabilityOf(2, 3, Seconds(9), Seconds(1)), 0.972, 1e-12);
  EXPECT_NEAR(availabilityOf(3, 3, Seconds(9), Seconds(1)), 0.729, 1e-12);
  EXPECT_NEAR(availabilityOf(0, 3, Seconds(9), Seconds(1)), 1, 1e-12);
}

Training sixteen() {
  Training training;
  training.step = Seconds(2);
  training.tokensPerStep = 1000;
  training.gpus = training.used = 16;
  training.nodesUsed = 2;
  training.perNode = 8;
  training.checkpoint = Bytes(100e9);
  training.power = Watts(400);
  return training;
}

// 3,600,500 tokens are 3,601 steps of 1,000; 2 s each are 7,202 s, 2.000556 h. 16 devices at 3
// USD/h cost 16 * 3 * 2.000556 = 96.0267 USD, and draw 16 * 400 W * 7,202 s = 46.0928 MJ.
TEST(Economics, CostAndEnergyByHand) {
  Scenario scenario;
  scenario.tokens = 3'600'500;
  scenario.price = 3;
  const Economics e = economicsOf(sixteen(), scenario);
  EXPECT_EQ(e.steps, 3601);
  EXPECT_DOUBLE_EQ(e.wall.count(), 7202);
  EXPECT_NEAR(*e.cost, 96.026667, 1e-6);
  EXPECT_NEAR(*e.energy, 46.0928e6, 1e-3);
  scenario.power = Watts(700);
  EXPECT_NEAR(*economicsOf(sixteen(), scenario).energy, 46.0928e6 * 7 / 4, 1e-3);
}

// One device fails every 160 days, 16 of them every 10 days. 100 GB at 10 GB/s take 10 s.
TEST(Economics, FailuresLengthenAndSparesArePaid) {
  Scenario scenario;
  scenario.tokens = 1e9;
  scenario.price = 3;
  scenario.failures = FailureModel{Seconds(160 * kDay), BytesPerSecond(10e9), Seconds(600),
                                   std::nullopt, std::nullopt};
  const Economics e = economicsOf(sixteen(), scenario);
  EXPECT_DOUBLE_EQ(e.goodput->rate.meanBetween.count(), 10 * kDay);
  EXPECT_DOUBLE_EQ(e.goodput->rate.save.count(), 10);
  EXPECT_NEAR(e.wall.count(), e.busy.count() / e.goodput->goodput, 1e-3);
  EXPECT_GT(e.wall, e.busy);
  // Nodes work 20 days and are away for 5: p = 0.8. Two of three: 3 * 0.64 * 0.2 + 0.512 = 0.896.
  scenario.failures->repair = Seconds(5 * kDay);
  scenario.failures->spares = 1;
  const Economics spared = economicsOf(sixteen(), scenario);
  EXPECT_NEAR(spared.goodput->availability, 0.896, 1e-12);
  EXPECT_NEAR(*spared.cost, 3 * 24 * spared.wall.count() / kHour, 1e-6);
  EXPECT_NEAR(spared.wall.count(), e.wall.count() / 0.896, 1e-3);
}

// Two nodes of 8 whose devices are used in part: 8 ranks on one of them leave the other as a spare,
// 4 on each leave none.
TEST(Economics, ANodeInUseIsNoSpare) {
  Scenario scenario;
  scenario.tokens = 1e9;
  scenario.failures =
      FailureModel{Seconds(160 * kDay), BytesPerSecond(10e9), Seconds(600), Seconds(5 * kDay), 1};
  Training training = sixteen();
  training.used = 8;
  training.nodesUsed = 1;
  const Goodput one = *economicsOf(training, scenario).goodput;
  EXPECT_EQ(one.spares, 1);
  EXPECT_EQ(one.bought, 0);
  training.nodesUsed = 2;
  const Goodput both = *economicsOf(training, scenario).goodput;
  EXPECT_EQ(both.spares, 1);
  EXPECT_EQ(both.bought, 1);
  // As two of three above.
  EXPECT_NEAR(both.availability, 0.896, 1e-12);
}

TEST(Economics, ChosenSparesAreTheCheapest) {
  for (const double repair : {0.1, 1.0, 5.0, 30.0, 100.0}) {
    Scenario scenario;
    scenario.tokens = 1e9;
    scenario.price = 1;
    Training training = sixteen();
    training.gpus = training.used = 160;
    training.nodesUsed = 20;
    scenario.failures = FailureModel{Seconds(160 * kDay), BytesPerSecond(10e9), Seconds(60),
                                     Seconds(repair * kDay), std::nullopt};
    const Economics chosen = economicsOf(training, scenario);
    for (int64_t spares = 0; spares <= 20; ++spares) {
      scenario.failures->spares = spares;
      EXPECT_LE(*chosen.cost, *economicsOf(training, scenario).cost * (1 + 1e-12))
          << repair << " d, " << spares;
    }
  }
}

// Loading takes as long as saving, 10 s, and comes after the 600 s until it begins.
TEST(Economics, ARestartLoadsTheCheckpoint) {
  Scenario scenario;
  scenario.tokens = 1e9;
  scenario.failures = FailureModel{Seconds(160 * kDay), BytesPerSecond(10e9), Seconds(600),
                                   std::nullopt, std::nullopt};
  const Economics e = economicsOf(sixteen(), scenario);
  EXPECT_DOUBLE_EQ(e.goodput->rate.restart.count(), 610);
}

// Of five nodes the plan uses two: three are spares that are there. They neither fail a job that
// does not use them nor draw power, but they are paid for.
TEST(Economics, IdleNodesAreTheFirstSpares) {
  Scenario scenario;
  scenario.tokens = 1e9;
  scenario.price = 3;
  scenario.failures = FailureModel{Seconds(160 * kDay), BytesPerSecond(10e9), Seconds(600),
                                   Seconds(5 * kDay), std::nullopt};
  Training idle = sixteen();
  idle.gpus = 40;
  const auto with = [&](std::optional<int64_t> spares) {
    scenario.failures->spares = spares;
    return economicsOf(idle, scenario);
  };
  const Economics e = with(1);
  EXPECT_DOUBLE_EQ(e.goodput->rate.meanBetween.count(), 10 * kDay);
  EXPECT_EQ(e.goodput->spares, 3);
  EXPECT_EQ(e.goodput->bought, 0);
  EXPECT_NEAR(*e.cost, 3 * 40 * e.wall.count() / kHour, 1e-6);
  EXPECT_NEAR(*e.energy, 400 * 16 * e.wall.count(), 1);
  // p = 0.8; at least 2 of 5: 1 - 0.2^5 - 5 * 0.8 * 0.2^4 = 0.99328.
  EXPECT_NEAR(e.goodput->availability, 0.99328, 1e-9);
  EXPECT_EQ(with(std::nullopt).goodput->bought, 0);
  const Economics five = with(5);
  EXPECT_EQ(five.goodput->spares, 5);
  EXPECT_EQ(five.goodput->bought, 2);
  EXPECT_NEAR(*five.cost, 3 * 56 * five.wall.count() / kHour, 1e-6);
  // Half a node is none.
  idle.gpus = 20;
  EXPECT_EQ(with(0).goodput->spares, 0);
}

// Nodes of 8 work for 10 / 8 days and are away for 2: of 64, p = 0.3846, some 166 make the 64 that
// work; more than as many again.
TEST(Economics, SparesMayOutnumberTheNodes) {
  Scenario scenario;
  scenario.tokens = 1e9;
  scenario.price = 1;
  Training training = sixteen();
  training.gpus = training.used = 512;
  training.nodesUsed = 64;
  scenario.failures = FailureModel{Seconds(10 * kDay), BytesPerSecond(10e12), Seconds(60),
                                   Seconds(2 * kDay), std::nullopt};
  const Economics chosen = economicsOf(training, scenario);
  EXPECT_GT(chosen.goodput->spares, 102);
  for (int64_t spares = 0; spares <= 200; ++spares) {
    scenario.failures->spares = spares;
    const Economics other = economicsOf(training, scenario);
    if (!other.cost) continue;  // never enough nodes
    EXPECT_LE(*chosen.cost, *other.cost * (1 + 1e-12)) << spares;
  }
}

// Against every number of nodes, also where chances are too small for a double.
TEST(Availability, TheCheapestNumberOfNodesIsThatOfTryingAll) {
  for (const int64_t needed : {1, 2, 3, 10, 200})
    for (const double repair : {0.001, 0.1, 1.0, 3.0, 20.0})
      for (const double extra : {0.0, 0.5}) {
        const auto price = [&](int64_t owned) {
          return (static_cast<double>(owned) + extra) /
                 availabilityOf(needed, owned, Seconds(1), Seconds(repair));
        };
        const int64_t owned = cheapestOwned(needed, needed, extra, Seconds(1), Seconds(repair));
        double least = price(owned);
        EXPECT_TRUE(std::isfinite(least));
        for (int64_t n = needed; n < 6000; n += n < 300 ? 1 : 7)
          EXPECT_LE(least, price(n) * (1 + 1e-9)) << needed << " " << repair << " " << n;
      }
  EXPECT_EQ(cheapestOwned(8, 12, 0, Seconds(1e9), Seconds(1)), 12);  // no fewer than there are
  EXPECT_EQ(cheapestOwned(8, 8, 0, Seconds(1e-3), Seconds(1e9)), int64_t{1} << 24);
  EXPECT_EQ(availabilityOf(1, int64_t{1} << 24, Seconds(1e9), Seconds(1)), 1);
}

TEST(Economics, WhatNeverEndsHasNoCost) {
  Scenario scenario;
  scenario.tokens = 1e9;
  scenario.price = 3;
  scenario.failures =
      FailureModel{Seconds(1), BytesPerSecond(1), Seconds(600), std::nullopt, std::nullopt};
  const Economics e = economicsOf(sixteen(), scenario);
  EXPECT_TRUE(std::isinf(e.wall.count()));
  EXPECT_FALSE(e.cost || e.energy);
}

// For each of 10 parameters 3 numbers of 4 bytes. Megatron's optimizer has 12 and the weights 2
// more, but in fp32, where they are the masters; FSDP saves its masters, of 4, and 8.
TEST(Economics, ACheckpointHoldsWeightsAndMoments) {
  const auto bytes = [](const spec::StackProfile& stack, spec::Precision precision) {
    return checkpointBytes(10, stack, precision, {}).count();
  };
  const auto shipped = [](const char* name) { return spec::loadStack(name).value(); };
  using enum spec::Precision;
  EXPECT_DOUBLE_EQ(bytes({}, kBf16), 120);
  EXPECT_DOUBLE_EQ(bytes({}, kFp64), 240);
  EXPECT_DOUBLE_EQ(bytes(shipped("megatron-core"), kBf16), 140);
  EXPECT_DOUBLE_EQ(bytes(shipped("megatron-core"), kFp32), 120);
  EXPECT_DOUBLE_EQ(bytes(shipped("torchtitan"), kBf16), 120);
}

TEST(Front, IsWhatNothingBeatsInBoth) {
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<SweepOutcome> outcomes;
    for (size_t n = random() % 12; n > 0; --n)
      outcomes.push_back({static_cast<int64_t>(random() % 5),
                          Seconds(static_cast<double>(random() % 6)),
                          static_cast<double>(random() % 6)});
    const std::vector<size_t> front = paretoFront(outcomes);
    for (size_t i = 0; i < outcomes.size(); ++i) {
      const auto beats = [&](const SweepOutcome& o) {
        return o.wall <= outcomes[i].wall && o.cost <= outcomes[i].cost &&
               (o.wall < outcomes[i].wall || o.cost < outcomes[i].cost);
      };
      const bool isBeaten = std::any_of(outcomes.begin(), outcomes.end(), beats);
      const bool isIn = std::any_of(front.begin(), front.end(), [&](size_t f) {
        return outcomes[f].wall == outcomes[i].wall && outcomes[f].cost == outcomes[i].cost;
      });
      EXPECT_EQ(isIn, !isBeaten);
    }
    for (size_t i = 1; i < front.size(); ++i) {
      EXPECT_LT(outcomes[front[i - 1]].wall, outcomes[front[i]].wall);
      EXPECT_GT(outcomes[front[i - 1]].cost, outcomes[front[i]].cost);
    }
  }
}

TEST(Answers, DeadlinesAndBudgetsByHand) {
  const std::vector<SweepOutcome> outcomes = {{64, Seconds(100), 50},
                                              {128, Seconds(60), 55},
                                              {256, Seconds(40), 54},
                                              {512, Seconds(30), 90}};
  EXPECT_EQ(fewestWithin(outcomes, Seconds(60)), 1u);
  EXPECT_EQ(cheapestWithin(outcomes, Seconds(60)), 2u);
  EXPECT_EQ(fewestWithin(outcomes, Seconds(29)), std::nullopt);
  EXPECT_EQ(fastestFor(outcomes, 54), 2u);
  EXPECT_EQ(fastestFor(outcomes, 49), std::nullopt);
}

// Whatever is between the bounds takes no less, and costs no less.
TEST(Economics, NothingIsBelowTheLeast) {
  std::mt19937_64 random(3);
  const auto oneOf = [&](int64_t first, int64_t last) {
    return std::uniform_int_distribution<int64_t>(first, last)(random);
  };
  for (int i = 0; i < 3000; ++i) {
    Scenario scenario;
    scenario.tokens = 3'600'500;
    scenario.price = 3;
    FailureModel& model = scenario.failures.emplace();
    model.deviceMeanBetween = Seconds(kHour * static_cast<double>(oneOf(1, 2000)));
    model.checkpointBandwidth = BytesPerSecond(10e9);
    model.restart = Seconds(60);
    if (oneOf(0, 3) > 0) model.repair = Seconds(kHour * static_cast<double>(oneOf(1, 50)));
    if (oneOf(0, 1) > 0) model.spares = oneOf(0, 4);
    const int64_t first = oneOf(1, 12), last = first + oneOf(0, 6), nodes = oneOf(1, first);
    Training least = sixteen();
    least.gpus = 8 * first;
    least.nodesUsed = nodes;
    least.used = oneOf(1, 8 * nodes);
    Training training = least;
    training.gpus = 8 * oneOf(first, last);
    const int64_t most = oneOf(nodes, training.gpus / 8);
    training.nodesUsed = oneOf(nodes, most);
    training.used = oneOf(least.used, std::max(least.used, 8 * training.nodesUsed));
    training.step = least.step * (1 + 0.1 * static_cast<double>(oneOf(0, 3)));
    const LeastEconomics bound = leastEconomics(least, 8 * last, most, scenario);
    const Economics e = economicsOf(training, scenario);
    ASSERT_LE(bound.wall, e.wall) << i;
    if (!e.cost) continue;  // never ends
    ASSERT_LE(bound.cost, *e.cost) << i;
    // Of nothing but the training itself the bound is exact.
    const LeastEconomics own =
        leastEconomics(training, training.gpus, training.nodesUsed, scenario);
    EXPECT_NEAR(own.wall / e.wall, 1, 1e-9);
    if (!model.spares) {
      EXPECT_NEAR(own.cost / *e.cost, 1, 1e-9);
    }
  }
}

}  // namespace
}  // namespace trireme::planner
