#include "cost_models/memory.h"

#include <gtest/gtest.h>

#include "tests/cost_models/small_specs.h"

namespace trireme::cost {
namespace {

MemoryUse use(const plan::Plan& plan, const spec::ModelSpec& model,
              const spec::StackProfile& stack = {}) {
  const auto expansion = expand::expand(model, plan);
  EXPECT_TRUE(expansion.has_value());
  return largestMemory(*expansion, plan, model, stack);
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
  EXPECT_EQ(memoryOf(*expansion, 0, plan, model, unfused).unfusedAttention,
            unfusedScoresBytes(plan, model) * 8);
  plan.recompute = plan::Recompute::kSelective;
  EXPECT_EQ(memoryOf(*expansion, 0, plan, model, unfused).unfusedAttention,
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

TEST(LargestMemory, IsTheFullestStage) {
  const spec::ModelSpec model = small::gpt();
  const plan::Plan plan = small::plan(model, small::training(64), 1, 4);
  const auto expansion = expand::expand(model, plan);
  ASSERT_TRUE(expansion.has_value());
  const MemoryUse largest = largestMemory(*expansion, plan, model, {});
  for (size_t role = 0; role < 4; ++role)
    EXPECT_LE(memoryOf(*expansion, role, plan, model, {}).total(), largest.total());
}

}  // namespace
}  // namespace trireme::cost
