// Commands that write into a pipe which nobody reads any more.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "tests/cli/command.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class ClosedPipe : public CommandTest {
 protected:
  // What waitpid() says of `trireme args...` with such a pipe as `stream`; the other one of stdout
  // and stderr goes into the file "said". The signal is as a shell leaves it, or is ignored.
  int statusWithClosed(int stream, std::vector<std::string> args,
                       sighandler_t disposition = SIG_DFL) const {
    args.insert(args.begin(), TRIREME_BINARY);
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    const std::string said = path("said");
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    close(ends[0]);
    const pid_t child = fork();
    if (child == 0) {
      signal(SIGPIPE, disposition);
      if (!freopen(said.c_str(), "w", stream == STDOUT_FILENO ? stderr : stdout)) _exit(126);
      dup2(ends[1], stream);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(ends[1]);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return status;
  }
  std::string said() const { return readAll(path("said")); }
};

// `trireme ... | head -1`. Help and manual page are long enough to be written in parts.
TEST_F(ClosedPipe, UnderStdoutEndsACommandQuietly) {
  const std::vector<std::vector<std::string>> commands = {
      {"plan", "--model", model, "--cluster", cluster, "--train", training},
      {"plan", "--help"},
      {"man"}};
  for (const std::vector<std::string>& command : commands) {
    const int status = statusWithClosed(STDOUT_FILENO, command);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE) << command[0] << status;
    EXPECT_EQ(said(), "");
  }
}

TEST_F(ClosedPipe, IsAnErrorWhereTheSignalWasIgnoredBefore) {
  const int status = statusWithClosed(STDOUT_FILENO, {"man"}, SIG_IGN);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == kExitFailure) << status;
  EXPECT_EQ(said(), "error: cannot write the results: Broken pipe\n");
}

TEST_F(ClosedPipe, UnderStderrLeavesExitCodesAsTheyAre) {
  const int status = statusWithClosed(STDERR_FILENO, {"no-command"});
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == kExitUsage) << status;
}

// This tar ends by the signal, if it has not inherited that it is ignored.
TEST_F(ClosedPipe, IsWhatItAlwaysIsToProgramsThatTheCommandStarts) {
  fs::create_directory(path("bin"));
  const std::string tar = write("bin/tar", "#!/bin/sh\nkill -PIPE $$\nexit 0\n");
  fs::permissions(tar, fs::perms::owner_all);
  const std::string before = std::getenv("PATH");
  setenv("PATH", (path("bin") + ":" + before).c_str(), 1);
  expectRefusal(runTrireme({"package-runtime", "-o", path("runtime.tar.gz")}), 1, {"tar failed"});
  setenv("PATH", before.c_str(), 1);
}

#if TRIREME_HAVE_MLIR
TEST_F(ClosedPipe, UnderStderrEndsNoTraining) {
  const std::string bundle = compile("tiny", {"--gpus", "1"}), saved = path("ckpt");
  expectSuccess(run(bundle, {"--steps", "1", "--save", saved}));
  const int status = statusWithClosed(STDERR_FILENO, {"run", bundle, "--data", data, "--steps", "3",
                                                      "--save", saved, "--resume", saved});
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == kExitOk) << status;
  EXPECT_TRUE(fs::exists(saved + "/step-00000003.safetensors"));
  EXPECT_THAT(said(), HasSubstr("steps 2 to 3: "));
}

// Nothing else is lost of a run whose results nobody takes, even if they are written in parts.
TEST_F(ClosedPipe, UnderStdoutLosesOnlyTheResultsOfARun) {
  const std::string bundle = compile("tiny", {"--gpus", "1"});
  const int status =
      statusWithClosed(STDOUT_FILENO, {"run", bundle, "--data", data, "--steps", "200", "--save",
                                       path("ckpt"), "--json", "--trace", path("trace.json")});
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE) << status;
  EXPECT_EQ(said(), "");
  EXPECT_TRUE(fs::exists(path("ckpt/step-00000200.safetensors")));
  EXPECT_THAT(readAll(path("trace.json")), HasSubstr("traceEvents"));
}

TEST_F(ClosedPipe, UnderMetricsEndsARunWithACheckpoint) {
  const std::string bundle = compile("tiny", {"--gpus", "1"});
  const int status =
      statusWithClosed(STDOUT_FILENO, {"run", bundle, "--data", data, "--steps", "3", "--save",
                                       path("ckpt"), "--metrics", "/dev/stdout"});
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == kExitFailure) << status;
  EXPECT_EQ(said(),
            "error: /dev/stdout: cannot write: Broken pipe; the training up to here is saved: " +
                path("ckpt/step-00000001.safetensors") + "\n");
}
#endif

}  // namespace
}  // namespace trireme::cli
