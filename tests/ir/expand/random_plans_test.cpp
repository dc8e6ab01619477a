// Random legal plans give programs that verify.
#include <gtest/gtest.h>

#include <random>

#include "ir/expand/expand.h"
#include "ir/program/verify.h"

namespace trireme::expand {
namespace {

template <typename T>
T pick(std::mt19937_64& rng, const std::vector<T>& from) {
  return from[rng() % from.size()];
}

spec::ModelSpec randomModel(std::mt19937_64& rng, int64_t minLayers) {
  spec::ModelSpec m;
  m.name = "random";
  m.numLayers = minLayers + static_cast<int64_t>(rng() % 4);
  m.numHeads = 16;
  m.numKvHeads = pick<int64_t>(rng, {8, 16});
  m.headSize = 4;
  m.hiddenSize = 64;
  m.ffnSize = 128;
  m.vocabSize = 100 + static_cast<int64_t>(rng() % 100);
  m.maxSequence = 32;
  m.tiedEmbeddings = rng() % 2 == 0;
  if (rng() % 2 == 0) {
    m.family = spec::ModelFamily::kLlama;
    m.norm = spec::NormKind::kRmsNorm;
    m.activation = spec::ActivationKind::kSwiGlu;
    m.position = spec::PositionKind::kRotary;
    m.qkvBias = m.linearBias = false;
  }
  return m;
}

// Cuts the layers into `parts` non-empty ranges at random.
std::vector<plan::LayerRange> randomRanges(std::mt19937_64& rng, int64_t layers, int64_t parts) {
  std::vector<plan::LayerRange> ranges;
  int64_t first = 0;
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t spare = layers - first - (parts - i);
    const int64_t count =
        i + 1 == parts
            ? layers - first
            : 1 + (spare > 0 ? static_cast<int64_t>(rng() % static_cast<uint64_t>(spare + 1)) : 0);
    ranges.push_back({first, count});
    first += count;
  }
  return ranges;
}

struct Case {
  spec::ModelSpec model;
  plan::Plan plan;
};

// Up to 8 x 8 x 64 = 4,096 ranks.
Case randomCase(std::mt19937_64& rng) {
  Case c;
  plan::Plan& p = c.plan;
  p.tp = pick<int64_t>(rng, {1, 2, 4, 8});
  p.pp = pick<int64_t>(rng, {1, 2, 3, 4, 8});
  const int64_t dp = pick<int64_t>(rng, {1, 1, 2, 3, 4, 8, 64});
  p.schedule = pick<plan::ScheduleKind>(
      rng, {plan::ScheduleKind::kGpipe, plan::ScheduleKind::k1F1B, plan::ScheduleKind::kInterleaved,
            plan::ScheduleKind::kZeroBubbleH1, plan::ScheduleKind::kZeroBubbleH2});
  if (p.pp == 1 && p.schedule == plan::ScheduleKind::kInterleaved)
    p.schedule = plan::ScheduleKind::k1F1B;
  if (p.schedule == plan::ScheduleKind::kInterleaved)
    p.virtualStages = pick<int64_t>(rng, {2, 3, 4});
  c.model = randomModel(rng, p.pp * p.virtualStages);
  p.model = c.model.name;
  p.fingerprint = plan::fingerprintOf(c.model);
  p.training.sequenceLength = pick<int64_t>(rng, {8, 16, 32});
  p.training.embeddingDropout = p.training.attentionDropout = p.training.residualDropout =
      rng() % 2 == 0 ? 0.1 : 0.0;
  p.training.precision =
      pick<spec::Precision>(rng, {spec::Precision::kFp32, spec::Precision::kBf16,
                                  spec::Precision::kFp16, spec::Precision::kFp64});
  p.microbatchSize = pick<int64_t>(rng, {1, 2, 3});
  int64_t m = 1 + static_cast<int64_t>(rng() % 9);
  if (p.schedule == plan::ScheduleKind::kInterleaved)
    m = p.pp * (1 + static_cast<int64_t>(rng() % 3));
  p.recompute = pick<plan::Recompute>(
      rng, {plan::Recompute::kNone, plan::Recompute::kSelective, plan::Recompute::kFull});
  if (dp > 1 && rng() % 2 == 0) {
    p.dpShard = dp;
    p.stateSharding = plan::StateSharding::kOptimizer;
  } else {
    p.dpReplicate = dp;
  }
  p.training.globalBatchSize = dp * p.microbatchSize * m;
  p.sequenceParallel = p.tp > 1 && rng() % 2 == 0;
  p.scatterGather = p.tp > 1 && p.pp > 1 && !p.sequenceParallel && rng() % 2 == 0;
  p.overlapReductions = (p.tp > 1 || p.dp() > 1) && rng() % 2 == 0;
  if (p.pp > 1 && dp > 1 && rng() % 2 == 0) p.rankOrder = plan::RankOrder::kTpCpPpDp;
  p.vocabMultiple = pick<int64_t>(rng, {1, 4, 128});
  const auto ranges = randomRanges(rng, c.model.numLayers, p.pp * p.virtualStages);
  p.layers.resize(static_cast<size_t>(p.pp));
  for (size_t i = 0; i < ranges.size(); ++i)
    p.layers[i % static_cast<size_t>(p.pp)].push_back(ranges[i]);
  return c;
}

TEST(RandomPlans, GiveProgramsThatVerify) {
  constexpr int kPlans = TRIREME_SANITIZED ? 500 : 10000;
  std::mt19937_64 rng(20261);
  int64_t largest = 0, ranks = 0;
  for (int i = 0; i < kPlans; ++i) {
    const Case c = randomCase(rng);
    const auto expansion = expand(c.model, c.plan);
    ASSERT_TRUE(expansion.has_value()) << expansion.error().message() << plan::printPlan(c.plan);
    const Status status = program::verifyProgram(expansion->program);
    ASSERT_TRUE(status.ok()) << "plan " << i << ": " << status.message() << "\n"
                             << plan::printPlan(c.plan);
    largest = std::max<int64_t>(largest, expansion->program.numRanks());
    ranks += expansion->program.numRanks();
  }
  std::printf("%d random plans verified, %lld ranks in all, the largest %lld\n", kPlans,
              static_cast<long long>(ranks), static_cast<long long>(largest));
  EXPECT_EQ(largest, 4096);
}

}  // namespace
}  // namespace trireme::expand
