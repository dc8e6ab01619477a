// Columns of text, each as wide as its widest cell.
#pragma once
#include <string>
#include <vector>

namespace trireme::cli {

struct Column {
  std::string title;
  bool isNumber = false;  // aligned to the right
};

// Two spaces between columns and before the first; no trailing spaces. Every row has a cell per
// column.
std::string printTable(const std::vector<Column>& columns,
                       const std::vector<std::vector<std::string>>& rows);

}  // namespace trireme::cli
