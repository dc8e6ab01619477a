// Values of variables: how they are set, and what of them is open.
#include <algorithm>
#include <utility>

#include "codegen/import/shell_expansion.h"

namespace trireme::codegen {
namespace {

constexpr size_t kMostShown = 60;

// Where the operator of NAME=, NAME+= or NAME[...]= begins; npos if `text` is no assignment.
size_t assignmentEnd(const std::string& text) {
  if (text.empty() || !isShellNameStart(text[0])) return std::string::npos;
  size_t end = shellNameEnd(text, 0);
  if (end < text.size() && text[end] == '[')
    end = std::min(text.find(']', end), text.size() - 1) + 1;
  const bool isOne = text.compare(end, 1, "=") == 0 || text.compare(end, 2, "+=") == 0;
  return isOne ? end : std::string::npos;
}

}  // namespace

size_t shellNameEnd(const std::string& text, size_t begin) {
  size_t end = begin;
  if (end < text.size() && isShellNameStart(text[end]))
    while (end < text.size() && isShellNameChar(text[end])) ++end;
  else if (end < text.size() &&
           std::string_view("@*#?$!-0123456789").find(text[end]) != std::string_view::npos)
    ++end;
  return end;
}

bool isShellAssignment(const ShellWord& word) {
  return assignmentEnd(word.text) != std::string::npos;
}

bool assignShell(const ShellWord& word, ShellState& state) {
  const size_t end = assignmentEnd(word.text);
  if (end == std::string::npos) return false;
  const bool adds = word.text[end] == '+';
  const std::string name = word.text.substr(0, shellNameEnd(word.text, 0));
  const std::string value = word.text.substr(end + (adds ? 2 : 1));
  const bool isSet = state.variables.contains(name);
  ShellValue made;
  if (adds && isSet) made = state.variables[name];
  if (adds && !isSet) made.push_back({openPart("$" + name), word.line});
  if (name.size() != end) {
    made = {{openPart("${" + name + "[@]}"), word.line}};
  } else if (word.elements) {
    if (adds && !isSet) made.clear();  // an array that begins here
    const bool hasKeys = std::any_of(word.elements->begin(), word.elements->end(),
                                     [](const ShellWord& w) { return w.text[0] == '['; });
    if (hasKeys) made = {{openPart("${" + name + "[@]}"), word.line}};
    for (const ShellWord& element : *word.elements)
      for (ShellText& field : expandFields(element, state))
        if (!hasKeys) made.push_back(std::move(field));
  } else {
    const std::string text = expandText({value, word.line, {}}, state);
    if (!adds || made.empty()) made = {{"", word.line}};
    made[0].text += text;
  }
  // A value counts when it is kept, too: += in a loop grows without being read.
  size_t size = 0;
  for (const ShellText& item : made) size += item.text.size() + 1;
  if (takeShellCharacters(state, size)) state.variables[name] = std::move(made);
  return true;
}

bool takeShellCharacters(ShellState& state, size_t count) {
  if (!state.charactersLeft) return true;
  const bool isEnough = *state.charactersLeft > count;
  *state.charactersLeft -= isEnough ? count : *state.charactersLeft;
  return isEnough;
}

std::string openPart(std::string_view written) {
  std::string shown(written.substr(0, kMostShown));
  std::erase_if(shown, [](char c) { return c == kOpenBegin || c == kOpenEnd; });
  std::replace(shown.begin(), shown.end(), '\n', ' ');
  if (written.size() > kMostShown) shown += "...";
  return kOpenBegin + shown + kOpenEnd;
}

bool hasOpenPart(const std::string& text) { return text.find(kOpenBegin) != std::string::npos; }

std::string shownShell(const std::string& text) {
  std::string shown = text;
  std::erase_if(shown, [](char c) { return c == kOpenBegin || c == kOpenEnd; });
  return shown;
}

}  // namespace trireme::codegen
