// Comma-separated values, read strictly (RFC 4180) and written so that they read back.
//
// Cells are separated by commas, records by a line feed, with or without a carriage return before
// it; the last record may lack it. A cell that begins with a quote ends with one; within it a quote
// is written twice, and commas and line breaks are text. A quote anywhere else, a carriage return
// alone outside of quotes, an empty line, control characters but tabs, invalid UTF-8 and a record
// with another number of cells than the first are errors. A byte order mark at the start is
// skipped.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/status.h"
#include "ir/spec/yaml_node.h"

namespace trireme::cost {

inline constexpr size_t kMaxCsvBytes = size_t{16} << 20;

struct CsvCell {
  std::string text;
  spec::Mark mark;  // of its first character, the quote if there is one; columns count characters
};
using CsvRecord = std::vector<CsvCell>;

// At least one record, of as many cells each. `name` is the file's name in messages.
// kInvalidArgument: "name:line:column: what is wrong", and more than `most` bytes.
Result<std::vector<CsvRecord>> parseCsv(const std::string& text, const std::string& name,
                                        size_t most = kMaxCsvBytes);

// The cell's text, in quotes where it needs them.
std::string printCsvCell(std::string_view text);
// Cells and a line feed.
std::string printCsvRecord(const std::vector<std::string>& cells);

}  // namespace trireme::cost
