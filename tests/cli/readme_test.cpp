// What the README shows must work: its commands run, and the files of its tour are there.
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <sstream>

#include "tests/cli/command.h"

namespace trireme::cli {
namespace {

const std::string kRoot = TRIREME_SOURCE_DIR "/";

TEST(Readme, PlanCommandsRunUnlessTheyShowAnError) {
  std::istringstream lines(readAll(kRoot + "README.md"));
  int commands = 0;
  std::string line, answer;
  while (std::getline(lines, line)) {
    if (!line.starts_with("$ trireme plan --model ") &&
        !line.starts_with("$ trireme whatif --model "))
      continue;
    if (!std::getline(lines, answer)) continue;
    std::istringstream words(line.substr(std::string("$ trireme ").size()));
    std::vector<std::string> args;
    for (std::string word; words >> word;) {
      const bool isOutput = !args.empty() && (args.back() == "-o" || args.back() == "--report");
      const std::string folder = word.starts_with("examples/") ? kRoot : "";
      args.push_back(isOutput ? testing::TempDir() + word : folder + word);
    }
    const Outcome outcome = runTrireme(args);
    EXPECT_EQ(outcome.exitCode, answer.starts_with("error: ") ? 1 : 0) << line << "\n"
                                                                       << outcome.err;
    ++commands;
  }
  EXPECT_GE(commands, 2);
}

TEST(Readme, FilesOfTheTourExist) {
  const std::string text = readAll(kRoot + "README.md");
  const std::regex path("`([a-z_]+/[a-z_/]+(\\.(h|cpp|td))?)/?`");
  int paths = 0;
  for (std::sregex_iterator it(text.begin(), text.end(), path), end; it != end; ++it, ++paths)
    EXPECT_TRUE(std::filesystem::exists(kRoot + (*it)[1].str())) << (*it)[1];
  EXPECT_GE(paths, 12);
}

}  // namespace
}  // namespace trireme::cli
