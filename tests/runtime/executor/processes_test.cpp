// A session per process equals the one session of threads: losses, weights, checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "runtime/session.h"
#include "tests/runtime/comm/join_processes.h"
#include "tests/runtime/executor/counting_data.h"
#include "tests/runtime/executor/tiny_program.h"
#include "tests/support/stops_rank.h"

namespace trireme::runtime {
namespace {

using ::testing::HasSubstr;
using trireme::testing::StopsRank;
namespace fs = std::filesystem;

// Two stages, two tensor-parallel and two data-parallel ranks of each, with sharded state.
const TinyOptions kTiny{.tp = 2, .dp = 2};
constexpr int32_t kRanks = 8;

std::string readAll(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

struct ProcessesOutcome {
  std::vector<uint64_t> losses, norms;  // their bits: NaNs must agree as well
  std::vector<NamedTensor> parameters;
};

class Processes : public ::testing::Test {
 protected:
  Processes()
      : folder_((fs::temp_directory_path() / ("trireme-processes-" + std::to_string(getpid()) +
                                              "-" + std::to_string(++numFolders)))
                    .string()) {
    fs::create_directories(folder_);
  }
  ~Processes() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  // Trains from `from` (a checkpoint; empty: the start) to step `steps`, and saves as `to`.
  static Status train(SessionOptions options, int64_t steps, const std::string& from,
                      const std::string& to, ProcessesOutcome& outcome) {
    TRIREME_ASSIGN_OR_RETURN(auto session, Session::create(tinyBundle(kTiny), options));
    if (!from.empty()) TRIREME_RETURN_IF_ERROR(session->loadCheckpoint(from));
    CountingData data;
    while (session->numStepsDone() < steps) {
      TRIREME_ASSIGN_OR_RETURN(const StepResult step, session->step(data));
      outcome.losses.push_back(std::bit_cast<uint64_t>(step.loss));
      outcome.norms.push_back(std::bit_cast<uint64_t>(step.gradNorm));
    }
    outcome.parameters = session->gatherParameters();
    return to.empty() ? Status() : session->saveCheckpoint(to);
  }

  // The same by processes; all have the same losses, rank 0 the weights.
  static ProcessesOutcome trainByProcesses(int64_t steps, const std::string& from,
                                           const std::string& to) {
    std::vector<ProcessesOutcome> outcomes(kRanks);
    const auto statuses = runProcesses(kRanks, 60, [&](ProcessWorld& world) {
      SessionOptions options;
      options.processes = &world;
      return train(options, steps, from, to, outcomes[static_cast<size_t>(world.rank())]);
    });
    for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.message();
    for (const ProcessesOutcome& outcome : outcomes) {
      EXPECT_EQ(outcome.losses, outcomes[0].losses);
      EXPECT_EQ(outcome.norms, outcomes[0].norms);
    }
    EXPECT_TRUE(outcomes[1].parameters.empty());
    return outcomes[0];
  }

  static void expectEqual(const ProcessesOutcome& a, const ProcessesOutcome& b) {
    EXPECT_EQ(a.losses, b.losses);
    EXPECT_EQ(a.norms, b.norms);
    ASSERT_EQ(a.parameters.size(), b.parameters.size());
    for (size_t i = 0; i < a.parameters.size(); ++i) {
      EXPECT_EQ(a.parameters[i].name, b.parameters[i].name);
      const auto &x = a.parameters[i].values, &y = b.parameters[i].values;
      ASSERT_EQ(x.size(), y.size());
      EXPECT_EQ(std::memcmp(x.data(), y.data(), x.size() * sizeof(double)), 0)
          << a.parameters[i].name;
    }
  }

 private:
  static inline std::atomic<int> numFolders = 0;
  std::string folder_;
};

TEST_F(Processes, TrainWithTheBitsOfThreads) {
  ProcessesOutcome threads;
  ASSERT_TRUE(train({}, 4, "", path("threads"), threads).ok());
  expectEqual(trainByProcesses(4, "", path("processes")), threads);
  EXPECT_EQ(readAll(path("threads")), readAll(path("processes")));
  EXPECT_FALSE(readAll(path("threads")).empty());
}

TEST_F(Processes, ResumeWhatThreadsSavedAndTheReverse) {
  ProcessesOutcome whole, half, rest;
  ASSERT_TRUE(train({}, 6, "", path("whole"), whole).ok());
  ASSERT_TRUE(train({}, 3, "", path("half"), half).ok());
  const ProcessesOutcome resumed = trainByProcesses(6, path("half"), path("resumed"));
  EXPECT_EQ(readAll(path("whole")), readAll(path("resumed")));
  EXPECT_EQ(resumed.losses, std::vector<uint64_t>(whole.losses.begin() + 3, whole.losses.end()));
  trainByProcesses(3, "", path("half by processes"));
  ASSERT_TRUE(train({}, 6, path("half by processes"), path("resumed by threads"), rest).ok());
  EXPECT_EQ(readAll(path("whole")), readAll(path("resumed by threads")));
}

// The disk of rank 0 is full: all hear of it, nobody goes on without a checkpoint.
TEST_F(Processes, ACheckpointThatCannotBeWrittenFailsThemAll) {
  std::vector<ProcessesOutcome> outcomes(kRanks);
  const auto statuses = runProcesses(kRanks, 60, [&](ProcessWorld& world) {
    SessionOptions options;
    options.processes = &world;
    return train(options, 1, "", path("no/such/folder/file"),
                 outcomes[static_cast<size_t>(world.rank())]);
  });
  for (const Status& status : statuses)
    EXPECT_THAT(status.message(), HasSubstr("checkpoint not written"));
}

TEST_F(Processes, TheirNumberIsThatOfTheRanks) {
  const auto statuses = runProcesses(2, 60, [&](ProcessWorld& world) {
    SessionOptions options;
    options.processes = &world;
    const auto session = Session::create(tinyBundle(kTiny), options);
    return session.has_value() ? Status() : session.error();
  });
  for (const Status& status : statuses)
    EXPECT_THAT(status.message(), HasSubstr("the bundle has 8 ranks, and the test started 2 "
                                            "processes"));
}

TEST_F(Processes, OneWithAnotherBundleIsFound) {
  const auto statuses = runProcesses(kRanks, 60, [&](ProcessWorld& world) {
    SessionOptions options;
    options.processes = &world;
    TinyOptions tiny = kTiny;
    if (world.rank() == 5) tiny.numMicrobatches = 2;
    const auto session = Session::create(tinyBundle(tiny), options);
    return session.has_value() ? Status() : session.error();
  });
  for (const Status& status : statuses) EXPECT_FALSE(status.ok());
  EXPECT_THAT(statuses[5].message(), HasSubstr("checksum of the bundle's program"));
}

// The first that differs, and against rank 0, whoever asks.
TEST_F(Processes, DisagreementsNameTheFactAndTwoRanks) {
  const auto agreeing = [](int32_t different) {
    return runProcesses(kRanks, 60, [&](ProcessWorld& world) -> Status {
      SessionOptions options;
      options.processes = &world;
      TRIREME_ASSIGN_OR_RETURN(const auto session, Session::create(tinyBundle(kTiny), options));
      const std::string last = world.rank() == different ? "10" : "5";
      return session->agree({{"--steps", "9"}, {"--save-every", last}, {"--trace", last}});
    });
  };
  for (const Status& status : agreeing(-1)) EXPECT_TRUE(status.ok()) << status.message();
  for (const Status& status : agreeing(5))
    EXPECT_THAT(status.message(),
                HasSubstr("processes disagree: --save-every is 5 for rank 0 and 10 for rank 5"));
}

// Whoever fails, all others end with an error that names it and its instruction.
TEST_F(Processes, ARankThatFailsWithinAStepEndsThemAll) {
  for (const int32_t failing : {0, 6}) {
    StopsRank faults(failing, Fault::kFail);
    const auto statuses = runProcesses(kRanks, 60, [&](ProcessWorld& world) {
      SessionOptions options;
      options.processes = &world;
      options.faults = &faults;
      ProcessesOutcome outcome;
      return train(options, 2, "", "", outcome);
    });
    const std::string reason = "rank " + std::to_string(failing) + " was stopped";
    for (const Status& status : statuses) EXPECT_THAT(status.message(), HasSubstr(reason));
    EXPECT_THAT(statuses[static_cast<size_t>(failing)].message(),
                ::testing::AllOf(HasSubstr("step 1, rank " + std::to_string(failing)),
                                 HasSubstr("instruction ")));
  }
}

// Rank 0 fails before its AdamW, and rank 1 goes on to its own when it has heard of it: the rest of
// its step needs nobody.
class FailsWhileNobodyWaits final : public FaultInjector {
 public:
  FailsWhileNobodyWaits(const program::Program& program, std::atomic<ProcessWorld*>& one)
      : program_(program), one_(one) {}
  Fault before(int32_t rank, const program::TaskRecord& task, int32_t instruction,
               int32_t) override {
    const auto& role = program_.roles[static_cast<size_t>(program_.ranks[rank].role)];
    const auto& body = role.bodies[static_cast<size_t>(task.body)];
    if (body.instructions[static_cast<size_t>(instruction)].kind !=
        program::InstructionKind::kAdamW)
      return Fault::kNone;
    if (rank == 0) return Fault::kFail;
    while (!one_.load()->failed()) std::this_thread::yield();
    return Fault::kNone;
  }

 private:
  const program::Program& program_;
  std::atomic<ProcessWorld*>& one_;
};

TEST_F(Processes, OneThatFailsWhereNobodyWaitsForItIsNamed) {
  const program::Bundle bundle = tinyBundle({.tp = 1, .dp = 1, .sharded = false});
  std::atomic<ProcessWorld*> one = nullptr;
  FailsWhileNobodyWaits faults(bundle.program, one);
  const auto statuses = runProcesses(2, 60, [&](ProcessWorld& world) -> Status {
    if (world.rank() == 1) one = &world;
    SessionOptions options;
    options.processes = &world;
    options.faults = &faults;
    TRIREME_ASSIGN_OR_RETURN(const auto session, Session::create(bundle, options));
    CountingData data;
    const auto step = session->step(data);
    return step.has_value() ? Status() : step.error();
  });
  EXPECT_THAT(statuses[1].message(), ::testing::AllOf(HasSubstr("rank 1"),
                                                      HasSubstr("gave up (rank 0 failed: step 1, "
                                                                "rank 0: "),
                                                      HasSubstr("rank 0 was stopped")));
}

}  // namespace
}  // namespace trireme::runtime
