// Damaged output of nccl-tests: sweeps that a cluster file can hold, or an error with its place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cost_models/nccl_tests.h"
#include "tests/cost_models/nccl_output.h"
#include "tests/support/damaged_text.h"

namespace trireme::cost {
namespace {

const std::string kValid = kAllReduceOutput + kSendOutput;

void checkLog(const std::string& text) {
  const auto sweeps = parseNcclTests(text, "log.txt");
  if (!sweeps.has_value()) {
    EXPECT_EQ(sweeps.error().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(sweeps.error().message(), ::testing::MatchesRegex("log\\.txt:[0-9]+: (.|\n)+"))
        << text;
    return;
  }
  EXPECT_FALSE(sweeps->empty());
  for (const NcclSweep& sweep : *sweeps) {
    EXPECT_GE(sweep.numRanks, 2);
    EXPECT_FALSE(sweep.points.empty());
    Bytes last;
    for (const spec::CollectivePoint& point : sweep.points) {
      EXPECT_GT(point.bytes, last) << text;
      EXPECT_GT(point.busBandwidth.count(), 0) << text;
      last = point.bytes;
    }
  }
}

TEST(NcclFuzz, TheValidTextIsRead) { EXPECT_EQ(parseNcclTests(kValid, "log.txt")->size(), 2u); }

TEST(NcclFuzz, BytesAreChangedInsertedAndRemoved) {
  damageBytes(kValid, std::string("0123456789-+.eE#:\n\r\t nNA\x00\x7f\xff", 27), 20000, 4,
              checkLog);
}

TEST(NcclFuzz, NumbersAreExtreme) {
  const char* const kNumbers[] = {"0",
                                  "-1",
                                  "1",
                                  "1e308",
                                  "1e-308",
                                  "nan",
                                  "inf",
                                  "0.0",
                                  "N/A",
                                  "0x10",
                                  "18446744073709551616",
                                  "9223372036854775807"};
  damageNumbers(kValid, kNumbers, checkLog);
}

TEST(NcclFuzz, LinesAreLostSwappedAndRepeated) { damageLines(kValid, 1, checkLog); }

TEST(NcclFuzz, TheTextEndsEarly) { endEarly(kValid, 1, checkLog); }

}  // namespace
}  // namespace trireme::cost
