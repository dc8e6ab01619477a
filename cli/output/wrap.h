// Long lines in the hundred columns of a table.
#pragma once
#include <string>

namespace trireme::cli {

// Of words that are longer than a line: those of errors are copied, and so stay whole.
enum class LongWords { kBroken, kWhole };

// Breaks `line` at spaces; further lines begin with `indent` spaces, fewer than `columns`. Ends
// with a newline.
std::string wrapLine(std::string line, size_t indent, size_t columns = 100,
                     LongWords longWords = LongWords::kBroken);

}  // namespace trireme::cli
