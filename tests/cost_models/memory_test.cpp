#include "cost_models/memory.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "cost_models/estimate.h"
#include "ir/program/gpu_memory.h"
#include "tests/cost_models/small_specs.h"

namespace trireme::cost {
namespace {

MemoryUse use(const plan::Plan& plan, const spec::ModelSpec& model,
              const spec::StackProfile& stack = {}) {
  const auto expansion = expand::expand(model, plan);
  EXPECT_TRUE(expansion.has_value());
  return largestOf(memoryOfRoles(*expansion, plan, model, stack, {}));
}

// Korthikanti et al. 2022: 5 a s^2 b bytes per layer in 2-byte precision, over tp ranks.
TEST(UnfusedScores, AreFiveBytesPerScoreWithDropout) {
  const spec::ModelSpec model = small::gpt(8, 64, 4);
  plan::Plan plan = small::plan(model, small::training(), 2);
  plan.microbatchSize = 2;
  plan.training.attentionDropout = 0.1;
  EXPECT_EQ(unfusedScoresBytes(plan, model), Bytes(5.0 * 4 * 32 * 32 * 2 / 2));
  plan.training.attentionDropout = 0;
  EXPECT_EQ(unfusedScoresBytes(plan, model), Bytes(2.0 * 4 * 32 * 32 * 2 / 2));
}

// 1F1B, 2 stages, stage 0: 2 microbatches in flight, 4 layers.
TEST(MemoryOf, UnfusedAttentionIsKeptPerLayerInFlight) {
  const spec::ModelSpec model = small::gpt();
  plan::Plan plan = small::plan(model, small::training(), 1, 2);
  spec::StackProfile unfused;
  unfused.flashAttention = false;
  const auto expansion = expand::expand(model, plan);
  ASSERT_TRUE(expansion.has_value());
  EXPECT_EQ(memoryOf(*expansion, 0, plan, model, unfused, {}).unfusedAttention,
            unfusedScoresBytes(plan, model) * 8);
  plan.recompute = plan::Recompute::kSelective;
  EXPECT_EQ(memoryOf(*expansion, 0, plan, model, unfused, {}).unfusedAttention,
            unfusedScoresBytes(plan, model));
}

// bf16: 2 B parameter, 4 B gradient, 4 B master, 8 B moments = 18 B (SC 2021); 6 + 12 / d sharded.
TEST(MemoryOf, StateTakesEighteenBytesPerParameter) {
  const spec::ModelSpec model = small::gpt();
  plan::Plan plan = small::plan(model, small::training(), 1, 1, 4);
  const auto bytes = [&](const MemoryUse& m) {
    return static_cast<double>(m.arena.parameters + m.arena.gradients + m.arena.optimizer) /
           static_cast<double>(model.numParameters());
  };
  EXPECT_NEAR(bytes(use(plan, model)), 18, 0.1);
  std::swap(plan.dpReplicate, plan.dpShard);
  plan.stateSharding = plan::StateSharding::kOptimizer;
  EXPECT_NEAR(bytes(use(plan, model)), 6 + 12.0 / 4, 0.1);
}

TEST(MemoryOf, AStackMayHaveItsOwnOptimizerBytesAndReserve) {
  const spec::ModelSpec model = small::gpt();
  const plan::Plan plan = small::plan(model, small::training());
  spec::StackProfile stack;
  stack.optimizerBytesPerParameter = 24;
  stack.fixedReserve = Bytes(1e6);
  const double more = (use(plan, model, stack).total() - use(plan, model).total()).count();
  EXPECT_NEAR(more, 1e6 + 12 * static_cast<double>(model.numParameters()), 0.01 * more);
}

// tp 2 x pp 2 x dp 2 on two blocks of 4 devices, in each of which is a stage: 8 channels at the
// 100 GB/s within, 2 at the 10 GB/s between. Overlapped reductions, the table untied. Connections
// of a first stage:
//   collectives over tp, and over dp for what is reduced at the end of the step, 8 x 3 each;
//   reductions over dp and over tp, 8 x 3 each; norms, 2 x 3; messages there and back, 2 x 1/2 each
TEST(ReserveOf, AGpuIsWhatTheDriverAndNcclTake) {
  spec::ModelSpec model = small::gpt();
  model.tiedEmbeddings = false;
  plan::Plan plan = small::plan(model, small::training(), 2, 2, 2);
  plan.overlapReductions = true;
  spec::StackProfile stack;
  stack.fixedReserve = Bytes(1e6);
  stack.gpuReserve = Bytes(5e8);
  stack.ncclConnection = Bytes(1e7);
  const auto expansion = expand::expand(model, plan);
  ASSERT_TRUE(expansion.has_value()) << expansion.error().message();
  spec::ClusterSpec cluster = small::cluster(8, 4);
  const auto reserve = [&] { return memoryOf(*expansion, 0, plan, model, stack, cluster).reserve; };
  EXPECT_EQ(reserve(), Bytes(1e6 + 5e8 + (4 * 24 + 6 + 2) * 1e7));
  cluster.device.kind = spec::DeviceKind::kHost;
  EXPECT_EQ(reserve(), Bytes(1e6));
  EXPECT_EQ(leastReserve(plan, stack, cluster), Bytes(1e6));
}

std::vector<program::Lane> lanesOf(int32_t rank, const std::vector<program::Clique>& cliques) {
  std::vector<program::Lane> lanes;
  for (const program::Clique& clique : cliques)
    if (std::count(clique.ranks.begin(), clique.ranks.end(), rank) > 0)
      lanes.push_back(clique.lane);
  std::sort(lanes.begin(), lanes.end());
  return lanes;
}

// A role's communicators are those that NCCL will be asked for by each of its ranks; the least
// reserve is no more than any rank's, and that of the first stage with untied embeddings.
TEST(ReserveOf, CountsTheCliquesOfARank) {
  const spec::ClusterSpec cluster = small::cluster(16, 4);
  spec::StackProfile stack;
  stack.ncclConnection = Bytes(1e6);
  for (const int64_t tp : {1, 2})
    for (const int64_t pp : {1, 2, 4})
      for (const int64_t dp : {1, 2})
        for (int choices = 0; choices < 16; ++choices) {
          spec::ModelSpec model = small::gpt();
          model.tiedEmbeddings = (choices & 1) != 0;
          plan::Plan plan = small::plan(model, small::training(), tp, pp, dp);
          plan.overlapReductions = (choices & 2) != 0 && tp * dp > 1;
          if ((choices & 4) != 0 && dp > 1) {
            std::swap(plan.dpReplicate, plan.dpShard);
            plan.stateSharding = plan::StateSharding::kOptimizer;
          }
          if ((choices & 8) != 0 && pp > 1) plan.schedule = plan::ScheduleKind::kZeroBubbleH1;
          const auto expansion = expand::expand(model, plan);
          ASSERT_TRUE(expansion.has_value()) << expansion.error().message();
          const program::Program& program = expansion->program;
          const auto cliques = program::cliquesOf(program);
          ASSERT_TRUE(cliques.has_value()) << cliques.error().message();
          for (int32_t rank = 0; rank < program.numRanks(); ++rank) {
            const auto role = static_cast<size_t>(program.ranks[static_cast<size_t>(rank)].role);
            std::vector<program::Lane> lanes;
            for (const program::RoleClique& clique :
                 program::cliquesOf(program, program.roles[role]))
              lanes.push_back(clique.lane);
            std::sort(lanes.begin(), lanes.end());
            EXPECT_EQ(lanes, lanesOf(rank, *cliques))
                << "tp " << tp << " pp " << pp << " dp " << dp << " rank " << rank;
            const Bytes reserve = reserveOf(program, program.roles[role], plan, stack, cluster);
            EXPECT_LE(leastReserve(plan, stack, cluster), reserve)
                << "tp " << tp << " pp " << pp << " dp " << dp << " choices " << choices;
            EXPECT_LE(stack.ncclConnection * leastConnections(tp, pp, dp, cluster), reserve);
            if (rank == 0 && !model.tiedEmbeddings) {
              EXPECT_EQ(leastReserve(plan, stack, cluster), reserve)
                  << "tp " << tp << " pp " << pp << " dp " << dp << " choices " << choices;
            }
          }
        }
}

TEST(LargestMemory, IsTheFullestStage) {
  const spec::ModelSpec model = small::gpt();
  const plan::Plan plan = small::plan(model, small::training(64), 1, 4);
  const auto expansion = expand::expand(model, plan);
  ASSERT_TRUE(expansion.has_value());
  const MemoryUse largest = largestOf(memoryOfRoles(*expansion, plan, model, {}, {}));
  for (size_t role = 0; role < 4; ++role)
    EXPECT_LE(memoryOf(*expansion, role, plan, model, {}, {}).total(), largest.total());
}

TEST(MemoryByStage, HasEveryPipelineRankAndTheFullestIsTheEstimates) {
  const spec::ModelSpec model = small::gpt();
  const plan::Plan plan = small::plan(model, small::training(64), 1, 4);
  spec::StackProfile described;
  described.ownPrograms = false;
  for (const spec::StackProfile& stack : {spec::StackProfile{}, described}) {
    const auto stages = memoryByStage(model, plan, small::cluster(), stack);
    const auto whole = estimate(model, plan, small::cluster(), stack);
    ASSERT_TRUE(stages.has_value() && whole.has_value());
    ASSERT_EQ(stages->size(), 4u);
    Bytes most;
    for (int32_t i = 0; i < 4; ++i) {
      EXPECT_EQ((*stages)[static_cast<size_t>(i)].stage, i);
      most = std::max(most, (*stages)[static_cast<size_t>(i)].total());
    }
    EXPECT_EQ(most, whole->memory.total());
  }
}

// A GPT layer of width h has 12 h^2 + 13 h parameters: 49984 at h = 64. Inner stages have two
// layers and no table; 1F1B keeps one microbatch less alive on each further stage, and of inner
// stages nothing else differs.
TEST(MemoryByStage, InnerStagesDifferByTheMicrobatchesInFlight) {
  const spec::ModelSpec model = small::gpt(8, 64, 4);
  const plan::Plan plan = small::plan(model, small::training(64), 1, 4);
  spec::StackProfile stack;
  stack.ownPrograms = false;
  stack.description.parameterBytes = 2;
  const auto stages = memoryByStage(model, plan, small::cluster(), stack);
  ASSERT_TRUE(stages.has_value());
  EXPECT_EQ((*stages)[1].arena.parameters, 2 * 2 * 49984);
  EXPECT_EQ((*stages)[2].arena.parameters, 2 * 2 * 49984);
  EXPECT_EQ((*stages)[1].arena.activations * 2, (*stages)[2].arena.activations * 3);
}

}  // namespace
}  // namespace trireme::cost
