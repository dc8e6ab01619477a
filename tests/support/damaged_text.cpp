#include "tests/support/damaged_text.h"

#include <algorithm>
#include <random>
#include <vector>

namespace trireme {
namespace {

// With their ends of line.
std::vector<std::string> linesOf(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    lines.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return lines;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line;
  return text;
}

}  // namespace

void damageBytes(const std::string& valid, std::string_view bytes, int count, size_t most,
                 const TextCheck& check) {
  std::mt19937 random(7);
  for (int i = 0; i < count; ++i) {
    std::string text = valid;
    for (size_t n = 1 + random() % most; n > 0 && !text.empty(); --n) {
      const size_t at = random() % text.size();
      const char byte = bytes[random() % bytes.size()];
      switch (random() % 3) {
        case 0:
          text[at] = byte;
          break;
        case 1:
          text.insert(at, 1, byte);
          break;
        default:
          text.erase(at, 1 + random() % 8);
          break;
      }
    }
    check(text);
  }
}

void damageNumbers(const std::string& valid, std::span<const char* const> numbers,
                   const TextCheck& check) {
  for (size_t begin = valid.find_first_of("0123456789"); begin != std::string::npos;) {
    const size_t end = std::min(valid.find_first_not_of("0123456789.e-", begin), valid.size());
    for (const char* number : numbers) check(valid.substr(0, begin) + number + valid.substr(end));
    begin = valid.find_first_of("0123456789", end);
  }
}

void damageLines(const std::string& valid, size_t step, const TextCheck& check) {
  const std::vector<std::string> lines = linesOf(valid);
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto place = static_cast<std::ptrdiff_t>(i);
    std::vector<std::string> changed = lines;
    changed.erase(changed.begin() + place);
    check(joined(changed));
    for (size_t j = i % step; j < lines.size(); j += step) {
      changed = lines;
      std::swap(changed[i], changed[j]);
      check(joined(changed));
      changed = lines;
      changed.insert(changed.begin() + place, lines[j]);
      check(joined(changed));
    }
  }
}

void endEarly(const std::string& valid, size_t step, const TextCheck& check) {
  for (size_t size = 0; size <= valid.size(); size += step) check(valid.substr(0, size));
}

}  // namespace trireme
