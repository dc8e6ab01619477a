// How runShell follows a script. Internal to it: control flow is in shell_run.cpp, commands in
// shell_commands.cpp.
#pragma once
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "codegen/import/shell_run.h"
#include "codegen/import/shell_test.h"

namespace trireme::codegen {

class ShellRunner {
 public:
  ShellRunner(const ShellInput& input, const std::vector<size_t>& choices)
      : file_(input.file), choices_(choices) {
    state_.variables = input.variables;
    state_.charactersLeft = &charactersLeft_;
  }
  Result<ShellRun> run(const ShellList& script);

 private:
  using Truth = ShellTruth;
  enum class Flow : uint8_t { kNext, kBreak, kContinue, kReturn, kExit };

  bool isOver() const { return !error_.ok() || stepsLeft_ <= 0 || charactersLeft_ == 0; }
  size_t decide(int line, size_t choices);
  bool isTaken(Truth truth, int line);
  // The truth of the last command that ran.
  Truth list(const ShellList& commands);
  Truth command(const ShellCommand& c);
  Truth ifElse(const ShellCommand& c);
  // An open subject may match any branch, or none.
  Truth oneOf(const ShellCommand& c);
  // One round of a loop; false: it was the last.
  bool round(const ShellList& body);
  Truth forEach(const ShellCommand& c);
  // An open condition: no round, or one.
  Truth loop(const ShellCommand& c);
  // A shell of its own: what it sets is lost.
  Truth apart(const ShellList& body, ShellState inner);
  Truth nested(const ShellList& body);
  void fail(const std::string& message);
  Truth arithmetic(const std::string& text);
  Truth simple(const ShellCommand& c);
  // Absent: no command of the shell itself. `raw` are the words behind the first as written.
  void takeState();
  void readHere(const ShellCommand& c, const std::string& name);
  void hide(const std::vector<ShellWord>& names);
  std::optional<Truth> builtin(const std::vector<ShellText>& words,
                               const std::vector<ShellWord>& raw);
  std::optional<Truth> changesVariables(const std::string& name,
                                        const std::vector<ShellText>& words);
  Truth program(const ShellCommand& c, std::vector<ShellText>& words);
  Truth call(const ShellList& body, ShellValue arguments);
  // bash -c "script" name arguments: arrays and functions are not inherited.
  Truth quoted(const std::vector<ShellText>& words, size_t at);
  const ShellList* parsed(const std::string& text, int line);
  const std::string& file_;
  const std::vector<size_t>& choices_;
  ShellState state_;
  std::map<std::string, const ShellList*> functions_;
  // Of each function that runs: what `local` hides; absent where nothing was.
  std::vector<std::map<std::string, std::optional<ShellValue>>> hidden_;
  std::deque<ShellList> scripts_;  // of quoted commands, whose functions may be called later
  std::vector<ShellText> prefix_;  // of the commands around
  ShellRun run_;
  Status error_;
  size_t charactersLeft_ = size_t{1} << 20;
  int stepsLeft_ = 20000, depth_ = 0, line_ = 1, loopLine_ = 0;
  Flow flow_ = Flow::kNext;
};

}  // namespace trireme::codegen
