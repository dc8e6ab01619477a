#include "ir/base/rng.h"

#include <algorithm>
#include <cmath>

namespace trireme {
namespace {

std::array<double, 4> normalsOf(const RngWords& words) {
  std::array<double, 4> values;
  for (size_t i = 0; i < 4; i += 2) {
    const double u = (words[i] + 1.0) * (1.0 / 4294967296.0);
    const double angle = 6.283185307179586 * (words[i + 1] * (1.0 / 4294967296.0));
    const double radius = std::sqrt(-2.0 * std::log(u));
    values[i] = radius * std::cos(angle);
    values[i + 1] = radius * std::sin(angle);
  }
  return values;
}

}  // namespace

void randomNormals(RngKey key, uint64_t tensor, uint64_t first, std::span<double> values) {
  for (size_t done = 0; done < values.size();) {
    const uint64_t element = first + done, skip = element & 3;
    const std::array<double, 4> quad = normalsOf(randomWords(key, tensor, element >> 2));
    const size_t count = std::min<size_t>(4 - skip, values.size() - done);
    std::copy_n(quad.begin() + skip, count, values.begin() + done);
    done += count;
  }
}

}  // namespace trireme
