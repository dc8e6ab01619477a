#include "cli/output/table.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/base/status.h"

namespace trireme::cli {

std::string printTable(const std::vector<Column>& columns,
                       const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::string> titles;
  std::vector<size_t> widths;
  for (size_t i = 0; i < columns.size(); ++i) {
    titles.push_back(columns[i].title);
    widths.push_back(columns[i].title.size());
    for (const std::vector<std::string>& row : rows) {
      TRIREME_CHECK(row.size() == columns.size());
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  const auto addLine = [&](const std::vector<std::string>& cells) {
    for (size_t i = 0; i < cells.size(); ++i)
      text += columns[i].isNumber ? fmt::format("  {:>{}}", cells[i], widths[i])
                                  : fmt::format("  {:<{}}", cells[i], widths[i]);
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  };
  addLine(titles);
  for (const std::vector<std::string>& row : rows) addLine(row);
  return text;
}

}  // namespace trireme::cli
