#include "codegen/import/shell_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <utility>

#include "codegen/import/shell_arithmetic.h"
#include "codegen/import/shell_test.h"

namespace trireme::codegen {
namespace {

using Kind = ShellCommand::Kind;
using Join = ShellCommand::Join;
using Truth = ShellTruth;

constexpr size_t kMostCharacters = size_t{1} << 18;  // of values that are put in
constexpr int kMostSteps = 20000;
constexpr int kDeepest = 12;       // functions and quoted commands inside of each other
constexpr int kMostRounds = 1000;  // of one loop

enum class Flow : uint8_t { kNext, kBreak, kContinue, kReturn, kExit };

// Commands of the shell that set nothing and launch nothing.
constexpr std::array<std::string_view, 14> kSilent = {"echo",  "printf", "set",   "cd",    "trap",
                                                      "wait",  "ulimit", "umask", "alias", "shopt",
                                                      "pushd", "popd",   "mkdir", "module"};
constexpr std::array<std::string_view, 5> kShells = {"bash", "sh", "zsh", "dash", "ksh"};

template <typename List>
bool isIn(const List& list, std::string_view word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

std::string_view baseName(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// The index of the script behind `bash -c` and its likes; absent if there is none.
std::optional<size_t> quotedScript(const std::vector<ShellText>& words) {
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    if (!isIn(kShells, baseName(words[i].text))) continue;
    for (size_t option = i + 1; option + 1 < words.size(); ++option) {
      const std::string& text = words[option].text;
      if (text.empty() || text[0] != '-') break;
      if (text.size() > 1 && text[1] != '-' && text.find('c') != std::string::npos)
        return option + 1;
    }
  }
  return std::nullopt;
}

class Runner {
 public:
  Runner(const ShellInput& input, const std::vector<size_t>& choices)
      : file_(input.file), choices_(choices) {
    state_.variables = input.variables;
    state_.charactersLeft = &charactersLeft_;
  }

  Result<ShellRun> run(const ShellList& script) {
    list(script);
    if (charactersLeft_ == 0 || stepsLeft_ <= 0)
      return Error(Status(StatusCode::kResourceExhausted,
                          fmt::format("{}:{}: the script does too much to be followed: give the "
                                      "command line that it runs",
                                      file_, line_)));
    if (!error_.ok()) return Error(error_);
    return std::move(run_);
  }

 private:
  bool isOver() const { return !error_.ok() || stepsLeft_ <= 0 || charactersLeft_ == 0; }

  size_t decide(int line, size_t choices) {
    const size_t at = run_.decisions.size();
    const size_t choice = at < choices_.size() ? std::min(choices_[at], choices - 1) : 0;
    run_.decisions.push_back({line, choice, choices});
    return choice;
  }
  bool isTaken(Truth truth, int line) {
    return truth == Truth::kOpen ? decide(line, 2) == 0 : truth == Truth::kTrue;
  }

  // The truth of the last command that ran.
  Truth list(const ShellList& commands) {
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

  Truth command(const ShellCommand& c) {
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

  Truth ifElse(const ShellCommand& c) {
    for (const ShellBranch& branch : c.branches) {
      const bool isElse = branch.condition.empty();
      const Truth truth = isElse ? Truth::kTrue : list(branch.condition);
      if (flow_ != Flow::kNext || isOver()) return Truth::kOpen;
      const int line = isElse ? c.line : branch.condition.front().line;
      if (isTaken(truth, line)) return list(branch.body);
    }
    return Truth::kTrue;
  }
  // An open subject may match any branch, or none.
  Truth oneOf(const ShellCommand& c) {
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

  // One round of a loop; false: it was the last.
  bool round(const ShellList& body) {
    list(body);
    const bool goesOn = flow_ == Flow::kNext || flow_ == Flow::kContinue;
    if (flow_ == Flow::kBreak || flow_ == Flow::kContinue) flow_ = Flow::kNext;
    return goesOn && !isOver();
  }
  Truth forEach(const ShellCommand& c) {
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
  // An open condition: no round, or one.
  Truth loop(const ShellCommand& c) {
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

  // A shell of its own: what it sets is lost.
  Truth apart(const ShellList& body, ShellState inner) {
    size_t size = 0;
    for (const auto& [name, value] : inner.variables)
      for (const ShellText& item : value) size += item.text.size() + 1;
    charactersLeft_ -= std::min(charactersLeft_, size);
    std::swap(state_, inner);
    const Truth truth = nested(body);
    std::swap(state_, inner);
    flow_ = Flow::kNext;
    return truth;
  }
  Truth nested(const ShellList& body) {
    if (++depth_ > kDeepest)
      fail(
          "calls itself, or commands are too deep inside of each other: give the command line "
          "that it runs");
    const Truth truth = list(body);
    --depth_;
    return truth;
  }
  void fail(const std::string& message) {
    if (error_.ok()) error_ = invalidArgument(fmt::format("{}:{}: {}", file_, line_, message));
  }

  Truth arithmetic(const std::string& text) {
    const size_t end = text.find_first_of("=+-*/");
    const std::string op = end == std::string::npos ? "" : text.substr(end, 2);
    std::string name = text.substr(0, end);
    std::erase_if(name, [](char c) { return c == ' ' || c == '\t'; });
    const bool isName = !name.empty() && isShellNameStart(name[0]) &&
                        std::all_of(name.begin(), name.end(), isShellNameChar);
    const bool isStep = op == "++" || op == "--";
    const bool isSet = op.size() == 2 && op != "==" && (op[0] == '=' || op[1] == '=');
    if (!isName || (!isStep && !isSet)) {
      const std::optional<int64_t> value = expandArithmetic(text, state_);
      return value ? truthOf(*value != 0) : Truth::kOpen;
    }
    const std::string rest = text.substr(std::min(end + (op[0] == '=' ? 1 : 2), text.size()));
    const std::string whole = isStep         ? fmt::format("{} {} 1", name, op[0])
                              : op[0] == '=' ? rest
                                             : fmt::format("{} {} ({})", name, op[0], rest);
    const std::optional<int64_t> value = expandArithmetic(whole, state_);
    state_.variables[name] = {
        {value ? fmt::format("{}", *value) : openPart("((" + text + "))"), line_}};
    return Truth::kOpen;
  }

  Truth simple(const ShellCommand& c) {
    size_t first = 0;
    while (first < c.words.size() && isShellAssignment(c.words[first])) ++first;
    if (first == c.words.size()) {
      for (const ShellWord& word : c.words) assignShell(word, state_);
      return Truth::kTrue;
    }
    std::vector<ShellText> words;
    for (size_t i = first; i < c.words.size(); ++i)
      for (ShellText& field : expandFields(c.words[i], state_)) words.push_back(std::move(field));
    if (words.empty()) return Truth::kTrue;
    const std::vector<ShellWord> raw(c.words.begin() + static_cast<ptrdiff_t>(first) + 1,
                                     c.words.end());
    if (const std::optional<Truth> truth = builtin(words, raw)) return *truth;
    ShellState before;
    if (first > 0) before = state_;  // TP=8 command: for that command only
    for (size_t i = 0; i < first; ++i) assignShell(c.words[i], state_);
    const Truth truth = program(c, words);
    if (first > 0) state_ = std::move(before);
    return truth;
  }

  // Absent: no command of the shell itself. `raw` are the words behind the first as written.
  std::optional<Truth> builtin(const std::vector<ShellText>& words,
                               const std::vector<ShellWord>& raw) {
    const std::string& name = words[0].text;
    if (name == ":" || name == "true") return Truth::kTrue;
    if (name == "false") return Truth::kFalse;
    if (name == "test" || name == "[") {
      const size_t end = words.size() - (name == "[" && words.size() > 1 ? 1 : 0);
      return testShell({words.begin() + 1, words.begin() + static_cast<ptrdiff_t>(end)});
    }
    if (name == "export" || name == "declare" || name == "typeset" || name == "readonly" ||
        name == "local") {
      for (const ShellWord& word : raw) assignShell(word, state_);
      return Truth::kTrue;
    }
    if (name == "let") {
      for (size_t i = 1; i < words.size(); ++i) arithmetic(words[i].text);
      return Truth::kOpen;
    }
    if (name == "exit" || name == "return" || name == "break" || name == "continue") {
      flow_ = name == "exit"     ? Flow::kExit
              : name == "return" ? Flow::kReturn
              : name == "break"  ? Flow::kBreak
                                 : Flow::kContinue;
      return Truth::kTrue;
    }
    return changesVariables(name, words);
  }
  std::optional<Truth> changesVariables(const std::string& name,
                                        const std::vector<ShellText>& words) {
    if (name == "unset") {
      for (size_t i = 1; i < words.size(); ++i)
        if (words[i].text[0] != '-') state_.variables[words[i].text] = {{"", words[i].line}};
      return Truth::kTrue;
    }
    if (name == "read" || name == "mapfile" || name == "readarray" || name == "getopts") {
      for (size_t i = 1; i < words.size(); ++i)
        if (!words[i].text.empty() && isShellNameStart(words[i].text[0]))
          state_.variables[words[i].text] = {{openPart("$" + words[i].text), words[i].line}};
      return Truth::kOpen;
    }
    if (name == "shift" && state_.arguments) {
      const auto count = words.size() > 1 ? shellNumber(words[1].text) : std::optional<int64_t>(1);
      ShellValue& all = *state_.arguments;
      const auto size = static_cast<int64_t>(all.size());
      if (!count || *count < 0)
        state_.arguments.reset();
      else
        all.erase(all.begin(), all.begin() + std::min(*count, size));
      return Truth::kTrue;
    }
    if (name == "set" && words.size() > 1 && words[1].text == "--") {
      state_.arguments.emplace(words.begin() + 2, words.end());
      return Truth::kTrue;
    }
    if (isIn(kSilent, name)) return name == "cd" ? Truth::kOpen : Truth::kTrue;
    return std::nullopt;
  }

  Truth program(const ShellCommand& c, std::vector<ShellText>& words) {
    if (words[0].text == "eval") {
      std::string text;
      for (size_t i = 1; i < words.size(); ++i) text += (i > 1 ? " " : "") + words[i].text;
      const ShellList* const body = parsed(text, words.size() > 1 ? words[1].line : c.line);
      return body ? nested(*body) : Truth::kOpen;
    }
    if (const auto function = functions_.find(words[0].text); function != functions_.end())
      return call(*function->second, {words.begin() + 1, words.end()});
    if (const std::optional<size_t> at = quotedScript(words)) return quoted(words, *at);
    std::vector<ShellText> all = prefix_;
    all.insert(all.end(), words.begin(), words.end());
    run_.launches.push_back({std::move(all), c.line, loopLine_});
    const std::string_view name = baseName(words[0].text);
    if (!c.hereDocument.empty() && name != "cat" && name != "tee")
      run_.launches.back().words.push_back({c.hereDocument, c.line});
    return Truth::kOpen;
  }
  Truth call(const ShellList& body, ShellValue arguments) {
    auto outer = std::exchange(state_.arguments, std::move(arguments));
    const Truth truth = nested(body);
    state_.arguments = std::move(outer);
    if (flow_ == Flow::kReturn) flow_ = Flow::kNext;
    return truth;
  }
  // bash -c "script" name arguments: arrays and functions are not inherited.
  Truth quoted(const std::vector<ShellText>& words, size_t at) {
    const ShellList* const body = parsed(words[at].text, words[at].line);
    if (!body) return Truth::kOpen;
    ShellState inner = state_;
    std::erase_if(inner.variables, [](const auto& v) { return v.second.size() != 1; });
    const size_t first = std::min(at + 2, words.size());
    inner.arguments.emplace(words.begin() + static_cast<ptrdiff_t>(first), words.end());
    const auto outer = std::exchange(functions_, {});
    const size_t outerPrefix = prefix_.size();
    prefix_.insert(prefix_.end(), words.begin(), words.begin() + static_cast<ptrdiff_t>(at - 1));
    const Truth truth = apart(*body, std::move(inner));
    prefix_.resize(outerPrefix);
    functions_ = outer;
    return truth;
  }
  const ShellList* parsed(const std::string& text, int line) {
    charactersLeft_ -= std::min(charactersLeft_, text.size());
    Result<ShellList> body = parseShell(text, file_, line);
    if (!body.has_value()) {
      if (error_.ok()) error_ = body.error();
      return nullptr;
    }
    scripts_.push_back(*std::move(body));
    return &scripts_.back();
  }

  const std::string& file_;
  const std::vector<size_t>& choices_;
  ShellState state_;
  std::map<std::string, const ShellList*> functions_;
  std::deque<ShellList> scripts_;  // of quoted commands, whose functions may be called later
  std::vector<ShellText> prefix_;  // of the commands around
  ShellRun run_;
  Status error_;
  size_t charactersLeft_ = kMostCharacters;
  int stepsLeft_ = kMostSteps, depth_ = 0, line_ = 1, loopLine_ = 0;
  Flow flow_ = Flow::kNext;
};

}  // namespace

Result<ShellRun> runShell(const ShellInput& input, const std::vector<size_t>& choices) {
  return Runner(input, choices).run(input.script);
}

}  // namespace trireme::codegen
