#include "ir/expand/expand.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "ir/program/walk.h"
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

// Bytes that a rank of `role` sends in a step, if all-reduces over the tensor group are rings: each
// of the t members sends 2 (t - 1) parts of 1 / t of the payload. Other collectives of the group:
// none are expected.
int64_t ringBytesPerStep(const program::Role& role, int64_t t) {
  int64_t payload = 0;
  for (const program::TaskRecord& task : role.tasks) {
    const program::Body& body = role.bodies[static_cast<size_t>(task.body)];
    program::forEachInstruction(body, [&](int32_t at, int32_t) {
      const Instruction& i = body.instructions[static_cast<size_t>(at)];
      const bool isCollective = i.kind == InstructionKind::kAllReduce ||
                                i.kind == InstructionKind::kReduceScatter ||
                                i.kind == InstructionKind::kAllGather;
      if (!isCollective || i.group != GroupKind::kTp) return;
      EXPECT_EQ(i.kind, InstructionKind::kAllReduce);
      payload += role.buffers[static_cast<size_t>(i.buffers[0])].bytes();
    });
  }
  return payload * 2 * (t - 1) / t;
}

// The tensors above in f32: (9 + 9) * 4096 + 3 * 128 = 74,112 bytes, of which a ring of four sends
// 3 / 2 per rank.
TEST(TensorParallel, SendsTheRingBytesOfItsAllReducesAndNoMore) {
  const auto model = gpt(4);
  auto plan = planFor(model, 4, 1, 1);
  plan.training.globalBatchSize = 2;  // one microbatch
  EXPECT_EQ(ringBytesPerStep(expanded(model, plan).program.roles[0], 4), 111168);
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

// What the compute stream does first with what came over a stage border, per body that receives.
std::vector<InstructionKind> firstUses(const program::Role& role) {
  std::vector<InstructionKind> uses;
  for (const program::Body& body : role.bodies) {
    const auto& list = body.instructions;
    const auto receive = std::find_if(list.begin(), list.end(), [](const Instruction& i) {
      return i.kind == InstructionKind::kRecv;
    });
    if (receive == list.end()) continue;
    const auto use = std::find_if(receive, list.end(), [](const Instruction& i) {
      return i.stream == program::Stream::kCompute && i.kind != InstructionKind::kWait &&
             i.kind != InstructionKind::kRepeat && i.kind != InstructionKind::kLoadBatch;
    });
    EXPECT_NE(use, list.end()) << body.name;
    uses.push_back(use->kind);
  }
  return uses;
}

// Stage borders are sharded along the sequence as the residual stream is, so a stage computes on
// what it received: the forward of the second and the backward of the first. Scatter-gather, which
// shards the border alone, has to gather there.
TEST(SequenceParallel, GathersNothingBehindAStageBorder) {
  const auto model = gpt(4);
  auto plan = planFor(model, 2, 2, 1);
  plan.sequenceParallel = true;
  const auto sharded = expanded(model, plan);
  plan.sequenceParallel = false;
  plan.scatterGather = true;
  const auto scattered = expanded(model, plan);
  using Kinds = std::vector<InstructionKind>;
  for (const size_t stage : {0u, 1u}) {
    EXPECT_EQ(firstUses(sharded.program.roles[stage]), Kinds{InstructionKind::kCompute});
    EXPECT_EQ(firstUses(scattered.program.roles[stage]), Kinds{InstructionKind::kAllGather});
  }
}

// Bytes that a rank of `role` sends to other stages in a step.
int64_t sentPerStep(const program::Role& role) {
  int64_t bytes = 0;
  for (const program::TaskRecord& task : role.tasks)
    for (const Instruction& i : role.bodies[static_cast<size_t>(task.body)].instructions)
      if (i.kind == InstructionKind::kSend)
        bytes += role.buffers[static_cast<size_t>(i.buffers[0])].bytes();
  return bytes;
}

// Four microbatches of 1024 elements of f32, forward from the first stage and backward from the
// second.
TEST(ScatterGather, SendsAShareInBothDirections) {
  const auto model = gpt(4);
  for (const int64_t tp : {2, 4}) {
    auto plan = planFor(model, tp, 2, 1);
    const auto whole = expanded(model, plan);
    plan.scatterGather = true;
    const auto scattered = expanded(model, plan);
    for (const size_t stage : {0u, 1u}) {
      EXPECT_EQ(sentPerStep(whole.program.roles[stage]), 4 * 4096);
      EXPECT_EQ(sentPerStep(scattered.program.roles[stage]), 4 * 4096 / tp);
    }
  }
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

// All but the tasks and the ranks: what a role is made of.
void expectSameSizes(const program::Program& a, const program::Program& b) {
  EXPECT_EQ(a.segments.size(), b.segments.size());
  ASSERT_EQ(a.roles.size(), b.roles.size());
  for (size_t r = 0; r < a.roles.size(); ++r) {
    EXPECT_EQ(a.roles[r].buffers.size(), b.roles[r].buffers.size());
    EXPECT_EQ(a.roles[r].parameters.size(), b.roles[r].parameters.size());
    EXPECT_EQ(a.roles[r].buckets.size(), b.roles[r].buckets.size());
    EXPECT_EQ(a.roles[r].chunks.size(), b.roles[r].chunks.size());
    ASSERT_EQ(a.roles[r].bodies.size(), b.roles[r].bodies.size());
    for (size_t i = 0; i < a.roles[r].bodies.size(); ++i)
      EXPECT_EQ(a.roles[r].bodies[i].instructions.size(), b.roles[r].bodies[i].instructions.size());
  }
}

TEST(Expansion, DoesNotGrowWithLayersOrRanks) {
  const auto small = gpt(4), large = gpt(64);
  const auto a = expanded(small, planFor(small, 2, 2, 2));
  const auto b = expanded(large, planFor(large, 2, 2, 16));
  expectSameSizes(a.program, b.program);
  for (size_t r = 0; r < 2; ++r)
    EXPECT_EQ(a.program.roles[r].tasks.size(), b.program.roles[r].tasks.size());
}

// A forward and a backward per microbatch and chunk, the step's begin and its end. Under GPipe,
// which keeps the activations of all, no more is written down either: slots are a stride.
TEST(Expansion, GrowsWithMicrobatchesByTaskRecordsAlone) {
  const auto model = gpt(8);
  for (const auto& [schedule, v] :
       {std::pair{plan::ScheduleKind::kGpipe, 1}, std::pair{plan::ScheduleKind::k1F1B, 1},
        std::pair{plan::ScheduleKind::kInterleaved, 2}}) {
    auto plan = planFor(model, 2, 2, 2);
    plan.schedule = schedule;
    plan.virtualStages = v;
    plan.layers = plan::evenLayers(8, 2, v);
    const auto few = expanded(model, plan);
    plan.training.globalBatchSize *= 16;
    const auto many = expanded(model, plan);
    expectSameSizes(few.program, many.program);
    EXPECT_EQ(few.program.roles.size(), 2u);
    for (size_t r = 0; r < 2; ++r) {
      EXPECT_EQ(few.program.roles[r].tasks.size(), static_cast<size_t>(2 * 4 * v + 2));
      EXPECT_EQ(many.program.roles[r].tasks.size(), static_cast<size_t>(2 * 64 * v + 2));
    }
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
