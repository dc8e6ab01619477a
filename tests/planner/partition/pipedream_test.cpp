#include "planner/partition/pipedream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tests/planner/partition/profiles.h"

namespace trireme::planner {
namespace {

using namespace trireme::planner::testing;
using ::testing::HasSubstr;

// PipeDream's partitioner against exhaustive search: times in ms, sizes in MB, bandwidth in GB/s,
// which is MB/ms. VGG-like: long convolutions without weights, short layers with many. The answers
// were computed independently, and confirmed by trying everything for four workers.
spec::ProfileSpec vggLike() {
  const std::vector<double> time = {20, 40, 40, 60, 60, 60, 30, 30, 8, 4, 2};
  const std::vector<double> activation = {103, 103, 51, 51, 26, 26, 13, 3, .5, .5, .13};
  const std::vector<double> weights = {.01, .3, .9, 2.4, 4.7, 9.4, 9.4, 9.4, 411, 67, 16};
  spec::ProfileSpec p;
  for (size_t i = 0; i < time.size(); ++i)
    p.layers.push_back(
        plainLayer(std::to_string(i), time[i] * 1e-3, activation[i] * 1e6, weights[i] * 1e6));
  joinAll(p);
  return p;
}

PipedreamProblem flat(spec::ProfileSpec profile, PipedreamForm form, int64_t workers,
                      double gigabytesPerSecond) {
  PipedreamProblem problem;
  problem.profile = std::move(profile);
  problem.form = form;
  problem.levels = {{workers, BytesPerSecond(gigabytesPerSecond * 1e9)}};
  return problem;
}

PipedreamPartition solvedPipedream(const PipedreamProblem& problem) {
  const Result<PipedreamPartition> result = partitionPipedream(problem);
  EXPECT_TRUE(result.has_value()) << result.error().message();
  if (!result.has_value()) return {};
  const Status status = problem.verify(*result);
  EXPECT_TRUE(status.ok()) << status.message();
  return *result;
}

struct Golden {
  int64_t workers;
  double bandwidth;
  double ms[3];
  const char* stages[3];
};

TEST(Pipedream, ThreeFormsGiveTheirPublishedPlans) {
  const Golden goldens[] = {
      {4, 1.25, {93.3333, 93.3333, 103.2000}, {"3-1", "3-1", "1-2-1"}},
      {4, 3.125, {93.3333, 93.3333, 98.3708}, {"3-1", "3-1", "3-1"}},
      {4, 12.5, {88.5, 88.5, 94.5927}, {"4", "4", "3-1"}},
      {8, 1.25, {44.2857, 44.2857, 54.5378}, {"7-1", "7-1", "6-1-1"}},
      {8, 3.125, {44.2857, 44.2857, 48.5348}, {"7-1", "7-1", "7-1"}},
      {8, 12.5, {44.25, 44.2857, 45.3480}, {"8", "7-1", "7-1"}},
      {8, 100, {44.25, 44.25, 44.4185}, {"8", "8", "7-1"}},
  };
  for (const Golden& golden : goldens)
    for (const PipedreamForm form :
         {PipedreamForm::kFlat, PipedreamForm::kHierarchical, PipedreamForm::kReleased}) {
      const size_t column = form == PipedreamForm::kFlat           ? 0
                            : form == PipedreamForm::kHierarchical ? 1
                                                                   : 2;
      const PipedreamPartition partition =
          solvedPipedream(flat(vggLike(), form, golden.workers, golden.bandwidth));
      EXPECT_NEAR(partition.time.count() * 1e3, golden.ms[column], 5e-5)
          << pipedreamFormName(form) << " " << golden.workers << " @ " << golden.bandwidth;
      EXPECT_EQ(describe(partition.stages), golden.stages[column])
          << pipedreamFormName(form) << " " << golden.workers << " @ " << golden.bandwidth;
    }
}

TEST(Pipedream, StagesOfThePublishedPlansAreTheirLayers) {
  const PipedreamPartition four =
      solvedPipedream(flat(vggLike(), PipedreamForm::kHierarchical, 4, 1.25));
  ASSERT_EQ(four.stages.size(), 2u);
  EXPECT_EQ(four.stages[0].layers, (std::vector<int32_t>{0, 1, 2, 3, 4, 5}));
  const PipedreamPartition eight =
      solvedPipedream(flat(vggLike(), PipedreamForm::kHierarchical, 8, 1.25));
  ASSERT_EQ(eight.stages.size(), 2u);
  EXPECT_EQ(eight.stages[0].layers, (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6}));
}

// One worker: the sum of all layers, 354 ms. On 8 workers at 1.25 MB/ms, data parallelism moves
// 4 * 7 / 8 * 530.51 MB in 1485.428 ms, the SOSP form 2 * 7 * 530.51 in 5941.712 ms, each shared
// by 8; the code adds the 354 ms.
TEST(Pipedream, DataParallelismIsTheYardstick) {
  const double expected[] = {5941.712 / 8, 1485.428 / 8, (1485.428 + 354) / 8};
  for (const PipedreamForm form :
       {PipedreamForm::kHierarchical, PipedreamForm::kFlat, PipedreamForm::kReleased}) {
    const PipedreamPartition p = solvedPipedream(flat(vggLike(), form, 8, 1.25));
    EXPECT_NEAR(p.oneWorkerTime.count(), 0.354, 1e-9);
    EXPECT_NEAR(p.dataParallelTime.count() * 1e3, expected[static_cast<size_t>(form)], 1e-6);
  }
}

// 7-1 on 8 workers: a worker of the first stage has ceil(8 / 7) = 2 minibatches in flight, the last
// one 1; each keeps its activations and the weights that it began with.
TEST(Pipedream, WorkersKeepAVersionPerMinibatchInFlight) {
  const PipedreamProblem problem = flat(vggLike(), PipedreamForm::kHierarchical, 8, 1.25);
  const std::vector<WorkerStage> stages = workerStages(problem, solvedPipedream(problem));
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_EQ(stages[0].workers, 7);
  EXPECT_NEAR(stages[0].memory->count(), 2 * (373e6 + 27.11e6), 1);
  EXPECT_NEAR(stages[1].memory->count(), 4.13e6 + 503.4e6, 1);
}

// --- Against everything there is -----------------------------------------------------------------

// Tries every sequence of stages and replicas, from the first stage on and without a table. Down-
// sets are bit masks. The formulas are written down again.
class ExhaustivePipedream {
 public:
  explicit ExhaustivePipedream(const PipedreamProblem& problem) : problem_(problem) {
    n_ = static_cast<int32_t>(problem.profile.layers.size());
  }

  double best() const {
    const size_t last = problem_.levels.size() - 1;
    double best = kNever;
    for (int64_t m = problem_.mayLeaveIdle ? 1 : components(last); m <= components(last); ++m)
      best = std::min(best, pipeline(last, 0, (1u << n_) - 1, m, true));
    return best;
  }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  int64_t components(size_t level) const { return problem_.levels[level].components; }

  // Stages on exactly `workers` components for the layers of `to` that are not in `from`.
  double pipeline(size_t level, uint32_t from, uint32_t to, int64_t workers, bool isFirst) const {
    double best = kNever;
    for (uint32_t mid = 1; mid <= to; ++mid) {
      if ((mid & from) != from || mid == from || (mid & ~to) != 0 || !isClosed(mid)) continue;
      for (int64_t r = 1; r <= workers; ++r) {
        if ((mid == to) != (r == workers)) continue;  // The last stage gets what is left.
        const double rest = mid == to ? 0 : pipeline(level, mid, to, workers - r, false);
        best = std::min(best, std::max(rest, stage(level, from, mid, {r, workers}, isFirst)));
      }
    }
    return best;
  }

  double stage(size_t level, uint32_t from, uint32_t to, std::pair<int64_t, int64_t> workers,
               bool isFirst) const {
    const auto r = static_cast<double>(workers.first);
    const double bandwidth = problem_.levels[level].bandwidth.count();
    double compute = 0, weights = 0, activations = 0;
    for (int32_t i = 0; i < n_; ++i)
      if ((to & ~from) >> i & 1) {
        const spec::ProfileLayer& layer = problem_.profile.layers[static_cast<size_t>(i)];
        compute += layer.variants[0].time().count();
        weights += layer.variants[0].weights.count();
        activations += layer.activation->count();
      }
    if (problem_.memory) {
      const double behind = static_cast<double>(workers.second - workers.first);
      if (std::ceil(behind / r) * (weights + activations) > problem_.memory->count()) return kNever;
    }
    if (level > 0) compute = pipeline(level - 1, from, to, components(level - 1), true);
    const double in = isFirst ? 0 : 2 * border(from) / bandwidth;
    const double out = isFirst ? 0 : 2 * border(to) / bandwidth;
    switch (problem_.form) {
      case PipedreamForm::kHierarchical:
        return std::max(in, std::max(compute, 2 * (r - 1) * weights / bandwidth) / r);
      case PipedreamForm::kFlat:
        return std::max(in, std::max(compute, 4 * (r - 1) * weights / (r * bandwidth)) / r);
      case PipedreamForm::kReleased:
        break;
    }
    const double shared = isFirst && level > 0 ? static_cast<double>(components(level - 1)) : 1.0;
    const double computing = (compute + 4 * (r - 1) * weights / (r * bandwidth) / shared) / r;
    return problem_.countTransfers ? std::max({computing, in / r, out / r}) : computing;
  }

  bool isClosed(uint32_t mask) const {
    for (const spec::ProfileEdge& edge : problem_.profile.edges)
      if ((mask >> edge.to & 1) && !(mask >> edge.from & 1)) return false;
    return true;
  }

  double border(uint32_t mask) const {
    double bytes = 0;
    for (int32_t i = 0; i < n_; ++i) {
      bool crosses = false;
      for (const spec::ProfileEdge& edge : problem_.profile.edges)
        crosses = crosses || (edge.from == i && (mask >> i & 1) && !(mask >> edge.to & 1));
      if (crosses) bytes += problem_.profile.layers[static_cast<size_t>(i)].activation->count();
    }
    return bytes;
  }

  const PipedreamProblem& problem_;
  int32_t n_;
};

void expectOptimalPartition(const PipedreamProblem& problem) {
  const double best = ExhaustivePipedream(problem).best();
  const PipedreamPartition partition = solvedPipedream(problem);
  EXPECT_NEAR(partition.time.count(), best, 1e-9 * best) << describe(partition.stages);
}

TEST(Pipedream, VggPlansOnFourWorkersAreOptimal) {
  for (const double bandwidth : {1.25, 3.125, 12.5})
    for (const PipedreamForm form :
         {PipedreamForm::kFlat, PipedreamForm::kHierarchical, PipedreamForm::kReleased})
      expectOptimalPartition(flat(vggLike(), form, 4, bandwidth));
}

TEST(Pipedream, RandomGraphsOnOneLevelAreOptimal) {
  std::mt19937_64 rng(17);
  for (int round = 0; round < 600; ++round) {
    const auto n = static_cast<int32_t>(1 + rng() % 5);
    const auto form = static_cast<PipedreamForm>(rng() % 3);
    PipedreamProblem problem =
        flat(shuffled(randomProfile(rng, n, 0.3), rng), form, 1 + static_cast<int64_t>(rng() % 4),
             static_cast<double>(1 + rng() % 4) * 1e-9);
    if (form == PipedreamForm::kReleased) {
      problem.countTransfers = rng() % 2 == 0;
      problem.mayLeaveIdle = rng() % 4 == 0;
      if (!problem.mayLeaveIdle && rng() % 2 == 0)
        problem.memory = Bytes(static_cast<double>(5 + rng() % 60));
    }
    expectOptimalPartition(problem);
    if (HasFailure()) FAIL() << "round " << round;
  }
}

TEST(Pipedream, RandomGraphsOnSeveralLevelsAreOptimal) {
  std::mt19937_64 rng(23);
  for (int round = 0; round < 200; ++round) {
    const auto n = static_cast<int32_t>(1 + rng() % 4);
    const bool released = rng() % 2 == 0;
    PipedreamProblem problem =
        flat(shuffled(randomProfile(rng, n, 0.3), rng),
             released ? PipedreamForm::kReleased : PipedreamForm::kHierarchical,
             1 + static_cast<int64_t>(rng() % 3), static_cast<double>(1 + rng() % 9) * 1e-9);
    for (size_t more = 1 + rng() % 2; more > 0; --more)
      problem.levels.push_back({1 + static_cast<int64_t>(rng() % 3),
                                BytesPerSecond(static_cast<double>(1 + rng() % 4))});
    expectOptimalPartition(problem);
    if (HasFailure()) FAIL() << "round " << round;
  }
}

// A fork of two equal branches: a chain would have to put one behind the other; as a graph, the
// stages are down-sets, so a branch of 4 s and everything else of 4 s share two workers evenly.
TEST(Pipedream, BranchesAreStagesOfTheirOwn) {
  spec::ProfileSpec p;
  for (const double seconds : {2.0, 3.0, 1.0, 2.0})
    p.layers.push_back(plainLayer(std::to_string(p.layers.size()), seconds, 0, 100));
  join(p, 0, 1);
  join(p, 0, 2);
  join(p, 1, 3);
  join(p, 2, 3);
  // {0, 2 | 1, 3} has 3 and 5, {0, 1 | 2, 3} has 5 and 3, {0 | ...} 2 and 6, {0, 1, 2 | 3} 6 and 2.
  const PipedreamPartition partition =
      solvedPipedream(flat(p, PipedreamForm::kHierarchical, 2, 1e-9));
  EXPECT_EQ(partition.time.count(), 5);
  EXPECT_EQ(partition.numDownSets, 6u);
}

TEST(Pipedream, NamesOfLayersAndTheirOrderDoNotMatter) {
  std::mt19937_64 rng(29);
  for (int round = 0; round < 50; ++round) {
    const spec::ProfileSpec profile = randomProfile(rng, 9, 0.2);
    const PipedreamPartition a =
        solvedPipedream(flat(profile, PipedreamForm::kHierarchical, 6, 2e-9));
    const PipedreamPartition b =
        solvedPipedream(flat(shuffled(profile, rng), PipedreamForm::kHierarchical, 6, 2e-9));
    EXPECT_NEAR(a.time.count(), b.time.count(), 1e-9 * a.time.count());
  }
}

// --- Profiles of PipeDream's authors -------------------------------------------------------------

// The answers of the authors' optimizer on their own profiles, run as published.
TEST(Pipedream, AuthorsProfilesGiveTheAuthorsPlans) {
  struct Published {
    const char* file;
    std::vector<NetworkLevel> levels;
    const char* stages;  // a regular expression
    double seconds, overDataParallel;
  };
  const auto at = [](double gigabytes) { return BytesPerSecond(gigabytes * 1e9); };
  const Published table[] = {
      {"pipedream_vgg16.txt", {{4, at(1.25)}}, "3-1", 0.176349, 2.836},
      {"pipedream_vgg16.txt", {{8, at(1.25)}}, "7-1", 0.100841, 2.755},
      {"pipedream_vgg16.txt", {{8, at(3.125)}}, "7-1", 0.093661, 1.725},
      {"pipedream_vgg16.txt", {{16, at(3.125)}}, "15-1", 0.045525, 1.835},
      {"pipedream_vgg16.txt", {{16, at(1.25)}}, "13-2-1", 0.054795, 2.661},
      {"pipedream_vgg16.txt", {{4, at(16)}, {4, at(1.25)}}, ".*", 0.066582, 1.976},
      {"pipedream_resnet50.txt", {{4, at(1.25)}}, "2-2", 0.151993, 1.133},
      {"pipedream_resnet50.txt", {{16, at(1.25)}}, "8-5-3", 0.043848, 1.069},
  };
  if (casePath("").empty()) GTEST_SKIP() << "TRIREME_REFERENCE names no folder of published cases";
  for (const Published& row : table) {
    const Result<spec::ProfileSpec> profile = spec::loadProfile(casePath(row.file));
    ASSERT_TRUE(profile.has_value()) << profile.error().message();
    PipedreamProblem problem;
    problem.profile = *profile;
    problem.form = PipedreamForm::kReleased;
    problem.levels = row.levels;
    const PipedreamPartition p = solvedPipedream(problem);
    EXPECT_NEAR(p.time.count(), row.seconds, 6e-7) << row.file;
    EXPECT_NEAR(p.dataParallelTime / p.time, row.overDataParallel, 6e-4) << row.file;
    EXPECT_THAT(describe(p.stages), ::testing::MatchesRegex(row.stages)) << row.file;
  }
}

// --- Refusals ------------------------------------------------------------------------------------

std::string refusalOfProblem(const PipedreamProblem& problem) {
  const Status status = problem.check();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  const Result<PipedreamPartition> result = partitionPipedream(problem);
  EXPECT_FALSE(result.has_value());
  return status.message();
}

TEST(Pipedream, CheckSaysWhatIsWrongWithAnInstance) {
  const PipedreamProblem good = flat(vggLike(), PipedreamForm::kHierarchical, 4, 1);
  PipedreamProblem bad = good;
  bad.levels.clear();
  EXPECT_THAT(refusalOfProblem(bad), HasSubstr("no network levels"));
  bad = good;
  bad.levels[0].components = 0;
  EXPECT_THAT(refusalOfProblem(bad), HasSubstr("level 1 has 0 components; expected 1 to 1048576"));
  bad = good;
  bad.levels.push_back({2, BytesPerSecond(0)});
  EXPECT_THAT(refusalOfProblem(bad), HasSubstr("level 2 has a bandwidth of 0 B/s"));
  bad = good;
  bad.levels = {{1 << 20, BytesPerSecond(1)}, {1 << 20, BytesPerSecond(1)}};
  EXPECT_THAT(refusalOfProblem(bad), HasSubstr("workers and more"));
  bad = good;
  bad.memory = Bytes(1);
  EXPECT_THAT(refusalOfProblem(bad),
              HasSubstr("sosp19 knows no such thing as a memory limit; released"));
  bad = good;
  bad.form = PipedreamForm::kFlat;
  bad.levels.push_back(bad.levels[0]);
  EXPECT_THAT(refusalOfProblem(bad), HasSubstr("arxiv18 takes one network level, got 2"));
  bad = good;
  bad.profile.layers[3].variants.push_back(bad.profile.layers[3].variants[0]);
  bad.profile.layers[3].variants[1].name = "recompute";
  EXPECT_THAT(refusalOfProblem(bad),
              HasSubstr("layer '3' has 2 variants at tensor degree 1 ('plain', 'recompute')"));
  bad = good;
  bad.form = PipedreamForm::kReleased;
  bad.memory = Bytes(1);
  bad.profile.layers[2].activation.reset();
  EXPECT_THAT(refusalOfProblem(bad), HasSubstr("layer '2' has no activation"));
}

TEST(Pipedream, VerifyRefusesWhatIsNoAnswer) {
  PipedreamProblem problem = flat(vggLike(), PipedreamForm::kReleased, 4, 1.25);
  const PipedreamPartition good = solvedPipedream(problem);
  ASSERT_EQ(describe(good.stages), "1-2-1");
  const auto fault = [&](const std::function<void(PipedreamPartition&)>& spoil) {
    PipedreamPartition bad = good;
    spoil(bad);
    return problem.verify(bad).message();
  };
  EXPECT_THAT(fault([](auto& p) { p.time = p.time * 0.99; }), HasSubstr("and says"));
  EXPECT_THAT(fault([](auto& p) { p.stages[0].replicas = 2; }),
              HasSubstr("the stages of level 1 have 5 replicas, there are 4 workers"));
  EXPECT_THAT(fault([](auto& p) { p.stages[2].layers.pop_back(); }),
              HasSubstr("layer '10' is in no stage"));
  EXPECT_THAT(fault([](auto& p) { std::swap(p.stages[0].layers, p.stages[2].layers); }),
              HasSubstr("on which it depends"));
  EXPECT_THAT(fault([](auto& p) { p.stages[1].layers.push_back(0); }),
              HasSubstr("layer '0' is in two stages"));
  EXPECT_THAT(fault([](auto& p) { p.stages[1].inner.push_back({}); }),
              HasSubstr("a worker holds no pipeline"));
  EXPECT_THAT(fault([](auto& p) { p.stages[1].layers[0] = 11; }), HasSubstr("no layer 11"));
  problem.memory = Bytes(1e6);
  EXPECT_THAT(problem.verify(good).message(), HasSubstr("is in a stage that keeps 3 versions of"));
}

TEST(Pipedream, SearchesThatWouldNotEndAreRefused) {
  spec::ProfileSpec p;
  for (const char* name : {"a", "b"}) p.layers.push_back(plainLayer(name, 1, 1, 1));
  joinAll(p);
  const PipedreamProblem problem = flat(p, PipedreamForm::kHierarchical, 1 << 20, 1);
  EXPECT_THAT(partitionPipedream(problem).error().message(),
              HasSubstr("would take 5e+11 steps, more than 1e+11; nearest: 447213 components"));
}

TEST(Pipedream, TablesThatWouldNotFitAreRefused) {
  spec::ProfileSpec p;
  for (int i = 0; i < 1000; ++i) p.layers.push_back(plainLayer(std::to_string(i), 1, 1, 1));
  joinAll(p);
  PipedreamProblem problem = flat(p, PipedreamForm::kHierarchical, 64, 1);
  problem.levels.push_back({4, BytesPerSecond(1e9)});
  const Result<PipedreamPartition> result = partitionPipedream(problem);
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(result.error().message(), HasSubstr("level 1 with 64 components and 1001 ways"));
}

}  // namespace
}  // namespace trireme::planner
