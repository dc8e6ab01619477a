#include "cli/output/wrap.h"

namespace trireme::cli {

std::string wrapLine(std::string line, size_t indent, size_t columns, LongWords longWords) {
  std::string text;
  while (line.size() > columns) {
    size_t at = line.rfind(' ', columns);
    if (at == std::string::npos || at <= indent)
      at = longWords == LongWords::kWhole ? line.find(' ', columns) : columns;
    if (at == std::string::npos) break;
    text += line.substr(0, at) + "\n";
    line = std::string(indent, ' ') + line.substr(line[at] == ' ' ? at + 1 : at);
  }
  return text + line + "\n";
}

}  // namespace trireme::cli
