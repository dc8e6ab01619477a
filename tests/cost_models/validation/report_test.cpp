#include "cost_models/validation/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cost_models/validation/rows.h"

namespace trireme::cost {
namespace {

using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::testing::Optional;
using ::testing::SizeIs;

// GPT-3 measured and predicted with so many seconds.
PredictedRow predicted(const std::string& id, double measured, double seconds) {
  PredictedRow row{"file", gptRow(), Error(internalError(""))};
  row.row.id = id;
  row.row.iterTime = measured;
  Prediction prediction;
  prediction.step = Seconds(seconds);
  prediction.memory = Bytes(60.0 * (1 << 30));
  prediction.fits = true;
  prediction.cluster = "dgx-a100";
  prediction.profile = "nemo";
  row.prediction = prediction;
  return row;
}

PredictedRow skipped(const std::string& reason) {
  PredictedRow row = predicted("skipped", 1, 1);
  row.prediction = Error(invalidArgument(reason));
  return row;
}

// +10 %, -20 %, and one of another source with +50 %.
TEST(Report, SplitsErrorsByFileSourceAndStack) {
  std::vector<PredictedRow> rows = {predicted("a", 10, 11), predicted("b", 10, 8),
                                    predicted("c", 10, 15)};
  rows[2].row.source = "there";
  const ValidationReport report = reportOn(rows);
  ASSERT_THAT(report.families, SizeIs(2));
  EXPECT_EQ(report.families[0].source, "here");
  EXPECT_EQ(report.families[0].errors.count, 2);
  EXPECT_DOUBLE_EQ(report.families[0].errors.meanAbsolute, 0.15);
  EXPECT_NEAR(report.families[0].errors.meanSigned, -0.05, 1e-12);
  EXPECT_EQ(report.families[0].worstId, "b");
  EXPECT_EQ(report.families[1].worstId, "c");
  EXPECT_EQ(report.overall.errors.count, 3);
  EXPECT_DOUBLE_EQ(report.overall.errors.medianAbsolute, 0.2);
  EXPECT_EQ(report.overall.worstId, "c");
}

TEST(Report, CountsScoredRowsOnly) {
  std::vector<PredictedRow> rows = {predicted("a", 10, 11), predicted("b", 10, 8),
                                    skipped("no reason"), skipped("no reason"), skipped("other")};
  rows[1].row.scored = rows[4].row.scored = false;
  const ValidationReport report = reportOn(rows);
  EXPECT_EQ(report.numRows, 5);
  EXPECT_EQ(report.numScored, 3);
  EXPECT_EQ(report.overall.errors.count, 1);
  EXPECT_EQ(report.overall.numSkipped, 2);
  ASSERT_THAT(report.skipped, SizeIs(1));
  EXPECT_EQ(report.skipped[0].text, "no reason");
  EXPECT_EQ(report.skipped[0].count, 2);
}

// A scored row whose time was not published is predicted, and in no statistic.
TEST(Report, WithoutAMeasuredTimeThereIsNoError) {
  PredictedRow row = predicted("a", 10, 11);
  row.row.iterTime.reset();
  EXPECT_EQ(row.error(), std::nullopt);
  EXPECT_EQ(reportOn({row}).overall.errors.count, 0);
  EXPECT_EQ(reportOn({row}).numRan, 0);
}

PredictedRow withLayout(int64_t tp, double measured, double seconds) {
  PredictedRow row = predicted("tp" + std::to_string(tp), measured, seconds);
  row.row.tp = tp;
  row.row.dp = 64 / tp;
  return row;
}

// Measured 10 < 12 < 15, predicted 11, 9, 14: ranks 1 2 3 against 2 1 3, so 1 - 6 * 2 / (3 * 8)
// = 0.5. The pick is the second: 12 / 10 - 1.
TEST(Sweeps, RanksAndThePickMatchHandDerivation) {
  std::vector<PredictedRow> rows = {withLayout(1, 10, 11), withLayout(2, 12, 9),
                                    withLayout(4, 15, 14)};
  ValidationReport report = reportOn(rows);
  ASSERT_THAT(report.sweeps, SizeIs(1));
  EXPECT_EQ(report.sweeps[0].numLayouts, 3);
  EXPECT_THAT(report.sweeps[0].spearman, Optional(DoubleNear(0.5, 1e-12)));
  EXPECT_DOUBLE_EQ(report.sweeps[0].regret, 0.2);
  // Another batch is another question: two layouts are left, and one alone.
  rows[2].row.globalBatch = 3072;
  report = reportOn(rows);
  ASSERT_THAT(report.sweeps, SizeIs(1));
  EXPECT_EQ(report.sweeps[0].numLayouts, 2);
  EXPECT_EQ(report.sweeps[0].spearman, std::nullopt);
}

// The sweep of above is of two sources: the first has two of its layouts, whose order is wrong, and
// no correlation; the other has one, and no sweep. A second question of the first source has three
// layouts in the right order.
TEST(Sweeps, OrderIsSummedUpByFamily) {
  std::vector<PredictedRow> rows = {withLayout(1, 10, 11), withLayout(2, 12, 9),
                                    withLayout(4, 15, 14)};
  rows[2].row.source = "there";
  ValidationReport report = reportOn(rows);
  ASSERT_THAT(report.families, SizeIs(2));
  EXPECT_EQ(report.families[0].order.numSweeps, 1);
  EXPECT_EQ(report.families[0].order.numLayouts, 2);
  EXPECT_EQ(report.families[0].order.numRanked, 0);
  EXPECT_DOUBLE_EQ(report.families[0].order.meanRegret, 0.2);
  EXPECT_EQ(report.families[1].order.numSweeps, 0);
  EXPECT_NEAR(report.overall.order.meanSpearman, 0.5, 1e-12);
  for (const int64_t tp : {1, 2, 4}) {
    rows.push_back(withLayout(tp, static_cast<double>(10 + tp), static_cast<double>(20 + tp)));
    rows.back().row.globalBatch = 3072;
  }
  report = reportOn(rows);
  const OrderSummary& here = report.families[0].order;
  EXPECT_EQ(here.numSweeps, 2);
  EXPECT_EQ(here.numLayouts, 5);
  EXPECT_EQ(here.numRanked, 1);
  EXPECT_DOUBLE_EQ(here.meanSpearman, 1);
  EXPECT_DOUBLE_EQ(here.meanRegret, 0.1);
  EXPECT_DOUBLE_EQ(here.mostRegret, 0.2);
  EXPECT_NEAR(report.overall.order.meanSpearman, 0.75, 1e-12);
  EXPECT_NEAR(report.overall.order.leastSpearman, 0.5, 1e-12);
  const std::string table = toTable(report);
  const std::string name = "\n    here" + std::string(38, ' ');
  EXPECT_THAT(table, HasSubstr(name + "2       5    1.000    1.000   10.0 %   20.0 %\n")) << table;
  EXPECT_THAT(table, HasSubstr("     2       6    0.750    0.500   10.0 %   20.0 %\n")) << table;
  const nlohmann::json json = toJson(report);
  EXPECT_EQ(json["families"][0]["order"]["layouts"], 5);
  EXPECT_DOUBLE_EQ(json["families"][0]["order"]["meanRegret"], 0.1);
  EXPECT_TRUE(json["families"][1]["order"]["meanSpearman"].is_null());
}

// Everything that a sweep has in common, and everything that a layout is made of.
TEST(Sweeps, EqualInAllButTheLayout) {
  const auto sweepsAfter = [](const std::function<void(Row&)>& change) {
    std::vector<PredictedRow> rows = {predicted("a", 10, 10), predicted("b", 10, 10)};
    change(rows[1].row);
    return reportOn(rows).sweeps.size();
  };
  EXPECT_EQ(sweepsAfter([](Row&) {}), 0u);
  for (const auto& change : std::vector<std::function<void(Row&)>>{
           [](Row& r) { r.tp = 1; }, [](Row& r) { r.pp = 1; }, [](Row& r) { r.dp = 1; },
           [](Row& r) { r.cp = 2; }, [](Row& r) { r.vp = 2; }, [](Row& r) { r.zero = 1; },
           [](Row& r) { r.microBatch = 2; }, [](Row& r) { r.seqParallel = true; },
           [](Row& r) { r.recompute = "none"; }, [](Row& r) { r.schedule = "GPipe"; }})
    EXPECT_EQ(sweepsAfter(change), 1u);
  for (const auto& change : std::vector<std::function<void(Row&)>>{
           [](Row& r) { r.model = "x"; }, [](Row& r) { r.gpus = 1; }, [](Row& r) { r.gpu = "x"; },
           [](Row& r) { r.globalBatch = 1; }, [](Row& r) { r.seq = 1; },
           [](Row& r) { r.precision = "bf16"; }, [](Row& r) { r.stack = "nemo"; },
           [](Row& r) { r.layers = 1; }, [](Row& r) { r.hidden = 1; }, [](Row& r) { r.heads = 1; },
           [](Row& r) { r.kvHeads = 1; }, [](Row& r) { r.ffn = 1; }, [](Row& r) { r.vocab = 1; },
           [](Row& r) { r.gpusPerNode = 4; }, [](Row& r) { r.interNodeGbpsPerGpu = 1; }})
    EXPECT_EQ(sweepsAfter([&](Row& r) { r.tp = 1, change(r); }), 0u);
}

// One layout measured twice, 10 s and 14 s, is one of 12 s: no regret against the other's 13 s.
TEST(Sweeps, RowsOfOneLayoutCountOnce) {
  const ValidationReport report =
      reportOn({withLayout(1, 10, 11), withLayout(1, 14, 11), withLayout(2, 13, 12)});
  ASSERT_THAT(report.sweeps, SizeIs(1));
  EXPECT_EQ(report.sweeps[0].numLayouts, 2);
  EXPECT_DOUBLE_EQ(report.sweeps[0].regret, 0);
}

TEST(Report, ComparesPeakMemoryFitsAndIntervals) {
  std::vector<PredictedRow> rows = {predicted("a", 10, 11), predicted("b", 10, 11)};
  rows[0].row.notes = "peak_mem_gib=50";  // 60 GiB are 20 % more
  rows[0].prediction->interval = Interval{{Seconds(9), Seconds(10)}};
  rows[1].prediction->interval = Interval{{Seconds(10.5), Seconds(12)}};
  rows[1].prediction->fits = false;
  const ValidationReport report = reportOn(rows);
  EXPECT_EQ(report.memory.count, 1);
  EXPECT_NEAR(report.memory.meanSigned, 0.2, 1e-12);
  EXPECT_EQ(report.memoryWorstId, "a");
  EXPECT_EQ(report.numRan, 2);
  EXPECT_EQ(report.numFit, 1);
  EXPECT_EQ(report.numInterval, 2);
  EXPECT_EQ(report.numWithin, 1);
  EXPECT_NEAR(report.meanHalfWidth, (0.5 / 10 + 0.75 / 10) / 2, 1e-12);
}

std::vector<PredictedRow> everything() {
  std::vector<PredictedRow> rows = {withLayout(1, 10, 11), withLayout(2, 12, 9),
                                    withLayout(4, 15, 14), skipped("unpublished: tp")};
  rows[0].row.notes = "peak_mem_gib=50";
  rows[0].row.source = std::string(200, 'x');
  rows[0].prediction->assumptions = {"(R7) vp unpublished: 1"};
  rows[1].prediction->interval = Interval{{Seconds(8), Seconds(10)}};
  return rows;
}

TEST(ReportTable, SaysEverythingInLinesOfAHundredColumns) {
  const std::string table = toTable(reportOn(everything()));
  for (const char* part :
       {"4, of which 4 are scored and 1 of these skipped", "overall", "Spearman", "regret",
        "peak memory   1 rows", "fits          3 of the 3 rows that ran",
        "intervals     hold 0 of 1 times, 0.0 %; mean half-width 8.3 % of the measured times",
        "1  (R7) vp unpublished: 1", "1  unpublished: tp"})
    EXPECT_THAT(table, HasSubstr(part)) << table;
  EXPECT_THAT(table, HasSubstr("\n  file, megatron-lm-2021\n    xxx")) << table;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 100u) << line;
    EXPECT_FALSE(line.ends_with(' ')) << line;
  }
}

// 38 characters: 18 of the start, two dots, 18 of the end, where versions stand; é is one.
TEST(ReportTable, LongNamesLoseTheirMiddle) {
  std::vector<PredictedRow> rows = {predicted("a", 10, 11)};
  rows[0].row.source = "\xC3\xA9" + std::string(50, 'x') + "docs, 25.11 container";
  EXPECT_THAT(toTable(reportOn(rows)),
              HasSubstr("\n    \xC3\xA9" + std::string(15, 'x') + "..s, 25.11 container     1 "));
}

TEST(ReportTable, SaysHowManyRowsHaveNoTime) {
  PredictedRow untimed = predicted("a", 10, 11);
  untimed.row.iterTime.reset();
  untimed.row.tflopsPerGpu = 150;
  EXPECT_THAT(toTable(reportOn({untimed})),
              HasSubstr("\nuntimed       1 of the scored rows, in no error: a time is an "
                        "iter_time_s or\n"));
  EXPECT_EQ(toTable(reportOn({predicted("a", 10, 11)})).find("untimed"), std::string::npos);
}

TEST(ReportTable, OfNoRowsIsShort) {
  EXPECT_THAT(toTable(reportOn({})), HasSubstr("0, of which 0 are scored"));
}

TEST(ReportJson, HoldsTheSame) {
  const nlohmann::json json = toJson(reportOn(everything()));
  EXPECT_EQ(json.at("families").size(), 2u);
  EXPECT_EQ(json.at("overall").at("rows"), 3);
  EXPECT_EQ(json.at("overall").at("skipped"), 1);
  EXPECT_EQ(json.at("sweeps").at(0).at("layouts"), 3);
  EXPECT_DOUBLE_EQ(json.at("sweeps").at(0).at("regret").get<double>(), 0.2);
  EXPECT_EQ(json.at("skipped").at(0).at("text"), "unpublished: tp");
}

// 11 s for 10 s measured; without interval two empty cells; the reason in the last one.
TEST(PrintRows, AppendsThePredictionToTheCells) {
  std::vector<std::string> texts(rowHeader().size());
  std::string text = printCsvRecord(rowHeader());
  for (const char* id : {"a", "b", "c"}) {
    texts[0] = id;
    text += printCsvRecord(texts);
  }
  const Result<RowFile> file = parseRows(text, "rows.csv");
  ASSERT_TRUE(file.has_value());
  std::vector<PredictedRow> rows = {predicted("a", 10, 11), skipped("why, then?"),
                                    predicted("c", 10, 8)};
  rows[2].prediction->interval = Interval{{Seconds(7), Seconds(9)}};
  rows[2].prediction->fits = false;
  rows[2].row.iterTime.reset();
  const std::string printed = printRows(file->records, rows);
  std::istringstream lines(printed);
  std::string line;
  std::getline(lines, line);
  EXPECT_THAT(line, HasSubstr("notes,predicted_s,error_pct,low_s,high_s,predicted_mem_gib,fits,"
                              "cluster,profile,skipped_because"));
  const std::string empty(rowHeader().size() - 1, ',');
  std::getline(lines, line);
  EXPECT_EQ(line, "a" + empty + ",11,10,,,60,1,dgx-a100,nemo,");
  std::getline(lines, line);
  EXPECT_EQ(line, "b" + empty + ",,,,,,,,,\"why, then?\"");
  std::getline(lines, line);
  EXPECT_EQ(line, "c" + empty + ",8,,7,9,60,0,dgx-a100,nemo,");
}

}  // namespace
}  // namespace trireme::cost
