// Damaged CSV files and rows: parseRows answers with rows or with an error that names its place,
// and queryOf with a legal plan or a reason, whatever the bytes. Deterministic.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "cost_models/validation/mapping.h"
#include "tests/cost_models/validation/rows.h"
#include "tests/support/damaged_text.h"

namespace trireme::cost {
namespace {

Catalogue catalogue() {
  Catalogue known;
  spec::ClusterSpec cluster;
  cluster.device.name = "A100-80GB-SXM";
  cluster.numDevices = 64;
  cluster.tiers.push_back({"nvlink", 8, BytesPerSecond(300e9), Seconds(1e-6)});
  cluster.tiers.push_back({"ib", 64, BytesPerSecond(25e9), Seconds(1e-5)});
  known.clusters.push_back(cluster);
  known.stacks.emplace_back();
  known.stacks[0].name = "megatron-lm-2021";
  return known;
}

std::string validRows() {
  return printCsvRecord(rowHeader()) +
         "sc21-1,megatron-lm-2021,1,\"SC21, Table 1\",2021,A100-80GB-SXM,64,8,200,GPT-3.6B,3.6,30,"
         "3072,32,,12288,51200,2048,,,512,16,2,1,32,1,,1,0,0,full,1F1B,fp16,138,44,,3.697,\"96*B\","
         "\"say \"\"so\"\"\"\r\n"
         "sc21-2,megatron-lm-2021,1,,,A100,64,8,,GPT,,30,3072,32,,,,2048,,,512,4,2,2,,,,3,1,1,"
         "selective,interleaved 1F1B,bf16,,,9000,,,\n";
}

void checkRows(const std::string& text, int* numLegal = nullptr) {
  const Result<RowFile> file = parseRows(text, "rows.csv");
  if (!file.has_value()) {
    EXPECT_EQ(file.error().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(file.error().message(), ::testing::MatchesRegex("rows\\.csv:[0-9]+:[0-9]+: .+"))
        << text;
    return;
  }
  static const Catalogue kKnown = catalogue();
  for (const Row& row : file->rows) {
    measuredSeconds(row);
    measuredPeakGib(row);
    const Result<RunQuery> query = queryOf(row, kKnown);
    if (!query.has_value()) {
      EXPECT_EQ(query.error().code(), StatusCode::kInvalidArgument) << query.error().message();
      EXPECT_NE(query.error().message(), "");
      continue;
    }
    EXPECT_TRUE(plan::verifyPlan(query->plan, query->model).ok());
    EXPECT_EQ(query->cluster.numDevices, query->plan.numRanks());
    if (numLegal) ++*numLegal;
  }
  // What was read is printed and read again.
  std::string again = printCsvRecord(rowHeader());
  for (const CsvRecord& record : file->records) {
    std::vector<std::string> cells;
    for (const CsvCell& cell : record) cells.push_back(cell.text);
    again += printCsvRecord(cells);
  }
  const Result<RowFile> reread = parseRows(again, "rows.csv");
  ASSERT_TRUE(reread.has_value()) << reread.error().message();
  EXPECT_EQ(reread->rows.size(), file->rows.size());
}

TEST(RowsFuzz, TheValidTextIsLegal) {
  int numLegal = 0;
  checkRows(validRows(), &numLegal);
  EXPECT_EQ(numLegal, 2);
}

TEST(RowsFuzz, BytesAreChangedInsertedAndRemoved) {
  const std::string interesting(
      "0123456789-.,,,,\"\"\"'\n\r\t \x00\x01\x7f\xc3\xa9\xff\xef\xbb\xbf", 33);
  damageBytes(validRows(), interesting, 4000, 4, [](const std::string& text) { checkRows(text); });
}

TEST(RowsFuzz, CellsAreExtremeOrEmpty) {
  const Result<std::vector<CsvRecord>> valid = parseCsv(validRows(), "rows.csv");
  ASSERT_TRUE(valid.has_value());
  const char* const kTexts[] = {
      "",       "0",    "1",       "-1",         "7",   "3.5",  "1e308",
      "1e-308", "nan",  "inf",     "1073741824", "12",  "96",   "9999999999999999999999",
      "GPipe",  "none", "fp8(TE)", "zero",       "MPT", "H100", "(",
      ")))"};
  std::mt19937 random(9);
  int numLegal = 0;
  for (int i = 0; i < 4000; ++i) {
    std::vector<std::string> cells;
    for (const CsvCell& cell : (*valid)[1 + random() % 2]) cells.push_back(cell.text);
    for (size_t n = 1 + random() % 3; n > 0; --n)
      cells[1 + random() % (cells.size() - 1)] = kTexts[random() % std::size(kTexts)];
    checkRows(printCsvRecord(rowHeader()) + printCsvRecord(cells), &numLegal);
  }
  EXPECT_GT(numLegal, 200);  // not everything is refused
}

TEST(RowsFuzz, EveryPrefixIsAnswered) {
  const std::string valid = validRows();
  for (size_t length = 0; length < valid.size(); ++length) checkRows(valid.substr(0, length));
}

}  // namespace
}  // namespace trireme::cost
