#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <sstream>

#include "cli/output/curve.h"
#include "cli/output/progress.h"
#include "cli/output/table.h"
#include "cli/output/wrap.h"
#include "cli/process_memory.h"
#include "cli/run/report.h"

namespace trireme::cli {
namespace {

TEST(Curve, DrawsItsValues) {
  EXPECT_EQ(drawCurve({5, 4, 3, 3, 2}, 1, 72, 4),
            "  5 |*\n"
            "    | *\n"
            "    |  **\n"
            "  2 |    *\n"
            "    +-----\n"
            "     1   5\n");
}

// 4 values in 2 columns: means 3.5 and 1.5.
TEST(Curve, AveragesWhatSharesAColumn) {
  EXPECT_EQ(drawCurve({4, 3, 2, 1}, 11, 2, 2),
            "  3.5 |*\n"
            "  1.5 | *\n"
            "      +--\n"
            "       11 14\n");
}

TEST(Curve, FlatAndSingleAndUndefinedValuesAreDrawn) {
  EXPECT_EQ(drawCurve({2}, 3, 10, 2), "  2 |*\n  2 |\n    +-\n     3\n");
  EXPECT_EQ(drawCurve({}, 0), "");
  EXPECT_EQ(drawCurve({NAN, INFINITY}, 0), "");
  EXPECT_EQ(drawCurve({1, NAN, 2}, 0, 72, 2), "  2 |  *\n  1 |*\n    +---\n     0 2\n");
}

TEST(Table, AlignsNumbersRight) {
  EXPECT_EQ(printTable({{"role"}, {"ranks", true}}, {{"stage0", "4"}, {"s1", "128"}}),
            "  role    ranks\n"
            "  stage0      4\n"
            "  s1        128\n");
}

TEST(Wrap, BreaksAtSpacesAndLongWordsAtTheEndOfALine) {
  EXPECT_EQ(wrapLine("  one two three", 4, 9), "  one two\n    three\n");
  EXPECT_EQ(wrapLine("short", 4, 9), "short\n");
  EXPECT_EQ(wrapLine("  extraordinarily long", 4, 9), "  extraor\n    dinar\n    ily\n    long\n");
  EXPECT_EQ(wrapLine("name  extraordinary", 6, 9),
            "name  ext\n      rao\n      rdi\n      nar\n      y\n");
}

TEST(Wrap, KeepsLongWordsOfErrorsWhole) {
  EXPECT_EQ(wrapLine("an extraordinarily long one", 0, 9, LongWords::kWhole),
            "an\nextraordinarily\nlong one\n");
  EXPECT_EQ(wrapLine("extraordinarily", 0, 9, LongWords::kWhole), "extraordinarily\n");
}

TEST(Progress, FillsWithTheShareAndStaysInItsWidth) {
  EXPECT_EQ(drawProgress(0.5, "step 1/2", 100), "[#####-----] step 1/2");
  EXPECT_EQ(drawProgress(2, "", 100), "[##########] ");
  EXPECT_EQ(drawProgress(0, "a long text", 15), "[----------] a ");
}

// A terminal of `columns` that keeps what is written, and a clock that a test sets.
struct FakeTerminal {
  bool isShown = true;
  size_t columns = 80;
  std::chrono::milliseconds time{0};
  std::vector<std::string> written;
  Terminal terminal() {
    return {isShown, [this] { return Terminal::Clock::time_point(time); },
            [this] { return columns; },
            [this](const std::string& text) { written.push_back(text); }};
  }
};

// Nothing for two seconds, then ten times a second; the line goes away at the end.
TEST(Progress, IsDrawnWhenTheWorkTakesLong) {
  FakeTerminal fake;
  {
    Progress progress(fake.terminal());
    for (const int milliseconds : {100, 1999, 2000, 2099, 2100}) {
      fake.time = std::chrono::milliseconds(milliseconds);
      progress.update(0.5, "at " + std::to_string(milliseconds));
    }
  }
  EXPECT_THAT(fake.written, ::testing::ElementsAre("\r\033[K[#####-----] at 2000",
                                                   "\r\033[K[#####-----] at 2100", "\r\033[K"));
}

TEST(Progress, LeavesTheLastColumnFree) {
  FakeTerminal fake{.columns = 17};
  Progress progress(fake.terminal());
  fake.time = std::chrono::seconds(3);
  progress.update(1, "a long text");
  EXPECT_THAT(fake.written, ::testing::ElementsAre("\r\033[K[##########] a l"));
}

TEST(Progress, IsNotDrawnInALog) {
  FakeTerminal fake{.isShown = false};
  {
    Progress progress(fake.terminal());
    fake.time = std::chrono::seconds(3);
    progress.update(0.5, "text");
  }
  EXPECT_THAT(fake.written, ::testing::IsEmpty());
}

TEST(ProcessMemory, ReadsTheKernelsForm) {
  const ProcessMemory memory =
      parseProcessMemory("Name:\ttrireme\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n");
  EXPECT_EQ(memory.peak, Bytes(2048 * 1024));
  EXPECT_EQ(memory.now, Bytes(1024 * 1024));
  EXPECT_GT(readProcessMemory().now, Bytes(0));
}

TEST(RunReport, FitsIntoAHundredColumns) {
  RunReport report;
  report.plan =
      "tp 2, pp 11, dp 2, microbatch 1, interleaved x 16, recompute full, sharded optimizer, "
      "sequence parallel";
  report.numRanks = 44;
  report.loop.steps = {{.seconds = 1}, {.seconds = 2}};
  const std::string text = longReport(report);
  EXPECT_EQ(text.substr(0, text.find("steps")),
            "plan          tp 2, pp 11, dp 2, microbatch 1, interleaved x 16, recompute full, "
            "sharded optimizer,\n"
            "              sequence parallel\n");
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
}

// Steps of 9, 1, 2, 4 s: the first does not count, the median of the others is 2 s.
TEST(RunReport, StepTimeIsTheMedianAfterTheFirst) {
  LoopResult loop;
  for (const double seconds : {9.0, 1.0, 4.0, 2.0}) loop.steps.push_back({.seconds = seconds});
  EXPECT_EQ(measuredStep(loop), Seconds(2));
  loop.steps.resize(1);
  EXPECT_EQ(measuredStep(loop), Seconds(9));
}

}  // namespace
}  // namespace trireme::cli
