// What [ ... ] and [[ ... ]] say.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "codegen/import/shell_expansion.h"

namespace trireme::codegen {

enum class ShellTruth : uint8_t { kFalse, kTrue, kOpen };  // open: nobody here knows

ShellTruth truthOf(bool isTrue);
ShellTruth negated(ShellTruth truth);

// The words of [ or `test`, without the brackets; of [[, where && and || stand and == takes
// patterns. Files, regular expressions and whatever holds an open part are open.
ShellTruth testShell(const std::vector<ShellText>& words);
ShellTruth testShellPatterns(const std::vector<ShellWord>& words, ShellState& state);

// `text` against a pattern of case or ==: * and ? and their likes. Open: with [...] or an open
// part.
ShellTruth matchesShell(const std::string& text, const ShellWord& pattern, ShellState& state);

}  // namespace trireme::codegen
