// The files of the README's tour are there. Its commands are run by tests/docs.
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
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

}  // namespace
}  // namespace trireme::cli
