#include "ir/program/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include "ir/program/walk.h"
#include "tests/support/program_builder.h"
#include "tests/support/program_edit.h"

namespace trireme::program {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using trireme::testing::bufferNamed;
using trireme::testing::buildPipeline;
using trireme::testing::callOf;
using trireme::testing::code;
using trireme::testing::errorOf;
using trireme::testing::find;
using trireme::testing::PipelineShape;

constexpr int kForward = 2, kBackward = 3;  // bodies of chunk 0

// Two pipeline ranks with several tenants per slot, two tensor ranks, two replicas.
Program sample() { return buildPipeline({2, 2, 2, 1, 2, 6, true}); }

void remove(Program& p, int role, int body, const std::function<bool(const Instruction&)>& which) {
  ASSERT_EQ(std::erase_if(code(p, role, body), which), 1u);
}

TEST(Verify, AcceptsEveryPipeline) {
  for (int tp : {1, 2})
    for (int pp : {1, 2, 3, 4})
      for (int dp : {1, 2})
        for (int v : {1, 2, 3})
          for (int layers : {1, 3})
            for (bool sharded : {false, true}) {
              if (pp == 1 && v > 1) continue;
              const PipelineShape shape{tp, pp, dp, v, layers, 2 * pp, sharded};
              EXPECT_EQ(errorOf(buildPipeline(shape)), "")
                  << "tp " << tp << " pp " << pp << " dp " << dp << " v " << v;
            }
}

TEST(Verify, AcceptsGpipe) {
  EXPECT_EQ(errorOf(buildPipeline({2, 4, 1, 1, 1, 6}, testing::gpipeOrder(4, 6))), "");
}

// 8 x 32 x 16 ranks. The bound is loose: the machine may be busy and the build a debug build.
TEST(Verify, TakesMillisecondsForThousandsOfRanks) {
  const Program p = buildPipeline({8, 32, 16, 1, 2, 64, true});
  ASSERT_EQ(p.numRanks(), 4096);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(errorOf(p), "");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 2.0);
}

TEST(Verify, V1SegmentDoesNotExist) {
  Program p = sample();
  find(p, 0, kForward, InstructionKind::kCompute).segment = 99;
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V1)"), HasSubstr("segment 99")));
}

TEST(Verify, V1BufferIsOfAnotherType) {
  Program p = sample();
  bufferNamed(p, 0, "chunk0.u").elements += 1;
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V1)"), HasSubstr("chunk0.u")));
}

TEST(Verify, V1RepeatLeavesItsBody) {
  Program p = sample();
  find(p, 1, kBackward, InstructionKind::kRepeat).length = 50;
  EXPECT_THAT(errorOf(p), StartsWith("(V1)"));
}

TEST(Verify, V1EventOfTheLastSlotDoesNotExist) {
  Program p = sample();
  p.roles[0].numEvents -= 1;
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V1)"), HasSubstr("event")));
}

TEST(Verify, V1RankIsInAStrangersGroup) {
  Program p = sample();
  std::swap(p.ranks[0].group[0], p.ranks[2].group[0]);
  EXPECT_THAT(errorOf(p), StartsWith("(V1) group"));
}

TEST(Verify, V1WeightsOfAnotherLayerAreRead) {
  Program p = buildPipeline({1, 1, 1, 1, 3, 2});
  Buffer& w = bufferNamed(p, 0, "chunk0.w1");
  w.offset += w.layerStride;
  w.layerStride = 0;
  EXPECT_THAT(errorOf(p),
              AllOf(StartsWith("(V1)"), HasSubstr("of layer 1, the segment computes layer 0")));
}

TEST(Verify, V2LastLayerLiesBehindTheArena) {
  Program p = sample();
  bufferNamed(p, 0, "chunk0.u").layerStride = 1 << 20;
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V2)"), HasSubstr("chunk0.u")));
}

TEST(Verify, V2ShardOfTheLastMemberLiesBehindTheArena) {
  Program p = sample();
  bufferNamed(p, 0, "parameter.shard").dpStride = 1 << 20;
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V2)"), HasSubstr("parameter.shard")));
}

TEST(Verify, V3SendIsNeverReceived) {
  Program p = sample();
  remove(p, 1, kForward, [](const Instruction& in) { return in.kind == InstructionKind::kRecv; });
  EXPECT_THAT(errorOf(p),
              AllOf(StartsWith("(V3)"), HasSubstr("nobody receives"), HasSubstr("F0.0")));
}

TEST(Verify, V3MessageHasTheWrongTag) {
  Program p = sample();
  find(p, 1, kForward, InstructionKind::kRecv).virtualStage = 1;
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V3)"), HasSubstr("virtual stage 1, expected 0")));
}

TEST(Verify, V3PeerIsNotWhoSends) {
  Program p = buildPipeline({1, 3, 1, 1, 1, 4});
  find(p, 2, kForward, InstructionKind::kRecv).peerStage = 0;
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V3)"), HasSubstr("receives from pipeline rank 0")));
}

TEST(Verify, V3SidesDifferInBytes) {
  Program p = sample();
  Instruction& send = find(p, 0, kForward, InstructionKind::kSend);
  Buffer half = p.roles[0].buffers[static_cast<size_t>(send.buffers[0])];
  half.elements /= 2;
  send.buffers[0] = static_cast<int32_t>(p.roles[0].buffers.size());
  p.roles[0].buffers.push_back(half);
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V3)"), HasSubstr("64 bytes"), HasSubstr("128")));
}

TEST(Verify, V4OneRankLeavesOutACollective) {
  Program p = sample();
  p.roles.push_back(Role(p.roles[1]));
  p.ranks[7].role = 2;
  std::vector<Instruction>& body = code(p, 2, kForward);
  for (size_t i = 0; i < body.size(); ++i)
    if (body[i].kind == InstructionKind::kAllReduce && body[i].reduce == ReduceOp::kMax) {
      body.erase(body.begin() + static_cast<int64_t>(i));
      break;
    }
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V4)"), HasSubstr("tp collective")));
}

TEST(Verify, V4OneRankIssuesInAnotherOrder) {
  Program p = buildPipeline({1, 2, 2, 1, 1, 2});
  p.roles.push_back(Role(p.roles[1]));
  p.ranks[3].role = 2;
  std::vector<Instruction>& step = code(p, 2, 1);  // the gradients' all-reduce, then the loss's
  std::swap(step[0], step[1]);
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V4)"), HasSubstr("dp collective 0")));
}

TEST(Verify, V4SumIsSummedAgain) {
  Program p = sample();
  std::vector<Instruction>& body = code(p, 1, kForward);
  const auto sum = std::find_if(body.begin(), body.end(), [](const Instruction& in) {
    return in.kind == InstructionKind::kAllReduce && in.reduce == ReduceOp::kMax;
  });
  body.insert(sum, Instruction(*sum));
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V4)"), HasSubstr("already reduced over tp")));
}

// Rank 0 wants the gradient of microbatch 0 before it computes microbatch 1, which rank 1 wants
// first.
TEST(Verify, V5TasksOfTwoRanksWaitForEachOther) {
  const Direction f = Direction::kForward, b = Direction::kBackward;
  const testing::Order order = {{{f, 0, 0}, {b, 0, 0}, {f, 0, 1}, {b, 0, 1}},
                                {{f, 0, 0}, {f, 0, 1}, {b, 0, 0}, {b, 0, 1}}};
  EXPECT_THAT(errorOf(buildPipeline({1, 2, 1, 1, 1, 2}, order)),
              AllOf(StartsWith("(V5) deadlock: rank 0"), HasSubstr("waits for rank 1")));
}

// A blocking send on the compute stream, the classic: both neighbours send before they receive.
TEST(Verify, V5NeighboursSendBeforeTheyReceive) {
  Program p = buildPipeline({1, 2, 1, 1, 1, 4});
  for (int role : {0, 1})
    for (int body : {kForward, kBackward})
      for (Instruction& in : code(p, role, body)) in.stream = Stream::kCompute;
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V5) deadlock"), HasSubstr("send on compute")));
}

TEST(Verify, V6ActivationIsReadButNotComputed) {
  Program p = sample();
  std::vector<Instruction>& body = code(p, 0, kForward);
  body.erase(body.begin() + 1, body.begin() + 3);  // the embedding and its sum
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V6)"), HasSubstr("chunk0.x"), HasSubstr("F0.0")));
}

TEST(Verify, V6GradientsAreNotZeroed) {
  Program p = sample();
  code(p, 0, 0).clear();
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V6)"), HasSubstr("B0.0")));
}

TEST(Verify, V6TaskSendsWhatItReceived) {
  Program p = buildPipeline({1, 3, 1, 1, 1, 4});
  std::vector<Instruction>& body = code(p, 1, kForward);
  find(p, 1, kForward, InstructionKind::kSend).buffers =
      find(p, 1, kForward, InstructionKind::kRecv).buffers;
  EXPECT_FALSE(body.empty());
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V6)"), HasSubstr("sends chunk0.input")));
}

TEST(Verify, V7ReceiveOverwritesWhatIsStillRead) {
  Program p = sample();
  remove(p, 1, kForward, [](const Instruction& in) {
    return in.kind == InstructionKind::kWait && in.stream == Stream::kRecvForward;
  });
  EXPECT_THAT(errorOf(p),
              AllOf(StartsWith("(V7)"), HasSubstr("recv"), HasSubstr("compute stream may still")));
}

TEST(Verify, V7ComputeReadsBeforeTheMessageIsThere) {
  Program p = sample();
  remove(p, 1, kForward, [](const Instruction& in) {
    return in.kind == InstructionKind::kWait && in.stream == Stream::kCompute;
  });
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V7)"), HasSubstr("recv_forward stream may still")));
}

TEST(Verify, V7NextTenantOverwritesWhatIsStillSent) {
  Program p = buildPipeline({1, 2, 1, 1, 1, 6});
  remove(p, 0, kBackward, [](const Instruction& in) {
    return in.kind == InstructionKind::kWait && in.stream == Stream::kCompute &&
           in.event.base == 4;  // two slots: received, computed, sent
  });
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V7)"), HasSubstr("send_forward stream may still")));
}

TEST(Verify, V7SlotsOverlap) {
  Program p = sample();
  for (Buffer& b : p.roles[0].buffers)
    if (b.slotStride > 0) b.slotStride = 64;
  EXPECT_THAT(errorOf(p), StartsWith("(V7)"));
}

TEST(Verify, V7ActivationLiesInTheParameters) {
  Program p = sample();
  bufferNamed(p, 0, "du").offset = bufferNamed(p, 0, "parameter").offset;
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V1)"), HasSubstr("shows no parameter")));
  Program q = sample();
  bufferNamed(q, 0, "chunk0.input").offset = bufferNamed(q, 0, "moment1").offset;
  bufferNamed(q, 0, "chunk0.input").slotStride = 0;
  EXPECT_THAT(errorOf(q), AllOf(HasSubstr("moment1")));
}

TEST(Verify, V7TwoLayersShareTheirMemory) {
  Program p = sample();
  bufferNamed(p, 0, "chunk0.x").layerStride = 64;
  bufferNamed(p, 0, "chunk0.x.next").layerStride = 64;
  EXPECT_THAT(errorOf(p), AnyOf(StartsWith("(V6)"), StartsWith("(V7)")));
}

TEST(Verify, V7WorkspaceLiesUnderAnOperand) {
  Program p = sample();
  bufferNamed(p, 0, "workspace").offset = bufferNamed(p, 0, "du").offset;
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V7)"), HasSubstr("workspace")));
}

TEST(Verify, V8MicrobatchHasNoBackward) {
  Program p = sample();
  std::erase_if(p.roles[0].tasks, [](const TaskRecord& t) {
    return t.direction == Direction::kBackward && t.microbatch == 3;
  });
  EXPECT_THAT(errorOf(p), StartsWith("(V8)"));
}

TEST(Verify, V8SlotHasTwoTenants) {
  Program p = sample();
  for (TaskRecord& t : p.roles[0].tasks)
    if (t.microbatch == 1) t.slot = 0;
  EXPECT_THAT(errorOf(p),
              AllOf(StartsWith("(V8)"), HasSubstr("slot 0 still belongs to microbatch 0")));
}

TEST(Verify, V8BackwardIsOnAnotherSlot) {
  Program p = sample();
  for (TaskRecord& t : p.roles[0].tasks)
    if (t.microbatch == 0 && t.direction == Direction::kBackward) t.slot = 1;
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V8)"), HasSubstr("its forward was on slot 0")));
}

TEST(Verify, V8BackwardComesFirst) {
  Program p = buildPipeline({1, 1, 1, 1, 1, 1});
  std::swap(p.roles[0].tasks[1], p.roles[0].tasks[2]);
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V8)"), HasSubstr("backward without a forward")));
}

TEST(Verify, V8LastLayerIsLeftOut) {
  Program p = sample();
  find(p, 0, kBackward, InstructionKind::kRepeat).count = 1;
  EXPECT_THAT(errorOf(p),
              AllOf(StartsWith("(V8)"), HasSubstr("repeats 1 times, the chunk has 2 layers")));
}

TEST(Verify, V8SegmentRunsTwice) {
  Program p = sample();
  std::vector<Instruction>& body = code(p, 1, kBackward);
  body.insert(body.begin() + 1, Instruction(body[1]));
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V8)"), HasSubstr("computes what instruction")));
}

TEST(Verify, V9NoStep) {
  Program p = sample();
  p.roles[1].tasks.pop_back();
  EXPECT_THAT(errorOf(p), StartsWith("(V9)"));
}

TEST(Verify, V9StepComesBeforeTheLastBackward) {
  Program p = sample();
  std::vector<TaskRecord>& tasks = p.roles[1].tasks;
  std::swap(tasks[tasks.size() - 1], tasks[tasks.size() - 2]);
  EXPECT_THAT(errorOf(p), StartsWith("(V9)"));
}

TEST(Verify, V9BucketIsSteppedTwice) {
  Program p = sample();
  code(p, 0, 1).push_back(find(p, 0, 1, InstructionKind::kAdamW));
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V9)"), HasSubstr("stepped 2 times")));
}

TEST(Verify, V9GradientsAreNotReduced) {
  Program p = buildPipeline({1, 1, 2, 1, 1, 2});
  remove(p, 0, 1, [&](const Instruction& in) {
    return in.kind == InstructionKind::kAllReduce &&
           in.buffers[0] == p.roles[0].buckets[0].gradient;
  });
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V9)"), HasSubstr("not reduced over dp")));
}

TEST(Verify, V9ParametersAreGatheredBeforeTheStep) {
  Program p = sample();
  std::vector<Instruction>& step = code(p, 0, 1);
  std::swap(step[step.size() - 1], step[step.size() - 2]);
  EXPECT_THAT(errorOf(p),
              AllOf(StartsWith("(V9)"), HasSubstr("gathers parameter before its step")));
}

TEST(Verify, V9ParameterGetsNoGradient) {
  Program p = sample();
  const size_t call = callOf(p, 0, kBackward, "layer.backward.0");
  const int32_t segment = code(p, 0, kBackward)[call].segment;
  p.segments[static_cast<size_t>(segment)].ops.pop_back();
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V9)"), HasSubstr("layers.{}.w1 (layer 0) gets no")));
}

TEST(Verify, V10TermIsReadBeforeItIsSummed) {
  Program p = sample();
  remove(p, 0, kForward, [&](const Instruction& in) {
    return in.kind == InstructionKind::kAllReduce &&
           p.roles[0].buffers[static_cast<size_t>(in.buffers[0])].name == "chunk0.input";
  });
  EXPECT_THAT(errorOf(p), AllOf(StartsWith("(V10)"), HasSubstr("matmul reads chunk0.x")));
}

TEST(Verify, NamesRankTaskAndInstruction) {
  Program p = sample();
  remove(p, 1, kForward, [](const Instruction& in) { return in.kind == InstructionKind::kRecv; });
  EXPECT_THAT(errorOf(p),
              HasSubstr("rank 0 (stage0) task 1 (F0.0) instruction 7 (send in forward0)"));
}

}  // namespace
}  // namespace trireme::program
