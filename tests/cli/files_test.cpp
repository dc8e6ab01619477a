#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "cli/run/checkpoint_folder.h"
#include "cli/run/metrics_file.h"
#include "cli/write_file.h"
#include "tests/cli/command.h"

namespace trireme::cli {
namespace {

class Files : public CommandTest {};

TEST_F(Files, LatestCheckpointIsTheOneOfTheLargestStep) {
  std::filesystem::create_directory(path("c"));
  for (const char* name : {"step-00000009.safetensors", "step-00000010.safetensors",
                           "step-123456789.safetensors.partial", "step-x.safetensors",
                           "step-.safetensors", "step--5.safetensors"})
    write(std::string("c/") + name, "");
  const Result<std::string> found = findCheckpoint(path("c"));
  ASSERT_TRUE(found.has_value()) << found.error().message();
  EXPECT_EQ(*found, path("c/step-00000010.safetensors"));
  // More digits than the padding: compared as numbers, not as text.
  write("c/step-100000000.safetensors", "");
  EXPECT_EQ(findCheckpoint(path("c")).value(), checkpointPath(path("c"), 100000000));
}

TEST(Metrics, StepsThatAResumedRunRepeatsGoAway) {
  const std::string text = "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"st";
  EXPECT_EQ(keepUntil(text, 2)->text, "{\"step\":1}\n{\"step\":2}\n");
  EXPECT_EQ(keepUntil(text, 2)->numRemoved, 1);
  EXPECT_EQ(keepUntil(text, 9)->numRemoved, 0);
  EXPECT_TRUE(keepUntil(text, 9)->isLastCutOff);
  EXPECT_EQ(keepUntil("", 2)->text, "");
  // The last line is whole but for its end, as an editor may leave it.
  const KeptMetrics whole = *keepUntil("{\"step\":1}\n{\"step\":2}", 2);
  EXPECT_EQ(whole.text, "{\"step\":1}\n{\"step\":2}\n");
  EXPECT_EQ(whole.numRemoved, 0);
  EXPECT_FALSE(whole.isLastCutOff);
  EXPECT_EQ(keepUntil("{\"step\":1}\n{\"step\":2}", 1)->numRemoved, 1);
  // A power failure leaves zeros; what was written before them counts.
  const KeptMetrics zeros = *keepUntil("{\"step\":1}\n{\"st" + std::string(100, '\0'), 1);
  EXPECT_EQ(zeros.text, "{\"step\":1}\n");
  EXPECT_TRUE(zeros.isLastCutOff && zeros.hasZeros);
  const KeptMetrics ended = *keepUntil("{\"step\":1}\n" + std::string(9, '\0'), 1);
  EXPECT_EQ(ended.text, "{\"step\":1}\n");
  EXPECT_TRUE(!ended.isLastCutOff && ended.hasZeros);
  EXPECT_FALSE(keepUntil(std::string(3, '\0') + "{\"step\":1}\n", 1).has_value());
  for (const char* other : {"text\n", "{\"step\":1}\n7\n", "{\"loss\":1}\n", "{\"step\":1.5}\n",
                            "notes", "{\"step\":1}\n{\"stop"})
    EXPECT_FALSE(keepUntil(other, 2).has_value()) << other;
}

// Lines of steps that the checkpoint has, but not the disk, do not come again.
TEST(Metrics, GapsAreSaid) {
  const auto gapsOf = [](const std::vector<int64_t>& steps, int64_t after,
                         const std::string& end = "") {
    std::string text;
    for (const int64_t step : steps) text += fmt::format("{{\"step\":{}}}\n", step);
    return fmt::format("{}", fmt::join(keepUntil(text + end, after)->gaps, ", "));
  };
  EXPECT_EQ(gapsOf({1, 2, 3, 4, 5}, 4), "");
  EXPECT_EQ(gapsOf({3, 4}, 4), "");  // begun with a resumed run
  EXPECT_EQ(gapsOf({}, 4), "");
  EXPECT_EQ(gapsOf({1, 2}, 4), "no lines of steps 3 to 4");
  EXPECT_EQ(gapsOf({1, 2, 3}, 4), "no line of step 4");
  EXPECT_EQ(gapsOf({1, 3, 4, 6}, 6), "no line of step 2, no line of step 5");
  EXPECT_EQ(gapsOf({7, 8, 7, 8}, 8), "step 7 behind step 8");
  EXPECT_EQ(gapsOf({}, 6, std::string(9, '\0')), "no lines of steps 1 to 6");
  EXPECT_EQ(gapsOf({7}, 6), "no lines of steps 1 to 6");
}

// A new run would lose what another has measured.
TEST_F(Files, ANewRunTakesNoMetricsFileWithSomethingInIt) {
  const std::string full = write("m.jsonl", "{\"step\":1}\n");
  const Status refused = checkNewMetrics(full);
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(refused.message().find("give another file, or go on with --resume"), std::string::npos)
      << refused.message();
  EXPECT_TRUE(checkNewMetrics(write("empty.jsonl", "")).ok());
  EXPECT_TRUE(checkNewMetrics(path("none.jsonl")).ok());
  EXPECT_TRUE(checkNewMetrics("/dev/null").ok());
  EXPECT_TRUE(checkNewMetrics("").ok());
}

TEST_F(Files, FileIsReplacedWholeAndNothingElseIsLeft) {
  const std::string file = write("out.txt", "old");
  EXPECT_TRUE(writeFile(file, "new").ok());
  EXPECT_EQ(readAll(file), "new");
  const auto count = [&] {
    return std::distance(std::filesystem::directory_iterator(path("")), {});
  };
  const auto before = count();
  EXPECT_EQ(writeFile(path("no/out.txt"), "x").code(), StatusCode::kUnavailable);
  EXPECT_EQ(writeFile("/dev/full", "x").code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(count(), before);
}

TEST_F(Files, WhatALinkLeadsToIsReplacedNotTheLink) {
  const std::string file = write("kept.txt", "old"), link = path("link");
  std::filesystem::create_symlink(file, link);
  EXPECT_TRUE(writeFile(link, "new").ok());
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(readAll(file), "new");
  std::filesystem::create_symlink(path("nowhere"), path("dangling"));
  EXPECT_TRUE(writeFile(path("dangling"), "x").ok());
}

}  // namespace
}  // namespace trireme::cli
