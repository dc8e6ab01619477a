#include "cli/run/cache_folder.h"

#include <gtest/gtest.h>

#include <map>

namespace trireme::cli {
namespace {

std::string folderIn(std::map<std::string, std::string> variables) {
  return cacheFolder([=](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

TEST(CacheFolder, IsTheUsersUnlessTheEnvironmentSaysOtherwise) {
  EXPECT_EQ(folderIn({{"HOME", "/home/ada"}}), "/home/ada/.cache/trireme");
  EXPECT_EQ(folderIn({{"HOME", "/home/ada"}, {"XDG_CACHE_HOME", "/var/cache"}}),
            "/var/cache/trireme");
}

// The specification wants relative paths to be ignored.
TEST(CacheFolder, PathsThatAreNotAbsoluteDoNotCount) {
  EXPECT_EQ(folderIn({{"HOME", "/home/ada"}, {"XDG_CACHE_HOME", "cache"}}),
            "/home/ada/.cache/trireme");
  EXPECT_EQ(folderIn({{"HOME", ""}}), "");
  EXPECT_EQ(folderIn({}), "");
}

}  // namespace
}  // namespace trireme::cli
