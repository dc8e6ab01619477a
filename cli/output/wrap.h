// Long lines in the hundred columns of a table.
#pragma once
#include <string>

namespace trireme::cli {

// Breaks `line` at spaces; further lines begin with `indent` spaces. A word that is longer than a
// line stays whole. Ends with a newline.
std::string wrapLine(std::string line, size_t indent, size_t columns = 100);

}  // namespace trireme::cli
