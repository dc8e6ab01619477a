// Plan::overlapReductions: what is reduced where, and that nothing else changes.
#include <gtest/gtest.h>

#include <map>

#include "ir/expand/expand.h"
#include "tests/ir/expand/small_gpt.h"

namespace trireme::expand {
namespace {

using program::Body;
using program::Direction;
using program::GroupKind;
using program::Instruction;
using program::InstructionKind;
using program::Stream;

plan::Plan planOf(const spec::ModelSpec& model, int64_t tp, int64_t pp, int64_t dp, bool shards) {
  plan::Plan plan = planFor(model, tp, pp, dp);
  plan.overlapReductions = true;
  if (!shards) return plan;
  plan.stateSharding = plan::StateSharding::kOptimizer;
  std::swap(plan.dpShard, plan.dpReplicate);
  return plan;
}

// "compute" and so on, one letter for each instruction of the body: C computes, r reduces beside
// it, w waits on the reductions' stream, W on the compute stream, (...) are repeated.
std::string shapeOf(const Body& body) {
  std::string shape;
  int32_t left = 0;
  for (const Instruction& in : body.instructions) {
    if (in.kind == InstructionKind::kRepeat) {
      shape += '(';
      left = in.length + 1;
    } else if (in.kind == InstructionKind::kWait) {
      shape += in.stream == Stream::kDpReduce ? 'w' : 'W';
    } else {
      shape += in.stream == Stream::kDpReduce ? 'r' : 'C';
    }
    if (left > 0 && --left == 0) shape += ')';
  }
  return shape;
}

// Elements that the dp group reduces in one step, by bucket's name and stream.
std::map<std::pair<std::string, Stream>, int64_t> reducedOver(const program::Program& program,
                                                              GroupKind group) {
  std::map<std::pair<std::string, Stream>, int64_t> sums;
  const program::Role& role = program.roles[0];
  for (const program::TaskRecord& task : role.tasks) {
    const Body& body = role.bodies[static_cast<size_t>(task.body)];
    int32_t left = 0, times = 1;
    for (const Instruction& in : body.instructions) {
      if (in.kind == InstructionKind::kRepeat) times = in.count, left = in.length + 1;
      const bool reduces =
          in.kind == InstructionKind::kAllReduce || in.kind == InstructionKind::kReduceScatter;
      if (reduces && in.group == group) {
        const program::Buffer& buffer = role.buffers[static_cast<size_t>(in.buffers[0])];
        const std::string name = buffer.name.substr(0, buffer.name.find(".gradient"));
        sums[{name, in.stream}] += times * buffer.elements;
      }
      if (left > 0 && --left == 0) times = 1;
    }
  }
  return sums;
}

// Four layers of h = 32 with ffn 4 h: 12 h h = 12288 elements of matrices each. An untied head of
// 128 h = 4096. The tables for tokens and positions (128 + 16) h are complete at the end only.
TEST(OverlapReductions, LayersAndHeadAreReducedInTheLastBackward) {
  spec::ModelSpec model = gpt(4);
  model.tiedEmbeddings = false;
  for (const bool shards : {false, true}) {
    const plan::Plan plan = planOf(model, 1, 1, 2, shards);
    const Expansion expansion = expanded(model, plan);
    const program::Role& role = expansion.program.roles[0];
    const auto sums = reducedOver(expansion.program, GroupKind::kDp);
    const auto early = [&](const std::string& name) { return sums.at({name, Stream::kDpReduce}); };
    EXPECT_EQ(early("layers.whole"), 4 * 12288);
    EXPECT_EQ(early("head.whole"), 4096);
    EXPECT_EQ(sums.at({"matrix.whole", Stream::kCompute}), (128 + 16) * 32);
    EXPECT_EQ(sums.count({"layers.whole", Stream::kCompute}), 0U);
    // The last microbatch alone has a body that reduces: head, four layers, embedding.
    EXPECT_EQ(shapeOf(role.bodies[static_cast<size_t>(backwardBody(0))]), "C(C)C");
    EXPECT_EQ(shapeOf(role.bodies[static_cast<size_t>(lastBackwardBody(plan, 0))]), "Cwr(Cwr)C");
    for (const program::TaskRecord& task : role.tasks)
      if (task.direction == Direction::kBackward) {
        EXPECT_EQ(task.body, task.microbatch == 3 ? lastBackwardBody(plan, 0) : backwardBody(0));
      }
  }
}

TEST(OverlapReductions, ASingleMicrobatchHasOneBackward) {
  const spec::ModelSpec model = gpt(4);
  plan::Plan plan = planOf(model, 1, 1, 2, false);
  plan.microbatchSize = 8;
  const Expansion expansion = expanded(model, plan);
  EXPECT_EQ(lastBackwardBody(plan, 0), backwardBody(0));
  EXPECT_EQ(expansion.program.roles[0].bodies.size(), 4U);
}

// Where there is nobody to reduce with over dp, buckets are as ever.
TEST(OverlapReductions, LeavesBucketsAloneWithoutReplicas) {
  const spec::ModelSpec model = gpt(4);
  plan::Plan plan = planOf(model, 2, 1, 1, false);
  const Expansion with = expanded(model, plan);
  plan.overlapReductions = false;
  const Expansion without = expanded(model, plan);
  ASSERT_EQ(with.program.roles[0].buckets.size(), without.program.roles[0].buckets.size());
  for (size_t b = 0; b < without.program.roles[0].buckets.size(); ++b)
    EXPECT_EQ(with.program.roles[0].buckets[b].elements,
              without.program.roles[0].buckets[b].elements);
}

// Three members share out 12288 elements of a layer in units of 16: each piece is padded to 48 x
// 256 = 12288 exactly; five members to 80 x 154 = 12320.
TEST(OverlapReductions, EveryPieceDividesOverItsMembers) {
  const spec::ModelSpec model = gpt(4);
  for (const auto& [dp, piece] : {std::pair<int64_t, int64_t>{3, 12288}, {5, 12320}}) {
    const Expansion expansion = expanded(model, planOf(model, 1, 2, dp, true));
    for (const program::Role& role : expansion.program.roles)
      for (const program::Bucket& bucket : role.buckets) {
        if (bucket.name != "layers.whole") continue;
        EXPECT_EQ(bucket.pieces, 2);
        EXPECT_EQ(bucket.elements, 2 * piece);
      }
  }
}

// Both chunks of a rank are pieces of one bucket.
TEST(OverlapReductions, ChunksShareTheirBucket) {
  const spec::ModelSpec model = gpt(8);
  plan::Plan plan = planOf(model, 1, 2, 2, false);
  plan.virtualStages = 2;
  plan.schedule = plan::ScheduleKind::kInterleaved;
  plan.layers = {{{0, 3}, {5, 1}}, {{3, 2}, {6, 2}}};
  const Expansion expansion = expanded(model, plan);
  const auto sums = reducedOver(expansion.program, GroupKind::kDp);
  EXPECT_EQ(sums.at({"layers.whole", Stream::kDpReduce}), 4 * 12288);
}

}  // namespace
}  // namespace trireme::expand
