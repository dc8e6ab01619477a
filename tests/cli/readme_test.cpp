// What pages of the repository say of it is there: files of the tour, rules, folders. Commands are
// run by tests/docs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <set>
#include <sstream>

#include "tests/cli/command.h"

namespace trireme::cli {
namespace {

const std::string kRoot = TRIREME_SOURCE_DIR "/";

TEST(Readme, FilesOfTheTourExist) {
  const std::string text = readAll(kRoot + "README.md");
  const std::regex path("`([a-z_]+/[a-z_/]+(\\.(h|cpp|td))?)/?`");
  int paths = 0;
  for (std::sregex_iterator it(text.begin(), text.end(), path), end; it != end; ++it, ++paths)
    EXPECT_TRUE(std::filesystem::exists(kRoot + (*it)[1].str())) << (*it)[1];
  EXPECT_GE(paths, 12);
}

// The first group of every match, in a file of the repository.
std::set<int> numbersIn(const std::string& file, const std::string& pattern) {
  const std::string text = readAll(kRoot + file);
  const std::regex regex(pattern);
  std::set<int> numbers;
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it)
    numbers.insert(std::stoi((*it)[1].str()));
  return numbers;
}

// Rules are numbered from 1 in the header of their verifier, the page of its folder lists the same
// ones, and the tour names the last.
TEST(Readme, RulesAreThoseOfTheVerifiers) {
  struct Page {
    std::string letter, header, page, listed;
  };
  for (const Page& p :
       {Page{"P", "ir/plan/plan.h", "ir/plan/README.md", "\n- \\(P(\\d+)\\)"},
        Page{"V", "ir/program/verify.h", "ir/program/README.md", "\n\\| \\(V(\\d+)\\) "}}) {
    const std::set<int> rules = numbersIn(p.header, "\n// \\(" + p.letter + "(\\d+)\\)");
    ASSERT_GE(rules.size(), 10u);
    EXPECT_EQ(*rules.rbegin(), static_cast<int>(rules.size())) << p.header;
    EXPECT_EQ(numbersIn(p.page, p.listed), rules) << p.page;
    EXPECT_THAT(numbersIn("README.md", "\\(" + p.letter + "1\\) to \\(" + p.letter + "(\\d+)\\)"),
                ::testing::ElementsAre(*rules.rbegin()));
  }
}

// A folder has a page, or is named in the nearest page above it.
void expectDescribed(const std::filesystem::path& folder) {
  if (std::filesystem::exists(folder / "README.md")) return;
  std::filesystem::path above = folder.parent_path();
  while (!std::filesystem::exists(above / "README.md")) above = above.parent_path();
  EXPECT_THAT(readAll(above / "README.md"), ::testing::HasSubstr(folder.filename().string() + "/"))
      << folder;
}

TEST(Readme, FoldersHaveAPageOrALineInOne) {
  int numFolders = 0;
  for (const char* top : {"ir", "cost_models", "planner", "codegen", "runtime", "cli", "python",
                          "bench", "examples", "tests"}) {
    expectDescribed(kRoot + top);
    for (const auto& entry : std::filesystem::directory_iterator(kRoot + top)) {
      const std::string name = entry.path().filename().string();
      if (!entry.is_directory() || name.starts_with("_") || name.starts_with(".")) continue;
      expectDescribed(entry.path());
      ++numFolders;
    }
  }
  EXPECT_GT(numFolders, 60);
}

}  // namespace
}  // namespace trireme::cli
