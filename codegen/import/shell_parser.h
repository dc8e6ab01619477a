// A shell script as a tree: what launch scripts use of bash's grammar.
#pragma once
#include <string>
#include <vector>

#include "codegen/import/shell_lexer.h"
#include "ir/base/status.h"

namespace trireme::codegen {

struct ShellCommand;
using ShellList = std::vector<ShellCommand>;

// if: a condition and its commands, without a condition behind `else`; case: patterns and
// commands; all others: one branch.
struct ShellBranch {
  std::vector<ShellWord> patterns;
  ShellList condition, body;
};

struct ShellCommand {
  enum class Kind : uint8_t {
    kSimple,      // words
    kTest,        // [[ words ]]
    kArithmetic,  // (( words[0] ))
    kIf,
    kCase,  // words[0] in branches
    kFor,   // words[0] in the others
    kWhile,
    kUntil,
    kGroup,
    kSubshell,
    kFunction,  // words[0]
  };
  // When it runs after the one before: always, behind && or ||, or together in a pipe.
  enum class Join : uint8_t { kAlways, kAnd, kOr, kPipe };

  Kind kind = Kind::kSimple;
  Join join = Join::kAlways;
  bool isNegated = false;
  int line = 1;
  std::vector<ShellWord> words;
  std::string hereDocument;
  bool isHereLiteral = false;  // <<'EOF': no variables are put in
  std::vector<ShellBranch> branches;
};

// `line` is that of the first character. kInvalidArgument, with file and line: quotes, parentheses
// or keywords without their ends, or too many inside of each other.
Result<ShellList> parseShell(const std::string& text, const std::string& file, int line);

}  // namespace trireme::codegen
