// A backward in two parts: what the gradients of weights are made of, what is kept for them, and
// what the verifier says of programs that get it wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "ir/expand/expand.h"
#include "tests/ir/expand/small_gpt.h"
#include "tests/support/program_edit.h"

namespace trireme::expand {
namespace {

using plan::Recompute;
using plan::ScheduleKind;
using program::Direction;
using program::Instruction;
using program::InstructionKind;
using program::OpKind;
using program::Program;
using program::TaskRecord;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using trireme::testing::bufferNamed;
using trireme::testing::code;
using trireme::testing::errorOf;

plan::Plan splitPlan(int64_t tp, int64_t pp, int64_t dp,
                     ScheduleKind schedule = ScheduleKind::kZeroBubbleH1) {
  plan::Plan plan = planFor(gpt(), tp, pp, dp);
  plan.schedule = schedule;
  return plan;
}

// Ops of the layers in one run of the body, by kind.
std::map<OpKind, int> layerOps(const Program& p, int role, int32_t body) {
  std::map<OpKind, int> counts;
  for (const Instruction& in :
       p.roles[static_cast<size_t>(role)].bodies[static_cast<size_t>(body)].instructions) {
    if (in.kind != InstructionKind::kCompute) continue;
    const program::Segment& segment = p.segments[static_cast<size_t>(in.segment)];
    if (!segment.name.starts_with("layer.")) continue;
    for (const program::SegmentOp& op : segment.ops) ++counts[op.kind];
  }
  return counts;
}

TEST(Weights, AreTheProductsOfMatricesAndNothingElse) {
  const plan::Plan plan = splitPlan(1, 2, 1);
  const Program p = programOf(plan);
  EXPECT_EQ(layerOps(p, 0, weightsBody(plan, 0)),
            (std::map<OpKind, int>{{OpKind::kMatmulGradWeight, 4}}));
  std::map<OpKind, int> backward = layerOps(p, 0, backwardBody(0));
  EXPECT_EQ(backward[OpKind::kMatmulGradWeight], 0);
  EXPECT_EQ(backward[OpKind::kMatmulGradInput], 4);
  EXPECT_EQ(backward[OpKind::kBiasGrad], 4);
  EXPECT_EQ(backward[OpKind::kLayerNormGrad], 2);
}

TEST(Weights, OfTheHeadAreNotApart) {
  const plan::Plan plan = splitPlan(1, 2, 1);
  Program p = programOf(plan);
  const std::vector<Instruction>& body = code(p, 1, backwardBody(0));
  const auto head = trireme::testing::callOf(p, 1, backwardBody(0), "head.backward.0");
  const program::Segment& segment = p.segments[static_cast<size_t>(body[head].segment)];
  EXPECT_TRUE(std::any_of(segment.ops.begin(), segment.ops.end(),
                          [](const auto& op) { return op.kind == OpKind::kMatmulGradWeight; }));
}

TEST(Weights, HaveTheirBodiesBehindThoseOfOtherSchedules) {
  plan::Plan plan = splitPlan(1, 2, 2);
  for (const bool overlaps : {false, true}) {
    plan.overlapReductions = overlaps;
    const Program p = programOf(plan);
    const auto& bodies = p.roles[0].bodies;
    const auto nameOf = [&](int32_t body) { return bodies[static_cast<size_t>(body)].name; };
    EXPECT_EQ(nameOf(forwardBody(0)), "forward0");
    EXPECT_EQ(nameOf(backwardBody(0)), "backward0");
    EXPECT_EQ(nameOf(weightsBody(plan, 0)), "weights0");
    EXPECT_EQ(nameOf(lastBackwardBody(plan, 0)), overlaps ? "backward0.last" : "backward0");
    EXPECT_EQ(nameOf(lastWeightsBody(plan, 0)), overlaps ? "weights0.last" : "weights0");
    EXPECT_EQ(bodies.size(), overlaps ? 7u : 5u);
    for (const TaskRecord& task : p.roles[0].tasks) {
      if (task.direction != Direction::kWeights) continue;
      EXPECT_EQ(task.body, task.microbatch == 3 ? lastWeightsBody(plan, 0) : weightsBody(plan, 0));
    }
  }
}

// Layers are complete with their weights, the head with its backward.
TEST(Weights, OfTheLastMicrobatchReduceTheLayers) {
  plan::Plan plan = splitPlan(1, 2, 2);
  plan.overlapReductions = true;
  const Program p = programOf(plan);
  const auto numReductions = [&](int role, int32_t body) {
    const auto& list =
        p.roles[static_cast<size_t>(role)].bodies[static_cast<size_t>(body)].instructions;
    return std::count_if(list.begin(), list.end(), [](const Instruction& in) {
      return in.stream == program::Stream::kDpReduce && in.kind == InstructionKind::kAllReduce;
    });
  };
  for (const int role : {0, 1}) {
    EXPECT_EQ(numReductions(role, lastWeightsBody(plan, 0)), 1);
    EXPECT_EQ(numReductions(role, lastBackwardBody(plan, 0)), 0);  // the table is tied
  }
}

int64_t slotBytes(plan::Plan plan, ScheduleKind schedule, Recompute recompute, double dropout) {
  plan.schedule = schedule;
  plan.recompute = recompute;
  plan.training.residualDropout = dropout;
  return expanded(gpt(), plan).arenas[0].slotBytes[0];
}

// Two layers of h = 32 and a microbatch of 2 x 16 tokens in fp32: x = 4096 bytes. What the
// gradients of weights read is kept until then, of each layer
//   inputs      norm x, context x, norm x, hidden 4x                      7x
//   gradients   qkv 3x, middle x, up 4x, output x (the residual stream's) 9x
// The inputs are saved anyway, unless they are recomputed: the context by the selective setting
// (with lse, 512 bytes, which no weights read), all by full. Of a layer's output there is one
// gradient anyway. With dropout it is the gradient of the last product that is kept instead of that
// of the output. The gradient of up is written over up, from which it is made, if that is saved.
TEST(Slots, KeepWhatWeightsRead) {
  const plan::Plan plan = splitPlan(1, 2, 1);
  constexpr int64_t x = 4096, layers = 2;
  const std::map<Recompute, int64_t> kept = {{Recompute::kNone, (9 - 4) * x},
                                             {Recompute::kSelective, (9 - 4 + 1) * x},
                                             {Recompute::kFull, (9 + 7) * x}};
  for (const double dropout : {0.0, 0.1})
    for (const auto& [recompute, bytes] : kept)
      EXPECT_EQ(slotBytes(plan, ScheduleKind::kZeroBubbleH1, recompute, dropout) -
                    slotBytes(plan, ScheduleKind::k1F1B, recompute, dropout),
                layers * bytes)
          << plan::recomputeName(recompute) << dropout;
}

// Sequence parallelism keeps shards, and gathers again: of each layer two inputs of
// column-parallel products, two gradients of row-parallel ones.
TEST(Weights, GatherWhatIsKeptInShards) {
  plan::Plan plan = splitPlan(2, 2, 1);
  plan.sequenceParallel = true;
  Program p = programOf(plan);
  const auto numGathers = [&](int32_t body) {
    const std::vector<Instruction>& list = code(p, 0, body);
    return std::count_if(list.begin(), list.end(), [](const Instruction& in) {
      return in.kind == InstructionKind::kAllGather;
    });
  };
  EXPECT_EQ(numGathers(weightsBody(plan, 0)), 4);
  // The two gradients again, for the gradients of inputs, and the embedding's.
  EXPECT_EQ(numGathers(backwardBody(0)), 3);
}

// --- What is not legal. ---

TaskRecord& taskOf(Program& p, int role, Direction direction, int32_t microbatch) {
  for (TaskRecord& task : p.roles[static_cast<size_t>(role)].tasks)
    if (task.direction == direction && task.microbatch == microbatch) return task;
  throw std::runtime_error("no such task");
}

TEST(VerifyWeights, V3TheyAreSent) {
  const plan::Plan plan = splitPlan(1, 2, 1);
  Program p = programOf(plan);
  std::vector<Instruction>& backward = code(p, 1, backwardBody(0));
  code(p, 1, weightsBody(plan, 0)).push_back(backward.back());
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V3)"), HasSubstr("no other stage waits")));
}

// It lies where no slot is.
TEST(VerifyWeights, V6WhatTheyReadIsNotKept) {
  const plan::Plan plan = splitPlan(1, 2, 1);
  Program p = programOf(plan);
  program::Buffer& kept = bufferNamed(p, 0, "chunk0.d.middle");
  kept.offset = std::exchange(p.roles[0].arenaBytes, p.roles[0].arenaBytes + kept.bytes());
  kept.layerStride = kept.slotStride = 0;
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V6)"), HasSubstr("chunk0.d.middle")));
}

// The layers share one gradient: that of the last one's output is gone.
TEST(VerifyWeights, V7ALayerBelowOverwritesWhatTheyRead) {
  const plan::Plan plan = splitPlan(1, 2, 1);
  Program p = programOf(plan);
  const program::Buffer received = bufferNamed(p, 0, "chunk0.gradient");
  for (program::Buffer& buffer : p.roles[0].buffers) {
    const bool isGradient = buffer.name == "chunk0.d.output" ||
                            buffer.name == "chunk0.d.embedding.sum" ||
                            (buffer.name == "chunk0.d.input" && buffer.slotStride > 0);
    if (!isGradient) continue;
    buffer.offset = received.offset;
    buffer.layerStride = 0;
  }
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V7)"), HasSubstr("W0.0"), HasSubstr("chunk0.d.output"),
                                HasSubstr("chunk0.d.input")));
}

TEST(VerifyWeights, V7TheNextGradientIsReceivedOverWhatTheyRead) {
  const plan::Plan plan = splitPlan(1, 3, 1);
  Program p = programOf(plan);
  std::vector<Instruction>& body = code(p, 1, backwardBody(0));
  int32_t removed = 0;
  for (size_t i = 0; i + 1 < body.size(); ++i)
    if (body[i + 1].kind == InstructionKind::kRecv) {
      body.erase(body.begin() + static_cast<long>(i));
      ++removed;
    }
  ASSERT_EQ(removed, 1);
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V7)"), HasSubstr("B0."), HasSubstr("recv"),
                                HasSubstr("compute stream may still")));
}

// B0.1 writes on slot 1 between B0.0 and W0.0 on slot 0.
TEST(VerifyWeights, V7AnotherSlotOverwritesWhatTheyRead) {
  const plan::Plan plan = splitPlan(1, 2, 1);
  Program p = programOf(plan);
  bufferNamed(p, 1, "chunk0.d.middle").slotStride = 64;
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V7)"), HasSubstr("W0.0 still needs")));
}

TEST(VerifyWeights, V8OneIsMissing) {
  Program p = programOf(splitPlan(1, 2, 1));
  std::erase_if(p.roles[1].tasks, [](const TaskRecord& task) {
    return task.direction == Direction::kWeights && task.microbatch == 3;
  });
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V8)"), HasSubstr("11 passes, expected 1 chunks x 4")));
}

TEST(VerifyWeights, V8OneRoleHasNone) {
  const Program split = programOf(splitPlan(1, 2, 1));
  for (const size_t role : {0, 1}) {
    Program p = split;
    std::erase_if(p.roles[role].tasks,
                  [](const TaskRecord& task) { return task.direction == Direction::kWeights; });
    EXPECT_THAT(errorOf(p),
                AllOf(StartsWith("(V8)"), HasSubstr("8 passes, expected 1 chunks x 4")));
  }
}

TEST(VerifyWeights, V8OneIsTwice) {
  Program p = programOf(splitPlan(1, 2, 1));
  taskOf(p, 0, Direction::kWeights, 3) = taskOf(p, 0, Direction::kWeights, 2);
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V8)"), HasSubstr("a second weights pass")));
}

TEST(VerifyWeights, V8TheyComeBeforeTheBackward) {
  Program p = programOf(splitPlan(1, 2, 1));
  std::swap(taskOf(p, 0, Direction::kWeights, 0), taskOf(p, 0, Direction::kBackward, 0));
  EXPECT_THAT(errorOf(p),
              AllOf(StartsWith("(V8)"), HasSubstr("weights pass without a backward before it")));
}

TEST(VerifyWeights, V8MicrobatchesAreOutOfOrder) {
  Program p = programOf(splitPlan(1, 2, 1));
  std::swap(taskOf(p, 1, Direction::kWeights, 2), taskOf(p, 1, Direction::kWeights, 3));
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V8)"), HasSubstr("comes before microbatch 2")));
}

TEST(VerifyWeights, V8TheyAreOfAnotherSlot) {
  Program p = programOf(splitPlan(1, 2, 1));
  taskOf(p, 1, Direction::kWeights, 0).slot ^= 1;
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V8)"), HasSubstr("but its forward was on slot")));
}

// Stage 1 computes F0.2 behind W0.0, whose slot it takes.
TEST(VerifyWeights, V8TheSlotIsGivenAwayBeforeThem) {
  Program p = programOf(splitPlan(1, 2, 1));
  std::swap(taskOf(p, 1, Direction::kWeights, 0), taskOf(p, 1, Direction::kForward, 2));
  EXPECT_THAT(errorOf(p),
              AllOf(StartsWith("(V8)"), HasSubstr("slot 0 still belongs to microbatch 0")));
}

TEST(VerifyWeights, V9TheyAreLeftOut) {
  const plan::Plan plan = splitPlan(2, 2, 1);
  Program p = programOf(plan);
  std::vector<Instruction>& body = code(p, 0, weightsBody(plan, 0));
  ASSERT_EQ(body.size(), 2u);  // the repeat, and one segment
  body.clear();
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V9)"), HasSubstr("gets no gradient")));
}

TEST(VerifyWeights, V9TheyAddToWhatTheBackwardHasReduced) {
  plan::Plan plan = splitPlan(1, 2, 2);
  plan.overlapReductions = true;
  Program p = programOf(plan);
  std::vector<Instruction>& weights = code(p, 0, lastWeightsBody(plan, 0));
  std::vector<Instruction>& backward = code(p, 0, lastBackwardBody(plan, 0));
  const auto wait = weights.end() - 2;  // and the reduction, both of the repeat
  const auto repeat = std::find_if(backward.begin(), backward.end(), [](const Instruction& in) {
    return in.kind == InstructionKind::kRepeat;
  });
  ASSERT_EQ(wait->kind, InstructionKind::kWait);
  repeat->length += 2;
  (repeat + 1)->event = wait->event;
  backward.insert(repeat + 2, wait, weights.end());
  weights.erase(wait, weights.end());
  weights[0].length -= 2;
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V9)"), HasSubstr("reduced")));
}

TEST(VerifyWeights, V9TheStepComesBeforeThem) {
  Program p = programOf(splitPlan(1, 2, 1));
  std::vector<TaskRecord>& tasks = p.roles[1].tasks;
  std::swap(tasks[tasks.size() - 1], tasks[tasks.size() - 2]);
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V9)"), HasSubstr("comes before the last backward")));
}

}  // namespace
}  // namespace trireme::expand
