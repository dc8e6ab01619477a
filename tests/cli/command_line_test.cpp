#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "tests/cli/command.h"

namespace trireme::cli {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::StartsWith;

// The first words of the lines under "Subcommands:".
std::vector<std::string> commandsOfHelp() {
  const std::string help = runTrireme({"--help"}).out;
  std::istringstream lines(help.substr(help.find("Subcommands:\n")));
  std::vector<std::string> commands;
  std::string line, word;
  std::getline(lines, line);
  while (std::getline(lines, line) && std::istringstream(line) >> word) commands.push_back(word);
  return commands;
}

// A log on a full disk, and none at all.
TEST(CommandLine, FailsAsItShouldWhereErrorsCannotBeWritten) {
  for (const std::string redirected : {"2>/dev/full", "2>&-"}) {
    const auto exitCodeOf = [&](const std::string& command) {
      return WEXITSTATUS(std::system((TRIREME_BINARY " " + command + " " + redirected).c_str()));
    };
    EXPECT_EQ(exitCodeOf("plan --model /nonexistent --cluster dgx-a100"), 1);
    EXPECT_EQ(exitCodeOf("no-command"), 2);
  }
}

TEST(CommandLine, HelpOfEverySubcommandHasAnExampleAndFitsAHundredColumns) {
  std::vector<std::string> commands = commandsOfHelp();
  EXPECT_THAT(commands, IsSupersetOf({"plan", "whatif", "compile", "run", "export", "doctor"}));
  commands.push_back("");
  for (const std::string& command : commands) {
    const Outcome help = command.empty() ? runTrireme({"--help"}) : runTrireme({command, "--help"});
    expectSuccess(help);
    EXPECT_THAT(help.out, ContainsRegex("Example:\n  [a-z<( ]*trireme ")) << command;
    std::istringstream lines(help.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  }
}

TEST(CommandLine, VersionIsPrinted) {
  const Outcome version = runTrireme({"--version"});
  expectSuccess(version);
  EXPECT_THAT(version.out, StartsWith("trireme 0."));
}

TEST(CommandLine, NoCommandIsAMistake) {
  expectRefusal(runTrireme({}), 2, {"no command given", "trireme --help"});
}

TEST(CommandLine, UnknownCommandGetsTheNearest) {
  expectRefusal(runTrireme({"paln"}), 2, {"unknown command 'paln'; did you mean 'plan'?"});
}

// Required flags are missing too, but the typo is the better explanation.
TEST(CommandLine, MisspeltFlagGetsTheNearest) {
  expectRefusal(runTrireme({"plan", "--modle", "m.yaml"}), 2,
                {"unknown flag '--modle'; did you mean '--model'?", "trireme plan --help"});
  expectRefusal(runTrireme({"compile", "--plam=p.yaml"}), 2, {"'--plam'; did you mean '--plan'?"});
  expectRefusal(runTrireme({"run", "b", "--stpes", "3"}), 2,
                {"'--stpes'; did you mean '--steps'?"});
}

TEST(CommandLine, FlagOfMegatronGetsOurs) {
  expectRefusal(runTrireme({"plan", "--micro-batch-size", "8"}), 2,
                {"unknown flag '--micro-batch-size', Megatron-LM's; here it is '--microbatch'"});
  expectRefusal(runTrireme({"whatif", "--seq-length=8192"}), 2, {"here it is '--seq'"});
  expectRefusal(runTrireme({"doctor", "--seq-length", "8192"}), 2, {"'--seq-length'"});
}

TEST(CommandLine, FlagOfNothingListsTheValidOnes) {
  expectRefusal(runTrireme({"compile", "--frobnicate"}), 2,
                {"unknown flag '--frobnicate'; valid: ", "--dump-ir"});
}

TEST(CommandLine, MissingFlagIsNamed) {
  expectRefusal(runTrireme({"plan", "--model", "m.yaml"}), 2, {"--cluster is required"});
  expectRefusal(runTrireme({"run", "b"}), 2, {"--data is required"});
  expectRefusal(runTrireme({"run", "--data", "a.txt", "b.bundle", "--steps", "5"}), 2,
                {"BUNDLE is required, and --data took all of 'a.txt b.bundle' as its own: give "
                 "BUNDLE before --data"});
}

TEST(CommandLine, ValuesAreChecked) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"plan", "--batch", "many"}, "--batch: expected a whole number, got 'many'"},
      {{"plan", "--batch", "8x"}, "--batch: expected a whole number, got '8x'"},
      {{"plan", "--tp", "0"}, "--tp: must be at least 1, got 0"},
      {{"plan", "--pp", "-2"}, "--pp: must be at least 1, got -2"},
      {{"plan", "--seq", "99999999999999999999"}, "--seq: 99999999999999999999 is out of range"},
      {{"plan", "-o", "-"}, "-o: expected a path, got '-'; write ./- for a file"},
      {{"plan", "--model", "-"}, "--model: expected a path, got '-'"},
      {{"plan", "--layers", "3,x"}, "--layers: expected a whole number, got 'x'"},
      {{"plan", "--layers", "3,,1"}, "--layers: expected a whole number, got ''"},
      {{"plan", "--layers", "3,-1"}, "--layers: must be at least 0, got -1"},
      {{"plan", "--schedule", "1fb1"}, "--schedule: unknown value '1fb1'; did you mean '1f1b'?"},
      {{"plan", "--recompute", "some"}, "--recompute: unknown value 'some'"},
      {{"plan", "--recompute", "FULL"}, "--recompute: unknown value 'FULL'; did you mean 'full'?"},
      {{"plan", "--recompute", "Selektive"}, "did you mean 'selective'?"},
      {{"plan", "--recompute-layers", "0"}, "--recompute-layers: must be at least 1, got 0"},
      {{"plan", "--sequence-parallel", "yes"}, "--sequence-parallel: unknown value 'yes'"},
      {{"run", "b", "--timeout", "-1"}, "--timeout: expected a number of seconds above 0"},
      {{"run", "b", "--timeout", "1e10"},
       "--timeout: expected at most 1000000 seconds, got '1e10'"},
      {{"run", "b", "--timeout", "60s"}, "--timeout: expected a number of seconds above 0"}};
  for (const auto& [args, message] : cases) expectRefusal(runTrireme(args), 2, {message});
}

TEST(CommandLine, AnOptionThatIsGivenTwiceIsNamedWithItsValues) {
  expectRefusal(runTrireme({"plan", "--gpus", "8", "--tp", "2", "--gpus", "16"}), 2,
                {"--gpus is given twice: 8 and 16; give one; see 'trireme plan --help'"});
  expectRefusal(runTrireme({"plan", "--model", "a", "--model=b", "--model", "c"}), 2,
                {"--model is given 3 times: a, b and c; give one"});
  expectRefusal(runTrireme({"plan", "-o", "a", "--output", "b"}), 2,
                {"is given twice: a and b; give one"});
}

TEST(CommandLine, SaveEveryNeedsAFolder) {
  expectRefusal(runTrireme({"run", "b", "--data", "d", "--save-every", "3"}), 2,
                {"--save-every requires --save"});
}

// `script` gives the command a terminal.
TEST(CommandLine, ErrorsAreWrappedForPeopleOnly) {
  const std::vector<std::string> args = {"compile", "--frobnicate-the-bundle-with-a-long-flag"};
  const std::string line = runTrireme(args).err;
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  EXPECT_GT(line.size(), 100u);
  const std::string log = ::testing::TempDir() + "trireme-terminal.log";
  const std::string command = "script -qec '" + std::string(TRIREME_BINARY) + " " + args[0] + " " +
                              args[1] + "' " + log + " > /dev/null 2>&1 < /dev/null";
  if (std::system("which script > /dev/null 2>&1") != 0) GTEST_SKIP() << "no script command";
  EXPECT_NE(std::system(command.c_str()), 0);
  std::istringstream lines(readAll(log));
  bool seen = false;
  for (std::string text; std::getline(lines, text);) {
    seen = seen || text.starts_with("error: unknown flag");
    if (text.starts_with("Script")) continue;  // its own header
    EXPECT_LE(text.size(), 101u) << text;      // and a carriage return
  }
  EXPECT_TRUE(seen);
}

TEST(CommandLine, FullDiskUnderStdoutIsAnError) {
  const std::string command = std::string(TRIREME_BINARY) + " --help > /dev/full 2> /dev/null";
  EXPECT_NE(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace trireme::cli
