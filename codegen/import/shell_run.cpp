#include "codegen/import/shell_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "codegen/import/shell_runner.h"

namespace trireme::codegen {
namespace {

using Kind = ShellCommand::Kind;
using Join = ShellCommand::Join;
using Truth = ShellTruth;

constexpr int kDeepestCalls = 12;  // functions and quoted commands inside of each other
constexpr int kMostRounds = 1000;  // of one loop

}  // namespace

Result<ShellRun> ShellRunner::run(const ShellList& script) {
  list(script);
  if (charactersLeft_ == 0 || stepsLeft_ <= 0)
    return Error(Status(StatusCode::kResourceExhausted,
                        fmt::format("{}:{}: the script does too much to be followed: give the "
                                    "command line that it runs",
                                    file_, line_)));
  if (!error_.ok()) return Error(error_);
  return std::move(run_);
}

size_t ShellRunner::decide(int line, size_t choices) {
  const size_t at = run_.decisions.size();
  const size_t choice = at < choices_.size() ? std::min(choices_[at], choices - 1) : 0;
  run_.decisions.push_back({line, choice, choices});
  return choice;
}

bool ShellRunner::isTaken(Truth truth, int line) {
  return truth == Truth::kOpen ? decide(line, 2) == 0 : truth == Truth::kTrue;
}

Truth ShellRunner::list(const ShellList& commands) {
  Truth truth = Truth::kTrue;
  bool runs = true;
  for (const ShellCommand& each : commands) {
    if (flow_ != Flow::kNext || isOver()) break;
    if (each.join == Join::kAlways) {
      runs = true;
    } else if (each.join != Join::kPipe) {
      const bool isTrue = isTaken(truth, each.line);
      truth = truthOf(isTrue);
      runs = isTrue == (each.join == Join::kAnd);
    }
    if (!runs) continue;
    truth = command(each);
    if (each.isNegated) truth = negated(truth);
  }
  return truth;
}

Truth ShellRunner::command(const ShellCommand& c) {
  --stepsLeft_;
  line_ = c.line;
  switch (c.kind) {
    case Kind::kSimple:
      return simple(c);
    case Kind::kTest:
      return testShellPatterns(c.words, state_);
    case Kind::kArithmetic:
      return arithmetic(c.words[0].text);
    case Kind::kIf:
      return ifElse(c);
    case Kind::kCase:
      return oneOf(c);
    case Kind::kFor:
      return forEach(c);
    case Kind::kWhile:
    case Kind::kUntil:
      return loop(c);
    case Kind::kGroup:
      return list(c.branches[0].body);
    case Kind::kSubshell:
      return apart(c.branches[0].body, state_);
    case Kind::kFunction:
      functions_[c.words[0].text] = &c.branches[0].body;
      return Truth::kTrue;
  }
  return Truth::kOpen;
}

Truth ShellRunner::ifElse(const ShellCommand& c) {
  for (const ShellBranch& branch : c.branches) {
    const bool isElse = branch.condition.empty();
    const Truth truth = isElse ? Truth::kTrue : list(branch.condition);
    if (flow_ != Flow::kNext || isOver()) return Truth::kOpen;
    const int line = isElse ? c.line : branch.condition.front().line;
    if (isTaken(truth, line)) return list(branch.body);
  }
  return Truth::kTrue;
}

Truth ShellRunner::oneOf(const ShellCommand& c) {
  const std::string subject = expandText(c.words[0], state_);
  std::vector<const ShellBranch*> candidates;
  bool isSure = false;
  for (const ShellBranch& branch : c.branches) {
    Truth truth = Truth::kFalse;
    for (const ShellWord& pattern : branch.patterns)
      if (truth != Truth::kTrue)
        if (const Truth one = matchesShell(subject, pattern, state_); one != Truth::kFalse)
          truth = one;
    if (truth != Truth::kFalse) candidates.push_back(&branch);
    isSure = truth == Truth::kTrue;
    if (isSure) break;
  }
  if (!isSure) candidates.push_back(nullptr);
  const size_t choice = candidates.size() == 1 ? 0 : decide(c.line, candidates.size());
  return candidates[choice] ? list(candidates[choice]->body) : Truth::kTrue;
}

bool ShellRunner::round(const ShellList& body) {
  list(body);
  const bool goesOn = flow_ == Flow::kNext || flow_ == Flow::kContinue;
  if (flow_ == Flow::kBreak || flow_ == Flow::kContinue) flow_ = Flow::kNext;
  return goesOn && !isOver();
}

Truth ShellRunner::forEach(const ShellCommand& c) {
  std::vector<ShellText> items;
  for (size_t i = 1; i < c.words.size(); ++i)
    for (ShellText& field : expandFields(c.words[i], state_)) items.push_back(std::move(field));
  const bool isOnce = items.size() == 1 && !hasOpenPart(items[0].text);
  const int outer = std::exchange(loopLine_, isOnce ? loopLine_ : c.line);
  for (ShellText& item : items) {
    state_.variables[c.words[0].text] = {std::move(item)};
    if (!round(c.branches[0].body)) break;
  }
  loopLine_ = outer;
  return Truth::kOpen;
}

Truth ShellRunner::loop(const ShellCommand& c) {
  const int outer = std::exchange(loopLine_, c.line);
  for (int i = 0; i < kMostRounds && flow_ == Flow::kNext && !isOver(); ++i) {
    Truth truth = list(c.branches[0].condition);
    if (c.kind == Kind::kUntil) truth = negated(truth);
    if (flow_ != Flow::kNext || isOver() || truth == Truth::kFalse) break;
    if (truth == Truth::kOpen && decide(c.line, 2) == 0) break;
    if (!round(c.branches[0].body) || truth == Truth::kOpen) break;
  }
  loopLine_ = outer;
  return Truth::kOpen;
}

Truth ShellRunner::apart(const ShellList& body, ShellState inner) {
  takeState();
  std::swap(state_, inner);
  const Truth truth = nested(body);
  std::swap(state_, inner);
  flow_ = Flow::kNext;
  return truth;
}

Truth ShellRunner::nested(const ShellList& body) {
  if (++depth_ > kDeepestCalls)
    fail(
        "calls itself, or commands are too deep inside of each other: give the command line "
        "that it runs");
  const Truth truth = list(body);
  --depth_;
  return truth;
}

void ShellRunner::fail(const std::string& message) {
  if (error_.ok()) error_ = invalidArgument(fmt::format("{}:{}: {}", file_, line_, message));
}

Result<ShellRun> runShell(const ShellInput& input, const std::vector<size_t>& choices) {
  return ShellRunner(input, choices).run(input.script);
}

}  // namespace trireme::codegen
