#include "runtime/device/cuda/nccl_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/session.h"
#include "tests/runtime/comm/join_processes.h"
#include "tests/runtime/executor/counting_data.h"
#include "tests/runtime/executor/tiny_program.h"
#include "tests/support/emulated_gpu.h"
#include "tests/support/emulated_nccl.h"
#include "tests/support/stops_rank.h"

namespace trireme::runtime::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using trireme::testing::EmulatedGpu;
using trireme::testing::EmulatedGpuOptions;
using trireme::testing::EmulatedNccl;
using trireme::testing::EmulatedNcclOptions;
using trireme::testing::NcclMeeting;
using trireme::testing::StopsRank;

// A program of groups with an all-reduce over each of `kinds`, without pipelines.
program::Program groupsOnly(int32_t tp, int32_t dp, const std::vector<program::GroupKind>& kinds) {
  program::Program program = tinyBundle({.tp = tp, .dp = dp}).program;
  for (program::Role& role : program.roles) {
    role.bodies = {{"all", {}}};
    for (const program::GroupKind kind : kinds) {
      program::Instruction in;
      in.kind = program::InstructionKind::kAllReduce;
      in.group = kind;
      in.buffers = {0};
      role.bodies[0].instructions.push_back(in);
    }
  }
  return program;
}

// Two stages of two tensor-parallel ranks: the model is the world.
TEST(Cliques, GroupsOfEqualMembersShareOneAndThoseOfOneRankHaveNone) {
  using program::GroupKind;
  const auto cliques = program::cliquesOf(
      groupsOnly(2, 1, {GroupKind::kTp, GroupKind::kDp, GroupKind::kModel, GroupKind::kWorld}));
  ASSERT_TRUE(cliques.has_value()) << cliques.error().message();
  std::vector<std::string> names;
  for (const program::Clique& clique : *cliques) names.push_back(program::describe(clique));
  EXPECT_EQ(names, (std::vector<std::string>{"ranks 0, 1 (collectives)", "ranks 2, 3 (collectives)",
                                             "ranks 0, 1, 2, 3 (norms)"}));
}

TEST(Cliques, MessagesForwardAndBackwardHaveTheirOwn) {
  const program::Program program = tinyBundle({.tp = 1, .dp = 1}).program;
  const auto cliques = program::cliquesOf(program);
  ASSERT_TRUE(cliques.has_value()) << cliques.error().message();
  std::vector<std::string> names;
  for (const program::Clique& clique : *cliques) names.push_back(program::describe(clique));
  EXPECT_THAT(names, ::testing::IsSupersetOf(
                         {"ranks 0, 1 (messages forward)", "ranks 1, 0 (messages backward)"}));
}

struct NcclOutcome {
  std::string error;
  int64_t live = 0, aborted = 0;
};

// Trains the tiny program on a GPU per rank until its end or the first failure.
NcclOutcome train(const EmulatedNcclOptions& options, FaultInjector* faults = nullptr,
                  double timeoutSeconds = 60, int numDevices = 2) {
  EmulatedGpuOptions emulation;
  emulation.numDevices = numDevices;
  EmulatedGpu emulated(emulation);
  EmulatedNccl nccl(options);
  Apis apis = emulated.apis();
  apis.nccl = &nccl.api();
  NcclOutcome outcome;
  {
    program::Bundle bundle = tinyBundle({.tp = 1, .dp = 1});
    bundle.target.arch = "cuda:sm_90";
    SessionOptions session;
    session.cudaApis = &apis;
    session.faults = faults;
    session.timeoutSeconds = timeoutSeconds;
    auto created = Session::create(std::move(bundle), session);
    if (!created.has_value()) {
      outcome.error = created.error().message();
    } else {
      CountingData data;
      for (int i = 0; i < 3 && outcome.error.empty(); ++i)
        if (const auto step = (*created)->step(data); !step.has_value())
          outcome.error = step.error().message();
    }
  }
  outcome.live = nccl.numLive();
  outcome.aborted = nccl.numAborted();
  EXPECT_EQ(emulated.faults(), std::vector<std::string>());
  return outcome;
}

TEST(NcclSession, GivesItsCommunicatorsBack) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const NcclOutcome outcome = train({.seed = seed});
    EXPECT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.live, 0);
    EXPECT_EQ(outcome.aborted, 0);
  }
}

TEST(NcclSession, AnOldNcclIsRefusedWithItsVersionAndTheOldestThatWillDo) {
  EXPECT_THAT(train({.version = 21304}).error,
              HasSubstr("NCCL is of version 2.13.4; 2.18.0 is the oldest that will do"));
}

// The driver has one queue then, in which a send holds up what its receiver waits for.
TEST(NcclSession, AQueueForAllStreamsIsRefused) {
  ASSERT_EQ(setenv(kConnectionsVariable, "1", 1), 0);
  EXPECT_THAT(train({}).error, AllOf(HasSubstr("CUDA_DEVICE_MAX_CONNECTIONS is 1"),
                                     HasSubstr("expected 32; nearest: unset it")));
  ASSERT_EQ(unsetenv(kConnectionsVariable), 0);
  EXPECT_EQ(train({}).error, "");
  EXPECT_STREQ(getenv(kConnectionsVariable), "32");
}

// Who, with whom, at which address, and what memory there was: of a network that refuses, and of
// one that swallows what it is given. A meeting has five times the timeout.
TEST(NcclSession, RanksThatCannotMeetAreNamedWithTheAddress) {
  const NcclOutcome failed = train({.meeting = NcclMeeting::kFails});
  EXPECT_THAT(
      failed.error,
      AllOf(HasSubstr("NCCL of ranks "), HasSubstr("meeting: remote process exited"),
            HasSubstr("No route to host"), HasSubstr("waits for the others at 10.20.30.40:50607"),
            HasSubstr("NCCL_SOCKET_IFNAME"), HasSubstr("are free")));
  EXPECT_EQ(failed.live, 0);
  const NcclOutcome silent = train({.meeting = NcclMeeting::kNeverEnds}, nullptr, 0.1);
  EXPECT_THAT(silent.error,
              AllOf(HasSubstr("NCCL of ranks "), HasSubstr("no answer of the others in 0.5 s"),
                    HasSubstr("waits for the others at 10.20.30.40:50607")));
  EXPECT_EQ(silent.live, 0);
}

TEST(NcclSession, NeedsAGpuForEachRank) {
  EXPECT_THAT(train({}, nullptr, 60, 1).error,
              AllOf(HasSubstr("rank 1 of this machine has no GPU: the driver has 1"),
                    HasSubstr("--virtual-ranks")));
}

// NCCL finds out by itself that a peer is gone: its error names the ranks, ours the instruction.
TEST(NcclSession, AnErrorOfNcclEndsTheStepAndNamesRanksAndInstruction) {
  constexpr int64_t kConnecting = 4;  // two ranks, forward and backward
  for (int64_t call : {0, 2}) {
    const NcclOutcome outcome = train({.failsAtCall = kConnecting + call});
    EXPECT_THAT(outcome.error,
                AllOf(HasSubstr("NCCL of ranks "), HasSubstr("remote process exited"),
                      HasSubstr("instruction "), HasSubstr("step 1, rank ")));
    EXPECT_EQ(outcome.live, 0);
    EXPECT_GT(outcome.aborted, 0);
  }
}

// Its peers wait on their GPUs for what it never sends: they are told, and give up.
TEST(NcclSession, PeersOfARankThatFailsAreFreed) {
  for (const int32_t rank : {0, 1}) {
    StopsRank faults(rank, Fault::kFail);
    const NcclOutcome outcome = train({}, &faults);
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("rank " + std::to_string(rank) + " was stopped"),
                                     HasSubstr("instruction ")));
    EXPECT_EQ(outcome.live, 0);
    EXPECT_GT(outcome.aborted, 0);
  }
}

// It stops without a word: the timeout of its peer ends it, and names the rank that it waits for.
TEST(NcclSession, ARankThatStallsIsFoundByItsPeersTimeout) {
  StopsRank faults(0, Fault::kStall);
  const NcclOutcome outcome = train({}, &faults, 0.3);
  EXPECT_THAT(outcome.error, AllOf(HasSubstr("step 1, rank 1"), HasSubstr("has not completed it"),
                                   HasSubstr("it waits for rank 0")));
}

// The same with a process per rank, each with the GPU of its rank on the machine: only rank 0 is
// connected with all, and NCCL does the rest.
std::vector<Status> trainProcesses(FaultInjector* faults,
                                   std::vector<std::vector<double>>& losses) {
  EmulatedGpuOptions emulation;
  emulation.numDevices = 2;
  EmulatedGpu emulated(emulation);
  EmulatedNccl nccl;
  Apis apis = emulated.apis();
  apis.nccl = &nccl.api();
  losses.resize(2);
  const auto statuses = runProcesses(2, 60, [&](ProcessWorld& world) -> Status {
    program::Bundle bundle = tinyBundle({.tp = 1, .dp = 1});
    bundle.target.arch = "cuda:sm_90";
    SessionOptions options;
    options.cudaApis = &apis;
    options.faults = faults;
    options.processes = &world;
    TRIREME_ASSIGN_OR_RETURN(const auto session, Session::create(std::move(bundle), options));
    CountingData data;
    for (int i = 0; i < 2; ++i) {
      TRIREME_ASSIGN_OR_RETURN(const StepResult step, session->step(data));
      losses[static_cast<size_t>(world.rank())].push_back(step.loss);
    }
    return {};
  });
  EXPECT_EQ(nccl.numLive(), 0);
  EXPECT_EQ(nccl.numAborted() > 0, faults != nullptr);
  EXPECT_EQ(emulated.faults(), std::vector<std::string>());
  return statuses;
}

TEST(NcclSession, ProcessesTrainAsThreadsOfAHost) {
  const auto host = Session::create(tinyBundle({.tp = 1, .dp = 1}), {});
  ASSERT_TRUE(host.has_value());
  CountingData data;
  std::vector<double> expected;
  for (int i = 0; i < 2; ++i) expected.push_back((*host)->step(data)->loss);
  std::vector<std::vector<double>> losses;
  for (const Status& status : trainProcesses(nullptr, losses))
    EXPECT_TRUE(status.ok()) << status.message();
  for (const auto& ofRank : losses) {
    ASSERT_EQ(ofRank.size(), 2u);
    for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(ofRank[i], expected[i], 1e-12);
  }
}

TEST(NcclSession, ProcessesOfARankThatFailsAreFreed) {
  for (const int32_t rank : {0, 1}) {
    StopsRank faults(rank, Fault::kFail);
    std::vector<std::vector<double>> losses;
    for (const Status& status : trainProcesses(&faults, losses))
      EXPECT_THAT(status.message(), HasSubstr("rank " + std::to_string(rank) + " was stopped"));
  }
}

}  // namespace
}  // namespace trireme::runtime::cuda
