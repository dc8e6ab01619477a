// Damaged values of `trireme whatif` and damaged sweep files: every text gives values in their
// bounds or a refusal, whatever the bytes. Deterministic.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/whatif/sweep_file.h"
#include "planner/whatif/values.h"
#include "tests/support/damaged_text.h"

namespace trireme::cli {
namespace {

constexpr char kBytes[] = "0123456789.,.:.. eE+-GBMTbit/shdyUSDW\n\x00\xff";
const std::string kInteresting(kBytes, sizeof kBytes - 1);

TEST(WhatifFuzz, ValuesAreInTheirBoundsOrRefused) {
  int numRead = 0;
  const auto check = [&](const std::string& text) {
    if (const auto values = planner::parseWhole(text, 1); values.has_value()) {
      EXPECT_FALSE(values->empty());
      EXPECT_LE(values->size(), text.size() * (planner::kMostValues + 1));
      for (const int64_t value : *values) EXPECT_GE(value, 1);
      ++numRead;
    } else {
      EXPECT_FALSE(values.error().message().empty());
    }
    for (const planner::UnitKind* kind :
         {&planner::rateUnits(), &planner::durationUnits(), &planner::priceUnits(),
          &planner::moneyUnits(), &planner::tokenUnits()}) {
      const auto values = planner::parseUnits(text, *kind);
      if (!values.has_value()) continue;
      for (const double value : *values) {
        EXPECT_GE(value, kind->least) << text;
        EXPECT_LE(value, kind->most * (1 + 1e-9)) << text;
      }
      ++numRead;
    }
  };
  for (const char* text : {"64..512:64,1024", "200..1600 Gbit/s", "2.5 USD/h", "30 d,1..4 y"})
    damageBytes(text, kInteresting, 2000, 3, check);
  EXPECT_GT(numRead, 500);
}

Answers smallAnswers() {
  Answers answers;
  answers.sweep.hardware.resize(1);
  answers.sweep.hardware[0].name = "small";
  answers.points = {{0, 8, BytesPerSecond(25e9), 16, 32, 0},
                    {0, 16, BytesPerSecond(25e9), 16, 32, 1}};
  answers.answers.resize(2);
  planner::PointAnswer answer;
  answer.plan = "tp 1, pp 2, dp 4";
  answer.shape = "tp 1, pp 2";
  answer.gpusUsed = 8;
  answer.nodesUsed = 1;
  answer.step = Seconds(0.125);
  answer.tokensPerSecond = 4096;  // 16 sequences of 32
  answer.breakdown.products = Seconds(0.1);
  answer.breakdown.optimizer = Seconds(0.025);
  answers.answers[0] = answer;
  answers.answers[1].emplace().reason = "it does not fit, \"at all\"";
  return answers;
}

TEST(WhatifFuzz, SweepFilesAreReadOrRefusedWithTheirPlace) {
  const Answers written = smallAnswers();
  const std::vector<std::string> questions = {"0123456789abcdef"};
  const std::string text = toCsv(written, questions);
  const auto read = [&](const std::string& damaged) {
    Answers answers = smallAnswers();
    answers.answers.assign(2, std::nullopt);
    const Status status = readAnswers(damaged, "sweep.csv", questions, answers);
    if (!status.ok()) {
      EXPECT_THAT(status.message(), ::testing::MatchesRegex("sweep\\.csv:[0-9]+:[0-9]+: .+"));
    }
    return std::pair(status.ok(), std::move(answers));
  };
  const auto [ok, same] = read(text);
  EXPECT_TRUE(ok);
  EXPECT_EQ(toCsv(same, questions), text);
  damageBytes(text, kInteresting + "\"", 4000, 3,
              [&](const std::string& damaged) { read(damaged); });
  for (size_t length = 0; length <= text.size(); ++length)
    EXPECT_TRUE(read(text.substr(0, length)).first) << length;
}

}  // namespace
}  // namespace trireme::cli
