// Damaged metrics files of a run that is resumed: what is kept are whole lines of the steps before,
// or the file is refused and left alone. Deterministic.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/run/metrics_file.h"
#include "tests/support/damaged_text.h"

namespace trireme::cli {
namespace {

std::string metricsOfSteps(int numSteps) {
  std::string text;
  for (int step = 1; step <= numSteps; ++step)
    text += R"({"step":)" + std::to_string(step) +
            R"(,"loss":5.61,"grad_norm":null,"lr":0.0001,"seconds":0.21,"tokens_per_second":1.5})"
            "\n";
  return text;
}

TEST(MetricsFuzz, WholeLinesOfStepsBeforeAreKeptOrTheFileIsRefused) {
  constexpr int64_t kAfter = 3;
  int numKept = 0, numRefused = 0;
  const auto check = [&](const std::string& text) {
    const auto kept = keepUntil(text, kAfter);
    if (!kept.has_value()) {
      ++numRefused;
      EXPECT_EQ(kept.error().code(), StatusCode::kInvalidArgument);
      EXPECT_THAT(kept.error().message(),
                  ::testing::MatchesRegex("line [0-9]+ is no line of metrics.*"));
      return;
    }
    ++numKept;
    std::istringstream lines(kept->text);
    int64_t numLines = kept->numRemoved + (kept->isLastCutOff ? 1 : 0);
    for (std::string line; std::getline(lines, line); ++numLines) {
      EXPECT_NE((text + "\n").find(line + "\n"), std::string::npos) << text;
      EXPECT_LE(nlohmann::json::parse(line).at("step").get<double>(), kAfter) << line;
    }
    // Each line is kept or counted; the last may have no end.
    const int64_t ends = std::count(text.begin(), text.end(), '\n');
    EXPECT_EQ(numLines, ends + (text.empty() || text.back() == '\n' ? 0 : 1)) << text;
    // What is kept stays.
    const auto again = keepUntil(kept->text, kAfter);
    ASSERT_TRUE(again.has_value()) << again.error().message();
    EXPECT_EQ(again->text, kept->text);
    EXPECT_EQ(again->numRemoved, 0);
  };
  const std::string valid = metricsOfSteps(5);
  const char* const kNumbers[] = {"-1",
                                  "0",
                                  "3",
                                  "4",
                                  "9223372036854775807",
                                  "1e3",
                                  "0.5",
                                  "1e999",
                                  "null",
                                  "\"1\"",
                                  "[]",
                                  "9223372036854775808",
                                  "18446744073709551615",
                                  "18446744073709551616"};
  damageBytes(valid, "0123456789-+.eE:,[]{}\"\\ ntfu\n\x01\x7f\xc3\xff", 5000, 2, check);
  damageNumbers(valid, kNumbers, check);
  damageLines(valid, 1, check);
  endEarly(valid, 1, check);
  EXPECT_GT(numKept, 500);
  EXPECT_GT(numRefused, 500);
}

}  // namespace
}  // namespace trireme::cli
