// `trireme run` as a launcher starts it: one process per rank. All of it for real, by fork and exec
// on this machine, with what torchrun or mpirun would leave in the environment.
#include <gmock/gmock.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "ir/expand/expand.h"
#include "ir/program/bundle.h"
#include "tests/cli/command.h"
#include "tests/support/free_port.h"
#include "tests/support/small_plan.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using trireme::testing::freePort;

using Variables = std::map<std::string, std::string>;

// A process of a run, and where what it says goes.
struct Started {
  pid_t pid = -1;
  std::string out, err;  // paths
};

class ProcessesCommand : public CommandTest {
 protected:
  // A bundle without generated kernels: the runtime has its own for every op.
  std::string bundle(int64_t tp, int64_t pp, int64_t dp) const {
    spec::ModelSpec spec = small::gpt(4, 32, 4);
    spec.vocabSize = 256;
    spec.maxSequence = 32;
    spec::TrainingSpec training = small::training(8, 16);
    training.precision = spec::Precision::kFp32;
    plan::Plan plan = small::plan(spec, training, tp, pp, dp);
    plan.microbatchSize = 2;
    auto expansion = expand::expand(spec, plan);
    EXPECT_TRUE(expansion.has_value()) << expansion.error().message();
    program::Bundle made;
    made.name = spec.name;
    made.program = std::move(expansion->program);
    made.kernels.resize(made.program.segments.size());
    const std::string folder =
        path("t" + std::to_string(tp) + "p" + std::to_string(pp) + "d" + std::to_string(dp));
    const Status status = program::writeBundle(made, folder);
    EXPECT_TRUE(status.ok()) << status.message();
    return folder;
  }

  // Starts `trireme run` of `bundle` as one of a launcher's processes.
  Started start(const std::string& bundle, const Variables& variables,
                const std::vector<std::string>& more) {
    const std::string name = "process" + std::to_string(numStarted_++);
    Started started{-1, path(name + ".out"), path(name + ".err")};
    std::vector<std::string> args = {TRIREME_BINARY, "run", bundle, "--data", data};
    args.insert(args.end(), more.begin(), more.end());
    started.pid = fork();
    if (started.pid != 0) return started;
    for (const auto& [variable, value] : variables) setenv(variable.c_str(), value.c_str(), 1);
    if (freopen("/dev/null", "r", stdin) == nullptr ||
        freopen(started.out.c_str(), "w", stdout) == nullptr ||
        freopen(started.err.c_str(), "w", stderr) == nullptr)
      _exit(127);
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }

  static Variables torchrun(int32_t rank, int32_t size, int port) {
    return {{"RANK", std::to_string(rank)},
            {"WORLD_SIZE", std::to_string(size)},
            {"LOCAL_RANK", std::to_string(rank)},
            {"MASTER_ADDR", "127.0.0.1"},
            {"MASTER_PORT", std::to_string(port)}};
  }

  std::vector<Started> startAll(const std::string& bundle, int32_t size,
                                const std::vector<std::string>& more) {
    const int port = freePort();
    std::vector<Started> all;
    for (int32_t rank = 0; rank < size; ++rank)
      all.push_back(start(bundle, torchrun(rank, size, port), more));
    return all;
  }

  static Outcome finish(const Started& started) {
    int status = 0;
    EXPECT_EQ(waitpid(started.pid, &status, 0), started.pid);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, readAll(started.out),
            readAll(started.err)};
  }
  static std::vector<Outcome> finish(const std::vector<Started>& all) {
    std::vector<Outcome> outcomes;
    for (const Started& started : all) outcomes.push_back(finish(started));
    return outcomes;
  }
  std::string checkpoint(const std::string& folder, int step) const {
    char name[64];
    std::snprintf(name, sizeof(name), "/step-%08d.safetensors", step);
    return readAll(path(folder + name));
  }
  // Waits until the run has done a step.
  void awaitStep(const std::string& metrics) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    while (lossLines(metrics) == 0 && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_GT(lossLines(metrics), 0) << "no step in two minutes";
  }
  static int64_t lossLines(const std::string& metrics) {
    const std::string text = readAll(metrics);
    return std::count(text.begin(), text.end(), '\n');
  }

 private:
  int numStarted_ = 0;
};

struct Degrees {
  int64_t tp, pp, dp;
};

// Loss for loss and byte for byte, and only rank 0 speaks.
TEST_F(ProcessesCommand, TrainAsOneProcessDoes) {
  for (const auto& [tp, pp, dp] : {Degrees{2, 1, 1}, {1, 2, 1}, {1, 1, 2}, {2, 2, 2}}) {
    const std::string folder = bundle(tp, pp, dp);
    const auto size = static_cast<int32_t>(tp * pp * dp);
    expectSuccess(
        run(folder, {"--steps", "3", "--save", path("one"), "--metrics", path("one.jsonl")}));
    const auto outcomes = finish(startAll(folder, size,
                                          {"--steps", "3", "--save", path("many"), "--metrics",
                                           path("many.jsonl"), "--trace", path("trace.json")}));
    for (size_t rank = 0; rank < outcomes.size(); ++rank) {
      expectSuccess(outcomes[rank]);
      EXPECT_EQ(outcomes[rank].err, "");
      EXPECT_EQ(outcomes[rank].out.empty(), rank != 0) << outcomes[rank].out;
    }
    EXPECT_EQ(lossesIn(path("many.jsonl")), lossesIn(path("one.jsonl")));
    EXPECT_EQ(checkpoint("many", 3), checkpoint("one", 3));
    EXPECT_FALSE(checkpoint("one", 3).empty());
    // The trace has a process per rank.
    const std::string trace = readAll(path("trace.json"));
    EXPECT_THAT(trace, HasSubstr("\"pid\":" + std::to_string(size - 1)));
    for (const char* each : {"one", "many", "one.jsonl", "many.jsonl"}) fs::remove_all(path(each));
  }
}

TEST_F(ProcessesCommand, ResumeWhatOneProcessSavedAndTheReverse) {
  const std::string folder = bundle(2, 1, 1);
  expectSuccess(run(folder, {"--steps", "4", "--save", path("whole")}));
  expectSuccess(run(folder, {"--steps", "2", "--save", path("a")}));
  for (const Outcome& outcome :
       finish(startAll(folder, 2, {"--steps", "4", "--resume", path("a"), "--save", path("a")})))
    expectSuccess(outcome);
  for (const Outcome& outcome : finish(startAll(folder, 2, {"--steps", "2", "--save", path("b")})))
    expectSuccess(outcome);
  expectSuccess(run(folder, {"--steps", "4", "--resume", path("b"), "--save", path("b")}));
  EXPECT_EQ(checkpoint("a", 4), checkpoint("whole", 4));
  EXPECT_EQ(checkpoint("b", 4), checkpoint("whole", 4));
}

// Killed, it cannot say so itself: the others do, and end.
TEST_F(ProcessesCommand, OneThatIsKilledWithinAStepIsNamedByTheOthers) {
  const std::string folder = bundle(1, 2, 2);
  for (const size_t victim : {size_t{3}, size_t{0}}) {
    const std::string metrics = path("killed" + std::to_string(victim) + ".jsonl");
    const auto all = startAll(folder, 4, {"--steps", "1000000", "--metrics", metrics});
    awaitStep(metrics);
    kill(all[victim].pid, SIGKILL);
    for (size_t rank = 0; rank < all.size(); ++rank) {
      const Outcome outcome = finish(all[rank]);
      if (rank == victim) continue;
      EXPECT_EQ(outcome.exitCode, 1) << outcome.err;
      EXPECT_THAT(outcome.err, AllOf(HasSubstr("rank " + std::to_string(victim) + " failed: "),
                                     HasSubstr("it was killed, or has crashed"),
                                     HasSubstr("rank " + std::to_string(rank))));
    }
  }
}

// Each checks a part of the tokens: rank 1 the second half.
TEST_F(ProcessesCommand, ATokenOutsideTheVocabularyIsFoundByOneBeforeTheFirstStep) {
  std::string wide(2 * 20'000, '\0');
  wide[2 * 15'000 + 1] = '\1';
  data = write("tokens.u16", wide);
  const auto all = startAll(bundle(1, 1, 2), 2, {"--steps", "1000000", "--tokens", "uint16"});
  const std::vector<Outcome> outcomes = finish(all);
  const std::string found = "data file " + data + ", token 15000: 256 is not in the vocabulary";
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.exitCode, 1);
    EXPECT_THAT(outcome.err, HasSubstr(found));
  }
  EXPECT_THAT(outcomes[0].err, HasSubstr("rank 1 failed: "));
  EXPECT_THAT(outcomes[1].err, ::testing::StartsWith("error: rank 1: " + found));
}

// Steps of 128 bytes, of which those of a thousand steps later go away.
TEST_F(ProcessesCommand, DataThatOneCannotReadAnyMoreStopAllWithACheckpoint) {
  const std::string folder = bundle(1, 2, 2), metrics = path("m.jsonl");
  data = write("long.txt", std::string(1 << 20, 'a'));
  const auto all = startAll(folder, 4,
                            {"--steps", "1000000", "--order", "sequential", "--metrics", metrics,
                             "--save", path("saved")});
  awaitStep(metrics);
  fs::resize_file(data, static_cast<uintmax_t>(128 * (lossLines(metrics) + 1000)));
  std::string said;
  for (const Outcome& outcome : finish(all)) {
    EXPECT_EQ(outcome.exitCode, 1) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    said += outcome.err;
  }
  const auto steps = static_cast<int>(lossLines(metrics));
  EXPECT_FALSE(checkpoint("saved", steps).empty()) << steps << said;
  EXPECT_THAT(said, HasSubstr("data file " + data +
                              ": shrunk while in use; the training up to "
                              "here is saved: "));
}

// As a scheduler suspends a job, three times for longer than the timeout: with a process for each
// rank, and with all ranks in one, which wait for each other nearly always.
TEST_F(ProcessesCommand, TimeInWhichAllAreStoppedIsNoTimeThatTheyWaited) {
  const std::string folder = bundle(1, 2, 2), metrics = path("m.jsonl");
  const std::vector<std::string> flags = {"--steps", "1000000",     "--timeout", "1.5",
                                          "--save",  path("saved"), "--metrics", metrics};
  for (const bool isOne : {true, false}) {
    fs::remove_all(path("saved"));
    fs::remove(metrics);
    const std::vector<Started> all =
        isOne ? std::vector{start(folder, {}, flags)} : startAll(folder, 4, flags);
    awaitStep(metrics);
    const auto tellAll = [&](int signal) {
      for (const Started& started : all) kill(started.pid, signal);
    };
    for (int i = 0; i < 3; ++i) {
      tellAll(SIGSTOP);
      std::this_thread::sleep_for(std::chrono::seconds(2));
      tellAll(SIGCONT);
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    }
    tellAll(SIGINT);
    for (const Outcome& outcome : finish(all)) EXPECT_EQ(outcome.exitCode, 130) << outcome.err;
    EXPECT_FALSE(checkpoint("saved", static_cast<int>(lossLines(metrics))).empty());
  }
}

TEST_F(ProcessesCommand, InterruptingOneStopsAllAfterTheSameStep) {
  const std::string folder = bundle(1, 2, 1);
  const auto all = startAll(
      folder, 2, {"--steps", "1000000", "--metrics", path("m.jsonl"), "--save", path("saved")});
  awaitStep(path("m.jsonl"));
  kill(all[1].pid, SIGINT);
  for (const Outcome& outcome : finish(all)) EXPECT_EQ(outcome.exitCode, 130) << outcome.err;
  const auto steps = static_cast<int>(lossLines(path("m.jsonl")));
  EXPECT_FALSE(checkpoint("saved", steps).empty());
}

TEST_F(ProcessesCommand, OneThatDoesNotComeIsNamed) {
  const std::string folder = bundle(1, 2, 2);
  const int port = freePort();
  std::vector<Started> all;
  for (const int32_t rank : {0, 1, 3})
    all.push_back(start(folder, torchrun(rank, 4, port), {"--steps", "1", "--timeout", "1"}));
  for (const Started& started : all) {
    const Outcome outcome = finish(started);
    expectRefusal(outcome, 1,
                  {"rank 2 of 4 has not come to 127.0.0.1:" + std::to_string(port), "within 1 s"});
  }
}

TEST_F(ProcessesCommand, AWrongPortIsNamedWithRankAndTime) {
  const std::string folder = bundle(1, 2, 1);
  const int port = freePort();
  expectRefusal(
      finish(start(folder, torchrun(1, 2, port), {"--steps", "1", "--timeout", "0.5"})), 1,
      {"rank 1 cannot reach rank 0 at 127.0.0.1:" + std::to_string(port), "(tried for 0.5 s)"});
}

TEST_F(ProcessesCommand, ANumberThatIsNotTheBundlesIsSaidWithBoth) {
  const std::string folder = bundle(1, 2, 1);
  for (const Outcome& outcome : finish(startAll(folder, 3, {"--steps", "1"})))
    expectRefusal(outcome, 1, {"the bundle has 2 ranks, and torchrun started 3 processes"});
}

TEST_F(ProcessesCommand, WhereMetricsCannotBeWrittenAllSaveTheTraining) {
  const std::string folder = bundle(2, 1, 1);
  const auto all =
      startAll(folder, 2, {"--steps", "3", "--metrics", "/dev/full", "--save", path("saved")});
  for (const Outcome& outcome : finish(all))
    expectRefusal(outcome, 1, {"/dev/full", "the training up to here is saved: "});
  EXPECT_FALSE(checkpoint("saved", 1).empty());
}

// What only one of them finds out ends them all, with its reason.
TEST_F(ProcessesCommand, AnErrorOfOneIsOneOfAll) {
  const std::string folder = bundle(1, 2, 1);
  const int port = freePort();
  const Started zero = start(folder, torchrun(0, 2, port), {"--steps", "2"});
  const Started one = start(path("nothing"), torchrun(1, 2, port), {"--steps", "2"});
  expectRefusal(finish(one), 1, {"rank 1: ", "nothing"});
  expectRefusal(finish(zero), 1, {"rank 1 failed: ", "nothing"});
}

// What would train on other batches, from other weights or for ever ends them all before the first
// step.
TEST_F(ProcessesCommand, TwoThatAreStartedDifferentlyAreRefusedWithTheFlag) {
  const std::string folder = bundle(1, 1, 2);
  const std::string other = write("other.txt", std::string(9000, 'x'));
  std::string large(20000, 'x');
  const std::string wide = write("wide.txt", large);
  std::fill(large.begin() + 5000, large.end() - 5000, 'y');
  const std::string within = write("within.txt", large);  // with the same ends
  expectSuccess(run(folder, {"--steps", "1", "--save", path("a"), "--save-every", "1"}));
  expectSuccess(run(folder, {"--steps", "2", "--save", path("b")}));
  const std::string one = path("a/step-00000001.safetensors"), copy = path("copy.safetensors");
  std::string bytes = readAll(one);
  bytes[bytes.size() - 8] ^= 1;  // the first KiB of the last tensor, so its checksum is wrong, too
  std::ofstream(copy, std::ios::binary) << bytes;
  using Flags = std::vector<std::string>;
  struct Case {
    Flags zero, one;
    std::string message;
  };
  const std::vector<Case> cases = {
      {{"--steps", "5"}, {"--steps", "6"}, "--steps is 5 for rank 0 and 6 for rank 1"},
      {{}, {"--order", "sequential"}, "--data is 9000 tokens in random order"},
      {{}, {"--data", other}, "--data is "},
      {{"--data", wide}, {"--data", within}, "--data is "},
      {{"--save", path("s")}, {}, "--save is given for rank 0 and not given for rank 1"},
      {{"--save", path("s"), "--save-every", "10"},
       {"--save", path("s"), "--save-every", "5"},
       "--save-every is 10 for rank 0 and 5 for rank 1"},
      {{"--trace", path("t")}, {}, "--trace is given for rank 0 and not given for rank 1"},
      {{}, {"--report", path("t")}, "--report is not given for rank 0 and given for rank 1"},
      {{"--resume", path("a")}, {}, "--resume is a checkpoint of step 1, fingerprint "},
      {{"--resume", path("a")}, {"--resume", path("b")}, " for rank 0 and a checkpoint of step 2"},
      {{"--resume", one}, {"--resume", copy}, "--resume is a checkpoint of step 1, fingerprint "},
      {{}, {"--init-from", one}, "--init-from is not given for rank 0 and of fingerprint "}};
  for (const Case& each : cases) {
    SCOPED_TRACE(each.message);
    const int port = freePort();
    std::vector<Started> all;
    for (int32_t rank = 0; rank < 2; ++rank) {
      Flags flags = {"--steps", "4"};
      const Flags& more = rank == 0 ? each.zero : each.one;
      if (!more.empty() && more.front() == "--steps") flags.clear();
      flags.insert(flags.end(), more.begin(), more.end());
      all.push_back(start(folder, torchrun(rank, 2, port), flags));
    }
    for (const Outcome& outcome : finish(all)) {
      expectRefusal(outcome, 1, {"processes disagree: ", each.message});
      EXPECT_THAT(outcome.err, ::testing::Not(HasSubstr("begin anew")));
    }
  }
}

// What only rank 0 does, and what changes no result, need not be the same.
TEST_F(ProcessesCommand, OutputsOfRankZeroNeedNotBeTheOthers) {
  const std::string folder = bundle(1, 2, 1);
  const int port = freePort();
  const Started zero =
      start(folder, torchrun(0, 2, port), {"--steps", "2", "--metrics", path("m.jsonl"), "--json"});
  const Started one =
      start(folder, torchrun(1, 2, port), {"--steps", "2", "--threads", "2", "--timeout", "50"});
  expectSuccess(finish(zero));
  expectSuccess(finish(one));
}

TEST_F(ProcessesCommand, MpirunAndSrunAreReadAndAVariableThatIsWrongIsNamed) {
  const std::string folder = bundle(1, 2, 1);
  for (const bool slurm : {false, true}) {
    const std::string port = std::to_string(freePort());
    std::vector<Started> all;
    for (const std::string rank : {"0", "1"})
      all.push_back(start(folder,
                          slurm ? Variables{{"SLURM_PROCID", rank},
                                            {"SLURM_NTASKS", "2"},
                                            {"SLURM_LOCALID", rank},
                                            {"SLURM_STEP_ID", "0"},
                                            {"MASTER_ADDR", "localhost"},
                                            {"MASTER_PORT", port}}
                                : Variables{{"OMPI_COMM_WORLD_RANK", rank},
                                            {"OMPI_COMM_WORLD_SIZE", "2"},
                                            {"OMPI_COMM_WORLD_LOCAL_RANK", rank},
                                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                            {"MASTER_PORT", port}},
                          {"--steps", "1"}));
    for (const Outcome& outcome : finish(all)) expectSuccess(outcome);
  }
  Variables wrong = torchrun(0, 2, 1);
  wrong["RANK"] = "two";
  expectRefusal(finish(start(folder, wrong, {"--steps", "1"})), 1, {"RANK is 'two'"});
  expectRefusal(finish(start(folder, torchrun(0, 2, 1), {"--steps", "1", "--rendezvous", "here"})),
                1, {"--rendezvous: 'here' is not HOST:PORT"});
  expectRefusal(finish(start(folder, {}, {"--steps", "1", "--rendezvous", "localhost:4000"})), 1,
                {"--rendezvous is for processes of a launcher", "set RANK and WORLD_SIZE"});
  expectSuccess(
      finish(start(folder, torchrun(0, 1, 1), {"--steps", "1", "--rendezvous", "localhost:4000"})));
  expectRefusal(finish(start(folder, {{"WORLD_SIZE", "2"}}, {"--steps", "1"})), 1,
                {"WORLD_SIZE is set and RANK is not"});
}

}  // namespace
}  // namespace trireme::cli
