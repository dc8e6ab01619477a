#include "cost_models/body_cost.h"

#include <gtest/gtest.h>

#include "cost_models/collectives.h"
#include "tests/cost_models/small_specs.h"

namespace trireme::cost {
namespace {

using program::GroupKind;
using program::InstructionKind;
using program::Stream;

// One 1000-element bf16 buffer; a segment that copies nothing but takes one launch (1 us) and 4000
// B.
struct Fixture {
  program::Program program;
  program::Role role;
  program::Body body;
  spec::ClusterSpec cluster = small::cluster(8, 4);
  plan::Plan plan;

  Fixture() {
    plan.tp = 4;
    plan.pp = 2;
    program::Segment segment;
    segment.operands = {{DType::kBf16, {1000}}, {DType::kBf16, {1000}}};
    segment.temporary = {false, false};
    segment.ops = {{program::OpKind::kGelu, {}, {0}, {1}}};
    program.segments = {segment};
    program::Buffer buffer;
    buffer.dtype = DType::kBf16;
    buffer.elements = 1000;
    role.buffers = {buffer, buffer};
  }
  program::Instruction& add(InstructionKind kind) {
    program::Instruction instruction;
    instruction.kind = kind;
    instruction.segment = 0;
    instruction.buffers = {0, 1};
    body.instructions.push_back(instruction);
    return body.instructions.back();
  }
  WalkedBody walk() { return BodyWalker(program, plan, cluster, {}).walk(role, body); }
};

const Seconds kSegment(1e-6 + 4000 / 1e12);

TEST(BodyWalker, ARepeatCountsItsSpanOncePerLayer) {
  Fixture f;
  f.add(InstructionKind::kCompute);
  program::Instruction& repeat = f.add(InstructionKind::kRepeat);
  repeat.count = 5;
  repeat.length = 2;
  f.add(InstructionKind::kCompute);
  f.add(InstructionKind::kAllReduce).group = GroupKind::kTp;
  f.add(InstructionKind::kCompute);
  const WalkedBody walked = f.walk();
  EXPECT_NEAR(walked.outside.compute.count(), 2 * kSegment.count(), 1e-15);
  EXPECT_NEAR(walked.repeated.compute.count(), 5 * kSegment.count(), 1e-15);
  const Levels tp =
      levelsOf(groupShape(GroupKind::kTp, f.plan), ranksOf(f.plan, f.cluster), f.cluster);
  EXPECT_NEAR(walked.repeated.communication(GroupKind::kTp).count(),
              5 * allReduceTime(Bytes(2000), tp).count(), 1e-15);
  EXPECT_EQ(walked.outside.communication(GroupKind::kTp), Seconds(0));
}

TEST(BodyWalker, NestedRepeatsMultiply) {
  Fixture f;
  program::Instruction& outer = f.add(InstructionKind::kRepeat);
  outer.count = 3;
  outer.length = 2;
  program::Instruction& inner = f.add(InstructionKind::kRepeat);
  inner.count = 2;
  inner.length = 1;
  f.add(InstructionKind::kCompute);
  EXPECT_NEAR(f.walk().repeated.compute.count(), 6 * kSegment.count(), 1e-15);
}

TEST(BodyWalker, GathersAreCountedByWhatTheyProduce) {
  Fixture f;
  f.role.buffers[0].elements = 250;
  f.add(InstructionKind::kAllGather).group = GroupKind::kTp;
  const Levels tp =
      levelsOf(groupShape(GroupKind::kTp, f.plan), ranksOf(f.plan, f.cluster), f.cluster);
  const BodyCost cost = f.walk().total();
  EXPECT_EQ(cost.gather[static_cast<size_t>(GroupKind::kTp)], allGatherTime(Bytes(2000), tp));
  EXPECT_EQ(cost.reduce[static_cast<size_t>(GroupKind::kTp)], Seconds(0));
}

TEST(BodyWalker, SendsAreBytesOfTheirDirection) {
  Fixture f;
  f.add(InstructionKind::kSend).stream = program::Stream::kSendForward;
  const BodyCost cost = f.walk().total();
  EXPECT_EQ(cost.sentForward, Bytes(2000));
  EXPECT_EQ(cost.sentBackward, Bytes(0));
  EXPECT_EQ(cost.total(), Seconds(0));
}

// A layer whose all-reduce over tp runs beside `numBeside` segments of it:
//   segment | reduction
//           | segments beside, then a wait, then one more
void addLayers(Fixture& f, int32_t count, int numBeside) {
  constexpr program::EventRef kReady{0}, kReduced{1};
  program::Instruction& repeat = f.add(InstructionKind::kRepeat);
  repeat.count = count;
  repeat.length = numBeside + 5;
  f.add(InstructionKind::kCompute).event = kReady;
  f.add(InstructionKind::kWait).event = kReady;
  f.body.instructions.back().stream = Stream::kTpReduce;
  f.add(InstructionKind::kAllReduce).event = kReduced;
  f.body.instructions.back().stream = Stream::kTpReduce;
  for (int i = 0; i < numBeside; ++i) f.add(InstructionKind::kCompute);
  f.add(InstructionKind::kWait).event = kReduced;
  f.add(InstructionKind::kCompute);
}

Seconds tpReduction(const Fixture& f) {
  const Levels tp =
      levelsOf(groupShape(GroupKind::kTp, f.plan), ranksOf(f.plan, f.cluster), f.cluster);
  return allReduceTime(Bytes(2000), tp);
}

// Of a reduction of r beside n segments of c the compute stream waits for r - n c; on a host, which
// does one after the other, it is r whatever is beside.
TEST(BodyWalker, WhatTheComputeStreamWaitsForIsTensorParallelTime) {
  for (const int beside : {0, 1, 100}) {
    Fixture f;
    addLayers(f, 5, beside);
    const double exposed = std::max(tpReduction(f).count() - beside * kSegment.count(), 0.0);
    WalkedBody walked = f.walk();
    EXPECT_NEAR(walked.repeated.communication(GroupKind::kTp).count(), 5 * exposed, 1e-15);
    EXPECT_NEAR(walked.repeated.compute.count(), 5 * (beside + 2) * kSegment.count(), 1e-12);
    f.cluster.device.kind = spec::DeviceKind::kHost;
    walked = f.walk();
    EXPECT_NEAR(walked.repeated.communication(GroupKind::kTp).count(), 5 * tpReduction(f).count(),
                1e-15);
  }
}

// Of 5 layers the first has nothing to wait for, the others what the layer before them reduces.
TEST(BodyWalker, WaitsForTheIterationBefore) {
  Fixture f;
  program::Instruction& repeat = f.add(InstructionKind::kRepeat);
  repeat.count = 5;
  repeat.length = 4;
  f.add(InstructionKind::kWait).event = {1};
  f.add(InstructionKind::kCompute).event = {0};
  f.add(InstructionKind::kWait).event = {0};
  f.body.instructions.back().stream = Stream::kTpReduce;
  f.add(InstructionKind::kAllReduce).event = {1};
  f.body.instructions.back().stream = Stream::kTpReduce;
  EXPECT_NEAR(f.walk().repeated.communication(GroupKind::kTp).count(), 4 * tpReduction(f).count(),
              1e-15);
}

// Two reductions follow each other on their stream: beside one segment of c each, the second is
// waited for first, for 2 r - 2 c, which is long after the first one.
TEST(BodyWalker, ReductionsBesideFollowEachOther) {
  Fixture f;
  for (const int32_t reduced : {1, 2}) {
    f.add(InstructionKind::kAllReduce).event = {reduced};
    f.body.instructions.back().stream = Stream::kTpReduce;
    f.add(InstructionKind::kCompute);
  }
  f.add(InstructionKind::kWait).event = {2};
  f.add(InstructionKind::kWait).event = {1};
  EXPECT_NEAR(f.walk().outside.communication(GroupKind::kTp).count(),
              2 * (tpReduction(f) - kSegment).count(), 1e-15);
}

// 6 layers of c with a reduction of r over dp beside them, after one of the head's, and one segment
// behind: 7 r - 7 c behind if r > c, and none of it on the compute stream.
TEST(BodyWalker, ReductionsOverDpAreBesideTheBody) {
  Fixture f;
  f.plan.tp = 1;
  f.plan.dpReplicate = 4;
  const auto reduce = [&] {
    f.add(InstructionKind::kAllReduce).stream = Stream::kDpReduce;
    f.body.instructions.back().group = GroupKind::kDp;
    f.body.instructions.back().event = {3};
  };
  reduce();
  program::Instruction& repeat = f.add(InstructionKind::kRepeat);
  repeat.count = 6;
  repeat.length = 2;
  f.add(InstructionKind::kCompute);
  reduce();
  f.add(InstructionKind::kCompute);
  const Levels dp =
      levelsOf(groupShape(GroupKind::kDp, f.plan), ranksOf(f.plan, f.cluster), f.cluster);
  const Seconds r = allReduceTime(Bytes(2000), dp);
  ASSERT_GT(r, kSegment);
  const WalkedBody walked = f.walk();
  EXPECT_EQ(walked.outside.beside, r);
  EXPECT_NEAR(walked.repeated.beside.count(), 6 * r.count(), 1e-15);
  EXPECT_NEAR(walked.total().total().count(), 7 * kSegment.count(), 1e-15);
  EXPECT_NEAR(walked.backlog.after(Seconds(0)).count(), 7 * (r - kSegment).count(), 1e-15);
  EXPECT_FALSE(walked.atWait.has_value());

  // The step computes once, and waits for what another body signals.
  Fixture step;
  step.role.bodies = {f.body};
  step.add(InstructionKind::kCompute);
  step.add(InstructionKind::kWait).event = {3};
  step.add(InstructionKind::kCompute);
  const auto atWait = step.walk().atWait;
  ASSERT_TRUE(atWait.has_value());
  EXPECT_NEAR(atWait->after(r).count(), (r - kSegment).count(), 1e-15);
}

}  // namespace
}  // namespace trireme::cost
