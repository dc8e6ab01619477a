// Jobs that are queued again: runs that resume the folder they save to. Only with a code generator.
#include <gmock/gmock.h>

#include <filesystem>

#include "tests/cli/command.h"

#if TRIREME_HAVE_MLIR
namespace trireme::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class QueuedJob : public CommandTest {};

// A job that is queued again has one command line, whether it saved something before it was killed
// or not.
TEST_F(QueuedJob, BeginsWhereNothingIsSaved) {
  const std::string bundle = compile("tiny", {"--gpus", "1"});
  const std::string saved = path("ckpt"), metrics = path("m.jsonl");
  const std::string line = R"({"step":1,"loss":5.5})";
  const auto job = [&](const std::string& steps, const std::string& resume) {
    return run(bundle, {"--steps", steps, "--save", saved, "--resume", resume, "--metrics", metrics,
                        "--new-data"});
  };
  const Outcome first = job("2", saved);
  expectSuccess(first);
  EXPECT_THAT(first.err, HasSubstr("note: " + saved + ": no checkpoint yet"));
  const std::vector<double> whole = lossesIn(metrics);
  EXPECT_EQ(whole.size(), 2u);
  // Killed before it saved.
  fs::remove(saved + "/step-00000002.safetensors");
  write("m.jsonl", line + "\n" + line.substr(0, 9));
  const Outcome second = job("2", saved + "/");
  expectSuccess(second);
  EXPECT_THAT(second.err, ::testing::AllOf(HasSubstr("no checkpoint yet"),
                                           HasSubstr("1 line after step 0 removed")));
  EXPECT_EQ(lossesIn(metrics), whole);
  const Outcome third = job("3", saved);
  expectSuccess(third);
  EXPECT_THAT(third.err, HasSubstr("resuming after step 2 from " + saved));
  EXPECT_EQ(lossesIn(metrics).size(), 3u);
  // All is done.
  const Outcome fourth = job("3", saved);
  expectSuccess(fourth);
  EXPECT_THAT(fourth.err, HasSubstr("note: nothing is left to do: " + saved));
  EXPECT_EQ(lossesIn(metrics).size(), 3u);
  // Its checkpoints are gone, or the metrics are of another run: no line is lost.
  fs::rename(saved, path("elsewhere"));
  expectRefusal(job("3", saved), 1, {"m.jsonl: has step 3 or later", saved + " would have"});
  EXPECT_EQ(lossesIn(metrics).size(), 3u);
  // Another folder that is empty is a mistake.
  fs::create_directory(path("empty"));
  expectRefusal(job("4", path("empty")), 1, {"empty: no checkpoint", "in this folder"});
}

// However the folder is spelled.
TEST_F(QueuedJob, IsRecognisedByItsFolder) {
  const std::string bundle = compile("tiny", {"--gpus", "1"});
  expectSuccess(
      run(bundle, {"--steps", "1", "--save", path("ckpt"), "--resume", path("./ckpt/../ckpt")}));
  const std::string relative = fs::relative(path("ckpt-relative")).string();
  expectSuccess(
      run(bundle, {"--steps", "1", "--save", relative, "--resume", path("ckpt-relative")}));
}

}  // namespace
}  // namespace trireme::cli
#endif
