#include "ir/expand/beside.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "ir/expand/expand.h"
#include "ir/expand/place.h"
#include "ir/program/verify.h"
#include "ir/program/walk.h"
#include "tests/ir/expand/small_gpt.h"
#include "tests/support/program_edit.h"

namespace trireme::expand {
namespace {

using graph::OpKind;
using program::Instruction;
using program::InstructionKind;
using program::Stream;
using ::testing::ElementsAre;
using ::testing::StartsWith;
using trireme::testing::code;

Item op(OpKind kind, std::vector<ValueId> inputs, std::vector<ValueId> outputs) {
  Item item;
  item.kind = kind;
  item.inputs = std::move(inputs);
  item.outputs = std::move(outputs);
  return item;
}

Item collective(InstructionKind kind, ValueId from, ValueId to) {
  Item item;
  item.isCollective = true;
  item.collective = kind;
  item.inputs = {from};
  item.outputs = {to};
  return item;
}

std::string draw(const Item& item) {
  if (!item.isCollective) return std::string(program::opName(item.kind));
  const std::string name(program::instructionName(item.collective));
  return item.overlap == Overlap::kStart  ? "start " + name
         : item.overlap == Overlap::kJoin ? "join " + name
                                          : name;
}

std::vector<std::string> drawBeside(std::vector<Item> items) {
  LoweredPass pass;
  pass.items = std::move(items);
  std::vector<std::string> drawn;
  for (const Item& item : runBeside(std::move(pass)).items) drawn.push_back(draw(item));
  return drawn;
}

constexpr ValueId kDy = 0, kW = 1, kDx = 2, kX = 3, kDw = 4, kOut = 5, kWhole = 6, kShard = 7;

const Item kMakesDy = op(OpKind::kGeluGrad, {kX, kOut}, {kDy});
const Item kGradInput = op(OpKind::kMatmulGradInput, {kDy, kW}, {kDx});
const Item kGradWeight = op(OpKind::kMatmulGradWeight, {kDy, kX}, {kDw});
const Item kReduce = collective(InstructionKind::kAllReduce, kDx, kDx);
const Item kReader = op(OpKind::kDropout, {kDx}, {kOut});

TEST(RunBeside, B1ReductionStartsBehindItsProducer) {
  EXPECT_THAT(drawBeside({kGradInput, kGradWeight, kReduce, kReader}),
              ElementsAre("matmul_grad_input", "start all_reduce", "matmul_grad_weight",
                          "join all_reduce", "dropout"));
}

TEST(RunBeside, B1StaysWhereNothingLiesBetween) {
  EXPECT_THAT(drawBeside({kGradInput, kReduce, kReader, kGradWeight}),
              ElementsAre("matmul_grad_input", "all_reduce", "dropout", "matmul_grad_weight"));
  // A collective is no computation.
  EXPECT_THAT(drawBeside({kGradInput, collective(InstructionKind::kAllGather, kX, kWhole), kReduce,
                          kReader}),
              ElementsAre("matmul_grad_input", "all_gather", "all_reduce", "dropout"));
}

// What follows the pass is told that the last op is done, not that the last join is.
TEST(RunBeside, B1StaysWhereNoOpReadsIt) {
  EXPECT_THAT(drawBeside({kGradInput, kGradWeight, kReduce}),
              ElementsAre("matmul_grad_input", "matmul_grad_weight", "all_reduce"));
  EXPECT_THAT(drawBeside({kGradInput, kGradWeight, kReduce, kMakesDy}),
              ElementsAre("matmul_grad_input", "matmul_grad_weight", "all_reduce", "gelu_grad"));
}

TEST(RunBeside, B2GatherStartsBeforeTheInputsGradient) {
  Item gradWeight = kGradWeight;
  gradWeight.inputs = {kDy, kWhole};
  const Item gather = collective(InstructionKind::kAllGather, kX, kWhole);
  const Item scatter = collective(InstructionKind::kReduceScatter, kDx, kShard);
  const Item reader = op(OpKind::kDropout, {kShard}, {kOut});
  // The gather is joined before the reduction starts: else its join would wait for both.
  EXPECT_THAT(
      drawBeside({kMakesDy, kGradInput, gather, gradWeight, scatter, reader}),
      ElementsAre("gelu_grad", "start all_gather", "matmul_grad_input", "join all_gather",
                  "start reduce_scatter", "matmul_grad_weight", "join reduce_scatter", "dropout"));
  // Nothing comes before: the stream would wait for nothing.
  EXPECT_THAT(drawBeside({kGradInput, gather, gradWeight}),
              ElementsAre("matmul_grad_input", "all_gather", "matmul_grad_weight"));
  // Of a value that is made on the way; for another reader.
  const Item makesX = op(OpKind::kGeluGrad, {kOut, kOut}, {kX});
  EXPECT_THAT(drawBeside({makesX, kGradInput, gather, gradWeight}),
              ElementsAre("gelu_grad", "matmul_grad_input", "all_gather", "matmul_grad_weight"));
  EXPECT_THAT(drawBeside({kMakesDy, kGradInput, gather, reader}),
              ElementsAre("gelu_grad", "matmul_grad_input", "all_gather", "dropout"));
  // Behind another op.
  EXPECT_THAT(drawBeside({kGradInput, kMakesDy, gather, gradWeight}),
              ElementsAre("matmul_grad_input", "gelu_grad", "all_gather", "matmul_grad_weight"));
}

// `from` is moved into kWhole while `meanwhile` runs. Values have 64 B; kX and kDw are saved.
Placement placedBeside(InstructionKind kind, ValueId from, const Item& meanwhile) {
  LoweredPass pass;
  pass.values.resize(8);
  for (ValueId v = 0; v < 8; ++v) {
    const bool isTemporary = v == kDx || v == kOut || v == kWhole;
    pass.values[v].type = {DType::kF32, {16}};
    pass.values[v].storage = isTemporary ? Storage::kTemporary : Storage::kSaved;
  }
  Item start = collective(kind, from, kWhole), join = start;
  start.overlap = Overlap::kStart;
  join.overlap = Overlap::kJoin;
  pass.items = {op(OpKind::kMatmulGradInput, {kX, kX}, {kDx}), start, meanwhile, join,
                op(OpKind::kMatmulGradWeight, {kWhole, kOut}, {kDw})};
  return placeTemporaries(pass, true);
}

// What is made meanwhile lies beside the sum and the partial sum, though no op reads that again.
TEST(Place, WhatIsReadBesideIsKept) {
  const Placement placement = placedBeside(InstructionKind::kReduceScatter, kDx,
                                           op(OpKind::kMatmulGradInput, {kX, kX}, {kOut}));
  EXPECT_EQ(placement.scratchBytes, 3 * 64);
}

// The op is the last that reads it, but the gather may not have.
TEST(Place, WhatIsReadBesideIsNotOverwritten) {
  const Placement placement =
      placedBeside(InstructionKind::kAllGather, kX, op(OpKind::kDropout, {kX}, {kOut}));
  EXPECT_EQ(placement.root[kOut], kOut);
}

plan::Plan overlapping(int64_t tp, int64_t pp, bool sequenceParallel) {
  plan::Plan plan = planFor(gpt(), tp, pp, 1);
  plan.sequenceParallel = sequenceParallel;
  plan.overlapReductions = true;
  return plan;
}

std::string draw(const program::Program& p, const Instruction& in) {
  std::string text(program::streamName(in.stream));
  if (in.kind == InstructionKind::kCompute) {
    for (const program::SegmentOp& op : p.segments[static_cast<size_t>(in.segment)].ops)
      text += " " + std::string(program::opName(op.kind));
  } else {
    text += " " + std::string(program::instructionName(in.kind));
    for (int32_t b : in.buffers)
      text += " " + p.roles[0].buffers[static_cast<size_t>(b)].name.substr(sizeof("chunk0"));
  }
  if (in.event.base >= 0) text += " e" + std::to_string(in.event.base);
  return text;
}

std::vector<std::string> drawLayerBackward(const program::Program& p) {
  std::vector<std::string> drawn;
  const auto& list = p.roles[0].bodies[static_cast<size_t>(backwardBody(0))].instructions;
  for (size_t i = 0; i < list.size(); ++i)
    if (list[i].kind == InstructionKind::kRepeat)
      for (int32_t k = 1; k <= list[i].length; ++k)
        drawn.push_back(draw(p, list[i + static_cast<size_t>(k)]));
  return drawn;
}

// e0: what the reduction reads is made; e1: it is done. Each of the two column-parallel products
// has its weight's gradient between them, and the norm behind.
TEST(LayerBackward, ReducesBesideTheGradientsOfWeights) {
  EXPECT_THAT(
      drawLayerBackward(programOf(overlapping(2, 1, false))),
      ElementsAre("compute bias_grad matmul_grad_input matmul_grad_weight gelu_grad bias_grad "
                  "matmul_grad_input e0",
                  "tp_reduce wait e0", "tp_reduce all_reduce d.mlp_norm.out e1",
                  "compute matmul_grad_weight", "compute wait e1",
                  "compute layer_norm_grad add bias_grad matmul_grad_input matmul_grad_weight "
                  "attention_grad bias_grad matmul_grad_input e0",
                  "tp_reduce wait e0", "tp_reduce all_reduce d.attn_norm.out e1",
                  "compute matmul_grad_weight", "compute wait e1", "compute layer_norm_grad add"));
}

// The products' inputs were kept in shards: they are gathered beside the inputs' gradients. What
// both gradients read, or what the next op reads, is gathered on the compute stream.
TEST(LayerBackward, GathersBesideTheGradientsOfInputsUnderSequenceParallelism) {
  EXPECT_THAT(
      drawLayerBackward(programOf(overlapping(2, 1, true))),
      ElementsAre(
          "compute bias_grad", "compute all_gather d.output d.output.gathered",
          "compute matmul_grad_input matmul_grad_weight gelu_grad bias_grad e0",
          "tp_reduce wait e0", "tp_reduce all_gather mlp_norm.out mlp_norm.out.gathered e1",
          "compute matmul_grad_input e0", "compute wait e1", "tp_reduce wait e0",
          "tp_reduce reduce_scatter d.mlp_norm.out.partial d.mlp_norm.out e1",
          "compute matmul_grad_weight", "compute wait e1", "compute layer_norm_grad add bias_grad",
          "compute all_gather d.middle d.middle.gathered",
          "compute matmul_grad_input matmul_grad_weight attention_grad bias_grad e0",
          "tp_reduce wait e0", "tp_reduce all_gather attn_norm.out attn_norm.out.gathered e1",
          "compute matmul_grad_input e0", "compute wait e1", "tp_reduce wait e0",
          "tp_reduce reduce_scatter d.attn_norm.out.partial d.attn_norm.out e1",
          "compute matmul_grad_weight", "compute wait e1", "compute layer_norm_grad add"));
}

// {kind, elements of the first buffer -> times}, on all streams.
using Counts = std::map<std::pair<InstructionKind, int64_t>, int>;
Counts collectives(const program::Program& p, int32_t body, bool besideOnly) {
  Counts counts;
  const program::Body& b = p.roles[0].bodies[static_cast<size_t>(body)];
  program::forEachInstruction(b, [&](int32_t i, int32_t) {
    const Instruction& in = b.instructions[static_cast<size_t>(i)];
    if (program::isCollective(in.kind) && (!besideOnly || in.stream == Stream::kTpReduce))
      ++counts[{in.kind, p.roles[0].buffers[static_cast<size_t>(in.buffers[0])].elements}];
  });
  return counts;
}

// The forward that runs again reduces in order: its sums are read at once.
TEST(Backward, ReducesWhatItDoesWithoutOverlap) {
  for (const auto recompute :
       {plan::Recompute::kNone, plan::Recompute::kSelective, plan::Recompute::kFull})
    for (const bool sequenceParallel : {false, true}) {
      plan::Plan plan = overlapping(4, 1, sequenceParallel);
      plan.recompute = recompute;
      const program::Program beside = programOf(plan);
      plan.overlapReductions = false;
      const program::Program inOrder = programOf(plan);
      EXPECT_EQ(collectives(beside, backwardBody(0), false),
                collectives(inOrder, backwardBody(0), false));
      EXPECT_TRUE(collectives(beside, forwardBody(0), true).empty());
      EXPECT_TRUE(collectives(inOrder, backwardBody(0), true).empty());
      // Two per layer and the logits'. Full recomputation has gathered the layers' inputs already.
      Counts counts;
      if (sequenceParallel) {
        counts[{InstructionKind::kReduceScatter, 1024}] = 9;
        counts[{InstructionKind::kAllGather, 256}] = recompute == plan::Recompute::kFull ? 1 : 9;
      } else {
        counts[{InstructionKind::kAllReduce, 1024}] = 9;
      }
      EXPECT_EQ(collectives(beside, backwardBody(0), true), counts);
    }
}

// s b = 32 tokens of h = 32, fp32. At the gradient of the MLP's first weight live d.up of 4h / t =
// 64 (8192 B), and under sequence parallelism the gathered input and the partial sum (4096 B each).
// There the sum's shard (2048 B) was made afterwards; now it is written meanwhile. Without, the sum
// is in place.
TEST(Backward, KeepsWhatRunsBesideUntilItIsJoined) {
  const auto scratch = [](bool sequenceParallel, bool overlap) {
    plan::Plan plan = overlapping(2, 1, sequenceParallel);
    plan.overlapReductions = overlap;
    return expand(gpt(), plan)->arenas[0].scratch;
  };
  EXPECT_EQ(scratch(true, false), 8192 + 2 * 4096);
  EXPECT_EQ(scratch(true, true), 8192 + 2 * 4096 + 2048);
  EXPECT_EQ(scratch(false, true), scratch(false, false));
}

// Removes instruction i, also from the repeat that it is in.
void erase(std::vector<Instruction>& list, size_t i) {
  for (size_t r = 0; r < i; ++r)
    if (list[r].kind == InstructionKind::kRepeat && r + static_cast<size_t>(list[r].length) >= i)
      --list[r].length;
  list.erase(list.begin() + static_cast<int64_t>(i));
}

// Each wait of what runs beside is needed.
TEST(Backward, V7AWaitIsMissing) {
  for (const bool sequenceParallel : {false, true})
    for (const int64_t pp : {1, 2}) {
      const program::Program p = programOf(overlapping(2, pp, sequenceParallel));
      const auto& list = p.roles.back().bodies[static_cast<size_t>(backwardBody(0))].instructions;
      int numWaits = 0;
      for (size_t i = 0; i < list.size(); ++i) {
        if (list[i].kind != InstructionKind::kWait || list[i].event.perSlot) continue;
        program::Program without = p;
        erase(code(without, static_cast<int>(pp) - 1, backwardBody(0)), i);
        EXPECT_THAT(program::verifyProgram(without).message(), StartsWith("(V7)"))
            << "wait " << i << " of pp " << pp;
        ++numWaits;
      }
      EXPECT_EQ(numWaits, sequenceParallel ? 12 : 6);
    }
}

}  // namespace
}  // namespace trireme::expand
