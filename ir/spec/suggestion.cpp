#include "ir/spec/suggestion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

namespace trireme::spec {

size_t editDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

std::string lowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

// Those that have it as a word, or as some of their words: "dgx-h100" of "h100".
static std::vector<std::string> thatHave(std::string_view wrong,
                                         const std::vector<std::string>& candidates) {
  const auto isWord = [](char c) { return c != '-' && c != '_'; };
  std::vector<std::string> found;
  for (const std::string& candidate : candidates) {
    const size_t begin = lowerCase(candidate).find(lowerCase(wrong));
    if (wrong.empty() || begin == std::string::npos) continue;
    const size_t end = begin + wrong.size();
    const bool isWhole = (begin == 0 || !isWord(candidate[begin - 1])) &&
                         (end == candidate.size() || !isWord(candidate[end]));
    if (isWhole) found.push_back(fmt::format("'{}'", candidate));
  }
  return found;
}

std::string suggestion(std::string_view wrong, const std::vector<std::string>& candidates) {
  constexpr size_t kLongestKey = 64;  // Nothing longer is near a key of ours.
  constexpr size_t kMostNamed = 6;
  const std::vector<std::string> having = thatHave(wrong, candidates);
  if (!having.empty() && having.size() <= kMostNamed)
    return fmt::format("; did you mean {}?", fmt::join(having, " or "));
  const std::string* best = nullptr;
  size_t bestDistance = std::max<size_t>(2, wrong.size() / 3) + 1;
  if (wrong.size() <= kLongestKey)
    for (const std::string& candidate : candidates)
      if (const size_t distance = editDistance(lowerCase(wrong), lowerCase(candidate));
          distance < bestDistance) {
        best = &candidate;
        bestDistance = distance;
      }
  if (best) return fmt::format("; did you mean '{}'?", *best);
  return fmt::format("; valid: {}", fmt::join(candidates, ", "));
}

}  // namespace trireme::spec
