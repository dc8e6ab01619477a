#include "ir/spec/print.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace trireme::spec {
namespace {

bool isLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool isPlainCharacter(char c) {
  return isLetter(c) || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
}

bool isPlainText(const std::string& text) {
  constexpr std::array<std::string_view, 9> kOther = {"null", "Null",  "NULL",  "true", "True",
                                                      "TRUE", "false", "False", "FALSE"};
  return !text.empty() && isLetter(text[0]) &&
         std::all_of(text.begin(), text.end(), isPlainCharacter) &&
         std::find(kOther.begin(), kOther.end(), text) == kOther.end();
}

}  // namespace

std::string printText(const std::string& text) {
  if (isPlainText(text)) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      quoted += {'\\', c};
    else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)
      quoted += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    else
      quoted += c;
  }
  return quoted + "\"";
}

}  // namespace trireme::spec
