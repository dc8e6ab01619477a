#include "cost_models/validation/csv.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme::cost {
namespace {

class CsvReader {
 public:
  CsvReader(const std::string& text, const std::string& name) : text_(text), name_(name) {}

  Result<std::vector<CsvRecord>> read() {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    if (text_.compare(0, kByteOrderMark.size(), kByteOrderMark) == 0) at_ = kByteOrderMark.size();
    if (atEnd()) return Error(failAt({}, "expected a header, the file is empty"));
    std::vector<CsvRecord> records;
    while (!atEnd()) {
      TRIREME_ASSIGN_OR_RETURN(CsvRecord record, readRecord());
      if (!records.empty() && record.size() != records[0].size())
        return Error(failAt(record[0].mark,
                            fmt::format("{} cell{}, expected {} as in the header", record.size(),
                                        record.size() == 1 ? "" : "s", records[0].size())));
      records.push_back(std::move(record));
    }
    return records;
  }

 private:
  bool atEnd() const { return at_ == text_.size(); }
  char peek() const { return text_[at_]; }

  void advance() {
    const auto byte = static_cast<unsigned char>(text_[at_++]);
    if (byte == '\n')
      mark_ = {mark_.line + 1, 1};
    else if ((byte & 0xC0) != 0x80)  // not within a character
      ++mark_.column;
  }

  Status failAt(spec::Mark mark, std::string_view message) const {
    return spec::errorAt(name_, mark, message);
  }

  // At the end of a line: steps over it.
  bool skipLineEnd() {
    if (atEnd()) return true;
    if (peek() == '\r' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n') advance();
    if (peek() != '\n') return false;
    advance();
    return true;
  }

  Result<CsvRecord> readRecord() {
    const spec::Mark start = mark_;
    if (skipLineEnd()) return Error(failAt(start, "an empty line; expected a record"));
    CsvRecord record;
    while (true) {
      TRIREME_ASSIGN_OR_RETURN(CsvCell cell, peekIsQuote() ? readQuoted() : readPlain());
      record.push_back(std::move(cell));
      if (!atEnd() && peek() == ',') {
        advance();
        continue;
      }
      if (skipLineEnd()) return record;
      return Error(failAt(mark_, "expected a comma or the end of the line after the quote"));
    }
  }

  bool peekIsQuote() const { return !atEnd() && peek() == '"'; }

  Status checkCharacter(bool isQuoted) const {
    const auto byte = static_cast<unsigned char>(peek());
    if (byte == '\t' || (isQuoted && (byte == '\n' || byte == '\r'))) return {};
    if (byte == '\r') return failAt(mark_, "a carriage return without a line feed");
    if (byte < 0x20 || byte == 0x7F)
      return failAt(mark_, fmt::format("control character 0x{:02X}", byte));
    return {};
  }

  Status checkText(const CsvCell& cell) const {
    if (spec::isValidUtf8(cell.text)) return {};
    return failAt(cell.mark, "not valid UTF-8");
  }

  Result<CsvCell> readPlain() {
    CsvCell cell{"", mark_};
    while (!atEnd() && peek() != ',' && peek() != '\n') {
      if (peek() == '\r' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n') break;
      if (peek() == '"')
        return Error(failAt(
            mark_, "a quote within a cell: put the whole cell in quotes and write this one twice"));
      TRIREME_RETURN_IF_ERROR(checkCharacter(false));
      cell.text += peek();
      advance();
    }
    TRIREME_RETURN_IF_ERROR(checkText(cell));
    return cell;
  }

  Result<CsvCell> readQuoted() {
    CsvCell cell{"", mark_};
    advance();
    while (true) {
      if (atEnd()) return Error(failAt(cell.mark, "a quote that nothing closes"));
      if (peek() == '"') {
        advance();
        if (!peekIsQuote()) break;
      } else {
        TRIREME_RETURN_IF_ERROR(checkCharacter(true));
      }
      cell.text += peek();
      advance();
    }
    TRIREME_RETURN_IF_ERROR(checkText(cell));
    return cell;
  }

  const std::string& text_;
  const std::string& name_;
  size_t at_ = 0;
  spec::Mark mark_;
};

}  // namespace

Result<std::vector<CsvRecord>> parseCsv(const std::string& text, const std::string& name,
                                        size_t most) {
  if (text.size() > most)
    return Error(spec::errorAt(name, {}, fmt::format("the file has more than {} MiB", most >> 20)));
  return CsvReader(text, name).read();
}

std::string printCsvCell(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string printCsvRecord(const std::vector<std::string>& cells) {
  if (cells.size() == 1 && cells[0].empty()) return "\"\"\n";  // not an empty line
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) line += (i == 0 ? "" : ",") + printCsvCell(cells[i]);
  return line + '\n';
}

}  // namespace trireme::cost
