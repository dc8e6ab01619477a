// Completion as a shell does it, and a manual page with every flag.
#include <gmock/gmock.h>

#include <cstdio>
#include <regex>
#include <sstream>

#include "tests/cli/command.h"

namespace trireme::cli {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class Shell : public CommandTest {
 protected:
  // What bash offers for the last of `words`.
  std::vector<std::string> complete(const std::vector<std::string>& words) const {
    std::string line = "trireme";
    for (const std::string& word : words) line += " '" + word + "'";
    const std::string script = write("completion.bash", runTrireme({"completion", "bash"}).out);
    const std::string test =
        write("test.bash", "source " + script + "\nCOMP_WORDS=(" + line +
                               ")\nCOMP_CWORD=" + std::to_string(words.size()) +
                               "\n_trireme\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n");
    FILE* pipe = popen(("bash " + test).c_str(), "r");
    std::string out;
    for (int c = 0; (c = std::fgetc(pipe)) != EOF;) out += static_cast<char>(c);
    EXPECT_EQ(pclose(pipe), 0);
    std::istringstream lines(out);
    std::vector<std::string> offers;
    for (std::string offer; std::getline(lines, offer);)
      if (!offer.empty()) offers.push_back(offer);
    return offers;
  }
};

TEST_F(Shell, BashCompletesCommandsFlagsValuesAndFiles) {
  EXPECT_THAT(complete({"pl"}), ElementsAre("plan"));
  EXPECT_THAT(complete({""}), Contains("doctor"));
  EXPECT_THAT(complete({"plan", "--sche"}), ElementsAre("--schedule"));
  EXPECT_THAT(complete({"plan", "--schedule", "g"}), ElementsAre("gpipe"));
  EXPECT_THAT(complete({"plan", "--model", "gpt3-1"}), Contains("gpt3-175b"));
  EXPECT_THAT(complete({"plan", "--cluster", "dgx-h"}), Contains("dgx-h100"));
  EXPECT_THAT(complete({"run", "--sche"}), ElementsAre());
  EXPECT_THAT(complete({"run", "--res"}), ElementsAre("--resume"));
  EXPECT_THAT(complete({"run", "--resume", path("completion.b")}),
              ElementsAre(path("completion.bash")));
  EXPECT_THAT(complete({"plan", "--gpus", ""}), ElementsAre());
  EXPECT_THAT(complete({"--ver"}), ElementsAre("--version"));
  EXPECT_THAT(complete({"whatif", "--gpu", "h1"}), ElementsAre("h100"));
  EXPECT_THAT(complete({"whatif", "--diff", "nemo", "nemo-2"}), ElementsAre("nemo-2023"));
}

// bash hands --flag=value over as three words.
TEST_F(Shell, BashCompletesBehindAnEqualsSign) {
  EXPECT_THAT(complete({"plan", "--schedule", "=", "g"}), ElementsAre("gpipe"));
  EXPECT_THAT(complete({"plan", "--schedule", "="}),
              ElementsAre("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2"));
  EXPECT_THAT(complete({"plan", "--schedule", "=", "gpipe", "--json", "--sche"}),
              ElementsAre("--schedule"));
}

TEST_F(Shell, ZshAndFishHaveScriptsOfTheirOwn) {
  EXPECT_THAT(runTrireme({"completion", "zsh"}).out, HasSubstr("#compdef trireme\n"));
  const std::string fish = runTrireme({"completion", "fish"}).out;
  EXPECT_THAT(fish,
              HasSubstr("-n '__fish_seen_subcommand_from plan' -l schedule -x -a 'gpipe 1f1b"));
  expectRefusal(runTrireme({"completion", "bsh"}), 2, {"SHELL", "bsh", "bash"});
  expectRefusal(runTrireme({"completion"}), 2, {"SHELL is required"});
}

TEST_F(Shell, TheManualHasEveryCommandAndFlag) {
  const std::string manual = runTrireme({"man"}).out;
  EXPECT_THAT(manual, ::testing::StartsWith(".TH TRIREME 1 "));
  for (const char* command : {"plan", "compile", "run", "calibrate", "doctor"})
    EXPECT_THAT(manual, HasSubstr(std::string(".SH TRIREME ") + command + "\n"));
  EXPECT_THAT(manual, HasSubstr(".B trireme run\n\\fIBUNDLE\\fR [\\fIoptions\\fR]\n"));
  EXPECT_THAT(manual, HasSubstr(".B trireme plan\n[\\fIoptions\\fR]\n"));
  EXPECT_THAT(manual,
              HasSubstr("\\fB\\-\\-schedule\\fR \\fIgpipe|1f1b|interleaved|zb\\-h1|zb\\-h2\\fR"));
  // Only macros begin with a dot, and no line is left empty.
  std::istringstream lines(manual);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_NE(line, "");
    const bool isText = line[0] != '.';
    EXPECT_TRUE(isText || std::regex_match(line, std::regex("\\.(TH|SH|TP|PP|B|br|nf|fi|RS|RE).*")))
        << line;
  }
}

}  // namespace
}  // namespace trireme::cli
