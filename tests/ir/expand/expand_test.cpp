#include "ir/expand/expand.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/ir/expand/small_gpt.h"

namespace trireme::expand {
namespace {

using program::Direction;
using program::GroupKind;
using program::Instruction;
using program::InstructionKind;

// {elements -> times} of a kind of collective of the tp group in one call of each chunk's body.
std::map<int64_t, int> tpCollectives(const program::Role& role, Direction direction,
                                     InstructionKind kind) {
  std::map<int64_t, int> counts;
  for (size_t c = 0; c < role.chunks.size(); ++c) {
    const auto& body = role.bodies[2 + 2 * c + (direction == Direction::kBackward ? 1 : 0)];
    int factor = 1, left = 0;
    for (const Instruction& i : body.instructions) {
      if (i.kind == InstructionKind::kRepeat) {
        factor = i.count;
        left = i.length;
        continue;
      }
      if (i.kind == kind && i.group == GroupKind::kTp) {
        const size_t full = kind == InstructionKind::kAllGather ? 1 : 0;
        counts[role.buffers[static_cast<size_t>(i.buffers[full])].elements] += factor;
      }
      if (left > 0 && --left == 0) factor = 1;
    }
  }
  return counts;
}

// Four layers, tp = 4, one microbatch of 2 x 16 tokens of 32: per layer two all-reduces of
// 2 * 16 * 32 = 1024 elements each way, one for the embedding forward and one for the logits
// backward; three of 2 * 16 scalars for the loss. Nothing gathers the logits.
TEST(TensorParallel, CommunicatesExactlyWhatMegatronDoes) {
  const auto model = gpt(4);
  const auto expansion = expand(model, planFor(model, 4, 1, 1));
  ASSERT_TRUE(expansion.has_value()) << expansion.error().message();
  const program::Role& role = expansion->program.roles[0];
  using Counts = std::map<int64_t, int>;
  EXPECT_EQ(tpCollectives(role, Direction::kForward, InstructionKind::kAllReduce),
            (Counts{{1024, 9}, {32, 3}}));
  EXPECT_EQ(tpCollectives(role, Direction::kBackward, InstructionKind::kAllReduce),
            (Counts{{1024, 9}}));
  for (auto kind : {InstructionKind::kAllGather, InstructionKind::kReduceScatter})
    for (auto direction : {Direction::kForward, Direction::kBackward})
      EXPECT_TRUE(tpCollectives(role, direction, kind).empty());
}

// Sequence parallelism: each all-reduce becomes a reduce-scatter and an all-gather; the backward
// gathers the two column-parallel inputs of each layer (and the logits') once more, because only
// shards are kept.
TEST(SequenceParallel, ReplacesAllReduceByReduceScatterAndAllGather) {
  const auto model = gpt(4);
  auto plan = planFor(model, 4, 1, 1);
  plan.sequenceParallel = true;
  const auto expansion = expand(model, plan);
  ASSERT_TRUE(expansion.has_value()) << expansion.error().message();
  const program::Role& role = expansion->program.roles[0];
  using Counts = std::map<int64_t, int>;
  EXPECT_EQ(tpCollectives(role, Direction::kForward, InstructionKind::kAllReduce),
            (Counts{{32, 3}}));
  EXPECT_EQ(tpCollectives(role, Direction::kForward, InstructionKind::kReduceScatter),
            (Counts{{1024, 9}}));
  EXPECT_EQ(tpCollectives(role, Direction::kForward, InstructionKind::kAllGather),
            (Counts{{1024, 9}}));
  EXPECT_EQ(tpCollectives(role, Direction::kBackward, InstructionKind::kReduceScatter),
            (Counts{{1024, 9}}));
  EXPECT_EQ(tpCollectives(role, Direction::kBackward, InstructionKind::kAllGather),
            (Counts{{1024, 9 + 9}}));
}

// Full recomputation runs the layer again up to its last needed value: the second all-reduce of the
// layer only makes the output, which nobody reads again.
TEST(FullRecompute, RepeatsOneAllReducePerLayer) {
  const auto model = gpt(4);
  auto plan = planFor(model, 4, 1, 1);
  plan.recompute = plan::Recompute::kFull;
  const auto expansion = expand(model, plan);
  ASSERT_TRUE(expansion.has_value());
  using Counts = std::map<int64_t, int>;
  EXPECT_EQ(
      tpCollectives(expansion->program.roles[0], Direction::kBackward, InstructionKind::kAllReduce),
      (Counts{{1024, 9 + 4}}));
}

// The parameters of all ranks of one tensor group, counted once, are the model's: 4 layers of
// h = 32 with V = 128, s = 16 have
//   12 l h^2 + 13 l h + (V + s) h + 2h = 49152 + 1664 + 4608 + 64 = 55488.
// The first and the last stage sum the table's two gradients when both have reduced all of their
// own: otherwise one of them waits for the other's layers before it starts with its own.
TEST(TiedTable, IsSummedAfterAllOtherReductions) {
  const plan::Plan plan = small::plan(small::gpt(4), small::training(), 1, 2, 2);
  const auto expansion = expand(small::gpt(4), plan, {});
  ASSERT_TRUE(expansion.has_value()) << expansion.error().message();
  for (const program::Role& role : expansion->program.roles) {
    int numReduced = 0, numTied = 0;
    for (const program::Instruction& i : role.bodies[kStepBody].instructions) {
      if (i.kind == InstructionKind::kZero) break;  // of the norm: reductions are done
      const bool isLoss = !i.buffers.empty() && i.buffers.front() == role.loss;
      if (i.kind != InstructionKind::kAllReduce || isLoss) continue;
      numTied += i.group == GroupKind::kEmbedding;
      numReduced += i.group == GroupKind::kDp;
      EXPECT_FALSE(numTied > 0 && i.group == GroupKind::kDp) << role.name;
    }
    EXPECT_EQ(numTied, 1) << role.name;
    EXPECT_GE(numReduced, 2) << role.name;
  }
}

TEST(StateTable, CountsEveryParameterOnce) {
  const auto model = gpt(4);
  for (int64_t tp : {1, 2, 4}) {
    for (int64_t pp : {1, 2, 4}) {
      const auto expansion = expand(model, planFor(model, tp, pp, 1));
      ASSERT_TRUE(expansion.has_value());
      int64_t count = 0;
      for (const auto& role : expansion->program.roles)
        for (const auto& p : role.parameters) {
          int64_t elements = p.copy ? 0 : std::max(1, p.numLayers);
          for (int64_t d : p.dims) elements *= d;
          count += elements;
        }
      EXPECT_EQ(count, 55488) << "tp " << tp << " pp " << pp;
    }
  }
}

TEST(Expansion, DoesNotGrowWithLayersOrRanks) {
  const auto small = gpt(4), large = gpt(64);
  const auto a = expand(small, planFor(small, 2, 2, 2));
  const auto b = expand(large, planFor(large, 2, 2, 16));
  ASSERT_TRUE(a.has_value() && b.has_value());
  EXPECT_EQ(a->program.segments.size(), b->program.segments.size());
  for (size_t r = 0; r < a->program.roles.size(); ++r) {
    EXPECT_EQ(a->program.roles[r].buffers.size(), b->program.roles[r].buffers.size());
    EXPECT_EQ(a->program.roles[r].parameters.size(), b->program.roles[r].parameters.size());
    for (size_t i = 0; i < a->program.roles[r].bodies.size(); ++i)
      EXPECT_EQ(a->program.roles[r].bodies[i].instructions.size(),
                b->program.roles[r].bodies[i].instructions.size());
  }
}

TEST(Expansion, ArenaIsTheSumOfItsUses) {
  const auto model = gpt(8);
  for (auto recompute :
       {plan::Recompute::kNone, plan::Recompute::kSelective, plan::Recompute::kFull}) {
    auto plan = planFor(model, 2, 2, 2);
    plan.recompute = recompute;
    const auto expansion = expand(model, plan);
    ASSERT_TRUE(expansion.has_value());
    for (size_t r = 0; r < expansion->arenas.size(); ++r)
      EXPECT_EQ(expansion->arenas[r].total(), expansion->program.roles[r].arenaBytes);
  }
}

// s = 16, b = 2, h = 32, fp32: a residual tensor has 1024 elements. Kept per layer without
// recompute: x (residual stream), norm out, qkv 3x, context, middle, norm out, u 4x, z 4x = 16 x
// 4096 B, and the statistics: 4 of 32 tokens and lse of 2 * 4 * 16. Full recomputation keeps x
// alone.
TEST(Recompute, KeepsExactlyWhatIsSaid) {
  const auto model = gpt(4);
  auto plan = planFor(model, 1, 1, 1);
  const auto activations = [&](plan::Recompute recompute) {
    plan.recompute = recompute;
    return expand(model, plan)->arenas[0].activations;
  };
  const int64_t none = activations(plan::Recompute::kNone);
  const int64_t selective = activations(plan::Recompute::kSelective);
  const int64_t full = activations(plan::Recompute::kFull);
  const int64_t perLayer = 15 * 4096 + 4 * 128 + 512;  // x is kept in any case
  EXPECT_EQ(none - full, 4 * perLayer);
  EXPECT_EQ(none - selective, 4 * (4096 + 512));  // context and lse
}

}  // namespace
}  // namespace trireme::expand
