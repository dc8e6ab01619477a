// The words of a shell command or script, without running it: quotes, backslashes and comments as
// bash has them; parentheses (of arrays) and separators of commands end words. Variables that
// the text sets above with one value are put in; others, arrays and commands stay as they are
// written.
#pragma once
#include <string>
#include <vector>

namespace trireme::codegen {

struct Word {
  std::string text;
  int line = 1;  // in which it starts, from 1
};

// Never fails: a quote that is not closed ends with the text.
std::vector<Word> shellWords(const std::string& text);

}  // namespace trireme::codegen
