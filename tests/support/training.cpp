#include "tests/support/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ir/base/rng.h"

namespace trireme::equivalence {

Status SyntheticData::sample(uint64_t index, int64_t length, int64_t stride, int32_t* tokens,
                             int32_t* labels) {
  const auto token = [&](int64_t i) {
    const uint32_t word = randomWord({7, 11}, index, static_cast<uint64_t>(i));
    const uint32_t start = randomWord({3, 5}, index, 0);
    const uint64_t value = word % 8 == 0 ? word / 8 : start + static_cast<uint64_t>(i) * 3;
    return static_cast<int32_t>(value % static_cast<uint64_t>(vocabSize_));
  };
  for (int64_t i = 0; i < length; ++i) {
    if (tokens != nullptr) tokens[i * stride] = token(i);
    if (labels != nullptr) labels[i * stride] = token(i + 1);
  }
  return {};
}

std::string compareTensors(const std::vector<runtime::NamedTensor>& expected,
                           const std::vector<runtime::NamedTensor>& actual,
                           const Tolerance& tolerance) {
  if (expected.size() != actual.size())
    return fmt::format("{} tensors expected, {} found", expected.size(), actual.size());
  double normSquared = 0;
  for (const auto& tensor : expected)
    for (double v : tensor.values) normSquared += v * v;
  std::string message;
  double worst = 1;
  for (size_t t = 0; t < expected.size(); ++t) {
    if (expected[t].name != actual[t].name || expected[t].dims != actual[t].dims)
      return fmt::format("tensor {} is {} instead of {}", t, actual[t].name, expected[t].name);
    double largest = 0;
    for (double v : expected[t].values) largest = std::max(largest, std::fabs(v));
    const double allowed = tolerance.relative * largest + tolerance.ofNorm * std::sqrt(normSquared);
    for (size_t i = 0; i < expected[t].values.size(); ++i) {
      const double difference = std::fabs(expected[t].values[i] - actual[t].values[i]);
      if (difference <= allowed && !std::isnan(difference)) continue;
      const double excess = allowed > 0 && !std::isnan(difference) ? difference / allowed : 1e300;
      if (excess < worst) continue;
      worst = excess;
      message = fmt::format("{}[{}]: {} instead of {}, difference {:.3g}, allowed {:.3g}",
                            expected[t].name, i, actual[t].values[i], expected[t].values[i],
                            difference, allowed);
    }
  }
  return message;
}

std::string compareLosses(const std::vector<double>& expected, const std::vector<double>& actual,
                          double relative) {
  if (expected.size() != actual.size()) return "different numbers of steps";
  for (size_t i = 0; i < expected.size(); ++i)
    if (!(std::fabs(expected[i] - actual[i]) <= relative * std::fabs(expected[i])))
      return fmt::format("step {}: loss {:.17g} instead of {:.17g}, relative difference {:.3g}",
                         i + 1, actual[i], expected[i], std::fabs(actual[i] / expected[i] - 1));
  return "";
}

double cosine(const std::vector<runtime::NamedTensor>& a,
              const std::vector<runtime::NamedTensor>& b) {
  double product = 0, squaresA = 0, squaresB = 0;
  for (size_t t = 0; t < std::min(a.size(), b.size()); ++t)
    for (size_t i = 0; i < std::min(a[t].values.size(), b[t].values.size()); ++i) {
      product += a[t].values[i] * b[t].values[i];
      squaresA += a[t].values[i] * a[t].values[i];
      squaresB += b[t].values[i] * b[t].values[i];
    }
  return product / std::sqrt(squaresA * squaresB);
}

}  // namespace trireme::equivalence
