#include "planner/answer/table_lines.h"

#include <fmt/format.h>

namespace trireme::planner {

static constexpr size_t kColumns = 100;

void appendWrapped(std::string& out, std::string line, size_t indent) {
  while (line.size() > kColumns) {
    size_t at = line.rfind(' ', kColumns);
    if (at == std::string::npos || at <= indent) at = kColumns;
    out += line.substr(0, at) + "\n";
    const size_t rest = line.find_first_not_of(' ', at);
    line = std::string(indent, ' ') + (rest == std::string::npos ? "" : line.substr(rest));
  }
  out += line + "\n";
}

void appendField(std::string& out, const std::string& name, const std::string& value) {
  appendWrapped(out, fmt::format("{:<14}{}", name, value), 14);
}

}  // namespace trireme::planner
