#include "ir/program/target.h"

#include <gmock/gmock.h>

namespace trireme::program {
namespace {

using ::testing::HasSubstr;

std::string sorted(std::string_view arch) {
  const auto targets = parseGpuTargets(arch);
  return targets ? printGpuTargets(*targets) : targets.error().message();
}

std::vector<GpuTarget> parse(std::string_view arch) { return *parseGpuTargets(arch); }

TEST(Target, NamesInAnyOrderGiveTheSame) {
  EXPECT_EQ(sorted("cuda:sm_90"), "cuda:sm_90");
  EXPECT_EQ(sorted("cuda:sm_80,sm_90"), "cuda:sm_80,sm_90");
  EXPECT_EQ(sorted("cuda:sm_90,sm_80"), "cuda:sm_80,sm_90");
  EXPECT_EQ(sorted("cuda:sm_90a,sm_90,sm_80"), "cuda:sm_80,sm_90,sm_90a");
  EXPECT_EQ(parse("cuda:sm_90a")[0], (GpuTarget{90, true, "sm_90a"}));
}

TEST(Target, WrongNamesGetTheNearestRightOne) {
  const std::string there = "there are sm_80, sm_90, sm_90a";
  const auto nearest = [&](const std::string& name, const std::string& right,
                           const std::string& capability) {
    EXPECT_EQ(sorted("cuda:" + name), "no target " + name + "; the nearest is " + right +
                                          ", which GPUs of compute capability " + capability +
                                          " run as well; " + there);
  };
  nearest("sm_86", "sm_80", "8.6");
  nearest("sm_91", "sm_90", "9.1");
  nearest("sm_100a", "sm_90", "10.0");
  nearest("sm_120", "sm_90", "12.0");
  EXPECT_EQ(sorted("cuda:sm_80,sm_75"), "no target sm_75: sm_80 is the oldest; " + there);
  for (const std::string name : {"sm_", "sm_9", "sm_90x", "sm_90ab", "SM_90", "90", "sm_-90"})
    EXPECT_EQ(sorted("cuda:" + name), "no target " + name + "; " + there);
  EXPECT_EQ(sorted("sm_90"), "no target sm_90; there are cuda:sm_80, sm_90, sm_90a");
}

TEST(Target, ListsAreOfNamesOnceEachWithCommas) {
  for (const std::string arch :
       {"cuda:", "cuda:,", "cuda:sm_80,", "cuda:,sm_80", "cuda:sm_80,,sm_90"})
    EXPECT_THAT(sorted(arch), HasSubstr("'" + arch + "': a name is missing: one comma stands"))
        << arch;
  EXPECT_EQ(sorted("cuda:sm_90,sm_80,sm_90"), "'cuda:sm_90,sm_80,sm_90': sm_90 stands twice");
  EXPECT_EQ(sorted("cuda:sm_80,cuda:sm_90"),
            "'cuda:sm_80,cuda:sm_90': cuda: stands once, in front of all names: cuda:sm_80,sm_90");
  for (const std::string arch :
       {"cuda:sm_80,host", "cuda:x86-64", "host,cuda:sm_80", "x86-64,cuda:sm_80"})
    EXPECT_EQ(sorted(arch),
              "'" + arch + "': a bundle is for GPUs or for hosts; compile one for each");
}

// What only 9.0 runs is no PTX for later GPUs.
TEST(Target, PtxServesAsManyGpusAsCanBe) {
  const auto ptxOf = [](std::string_view arch) { return ptxTarget(parse(arch)).name; };
  EXPECT_EQ(ptxOf("cuda:sm_90,sm_80"), "sm_80");
  EXPECT_EQ(ptxOf("cuda:sm_90a,sm_80"), "sm_80");
  EXPECT_EQ(ptxOf("cuda:sm_90a,sm_90"), "sm_90");
  EXPECT_EQ(ptxOf("cuda:sm_90a"), "sm_90a");
}

TEST(Target, LaterGpusRunAllButExactOnes) {
  EXPECT_FALSE(runsOn(parse("cuda:sm_90"), 89));
  EXPECT_TRUE(runsOn(parse("cuda:sm_90"), 90));
  EXPECT_TRUE(runsOn(parse("cuda:sm_90"), 120));
  EXPECT_TRUE(runsOn(parse("cuda:sm_90a"), 90));
  EXPECT_FALSE(runsOn(parse("cuda:sm_90a"), 100));
  EXPECT_TRUE(runsOn(parse("cuda:sm_80,sm_90a"), 100));
  EXPECT_EQ(nearestTarget(75), std::nullopt);
  EXPECT_EQ(nearestTarget(89)->name, "sm_80");
  EXPECT_EQ(nearestTarget(100)->name, "sm_90");
}

}  // namespace
}  // namespace trireme::program
