// The tokens of a shell script: words as they are written, operators and the ends of lines.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/status.h"

namespace trireme::codegen {

// A word as it is written: quotes, backslashes and dollars are still in it.
struct ShellWord {
  std::string text;
  int line = 1;  // in which it starts, from 1
  // NAME=( ... ) and NAME+=( ... ): `text` ends with the equals sign.
  std::optional<std::vector<ShellWord>> elements;
};

// What a text may hold in place of characters that nobody here knows: kOpenBegin, how it is
// written, kOpenEnd. No file has these characters (spec::checkText).
constexpr char kOpenBegin = '\x01', kOpenEnd = '\x02';

constexpr std::string_view kShellBlanks = " \t\r\n";

bool isShellNameStart(char c);
bool isShellNameChar(char c);

// One past the end of what begins at text[at]: '...', "...", `...`, $(...), ${...}, (...), an open
// part, a backslash with its character, or any other character. npos: it does not end.
size_t endOfShellPart(const std::string& text, size_t at, int depth = 0);

class ShellLexer {
 public:
  enum class Kind : uint8_t { kWord, kOperator, kNewline, kArithmetic, kEnd };
  struct Token {
    Kind kind = Kind::kEnd;
    ShellWord word;  // of an operator: its text; of kArithmetic: what ((...)) holds
  };

  // `line` is that of the first character.
  ShellLexer(const std::string& text, int line) : text_(text), line_(line) {}

  const Token& peek();
  Token next();
  // Behind << or <<-: the lines up to `mark`, which are then passed over.
  std::string takeHereDocument(const std::string& mark, bool stripsTabs);
  // Of the first quote or parenthesis that does not end; the tokens end there.
  const std::optional<int>& openLine() const { return openLine_; }
  int line() const { return line_; }

 private:
  Token read();
  Token readWord();
  bool readElements(ShellWord& word);
  void skipBlanks();
  void advanceTo(size_t end);

  const std::string& text_;
  size_t at_ = 0;
  int line_;
  std::optional<int> openLine_;
  std::optional<Token> ahead_;
  std::map<size_t, size_t> hereDocuments_;  // from the end of a line to where they end
};

}  // namespace trireme::codegen
