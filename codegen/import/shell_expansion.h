// What words of a script are when its variables are put in.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "codegen/import/shell_lexer.h"
#include "ir/base/status.h"

namespace trireme::codegen {

// A value or a word without quotes. What is not known in it is an open part: how it is written
// between kOpenBegin and kOpenEnd.
struct ShellText {
  std::string text;
  int line = 1;
};

using ShellValue = std::vector<ShellText>;  // one, or those of an array

struct ShellState {
  std::map<std::string, ShellValue> variables;
  std::optional<ShellValue> arguments;  // $1, $2...; absent: those of whoever runs the script
  size_t* charactersLeft = nullptr;     // of all words and values that are looked at: names that
                                        // double themselves end here, and all is empty from then on
};

// False, and nothing left: there were fewer.
bool takeShellCharacters(ShellState& state, size_t count);

// Without blanks outside of quotes, so split into words.
std::vector<ShellText> expandFields(const ShellWord& word, ShellState& state);
// As in an assignment, which splits nothing.
std::string expandText(const ShellWord& word, ShellState& state);
// NAME=value, NAME+=value, NAME=(...), NAME+=(...), NAME[...]=value; false if `word` is none.
bool assignShell(const ShellWord& word, ShellState& state);
bool isShellAssignment(const ShellWord& word);

// The number of an expression in which variables are expanded; absent if it is not known.
std::optional<int64_t> expandArithmetic(const std::string& text, ShellState& state);

// One past the name, or the one character of $1, $@ and their likes, that begins at text[begin].
size_t shellNameEnd(const std::string& text, size_t begin);

std::string openPart(std::string_view written);
bool hasOpenPart(const std::string& text);
// Open parts as they are written, for people.
std::string shownShell(const std::string& text);

}  // namespace trireme::codegen
