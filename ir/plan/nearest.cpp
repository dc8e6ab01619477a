#include "ir/plan/nearest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

namespace trireme::plan {

std::string nearest(int64_t wanted, int64_t limit, const std::function<bool(int64_t)>& isValid) {
  constexpr int64_t kFarthest = 1 << 16;  // Nothing farther is near; keeps the search short.
  std::vector<int64_t> found;
  const int64_t start = std::min(wanted - 1, limit);
  for (int64_t below = start; below >= 1 && below > start - kFarthest && found.empty(); --below)
    if (isValid(below)) found.push_back(below);
  const size_t numBelow = found.size();
  for (int64_t above = wanted + 1;
       above <= limit && above <= wanted + kFarthest && found.size() == numBelow; ++above)
    if (isValid(above)) found.push_back(above);
  return found.empty() ? "" : fmt::format("; nearest: {}", fmt::join(found, " or "));
}

std::string nearestDivisor(int64_t wanted, int64_t number) {
  return nearest(wanted, number, [=](int64_t value) { return number % value == 0; });
}

std::string nearestMultiple(int64_t number, int64_t factor) {
  const int64_t below = number / factor * factor;
  if (below < factor) return fmt::format("; nearest: {}", factor);
  return fmt::format("; nearest: {} or {}", below, below + factor);
}

}  // namespace trireme::plan
