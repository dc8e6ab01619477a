#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "codegen/import/shell_arithmetic.h"
#include "codegen/import/shell_runner.h"
#include "codegen/import/words.h"

namespace trireme::codegen {
namespace {

using Truth = ShellTruth;

// Commands of the shell that set nothing and launch nothing.
constexpr std::array<std::string_view, 14> kSilent = {"echo",  "printf", "set",   "cd",    "trap",
                                                      "wait",  "ulimit", "umask", "alias", "shopt",
                                                      "pushd", "popd",   "mkdir", "module"};
constexpr std::array<std::string_view, 5> kShells = {"bash", "sh", "zsh", "dash", "ksh"};

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

}  // namespace

Truth ShellRunner::arithmetic(const std::string& text) {
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

Truth ShellRunner::simple(const ShellCommand& c) {
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
  if (words[0].text == "read" && !c.hereDocument.empty()) {
    readHere(c, words.back().text);
    return Truth::kOpen;
  }
  if (const std::optional<Truth> truth = builtin(words, raw)) return *truth;
  ShellState before;
  if (first > 0) {  // TP=8 command: for that command only
    takeState();
    before = state_;
  }
  for (size_t i = 0; i < first; ++i) assignShell(c.words[i], state_);
  const Truth truth = program(c, words);
  if (first > 0) state_ = std::move(before);
  return truth;
}

// A copy of all variables is about to be made.
void ShellRunner::takeState() {
  size_t size = 0;
  for (const auto& [name, value] : state_.variables)
    for (const ShellText& item : value) size += item.text.size() + 1;
  takeShellCharacters(state_, size);
}

// read -d '' NAME <<EOF: in a here-document double quotes are characters like others.
void ShellRunner::readHere(const ShellCommand& c, const std::string& name) {
  std::string text = c.hereDocument;
  if (!c.isHereLiteral) {
    for (size_t at = text.find('"'); at != std::string::npos; at = text.find('"', at + 2))
      text.insert(at, 1, '\\');
    text = expandText({"\"" + text + "\"", c.line + 1, {}}, state_);
  }
  state_.variables[name] = {{std::move(text), c.line + 1}};
}

// Inside of a function: until it returns.
void ShellRunner::hide(const std::vector<ShellWord>& names) {
  if (hidden_.empty()) return;
  for (const ShellWord& word : names) {
    const std::string name = word.text.substr(0, shellNameEnd(word.text, 0));
    const auto found = state_.variables.find(name);
    hidden_.back().try_emplace(name, found == state_.variables.end()
                                         ? std::nullopt
                                         : std::optional<ShellValue>(found->second));
  }
}

std::optional<Truth> ShellRunner::builtin(const std::vector<ShellText>& words,
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
    if (name == "local" || name == "declare" || name == "typeset") hide(raw);
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

std::optional<Truth> ShellRunner::changesVariables(const std::string& name,
                                                   const std::vector<ShellText>& words) {
  if (name == "unset") {
    for (size_t i = 1; i < words.size(); ++i)
      if (words[i].text[0] != '-') state_.variables[words[i].text] = {{"", words[i].line}};
    return Truth::kTrue;
  }
  if (name == "printf" && words.size() > 2 && words[1].text == "-v") {
    state_.variables[words[2].text] = {{openPart("$" + words[2].text), words[2].line}};
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

Truth ShellRunner::program(const ShellCommand& c, std::vector<ShellText>& words) {
  if (words[0].text == "eval") {
    std::string text;
    for (size_t i = 1; i < words.size(); ++i) text += (i > 1 ? " " : "") + words[i].text;
    const ShellList* const body = parsed(text, words.size() > 1 ? words[1].line : c.line);
    return body ? nested(*body) : Truth::kOpen;
  }
  if (const auto function = functions_.find(words[0].text); function != functions_.end())
    return call(*function->second, {words.begin() + 1, words.end()});
  if (const std::optional<size_t> at = quotedScript(words)) return quoted(words, *at);
  for (const ShellText& word : prefix_) takeShellCharacters(state_, word.text.size() + 1);
  std::vector<ShellText> all = prefix_;
  all.insert(all.end(), words.begin(), words.end());
  run_.launches.push_back({std::move(all), c.line, loopLine_, prefix_.size(), {}});
  constexpr const char* kOfKernels = "NVTE_";
  for (auto at = state_.variables.lower_bound(kOfKernels);
       at != state_.variables.end() && at->first.starts_with(kOfKernels); ++at)
    for (const ShellText& value : at->second)
      run_.launches.back().kernelVariables.push_back(
          {fmt::format("{}={}", at->first, value.text), value.line});
  const std::string_view name = baseName(words[0].text);
  if (!c.hereDocument.empty() && name != "cat" && name != "tee")
    run_.launches.back().words.push_back({c.hereDocument, c.line});
  return Truth::kOpen;
}

Truth ShellRunner::call(const ShellList& body, ShellValue arguments) {
  auto outer = std::exchange(state_.arguments, std::move(arguments));
  hidden_.emplace_back();
  const Truth truth = nested(body);
  for (auto& [name, value] : hidden_.back()) {
    if (value)
      state_.variables[name] = *std::move(value);
    else
      state_.variables.erase(name);
  }
  hidden_.pop_back();
  state_.arguments = std::move(outer);
  if (flow_ == Flow::kReturn) flow_ = Flow::kNext;
  return truth;
}

Truth ShellRunner::quoted(const std::vector<ShellText>& words, size_t at) {
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

const ShellList* ShellRunner::parsed(const std::string& text, int line) {
  takeShellCharacters(state_, text.size());
  Result<ShellList> body = parseShell(text, file_, line);
  if (!body.has_value()) {
    if (error_.ok()) error_ = body.error();
    return nullptr;
  }
  scripts_.push_back(*std::move(body));
  return &scripts_.back();
}

}  // namespace trireme::codegen
