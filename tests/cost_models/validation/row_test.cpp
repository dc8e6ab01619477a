#include "cost_models/validation/row.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cost_models/validation/rows.h"

namespace trireme::cost {
namespace {

using ::testing::DoubleEq;
using ::testing::HasSubstr;
using ::testing::Optional;

std::string header() { return printCsvRecord(rowHeader()); }

// A record with these cells, the others empty but for the id.
std::string record(std::vector<std::pair<std::string, std::string>> cells) {
  cells.insert(cells.begin(), {"id", "r"});
  std::vector<std::string> texts(rowHeader().size());
  for (const auto& [name, text] : cells) {
    const auto& names = rowHeader();
    const auto found = std::find(names.begin(), names.end(), name);
    EXPECT_NE(found, names.end()) << name;
    texts[static_cast<size_t>(found - names.begin())] = text;
  }
  return printCsvRecord(texts);
}

std::string messageOfRows(const std::string& text) {
  const Result<RowFile> file = parseRows(text, "rows.csv");
  return file.has_value() ? "" : file.error().message();
}

TEST(ParseRows, ReadsEveryKindOfCell) {
  const Result<RowFile> file = parseRows(header() +
                                             record({{"scored", "1"},
                                                     {"gpu", "A100"},
                                                     {"params_b", "1.7"},
                                                     {"layers", "24"},
                                                     {"zero", "0"},
                                                     {"seq_parallel", "1"},
                                                     {"iter_time_s", "3.528"}}) +
                                             record({{"id", "s"}}),
                                         "rows.csv");
  ASSERT_TRUE(file.has_value()) << file.error().message();
  const Row& row = file->rows[0];
  EXPECT_EQ(row.id, "r");
  EXPECT_TRUE(row.scored);
  EXPECT_EQ(row.gpu, "A100");
  EXPECT_THAT(row.paramsB, Optional(1.7));
  EXPECT_THAT(row.layers, Optional(24));
  EXPECT_THAT(row.zero, Optional(0));
  EXPECT_THAT(row.seqParallel, Optional(true));
  EXPECT_THAT(row.iterTime, Optional(3.528));
  const Row& empty = file->rows[1];
  EXPECT_FALSE(empty.scored || empty.layers || empty.seqParallel || empty.iterTime);
  EXPECT_EQ(file->records[1].size(), rowHeader().size());
}

TEST(ParseRows, WrongCellsAreNamedWithTheirPlace) {
  EXPECT_EQ(messageOfRows(header() + record({{"layers", "24.5"}})),
            "rows.csv:2:13: layers: expected a whole number from 1 to 2^30, got '24.5'");
  EXPECT_THAT(messageOfRows(header() + record({{"tp", "0"}})),
              HasSubstr("tp: expected a whole number"));
  EXPECT_THAT(messageOfRows(header() + record({{"tp", " 8"}})), HasSubstr("tp: expected"));
  EXPECT_THAT(messageOfRows(header() + record({{"gpus", "1073741825"}})),
              HasSubstr("gpus: expected"));
  EXPECT_THAT(messageOfRows(header() + record({{"zero", "4"}})),
              HasSubstr("zero: expected 0, 1, 2 or 3, got '4'"));
  EXPECT_THAT(messageOfRows(header() + record({{"scored", "yes"}})),
              HasSubstr("scored: expected 0 or 1, got 'yes'"));
  EXPECT_THAT(messageOfRows(header() + record({{"seq_parallel", "2"}})),
              HasSubstr("seq_parallel: expected 0 or 1"));
  EXPECT_THAT(messageOfRows(header() + record({{"iter_time_s", "0"}})),
              HasSubstr("iter_time_s: expected a number from 1e-12 to 1e15, got '0'"));
  for (const char* const beyond : {"nan", "inf", "5e-324", "1e-13", "2e15"})
    EXPECT_THAT(messageOfRows(header() + record({{"iter_time_s", beyond}})),
                HasSubstr("iter_time_s: expected a number from 1e-12 to 1e15, got"));
  EXPECT_THAT(messageOfRows(header() + record({{"id", ""}})),
              HasSubstr("rows.csv:2:1: id: is empty; every row needs one"));
}

TEST(ParseRows, IdsDiffer) {
  EXPECT_EQ(messageOfRows(header() + record({}) + record({})),
            "rows.csv:3:1: id: 'r' is that of line 2 already; every row needs one of its own");
}

TEST(ParseRows, AnotherHeaderIsRefusedWhereItDiffers) {
  std::vector<std::string> names = rowHeader();
  EXPECT_EQ(messageOfRows(printCsvRecord(names)), "");
  std::swap(names[1], names[2]);
  EXPECT_THAT(messageOfRows(printCsvRecord(names)),
              HasSubstr("rows.csv:1:4: column 2 of the header: expected 'stack', got 'scored'; the "
                        "columns are: id, stack, scored"));
  names = rowHeader();
  names.pop_back();
  EXPECT_THAT(messageOfRows(printCsvRecord(names)),
              HasSubstr("the header has 38 columns, expected 39; 'notes' is missing"));
  names = rowHeader();
  names.emplace_back("predicted_s");
  EXPECT_THAT(messageOfRows(printCsvRecord(names)),
              HasSubstr("the header has 40 columns, expected 39; 'predicted_s' is one too many"));
}

// Known to users: measurement files have exactly this header.
TEST(RowHeader, IsThatOfTheMeasurementFiles) {
  EXPECT_EQ(fmt::format("{}", fmt::join(rowHeader(), ", ")),
            "id, stack, scored, source, year, gpu, gpus, gpus_per_node, inter_node_gbps_per_gpu, "
            "model, params_b, layers, hidden, heads, kv_heads, ffn, vocab, seq, experts, topk, "
            "global_batch, micro_batch, tp, pp, dp, cp, ep, vp, zero, seq_parallel, recompute, "
            "schedule, precision, tflops_per_gpu, mfu_or_pct_peak, tokens_per_s_per_gpu, "
            "iter_time_s, flop_convention, notes");
}

// 1,536 x 2,048 tokens at 100 tokens/s on each of 768 GPUs: 3,145,728 / 76,800 = 40.96 s.
TEST(MeasuredSeconds, ComesFromTheStepElseFromTheTokens) {
  Row row = gptRow();
  row.tokensPerSecondPerGpu = 100;
  EXPECT_THAT(measuredSeconds(row), Optional(39.42));
  row.iterTime.reset();
  EXPECT_THAT(measuredSeconds(row), Optional(DoubleEq(40.96)));
  row.globalBatch.reset();
  EXPECT_EQ(measuredSeconds(row), std::nullopt);
  row = gptRow();
  row.iterTime.reset();
  EXPECT_EQ(measuredSeconds(row), std::nullopt);
}

TEST(MeasuredPeak, IsInTheNotesInOneOfThreeUnits) {
  Row row;
  EXPECT_EQ(measuredPeakGib(row), std::nullopt);
  row.notes = "peak_mem_gib=82.4; eager [A]";
  EXPECT_THAT(measuredPeakGib(row), Optional(82.4));
  row.notes = "x peak_mem_gb=59 (largest microbatch count)";  // 59e9 / 2^30
  EXPECT_THAT(measuredPeakGib(row), Optional(::testing::DoubleNear(54.948, 5e-4)));
  row.notes = "peak_mem_mib=2048";
  EXPECT_THAT(measuredPeakGib(row), Optional(2.0));
  row.notes = "peak_mem_gib=?";
  EXPECT_EQ(measuredPeakGib(row), std::nullopt);
}

}  // namespace
}  // namespace trireme::cost
