#include "planner/partition/piper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "tests/planner/partition/profiles.h"

namespace trireme::planner {
namespace {

using namespace trireme::planner::testing;
using namespace trireme::literals;
using ::testing::HasSubstr;

constexpr double kNever = std::numeric_limits<double>::infinity();

spec::ProfileVariant variant(const std::string& name, double seconds, double stored,
                             double resident) {
  spec::ProfileVariant v;
  v.name = name;
  v.forward = Seconds(seconds);
  v.stored = Bytes(stored);
  v.resident = Bytes(resident);
  return v;
}

// Layers that follow each other and send nothing, each fast with 10 B per microbatch or, three
// times slower, with 1 B.
PiperProblem chain(const std::vector<double>& seconds) {
  PiperProblem problem;
  for (const double s : seconds)
    problem.profile.layers.push_back({std::to_string(problem.profile.layers.size()),
                                      "",
                                      Bytes(0),
                                      {variant("fast", s, 10, 0), variant("lean", 3 * s, 1, 0)}});
  joinAll(problem.profile);
  problem.bandwidth = BytesPerSecond(1);
  return problem;
}

PiperPartition solvedPiper(const PiperProblem& problem) {
  const Result<PiperPartition> result = partitionPiper(problem);
  EXPECT_TRUE(result.has_value()) << result.error().message();
  if (!result.has_value()) return {};
  const Status status = problem.verify(*result);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_LE(result->gap, kPiperGap);
  EXPECT_LE(result->bound, result->time);
  return *result;
}

// 2 + 4 | 3 + 3 on two devices, and 12 / 2 on two replicas of everything: both 6 s.
TEST(Piper, DevicesShareTheWork) {
  PiperProblem problem = chain({2, 4, 3, 3});
  problem.devices = 2;
  problem.microbatches = 2;
  EXPECT_EQ(solvedPiper(problem).time, 6_s);
  problem.microbatches = 3;  // 2 replicas do not divide a batch of 3
  const PiperPartition p = solvedPiper(problem);
  EXPECT_EQ(describe(p.stages), "1x1-1x1");
  EXPECT_EQ(p.stages[0].layers, (std::vector<int32_t>{0, 1}));
}

// Layers that take no time, on two devices each, and keep 1 B and 1 B per microbatch. Both together
// need 4 B, on stages of their own 2 + 1 and 1 + 1, but four devices.
TEST(Piper, TimelessLayersTakeDevices) {
  PiperProblem problem = chain({0, 0});
  for (spec::ProfileLayer& layer : problem.profile.layers)
    for (spec::ProfileVariant& v : layer.variants) {
      v.tensorDegree = 2;
      v.resident = Bytes(1);
    }
  problem.microbatches = 4;
  problem.devices = 3;
  problem.memory = Bytes(4);
  EXPECT_EQ(describe(solvedPiper(problem).stages), "1x2");
  problem.memory = Bytes(3);
  EXPECT_THAT(partitionPiper(problem).error().message(), HasSubstr("fits in memory"));
  problem.devices = 4;
  EXPECT_EQ(solvedPiper(problem).time, 0_s);
}

// Two stages on a device each. The first has two microbatches in flight, the second one: 20 B per
// fast layer, then 10. In 30 B, one fast layer and three need 20 and 30 B and take 3 s. Two and two
// would do with one of the first two lean, which takes 1 + 3 s.
TEST(Piper, EarlierStagesHoldMoreMicrobatches) {
  PiperProblem problem = chain({1, 1, 1, 1});
  problem.devices = 2;
  problem.microbatches = 3;
  problem.memory = Bytes(30);
  const PiperPartition p = solvedPiper(problem);
  EXPECT_EQ(p.time, 3_s);
  ASSERT_EQ(p.stages.size(), 2u);
  EXPECT_EQ(p.stages[0].memory, Bytes(20));
  EXPECT_EQ(p.stages[1].memory, Bytes(30));
  EXPECT_EQ(p.stages[1].variants, (std::vector<int32_t>{0, 0, 0}));
}

// One layer of 8 s and 16 B of weights, four replicas, a batch of 4, 2 B/s:
// 8 / 4 + 4 * 3 / 4 * 16 / 4 / 2 = 2 + 6 s. On one: 8 s.  At tensor degree 4 in 3 s: 3 s.
TEST(Piper, ReplicasPayForTheirWeights) {
  PiperProblem problem;
  problem.profile.layers.push_back({"a", "", Bytes(0), {variant("one", 8, 0, 0)}});
  problem.profile.layers[0].variants[0].weights = 16_B;
  problem.bandwidth = BytesPerSecond(2);
  problem.devices = 4;
  problem.microbatches = 4;
  EXPECT_EQ(solvedPiper(problem).time, 8_s);
  problem.bandwidth = BytesPerSecond(4);
  const PiperPartition replicas = solvedPiper(problem);
  EXPECT_EQ(describe(replicas.stages), "4x1");
  EXPECT_EQ(replicas.time, 5_s);
  spec::ProfileVariant wide = variant("four", 3, 0, 0);
  wide.tensorDegree = 4;
  problem.profile.layers[0].variants.push_back(wide);
  EXPECT_EQ(describe(solvedPiper(problem).stages), "1x4");
  EXPECT_EQ(solvedPiper(problem).time, 3_s);
}

// Both ends of an edge pay for its bytes there and back; the devices of a layer also for handing
// the tensor around.  a: 4 s + 2 * 3 B, b: 4 s + 2 * (3 + 2) B, at 1 B/s.
TEST(Piper, BordersCostBothSides) {
  PiperProblem problem;
  problem.profile.layers = {{"a", "", 3_B, {variant("v", 4, 0, 0)}},
                            {"b", "", 0_B, {variant("v", 4, 0, 0)}}};
  joinAll(problem.profile);
  problem.profile.layers[1].variants[0].sync = {{0, 2_B}};
  problem.bandwidth = BytesPerSecond(1);
  problem.devices = 2;
  problem.microbatches = 3;
  EXPECT_EQ(solvedPiper(problem).time, 8_s);  // Together, on one device: less than 4 + 10.
  problem.profile.layers[0].variants[0].forward = 11_s;
  const PiperPartition p = solvedPiper(problem);
  EXPECT_EQ(p.time, 15_s);  // 11 + 4 together; 11 + 6 and 14 apart
  problem.profile.layers[1].variants[0].forward = 7_s;
  const PiperPartition apart = solvedPiper(problem);
  EXPECT_EQ(apart.time, 17_s);
  EXPECT_EQ(apart.stages[1].time, 17_s);
}

// --- Against everything there is -----------------------------------------------------------------

// Tries every sequence of stages from the last to the first, with all degrees and all variants.
class ExhaustivePiper {
 public:
  explicit ExhaustivePiper(const PiperProblem& problem) : problem_(problem) {
    place((1u << problem.profile.layers.size()) - 1, 0, 0, 0);
  }
  double best = kNever;

 private:
  void place(uint32_t left, int64_t devices, int64_t sumD, double slowest) {
    if (left == 0) {
      best = slowest;
      return;
    }
    for (uint32_t from = 0; from < left; ++from) {
      if ((from & ~left) != 0 || !isClosed(from)) continue;
      for (int64_t t = 1; t <= 4; ++t)
        for (int64_t d = 1; sumD + d <= problem_.microbatches; ++d) {
          if (problem_.microbatches % d != 0 || devices + d * t > problem_.devices) continue;
          const int64_t inFlight = (sumD + d + d - 1) / d;
          const double time = std::max(slowest, fastest(left & ~from, 0, {t, d}, inFlight));
          if (time < best) place(from, devices + d * t, sumD + d, time);
        }
    }
  }

  bool isClosed(uint32_t mask) const {
    for (const spec::ProfileEdge& edge : problem_.profile.edges)
      if ((mask >> edge.to & 1) && !(mask >> edge.from & 1)) return false;
    return true;
  }

  // Over all variants of the layers of `stage` from layer i on.
  double fastest(uint32_t stage, size_t i, std::pair<int64_t, int64_t> degrees, int64_t inFlight,
                 double time = 0, double memory = 0) const {
    if (problem_.memory && memory > problem_.memory->count()) return kNever;
    if (i == problem_.profile.layers.size()) return time;
    if (!(stage >> i & 1)) return fastest(stage, i + 1, degrees, inFlight, time, memory);
    const auto d = static_cast<double>(degrees.second);
    double least = kNever;
    for (const spec::ProfileVariant& v : problem_.profile.layers[i].variants) {
      if (v.tensorDegree != degrees.first) continue;
      double bytes = 0;
      for (size_t e = 0; e < problem_.profile.edges.size(); ++e) {
        const spec::ProfileEdge& edge = problem_.profile.edges[e];
        const auto self = static_cast<int32_t>(i);
        if (edge.from != self && edge.to != self) continue;
        if ((stage >> edge.from & 1) && (stage >> edge.to & 1)) continue;
        bytes += 2 * edge.transfer.count();
        for (const spec::EdgeBytes& sync : v.sync)
          if (sync.edge == static_cast<int32_t>(e)) bytes += 2 * sync.bytes.count();
      }
      const double sync =
          4 * (d - 1) / d * v.weights.count() / static_cast<double>(problem_.microbatches);
      const double more = (bytes / d + sync) / problem_.bandwidth.count() + v.time().count() / d;
      least = std::min(
          least, fastest(stage, i + 1, degrees, inFlight, time + more,
                         memory + (v.stored.value_or(0_B).count() * static_cast<double>(inFlight) +
                                   v.resident.value_or(0_B).count())));
    }
    return least;
  }

  const PiperProblem& problem_;
};

// Whole numbers, so that sums are exact and ties occur. Some layers cannot run at degree 1.
PiperProblem randomProblem(std::mt19937_64& rng) {
  const auto below = [&](uint64_t bound) { return static_cast<double>(rng() % bound); };
  PiperProblem problem;
  problem.profile = randomProfile(rng, static_cast<int32_t>(1 + rng() % 5), 0.3);
  for (spec::ProfileLayer& layer : problem.profile.layers) layer.variants.clear();
  for (size_t i = 0; i < problem.profile.layers.size(); ++i)
    for (const int64_t degree : {int64_t{1}, int64_t{2}, int64_t{3}}) {
      if (rng() % 8 < (degree == 1 ? 1u : 4u)) continue;
      for (uint64_t k = 0; k < 1 + rng() % 2; ++k) {
        spec::ProfileVariant v = variant("v" + std::to_string(k), below(30), below(6), below(12));
        v.tensorDegree = degree;
        v.weights = Bytes(below(20));
        for (size_t e = 0; e < problem.profile.edges.size(); ++e) {
          const spec::ProfileEdge& edge = problem.profile.edges[e];
          const auto self = static_cast<int32_t>(i);
          if ((edge.from == self || edge.to == self) && rng() % 2 == 0)
            v.sync.push_back({static_cast<int32_t>(e), Bytes(1 + below(3))});
        }
        problem.profile.layers[i].variants.push_back(v);
      }
    }
  for (spec::ProfileLayer& layer : problem.profile.layers)
    if (layer.variants.empty()) layer.variants.push_back(variant("only", below(30), 1, 1));
  problem.devices = 1 + static_cast<int64_t>(rng() % 7);
  problem.microbatches = 1 + static_cast<int64_t>(rng() % 8);
  problem.bandwidth = BytesPerSecond(static_cast<double>(1 + rng() % 20));
  if (rng() % 4 != 0) problem.memory = Bytes(static_cast<double>(5 + rng() % 40));
  return problem;
}

TEST(Piper, RandomGraphsAreOptimal) {
  std::mt19937_64 rng(31);
  int infeasible = 0;
  for (int round = 0; round < 1500; ++round) {
    const PiperProblem problem = randomProblem(rng);
    const double best = ExhaustivePiper(problem).best;
    if (best == kNever) {
      ++infeasible;
      const Result<PiperPartition> result = partitionPiper(problem);
      ASSERT_FALSE(result.has_value()) << "round " << round;
      EXPECT_EQ(result.error().code(), StatusCode::kInfeasible) << result.error().message();
    } else {
      EXPECT_NEAR(solvedPiper(problem).time.count(), best, 1e-11 * best) << "round " << round;
    }
    if (HasFailure()) FAIL() << "round " << round;
  }
  EXPECT_GT(infeasible, 200);
  EXPECT_LT(infeasible, 1000);
}

TEST(Piper, MoreOfAnythingIsNeverSlower) {
  std::mt19937_64 rng(37);
  const auto timeOf = [](const PiperProblem& problem) {
    const Result<PiperPartition> result = partitionPiper(problem);
    return result.has_value() ? result->time.count() : kNever;
  };
  for (int round = 0; round < 200; ++round) {
    const PiperProblem problem = randomProblem(rng);
    const double time = timeOf(problem);
    const auto expectNotSlower = [&](const std::function<void(PiperProblem&)>& enrich) {
      PiperProblem richer = problem;
      enrich(richer);
      EXPECT_LE(timeOf(richer), time * (1 + 1e-11)) << "round " << round;
    };
    expectNotSlower([](PiperProblem& p) { ++p.devices; });
    expectNotSlower([](PiperProblem& p) { p.bandwidth = BytesPerSecond(2 * p.bandwidth.count()); });
    expectNotSlower([](PiperProblem& p) { p.memory.reset(); });
    expectNotSlower([](PiperProblem& p) {
      if (p.memory) *p.memory += 1_B;
    });
    expectNotSlower([](PiperProblem& p) {
      spec::ProfileVariant extra = p.profile.layers[0].variants[0];
      extra.name = "another";
      extra.stored = extra.stored.value_or(0_B) + 1_B;
      extra.forward = extra.forward * 0.5;
      p.profile.layers[0].variants.push_back(extra);
    });
  }
}

// --- Infeasible ----------------------------------------------------------------------------------

std::string whyNot(const PiperProblem& problem) {
  const Result<PiperPartition> result = partitionPiper(problem);
  EXPECT_FALSE(result.has_value());
  if (result.has_value()) return "";
  EXPECT_EQ(result.error().code(), StatusCode::kInfeasible);
  return result.error().message();
}

// All lean on one device: 4 layers with one microbatch in flight, 4 B.
TEST(Piper, TheLeastMemoryThatWouldDoIsNamed) {
  PiperProblem problem = chain({1, 1, 1, 1});
  problem.microbatches = 3;
  problem.memory = Bytes(3);
  EXPECT_THAT(whyNot(problem), HasSubstr("the leanest on 1 device needs 4 B of 3 B per device, "
                                         "1 B too much; would work: more devices"));
  // Two devices: 1 | 3 layers need 2 and 3 B, which fits.
  problem.devices = 2;
  EXPECT_EQ(solvedPiper(problem).stages.size(), 2u);
}

// A layer with 1 B, in flight or not, has no room in half of it, however many devices there are.
TEST(Piper, DevicesThatWouldNotHelpAreNotAdvised) {
  PiperProblem problem = chain({1, 1});
  problem.microbatches = 3;
  problem.memory = Bytes(0.5);
  EXPECT_THAT(whyNot(problem),
              HasSubstr("; with 3 microbatches no number of devices would do; what may: "));
}

// Layers that keep 100 B are alone on a device of 150 B, and there are as many stages as
// microbatches at most.
TEST(Piper, MicrobatchesThatWouldHelpAreAdvised) {
  PiperProblem problem = chain({1, 1, 1, 1});
  problem.devices = 4;
  problem.microbatches = 3;
  problem.memory = Bytes(150);
  for (auto& layer : problem.profile.layers)
    for (auto& variant : layer.variants) variant.resident = Bytes(100);
  EXPECT_THAT(whyNot(problem), HasSubstr("; would work: more microbatches, which more stages need "
                                         "(now 3), and devices for them"));
}

// The message's memory is enough, and a thousandth less is not.
TEST(Piper, TheLeastMemoryIsTheLeast) {
  std::mt19937_64 rng(41);
  int checked = 0;
  for (int round = 0; round < 300; ++round) {
    PiperProblem problem = randomProblem(rng);
    problem.memory = Bytes(0.5);
    const Result<PiperPartition> result = partitionPiper(problem);
    if (result.has_value()) continue;
    const std::string& message = result.error().message();
    const size_t at = message.find("needs ");
    if (message.find("fits in memory") == std::string::npos || at == std::string::npos) continue;
    const double needed = std::stod(message.substr(at + 6));
    problem.memory = Bytes(needed);
    EXPECT_TRUE(partitionPiper(problem).has_value()) << message;
    problem.memory = Bytes(needed - 1);
    EXPECT_FALSE(needed > 1 && partitionPiper(problem).has_value()) << message;
    ++checked;
  }
  EXPECT_GT(checked, 100);
}

TEST(Piper, TooFewDevicesAndMicrobatchesAreNamed) {
  PiperProblem problem = chain({1, 1});
  for (spec::ProfileVariant& v : problem.profile.layers[0].variants) v.tensorDegree = 4;
  problem.devices = 4;
  problem.microbatches = 2;
  EXPECT_THAT(whyNot(problem), HasSubstr("need at least 5 devices, there are 4"));
  problem.devices = 5;
  EXPECT_EQ(describe(solvedPiper(problem).stages), "1x4-1x1");
  problem.microbatches = 1;
  EXPECT_THAT(whyNot(problem), HasSubstr("more stages than the 1 microbatches of a batch"));
}

// --- The published case --------------------------------------------------------------------------

// BERT-32 on A100s with 8 GiB: the answers of Piper's own solver, whose knapsack is a heuristic, so
// that none is better.
TEST(Piper, PublishedCaseIsNeverWorse) {
  if (casePath("").empty()) GTEST_SKIP() << "TRIREME_REFERENCE names no folder of published cases";
  const Result<spec::ProfileSpec> profile = spec::loadProfile(casePath("piper_bert32_a100.json"));
  ASSERT_TRUE(profile.has_value()) << profile.error().message();
  PiperProblem problem;
  problem.profile = *profile;
  problem.microbatches = 1920;
  problem.bandwidth = BytesPerSecond(25.0 * 1073741824.0);
  problem.memory = 8_GiB;
  const std::pair<int64_t, double> answers[] = {{8, 0.16585575},     {32, 0.04151545},
                                                {64, 0.02020055},    {128, 0.01012088},
                                                {512, 0.0025611278}, {1024, 0.0013031795}};
  for (const auto& [devices, seconds] : answers) {
    problem.devices = devices;
    const PiperPartition p = solvedPiper(problem);
    EXPECT_LE(p.time.count(), seconds * (1 + 1e-7)) << devices;
    EXPECT_GE(p.time.count(), seconds * (1 - 1e-3)) << devices << ": the heuristic was that far?";
  }
  // By hand, one stage of eight replicas in 80 GiB: 0.12200727 s.
  problem.devices = 8;
  problem.memory = 80_GiB;
  PiperPartition whole;
  PiperStage stage;
  stage.dataDegree = 8;
  for (int32_t i = 0; i < 37; ++i) {
    stage.layers.push_back(i);
    stage.variants.push_back(0);
  }
  whole.stages = {stage};
  whole.devicesUsed = 8;
  EXPECT_THAT(problem.verify(whole).message(), HasSubstr("stage 0 takes 0.122007269"));
  EXPECT_LE(solvedPiper(problem).time.count(), 0.12200728);
}

// --- Refusals ------------------------------------------------------------------------------------

TEST(Piper, CheckSaysWhatIsWrongWithAnInstance) {
  const PiperProblem good = chain({1, 1});
  EXPECT_TRUE(good.check().ok());
  const auto refusal = [&](const std::function<void(PiperProblem&)>& spoil) {
    PiperProblem bad = good;
    spoil(bad);
    EXPECT_EQ(bad.check().code(), StatusCode::kInvalidArgument);
    EXPECT_FALSE(partitionPiper(bad).has_value());
    return bad.check().message();
  };
  EXPECT_THAT(refusal([](auto& p) { p.devices = 0; }),
              HasSubstr("expected 1 to 1048576 devices, got 0"));
  EXPECT_THAT(refusal([](auto& p) { p.microbatches = -1; }), HasSubstr("microbatches, got -1"));
  EXPECT_THAT(refusal([](auto& p) { p.bandwidth = BytesPerSecond(kNever); }),
              HasSubstr("expected a bandwidth above 0, got inf B/s"));
  EXPECT_THAT(refusal([](auto& p) { p.memory = Bytes(0); }), HasSubstr("memory above 0"));
  EXPECT_THAT(refusal([](auto& p) {
                p.memory = Bytes(1);
                p.profile.layers[1].variants[1].stored.reset();
              }),
              HasSubstr("variant 'lean' of layer '1' does not say what it holds"));
}

TEST(Piper, VerifyRefusesWhatIsNoAnswer) {
  PiperProblem problem = chain({1, 1, 1, 1});
  problem.devices = 2;
  problem.microbatches = 3;
  problem.memory = Bytes(30);
  const PiperPartition good = solvedPiper(problem);
  const auto fault = [&](const std::function<void(PiperPartition&)>& spoil) {
    PiperPartition bad = good;
    spoil(bad);
    return problem.verify(bad).message();
  };
  EXPECT_THAT(fault([](auto& p) { p.time = 2_s; }), HasSubstr("the partition says 2 s"));
  EXPECT_THAT(fault([](auto& p) { p.stages[1].time = 2_s; }), HasSubstr("stage 1 takes 3 s and"));
  EXPECT_THAT(fault([](auto& p) { p.stages[0].memory = 1_B; }), HasSubstr("another memory"));
  EXPECT_THAT(fault([](auto& p) { p.stages[0].dataDegree = 2; }), HasSubstr("does not divide 3"));
  EXPECT_THAT(fault([](auto& p) { p.stages[0].dataDegree = 3; }), HasSubstr("use 4 devices"));
  EXPECT_THAT(fault([](auto& p) { p.devicesUsed = 1; }), HasSubstr("the partition says 1"));
  EXPECT_THAT(fault([](auto& p) { std::swap(p.stages[0], p.stages[1]); }),
              HasSubstr("on which it depends"));
  EXPECT_THAT(fault([](auto& p) { p.stages[0].layers[0] = 3; }), HasSubstr("and so has stage 0"));
  EXPECT_THAT(fault([](auto& p) { p.stages.pop_back(); }), HasSubstr("is in no stage"));
  EXPECT_THAT(fault([](auto& p) { p.stages[0].variants[0] = 2; }), HasSubstr("has no variant 2"));
  EXPECT_THAT(fault([](auto& p) {
                p.stages[0].tensorDegree = 2;
                p.devicesUsed = 2;
                p.stages.pop_back();
                p.stages[0].layers = {0, 1, 2, 3};
                p.stages[0].variants = {0, 0, 0, 0};
              }),
              HasSubstr("has no variant 0 at tensor degree 2"));
  problem.memory = Bytes(29);
  EXPECT_THAT(problem.verify(good).message(), HasSubstr("stage 1 needs 30 B, there is 29 B"));
}

}  // namespace
}  // namespace trireme::planner
