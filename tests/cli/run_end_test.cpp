// How runs end: done, interrupted, diverged. Only with a code generator.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "cli/run/training_loop.h"
#include "ir/program/bundle.h"
#include "runtime/data/token_files.h"
#include "tests/cli/command.h"

#if TRIREME_HAVE_MLIR
namespace trireme::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class RunEnd : public CommandTest {};

// Raises the signals when the samples of a step are read to be trained on.
class InterruptedData final : public runtime::DataSource {
 public:
  InterruptedData(runtime::DataSource& data, uint64_t sample, std::vector<int> signals)
      : data_(data), sample_(sample), signals_(std::move(signals)) {}
  Status sample(uint64_t index, int64_t length, int64_t stride, int32_t* tokens,
                int32_t* labels) override {
    if (index == sample_ && tokens != nullptr)
      for (const int signal : signals_) raise(signal);
    return data_.sample(index, length, stride, tokens, labels);
  }
  std::string identity() const override { return data_.identity(); }

 private:
  runtime::DataSource& data_;
  uint64_t sample_;
  std::vector<int> signals_;
};

// Batches of 8: sample 8 is of the second step, sample 16 of the third. Shells say a second time
// that the terminal is closed.
TEST_F(RunEnd, CtrlCInTheLastStepInterruptsNothing) {
  const std::string bundle = compile("tiny", {"--gpus", "1"});
  for (const auto& [sample, signals] : std::vector<std::pair<uint64_t, std::vector<int>>>{
           {8, {SIGINT}}, {16, {SIGINT}}, {8, {SIGHUP, SIGHUP}}}) {
    auto session = runtime::Session::open(bundle, {});
    ASSERT_TRUE(session.has_value()) << session.error().message();
    const auto tokens = runtime::TokenFiles::open({data}, {.sequenceLength = 16});
    ASSERT_TRUE(tokens.has_value()) << tokens.error().message();
    auto metrics = MetricsFile::open("", std::nullopt);
    ASSERT_TRUE(metrics.has_value());
    InterruptedData interrupted(**tokens, sample, signals);
    const auto result = train(**session, interrupted, *metrics, {.numSteps = 3});
    ASSERT_TRUE(result.has_value()) << result.error().message();
    EXPECT_EQ(result->interrupted, sample == 8);
    EXPECT_EQ(result->steps.size(), sample == 8 ? 2u : 3u);
  }
}

// Batches of 8 samples of 16 tokens: token 300 is of the third step. A disk that fails or a file
// that has shrunk is the same to the run.
TEST_F(RunEnd, DataThatTheNextStepCannotReadEndTheRunWithACheckpoint) {
  const std::string bundle = compile("tiny", {"--gpus", "1"}), saved = path("ckpt");
  std::string wide(2 * 1000, '\0');
  wide[2 * 300 + 1] = '\1';
  const std::string file = write("tokens.u16", wide);
  const std::string refusal =
      "step 3, rank 0: data file " + file + ", token 300: 256 is not in the vocabulary of 256; ";
  const auto errorOf = [&](const LoopOptions& options) {
    auto session = runtime::Session::open(bundle, {});
    EXPECT_TRUE(session.has_value()) << session.error().message();
    const auto tokens =
        runtime::TokenFiles::open({file}, {.sequenceLength = 16,
                                           .order = runtime::SampleOrder::kSequential,
                                           .type = runtime::TokenType::kU16,
                                           .checkedBytes = 2 * 300});
    EXPECT_TRUE(tokens.has_value()) << tokens.error().message();
    auto metrics = MetricsFile::open("", std::nullopt);
    const auto result = train(**session, **tokens, *metrics, options);
    return result.has_value() ? "" : result.error().message();
  };
  EXPECT_EQ(errorOf({.numSteps = 2}), "");
  EXPECT_EQ(errorOf({.numSteps = 9}), refusal + "there is no checkpoint of this run");
  fs::create_directory(saved);
  EXPECT_EQ(errorOf({.numSteps = 9, .saveFolder = saved}),
            refusal + "the training up to here is saved: " + saved + "/step-00000002.safetensors");
  EXPECT_TRUE(fs::exists(saved + "/step-00000002.safetensors"));
}

// Of another bundle, or cut short: what runs is what was read and checked.
TEST_F(RunEnd, KernelsThatAreOverwrittenMeanwhileChangeNothing) {
  const std::string bundle = compile("tiny", {"--gpus", "1"});
  const auto losses = [&](bool overwrites) {
    auto session = runtime::Session::open(bundle, {});
    EXPECT_TRUE(session.has_value()) << session.error().message();
    if (overwrites) fs::resize_file(bundle + "/kernels.so", 0);
    const auto tokens = runtime::TokenFiles::open({data}, {.sequenceLength = 16});
    auto metrics = MetricsFile::open("", std::nullopt);
    const auto result = train(**session, **tokens, *metrics, {.numSteps = 2});
    EXPECT_TRUE(result.has_value()) << result.error().message();
    std::vector<double> losses;
    for (const runtime::StepResult& step : result->steps) losses.push_back(step.loss);
    return losses;
  };
  const std::vector<double> before = losses(false);
  EXPECT_EQ(losses(true), before);
}

// Somebody has tidied up.
TEST_F(RunEnd, AFolderThatIsRemovedMeanwhileIsMadeAnewForTheCheckpoint) {
  const std::string bundle = compile("tiny", {"--gpus", "1"}), saved = path("a/ckpt");
  auto session = runtime::Session::open(bundle, {});
  ASSERT_TRUE(session.has_value()) << session.error().message();
  const auto tokens = runtime::TokenFiles::open({data}, {.sequenceLength = 16});
  ASSERT_TRUE(tokens.has_value()) << tokens.error().message();
  auto metrics = MetricsFile::open("", std::nullopt);
  const auto result = train(**session, **tokens, *metrics, {.numSteps = 2, .saveFolder = saved});
  ASSERT_TRUE(result.has_value()) << result.error().message();
  EXPECT_TRUE(fs::exists(saved + "/step-00000002.safetensors"));
}

// Without an epsilon, which no training file may have, rows of padding have 0 / 0 as their step:
// nothing reads them but the gradient's norm.
TEST_F(RunEnd, AGradientThatIsNotFiniteEndsTheRunAtTheNewestCheckpoint) {
  model = write("odd.yaml", replaced(kTinyModel, "vocab_size: 256", "vocab_size: 257"));
  const std::string good = compile("good", {"--tp", "1", "--pp", "1", "--dp", "2"});
  auto bundle = program::readBundle(good);
  ASSERT_TRUE(bundle.has_value()) << bundle.error().message();
  bundle->program.training.epsilon = 0;
  const std::string without = path("without.bundle"), saved = path("ckpt");
  const std::string first = saved + "/step-00000001.safetensors";
  ASSERT_TRUE(program::writeBundle(*bundle, without).ok());
  expectRefusal(run(without, {"--steps", "3", "--save", saved, "--save-every", "1"}), 1,
                {"step 2: the gradient's norm is nan: the training has diverged",
                 "; the newest checkpoint is " + first});
  EXPECT_FALSE(fs::exists(saved + "/step-00000002.safetensors"));
  expectRefusal(run(without, {"--steps", "3"}), 1, {"there is no checkpoint of this run"});
  expectSuccess(run(good, {"--steps", "3", "--resume", saved}));
  const Outcome resumed = run(without, {"--steps", "4", "--resume", saved});
  EXPECT_EQ(resumed.exitCode, 1);
  EXPECT_THAT(resumed.err, ::testing::AllOf(HasSubstr("error: step 3: the gradient's norm is nan"),
                                            HasSubstr("the newest checkpoint is " + first)));
}

// The checkpoint that gives it in the first step is nothing to go on from.
TEST_F(RunEnd, AWreckedCheckpointIsNotNamedAsTheOneToResume) {
  training =
      write("wild.yaml", replaced(kTinyTraining, "learning_rate: 1e-3", "learning_rate: 1e30"));
  const std::string bundle = compile("wild", {"--gpus", "1"}), saved = path("ckpt");
  expectSuccess(run(bundle, {"--steps", "1", "--save", saved}));
  const Outcome resumed = run(bundle, {"--steps", "2", "--resume", saved});
  EXPECT_EQ(resumed.exitCode, 1);
  EXPECT_THAT(resumed.err,
              HasSubstr("the weights that the run begins with give none; they are those of " +
                        saved + "/step-00000001.safetensors: resume an earlier checkpoint"));
}

TEST_F(RunEnd, CtrlCStopsAfterACompleteStepAndSaves) {
  const std::string bundle = compile("tiny", {"--gpus", "1"});
  const std::string metrics = path("m.jsonl"), saved = path("ckpt");
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (!freopen("/dev/null", "w", stdout)) _exit(126);
    execl(TRIREME_BINARY, "trireme", "run", bundle.c_str(), "--data", data.c_str(), "--steps",
          "1000000000", "--metrics", metrics.c_str(), "--save", saved.c_str(), nullptr);
    _exit(127);
  }
  for (int i = 0; i < 1000 && readAll(metrics).empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  kill(child, SIGINT);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130);
  const size_t steps = lossesIn(metrics).size();
  ASSERT_GE(steps, 1u);
  char name[64];
  std::snprintf(name, sizeof name, "/step-%08zu.safetensors", steps);
  EXPECT_TRUE(fs::exists(saved + name)) << name;
}

}  // namespace
}  // namespace trireme::cli
#endif
