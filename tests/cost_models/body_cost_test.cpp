#include "cost_models/body_cost.h"

#include <gtest/gtest.h>

#include "cost_models/collectives.h"
#include "tests/cost_models/small_specs.h"

namespace trireme::cost {
namespace {

using program::GroupKind;
using program::InstructionKind;

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
  const Levels tp = levelsOf(groupShape(GroupKind::kTp, f.plan), ranksOf(f.plan), f.cluster);
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
  const Levels tp = levelsOf(groupShape(GroupKind::kTp, f.plan), ranksOf(f.plan), f.cluster);
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

}  // namespace
}  // namespace trireme::cost
