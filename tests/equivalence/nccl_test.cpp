// Ranks with a GPU each, on an emulated GPU and an emulated NCCL: what they ask NCCL for is what
// the program says, and they train as the host does.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <thread>

#include "ir/expand/expand.h"
#include "ir/program/cliques.h"
#include "ir/program/walk.h"
#include "tests/equivalence/harness.h"
#include "tests/equivalence/plans.h"
#include "tests/support/emulated_gpu.h"
#include "tests/support/emulated_nccl.h"

namespace trireme::equivalence {
namespace {

using program::InstructionKind;
using testing::EmulatedGpu;
using testing::EmulatedNccl;
using testing::NcclCall;

// Which rank a thread is.
class Threads final : public runtime::FaultInjector {
 public:
  runtime::Fault before(int32_t rank, const program::TaskRecord&, int32_t, int32_t) override {
    const std::lock_guard lock(mutex_);
    ranks_[std::this_thread::get_id()] = rank;
    return runtime::Fault::kNone;
  }
  std::map<std::thread::id, int32_t> ranks() const { return ranks_; }

 private:
  std::mutex mutex_;
  std::map<std::thread::id, int32_t> ranks_;
};

// A call as the program asks for it, or as NCCL got it.
struct Call {
  InstructionKind kind = InstructionKind::kAllReduce;
  int64_t count = 0;
  int type = 0, op = 0;
  std::vector<int32_t> members;  // of a message: sender, receiver
  bool operator==(const Call&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Call& call) {
  out << program::instructionName(call.kind) << " of " << call.count << ", type " << call.type
      << ", op " << call.op << ", ranks";
  for (const int32_t rank : call.members) out << " " << rank;
  return out;
}

int numberOf(DType type) { return *runtime::cuda::ncclType(type); }

// Straight from the program, in the order of issue.
std::vector<Call> callsOf(const program::Program& program, int32_t rank) {
  const program::Role& role =
      program.roles[static_cast<size_t>(program.ranks[static_cast<size_t>(rank)].role)];
  std::vector<Call> calls;
  for (const program::TaskRecord& task : role.tasks) {
    const program::Body& body = role.bodies[static_cast<size_t>(task.body)];
    program::forEachInstruction(body, [&](int32_t index, int32_t) {
      const program::Instruction& in = body.instructions[static_cast<size_t>(index)];
      const auto buffer = [&](size_t i) {
        return role.buffers[static_cast<size_t>(in.buffers[i])];
      };
      if (in.kind == InstructionKind::kSend || in.kind == InstructionKind::kRecv) {
        const int32_t peer = peerRank(program, rank, in.peerStage);
        const bool sends = in.kind == InstructionKind::kSend;
        calls.push_back({in.kind, buffer(0).bytes(), runtime::cuda::kNcclInt8, 0,
                         sends ? std::vector{rank, peer} : std::vector{peer, rank}});
      }
      if (!program::isCollective(in.kind)) return;
      const std::vector<int32_t>& members = groupOf(program, rank, in.group).ranks;
      if (members.size() == 1) return;
      const size_t part = in.kind == InstructionKind::kReduceScatter ? 1 : 0;
      const int op = in.kind == InstructionKind::kAllGather ? 0 : runtime::cuda::ncclOp(in.reduce);
      calls.push_back({in.kind, buffer(part).elements, numberOf(buffer(part).dtype), op, members});
    });
  }
  return calls;
}

std::vector<Call> callsOf(const std::vector<testing::RecordedCall>& recorded,
                          const std::map<std::thread::id, int32_t>& ranks, int32_t rank) {
  constexpr InstructionKind kKinds[] = {
      InstructionKind::kAllReduce, InstructionKind::kReduceScatter, InstructionKind::kAllGather,
      InstructionKind::kSend, InstructionKind::kRecv};
  std::vector<Call> calls;
  for (const testing::RecordedCall& r : recorded) {
    Call call{kKinds[static_cast<size_t>(r.call)], static_cast<int64_t>(r.count), r.type, r.op, {}};
    for (const std::thread::id member : r.members) call.members.push_back(ranks.at(member));
    if (r.call == NcclCall::kSend) call.members = {rank, ranks.at(r.peer)};
    if (r.call == NcclCall::kReceive) call.members = {ranks.at(r.peer), rank};
    calls.push_back(call);
  }
  return calls;
}

testing::EmulatedGpuOptions gpuOptions(int64_t numRanks, uint64_t seed = 1) {
  testing::EmulatedGpuOptions options;
  options.numDevices = static_cast<int>(numRanks);
  options.seed = seed;
  return options;
}

// Before the first step each message's sender and receiver connect.
bool isConnection(const testing::RecordedCall& call) {
  return call.count == 1 &&
         (call.call == testing::NcclCall::kSend || call.call == testing::NcclCall::kReceive);
}

size_t numMessageCliques(const program::Program& program, int32_t rank) {
  size_t number = 0;
  const auto cliques = program::cliquesOf(program);
  EXPECT_TRUE(cliques.has_value()) << cliques.error().message();
  for (const program::Clique& clique : *cliques)
    number += (clique.lane == program::Lane::kForward || clique.lane == program::Lane::kBackward) &&
              (clique.ranks[0] == rank || clique.ranks[1] == rank);
  return number;
}

void expectTheProgramsCalls(const Choices& choices) {
  const spec::ModelSpec model = tinyGpt(layersFor(choices));
  const plan::Plan plan = planFor(choices, model, tinyTraining(spec::Precision::kFp32));
  const auto expansion = expand::expand(model, plan);
  ASSERT_TRUE(expansion.has_value()) << expansion.error().message();
  const program::Program& program = expansion->program;
  testing::EmulatedGpuOptions emulation = gpuOptions(program.numRanks());
  emulation.isIdle = true;
  EmulatedGpu gpu(emulation);
  EmulatedNccl nccl;
  runtime::cuda::Apis apis = gpu.apis();
  apis.nccl = &nccl.api();
  Threads threads;
  RunOptions options;
  options.steps = 2;
  options.compiled = false;
  options.gpu = &apis;
  options.faults = &threads;
  const auto result = run(model, plan, options);
  ASSERT_TRUE(result.has_value()) << result.error().message();
  EXPECT_EQ(gpu.faults(), std::vector<std::string>());
  EXPECT_EQ(gpu.numLiveObjects(), 0);
  EXPECT_EQ(nccl.numLive(), 0);
  EXPECT_EQ(nccl.numAborted(), 0);
  const auto ranks = threads.ranks();
  const auto recorded = nccl.calls();
  for (const auto& [thread, rank] : ranks) {
    std::vector<Call> expected = callsOf(program, rank);
    const std::vector<Call> step = expected;
    expected.insert(expected.end(), step.begin(), step.end());
    const auto found = recorded.find(thread);
    auto calls = found == recorded.end() ? std::vector<testing::RecordedCall>() : found->second;
    EXPECT_EQ(std::erase_if(calls, isConnection), numMessageCliques(program, rank));
    EXPECT_EQ(callsOf(calls, ranks, rank), expected) << "rank " << rank;
  }
}

TEST(Nccl, IsAskedForWhatTheProgramOfEachRankSaysUnderEveryPlan) {
  size_t plans = 0, alone = 0;
  const std::vector<Choices>& all = coveringChoices();
  for (size_t i = 0; i < all.size(); i += TRIREME_SANITIZED ? 8 : 1) {
    const Choices& choices = all[i];
    if (choices.tp * choices.pp * choices.dp == 1) {
      ++alone;
      continue;
    }
    SCOPED_TRACE(describe(choices));
    expectTheProgramsCalls(choices);
    ++plans;
  }
  std::printf("%zu plans\n", plans);
  EXPECT_GE((plans + alone) * (TRIREME_SANITIZED ? 8 : 1), 60u);
}

Result<RunResult> runByNccl(const spec::ModelSpec& model, const plan::Plan& plan, int steps,
                            uint64_t seed) {
  EmulatedGpu gpu(gpuOptions(8, seed));
  EmulatedNccl nccl({.seed = seed, .connectsLate = seed % 2 == 0});
  runtime::cuda::Apis apis = gpu.apis();
  apis.nccl = &nccl.api();
  RunOptions options;
  options.steps = steps;
  options.gpu = &apis;
  // It takes most of the time; what overlaps computes the same.
  options.compiled = options.compiled && !plan.overlapReductions;
  Result<RunResult> result = run(model, plan, options);
  EXPECT_EQ(gpu.faults(), std::vector<std::string>());
  EXPECT_EQ(gpu.numLiveObjects(), 0);
  EXPECT_EQ(nccl.numLive(), 0);
  return result;
}

// When the first step of rank 0 ends, on GPUs that take 10 us for a kernel or a product and 20 us
// for a collective of 50 KB, and nothing for filling and copying; and for how long collectives of a
// stream ran beside computation.
struct Timing {
  double end = 0, beside = 0;
};
Timing timingOf(const spec::ModelSpec& model, const plan::Plan& plan, program::Stream stream) {
  testing::EmulatedGpuOptions emulation = gpuOptions(plan.numRanks());
  emulation.duration = [](const testing::EmulatedTask& task) {
    if (task.name == "fill" || task.name == "copy") return 0.0;
    return task.members > 1 ? 4e-10 * task.bytes : 1e-5;
  };
  EmulatedGpu gpu(emulation);
  EmulatedNccl nccl;
  runtime::cuda::Apis apis = gpu.apis();
  apis.nccl = &nccl.api();
  RunOptions options;
  options.steps = 1;
  options.gpu = &apis;
  options.compiled = false;
  options.trace = true;
  const auto result = run(model, plan, options);
  EXPECT_TRUE(result.has_value()) << result.error().message();
  Timing timing;
  if (!result.has_value()) return timing;
  const auto isOf = [](const program::TraceEvent& event, program::Stream stream) {
    return event.rank == 0 && event.stream == stream && event.kind != InstructionKind::kWait;
  };
  double begin = 1e9;
  for (const program::TraceEvent& event : result->trace) {
    if (event.rank != 0) continue;
    // A stream's time goes on where its work before the step has ended.
    if (event.stream == program::Stream::kCompute) begin = std::min(begin, event.beginSeconds);
    timing.end = std::max(timing.end, event.endSeconds);
    if (!isOf(event, stream)) continue;
    for (const program::TraceEvent& other : result->trace)
      if (isOf(other, program::Stream::kCompute))
        timing.beside += std::max(0.0, std::min(event.endSeconds, other.endSeconds) -
                                           std::max(event.beginSeconds, other.beginSeconds));
  }
  timing.end -= begin;
  return timing;
}

// Four layers of 12 h h = 12288 gradients in f32, 49152 bytes: 20 us each, less than a layer's
// backward. Those of all but the first layer, which is computed last, are hidden: 59 us.
TEST(Nccl, ReducesGradientsBesideTheLastBackward) {
  const spec::ModelSpec model = tinyGpt(4);
  Choices choices;
  choices.dp = 2;
  const auto timing = [&](bool overlaps) {
    choices.overlapReductions = overlaps;
    return timingOf(model, planFor(choices, model, tinyTraining(spec::Precision::kFp32)),
                    program::Stream::kDpReduce);
  };
  const Timing with = timing(true), without = timing(false);
  const double layer = 4e-10 * 49152;
  EXPECT_EQ(without.beside, 0);
  EXPECT_GE(with.beside, 3 * layer * 0.999);
  EXPECT_NEAR(without.end - with.end, with.beside, 1e-6);
}

// Two products of each of four layers and the head's, in each of 8 microbatches, have a gradient of
// 16 tokens x 32 to sum, 2048 bytes: 0.8 us, less than the product beside it. Under sequence
// parallelism as many bytes of each product's input are gathered.
TEST(Nccl, ReducesOverTpBesideTheGradientsOfWeights) {
  const spec::ModelSpec model = tinyGpt(4);
  for (const bool sequenceParallel : {false, true}) {
    Choices choices;
    choices.tp = 2;
    choices.sequenceParallel = sequenceParallel;
    const auto timing = [&](bool overlaps) {
      choices.overlapReductions = overlaps;
      return timingOf(model, planFor(choices, model, tinyTraining(spec::Precision::kFp32)),
                      program::Stream::kTpReduce);
    };
    const Timing with = timing(true), without = timing(false);
    const double collectives = 8 * (2 * 4 + 1) * (sequenceParallel ? 2 : 1);
    EXPECT_EQ(without.beside, 0);
    EXPECT_NEAR(with.beside, collectives * 4e-10 * 2048, 1e-9);
    EXPECT_NEAR(without.end - with.end, with.beside, 1e-9);
  }
}

class NcclRanks : public ::testing::TestWithParam<Choices> {};

// In f64, where the order of sums hardly shows; with two ways for the GPUs to order what no event
// orders.
TEST_P(NcclRanks, TrainAsOneRankOfTheHost) {
  const spec::ModelSpec model = tinyGpt(4);
  const auto training = tinyTraining(spec::Precision::kFp64);
  RunOptions host;
  host.steps = 2;
  const auto expected = run(model, serialPlan(model, training, GetParam().microbatchSize), host);
  ASSERT_TRUE(expected.has_value()) << expected.error().message();
  RunResult first;
  for (const uint64_t seed : {1, 2}) {
    const auto actual = runByNccl(model, planFor(GetParam(), model, training), 2, seed);
    ASSERT_TRUE(actual.has_value()) << actual.error().message();
    EXPECT_EQ(compareLosses(expected->losses, actual->losses, 1e-13), "");
    EXPECT_EQ(compareTensors(expected->firstGradients, actual->firstGradients, {1e-11, 1e-12}), "");
    EXPECT_EQ(compareTensors(expected->parameters, actual->parameters, {1e-9, 1e-12}), "");
    if (seed == 1) first = *actual;
    EXPECT_EQ(compareTensors(first.parameters, actual->parameters, {}), "") << "not repeatable";
  }
}

std::vector<Choices> ncclChoices() {
  std::vector<Choices> all(8);
  all[0].tp = 2, all[0].sequenceParallel = true, all[0].microbatchSize = 2;
  all[1].dp = 2, all[1].shardOptimizer = true;
  all[2].pp = 2;
  all[3].pp = 2, all[3].virtualStages = 2, all[3].schedule = plan::ScheduleKind::kInterleaved;
  all[4].pp = 4, all[4].schedule = plan::ScheduleKind::kGpipe;
  all[5].tp = all[5].pp = all[5].dp = 2, all[5].sequenceParallel = all[5].shardOptimizer = true;
  all[6].tp = all[6].pp = 2, all[6].scatterGather = true;
  all[7].tp = all[7].pp = 2, all[7].sequenceParallel = true;
  all[7].schedule = plan::ScheduleKind::kZeroBubbleH2;
  for (const size_t i : {0, 1, 5}) {
    all.push_back(all[i]);
    all.back().overlapReductions = true;
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, NcclRanks, ::testing::ValuesIn(ncclChoices()), [](const auto& info) {
  std::string name = describe(info.param);
  std::replace_if(name.begin(), name.end(), [](char c) { return c == ' ' || c == '-'; }, '_');
  return name;
});

}  // namespace
}  // namespace trireme::equivalence
