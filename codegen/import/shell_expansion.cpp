#include "codegen/import/shell_expansion.h"

#include <algorithm>
#include <utility>

#include "codegen/import/shell_arithmetic.h"

namespace trireme::codegen {
namespace {

constexpr int kDeepestExpansion = 30;  // ${A:-${B:-...}}

bool isBlank(char c) { return kShellBlanks.find(c) != std::string_view::npos; }

// Slurm and MPI give these to the ranks that they start; defaults behind them are for others.
bool isOfTheLauncher(const std::string& name) {
  return name.starts_with("SLURM_") || name.starts_with("OMPI_") || name.starts_with("PMI");
}

class Expansion {
 public:
  Expansion(ShellState& state, bool splits, int line, int depth = 0)
      : state_(state), splits_(splits), line_(line), depth_(depth) {}

  void add(const std::string& text, bool isQuoted) {
    for (size_t at = 0; at < text.size();) {
      size_t end = endOfShellPart(text, at);
      if (end == std::string::npos) end = at + 1;
      at = part(text, at, end, isQuoted);
    }
  }
  std::vector<ShellText> take() {
    endWord();
    return std::move(fields_);
  }
  void startWord(int line) {
    if (!isInWord_) current_ = {"", line};
    isInWord_ = true;
  }

 private:
  void endWord() {
    if (isInWord_) fields_.push_back(std::move(current_));
    isInWord_ = false;
  }
  void take(std::string_view text) {
    startWord(line_);
    current_.text += text;
  }
  // A value: outside of quotes its blanks end words.
  void put(const ShellText& value, bool isQuoted) {
    if (!takeShellCharacters(state_, value.text.size() + 1)) return;
    if (isQuoted) startWord(value.line);
    for (size_t at = 0; at < value.text.size();) {
      const size_t end = value.text[at] == kOpenBegin ? endOfShellPart(value.text, at) : at + 1;
      if (!isQuoted && splits_ && isBlank(value.text[at])) {
        endWord();
      } else {
        startWord(value.line);
        current_.text.append(value.text, at, std::min(end, value.text.size()) - at);
      }
      at = std::min(end, value.text.size());
    }
  }
  // The items of a value; of "${A[@]}" each is a word.
  void putAll(const ShellValue& items, bool isList, bool isQuoted) {
    if (isList && isQuoted && items.empty()) isEmptyList_ = true;
    for (size_t i = 0; i < items.size(); ++i) {
      const bool isOneWord = !splits_ || (isQuoted && !isList);
      if (i > 0 && isOneWord) take(" ");
      if (i > 0 && !isOneWord) endWord();
      put(items[i], isQuoted);
    }
  }
  void open(std::string_view written) { put({openPart(written), line_}, true); }

  // Text[at..end) is what endOfShellPart says; gives where to go on.
  size_t part(const std::string& text, size_t at, size_t end, bool isQuoted) {
    const char c = text[at];
    const std::string_view whole = std::string_view(text).substr(at, end - at);
    const bool isWhole = whole.size() > 1;
    if (c == kOpenBegin || (c == '`' && isWhole)) {
      if (c == '`')
        open(whole);
      else
        take(whole);
    } else if (c == '\'' && !isQuoted && isWhole) {
      take(whole.substr(1, whole.size() - 2));
    } else if (c == '"' && isWhole) {
      add(std::string(whole.substr(1, whole.size() - 2)), true);
      if (!isEmptyList_) startWord(line_);
      isEmptyList_ = false;
    } else if (c == '\\' && isWhole) {
      const bool isEscape =
          !isQuoted || std::string_view("$`\"\\\n").find(whole[1]) != std::string_view::npos;
      if (whole[1] != '\n' || !isEscape) take(isEscape ? whole.substr(1) : whole);
    } else if (c == '$') {
      return dollar(text, at, end, isQuoted);
    } else if ((c == '<' || c == '>') && !isQuoted && text.compare(at + 1, 1, "(") == 0) {
      open(text.substr(at));
      return text.size();
    } else if (isQuoted || !splits_ || !isBlank(c)) {
      take(isQuoted && c == '\'' ? whole.substr(0, 1)
                                 : whole.substr(0, c == '(' ? 1 : whole.size()));
      return (c == '(' || c == '\'') ? at + 1 : end;
    } else {
      endWord();
    }
    return end;
  }
  size_t dollar(const std::string& text, size_t at, size_t end, bool isQuoted) {
    const char next = at + 1 < text.size() ? text[at + 1] : '\0';
    const std::string whole = text.substr(at, end - at);
    if (next == '(' && whole.starts_with("$((") && whole.ends_with("))") && whole.size() >= 5) {
      const auto number = expandArithmetic(whole.substr(3, whole.size() - 5), state_);
      if (number)
        put({std::to_string(*number), line_}, isQuoted);
      else
        open(whole);
    } else if (next == '(') {
      open(whole);
    } else if (next == '{' && whole.size() > 2) {
      braced(whole.substr(2, whole.size() - 3), whole, isQuoted);
    } else if (next == '\'' && !isQuoted && whole.size() > 2) {
      take(whole.substr(2, whole.size() - 3));
    } else {
      end = shellNameEnd(text, at + 1);
      if (end == at + 1)
        take("$");
      else
        braced(text.substr(at + 1, end - at - 1), text.substr(at, end - at), isQuoted);
    }
    return end;
  }
  // What stands in ${...}, or behind the dollar alone.
  void braced(const std::string& inner, const std::string& written, bool isQuoted) {
    if (inner.size() > 1 && inner[0] == '#') return length(inner.substr(1), written);
    size_t end = shellNameEnd(inner, 0);
    const std::string name = inner.substr(0, end);
    std::string subscript;
    if (end < inner.size() && inner[end] == '[') {
      const size_t close = std::min(inner.find(']', end), inner.size() - 1);
      subscript = inner.substr(end + 1, close - end - 1);
      end = close + 1;
    }
    const bool isList = name == "@" || subscript == "@";
    const std::optional<ShellValue> value = lookup(name, subscript);
    const std::string rest = inner.substr(end);
    if (rest.empty()) {
      if (value) return putAll(*value, isList, isQuoted);
      return open(written);
    }
    orElse(value, {name, rest, written}, isList, isQuoted);
  }
  struct Written {
    const std::string &name, &rest, &whole;
  };
  // :- - := = :+ + :? ?
  void orElse(const std::optional<ShellValue>& value, const Written& w, bool isList,
              bool isQuoted) {
    const size_t op = w.rest[0] == ':' ? 1 : 0;
    const bool isEmpty = value && std::all_of(value->begin(), value->end(),
                                              [](const ShellText& t) { return t.text.empty(); });
    const bool isGiven = value && !(isEmpty && (op == 1 || value->empty()));
    const char kind = op < w.rest.size() ? w.rest[op] : '\0';
    const std::string operand = w.rest.substr(std::min(op + 1, w.rest.size()));
    if (std::string_view("-=+?").find(kind) == std::string_view::npos || kind == '\0' ||
        ++depth_ > kDeepestExpansion)
      return open(w.whole);
    if (kind == '+') {
      if (!value) return open(w.whole);
      if (isGiven) add(operand, isQuoted);
    } else if (isGiven) {
      putAll(*value, isList, isQuoted);
    } else if (kind == '?' || isOfTheLauncher(w.name)) {
      open(w.whole);
    } else {
      if (kind == '=') {
        Expansion inner(state_, false, line_, depth_);
        inner.startWord(line_);
        inner.add(operand, false);
        state_.variables[w.name] = inner.take();
      }
      add(operand, isQuoted);
    }
    --depth_;
  }
  void length(const std::string& inner, const std::string& written) {
    const size_t end = shellNameEnd(inner, 0);
    const bool isList = inner.substr(end) == "[@]" || inner.substr(end) == "[*]" || inner == "@";
    const auto value = lookup(inner.substr(0, end), isList ? "@" : "");
    const bool isKnown =
        value &&
        (isList || (end == inner.size() && value->size() == 1 && !hasOpenPart((*value)[0].text)));
    if (!isKnown) return open(written);
    take(std::to_string(isList ? value->size() : (*value)[0].text.size()));
  }
  std::optional<ShellValue> lookup(const std::string& name, const std::string& subscript) {
    const bool isOfArguments = name == "@" || name == "*" || name == "#" ||
                               (name.size() == 1 && name[0] >= '1' && name[0] <= '9');
    if (isOfArguments) return argument(name);
    const auto found = state_.variables.find(name);
    if (found == state_.variables.end()) return std::nullopt;
    const ShellValue& items = found->second;
    if (subscript == "@" || subscript == "*") return items;
    std::optional<int64_t> index = 0;
    if (!subscript.empty()) index = expandArithmetic(subscript, state_);
    if (!index) return std::nullopt;
    if (*index < 0) *index += static_cast<int64_t>(items.size());
    const auto at = static_cast<size_t>(*index);
    if (*index < 0 || at >= items.size()) return ShellValue{{"", line_}};
    return ShellValue{items[at]};
  }
  std::optional<ShellValue> argument(const std::string& name) {
    if (!state_.arguments) return std::nullopt;
    const ShellValue& all = *state_.arguments;
    if (name == "#") return ShellValue{{std::to_string(all.size()), line_}};
    if (name == "@" || name == "*") return all;
    const auto at = static_cast<size_t>(name[0] - '1');
    if (at < all.size()) return ShellValue{all[at]};
    return std::nullopt;
  }

  ShellState& state_;
  const bool splits_;
  const int line_;
  int depth_;
  bool isInWord_ = false, isEmptyList_ = false;
  ShellText current_;
  std::vector<ShellText> fields_;
};

}  // namespace

std::vector<ShellText> expandFields(const ShellWord& word, ShellState& state) {
  if (!takeShellCharacters(state, word.text.size())) return {};
  Expansion expansion(state, true, word.line);
  expansion.add(word.text, false);
  return expansion.take();
}

std::string expandText(const ShellWord& word, ShellState& state) {
  if (!takeShellCharacters(state, word.text.size())) return "";
  Expansion expansion(state, false, word.line);
  expansion.add(word.text, false);
  std::string text;
  for (const ShellText& field : expansion.take()) text += field.text;
  return text;
}

std::optional<int64_t> expandArithmetic(const std::string& text, ShellState& state) {
  // Names without a dollar stay, and are looked up below.
  std::string plain = text;
  std::erase(plain, '"');
  const std::string expanded = expandText({plain, 1, {}}, state);
  if (hasOpenPart(expanded)) return std::nullopt;
  return shellArithmetic(expanded, [&](const std::string& name) -> std::optional<std::string> {
    const auto found = state.variables.find(name);
    if (found == state.variables.end() || found->second.size() != 1) return std::nullopt;
    return found->second[0].text;
  });
}

}  // namespace trireme::codegen
