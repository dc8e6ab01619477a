#include "cost_models/validation/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace trireme::cost {
namespace {

using ::testing::ElementsAre;
using Texts = std::vector<std::vector<std::string>>;

Texts textsOf(const std::string& text) {
  const Result<std::vector<CsvRecord>> records = parseCsv(text, "rows.csv");
  EXPECT_TRUE(records.has_value()) << records.error().message();
  Texts texts;
  if (!records.has_value()) return texts;
  for (const CsvRecord& record : *records) {
    texts.emplace_back();
    for (const CsvCell& cell : record) texts.back().push_back(cell.text);
  }
  return texts;
}

std::string messageOfCsv(const std::string& text) {
  const Result<std::vector<CsvRecord>> records = parseCsv(text, "rows.csv");
  return records.has_value() ? "" : records.error().message();
}

TEST(ParseCsv, SplitsRecordsAndCells) {
  const Texts expected = {{"a", "b"}, {"1", ""}, {"", "2"}};
  EXPECT_EQ(textsOf("a,b\n1,\n,2\n"), expected);
  EXPECT_EQ(textsOf("a,b\r\n1,\r\n,2\r\n"), expected);
  EXPECT_EQ(textsOf("a,b\n1,\n,2"), expected);
  EXPECT_EQ(textsOf("\xEF\xBB\xBF"
                    "a,b\n1,\n,2"),
            expected);
}

TEST(ParseCsv, QuotesHoldCommasQuotesAndLineBreaks) {
  EXPECT_EQ(textsOf("\"a,b\",\"say \"\"no\"\"\"\n\"x\r\ny\",\"\"\n"),
            (Texts{{"a,b", "say \"no\""}, {"x\r\ny", ""}}));
}

TEST(ParseCsv, CellsKnowTheirPlace) {
  const auto records = parseCsv("a,b\n\"1\n2\",\"\xC3\xA9\"\n3,4\n", "rows.csv");
  ASSERT_TRUE(records.has_value());
  const auto place = [&](size_t r, size_t c) {
    return std::pair((*records)[r][c].mark.line, (*records)[r][c].mark.column);
  };
  EXPECT_EQ(place(0, 1), std::pair(1, 3));
  EXPECT_EQ(place(1, 0), std::pair(2, 1));
  EXPECT_EQ(place(1, 1), std::pair(3, 4));  // the cell before ends on the next line
  EXPECT_EQ(place(2, 1), std::pair(4, 3));
}

TEST(ParseCsv, ErrorsNameLineAndColumn) {
  EXPECT_EQ(messageOfCsv(""), "rows.csv:1:1: expected a header, the file is empty");
  EXPECT_EQ(messageOfCsv("\xEF\xBB\xBF"), "rows.csv:1:1: expected a header, the file is empty");
  EXPECT_EQ(messageOfCsv("a,b\n1\n"), "rows.csv:2:1: 1 cell, expected 2 as in the header");
  EXPECT_EQ(messageOfCsv("a,b\n1,2,3\n"), "rows.csv:2:1: 3 cells, expected 2 as in the header");
  EXPECT_EQ(messageOfCsv("a,b\n\n1,2\n"), "rows.csv:2:1: an empty line; expected a record");
  EXPECT_EQ(messageOfCsv("a,b\n1,2\n\n"), "rows.csv:3:1: an empty line; expected a record");
  EXPECT_EQ(messageOfCsv("a,b\n1,\"2\n"), "rows.csv:2:3: a quote that nothing closes");
  EXPECT_EQ(messageOfCsv("a,b\n1,\"2\"x\n"),
            "rows.csv:2:6: expected a comma or the end of the line after the quote");
  EXPECT_EQ(messageOfCsv("a,b\n1,x\"2\n"),
            "rows.csv:2:4: a quote within a cell: put the whole cell in quotes and write this one "
            "twice");
  EXPECT_EQ(messageOfCsv("a,b\r1,2\n"), "rows.csv:1:4: a carriage return without a line feed");
  EXPECT_EQ(messageOfCsv(std::string("a,b\n1,\0\n", 8)), "rows.csv:2:3: control character 0x00");
  EXPECT_EQ(messageOfCsv("a,b\n\"\x01\",2\n"), "rows.csv:2:2: control character 0x01");
  EXPECT_EQ(messageOfCsv("a,b\n1,\xFF\n"), "rows.csv:2:3: not valid UTF-8");
}

TEST(ParseCsv, TooLargeIsRefused) {
  EXPECT_EQ(messageOfCsv(std::string(kMaxCsvBytes + 1, 'a')),
            "rows.csv:1:1: the file has more than 16 MiB");
}

TEST(PrintCsv, QuotesOnlyWhereNeeded) {
  EXPECT_EQ(printCsvRecord({"a", "b,c", "\"d\"", "e\nf", ""}),
            "a,\"b,c\",\"\"\"d\"\"\",\"e\nf\",\n");
  EXPECT_EQ(printCsvRecord({"", "a"}), ",a\n");
  EXPECT_EQ(printCsvRecord({""}), "\"\"\n");  // an empty line would be no record
}

TEST(PrintCsv, ReadsBackWhateverTheTexts) {
  std::mt19937 random(11);
  const std::string kParts[] = {"a",    ",", "\"", "\n",       "\r",
                                "\r\n", " ", "\t", "\xC3\xA9", "\xEF\xBB\xBF"};
  for (int i = 0; i < 2000; ++i) {
    Texts texts(1 + random() % 3, std::vector<std::string>(1 + random() % 3));
    for (auto& record : texts) {
      record.resize(texts[0].size());
      for (std::string& cell : record)
        for (size_t n = random() % 4; n > 0; --n) cell += kParts[random() % std::size(kParts)];
    }
    // A byte order mark at the very start would be taken for one.
    texts[0][0].insert(0, "x");
    std::string text;
    for (const auto& record : texts) text += printCsvRecord(record);
    EXPECT_EQ(textsOf(text), texts) << text;
  }
}

}  // namespace
}  // namespace trireme::cost
