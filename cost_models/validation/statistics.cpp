#include "cost_models/validation/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ir/base/status.h"

namespace trireme::cost {

double percentile(std::vector<double> values, double p) {
  TRIREME_CHECK(!values.empty() && p >= 0 && p <= 1);
  std::sort(values.begin(), values.end());
  const double place = p * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
}

double median(std::vector<double> values) { return percentile(std::move(values), 0.5); }

ErrorSummary summarize(const std::vector<double>& errors) {
  ErrorSummary summary;
  if (errors.empty()) return summary;
  std::vector<double> magnitudes;
  for (size_t i = 0; i < errors.size(); ++i) {
    magnitudes.push_back(std::abs(errors[i]));
    summary.meanAbsolute += magnitudes[i];
    summary.meanSigned += errors[i];
    if (summary.worstIndex >= 0 && magnitudes[i] <= std::abs(summary.worst)) continue;
    summary.worst = errors[i];
    summary.worstIndex = static_cast<int64_t>(i);
  }
  summary.count = static_cast<int64_t>(errors.size());
  summary.meanAbsolute /= static_cast<double>(errors.size());
  summary.meanSigned /= static_cast<double>(errors.size());
  summary.medianAbsolute = median(magnitudes);
  summary.p90Absolute = percentile(std::move(magnitudes), 0.9);
  return summary;
}

std::vector<double> ranksOf(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t first = 0; first < order.size();) {
    size_t end = first;
    while (end < order.size() && values[order[end]] == values[order[first]]) ++end;
    // Ranks first + 1 .. end.
    const double shared = (static_cast<double>(first + 1) + static_cast<double>(end)) / 2;
    for (; first < end; ++first) ranks[order[first]] = shared;
  }
  return ranks;
}

std::optional<double> spearman(const std::vector<double>& a, const std::vector<double>& b) {
  TRIREME_CHECK(a.size() == b.size());
  const std::vector<double> x = ranksOf(a), y = ranksOf(b);
  const double mean = (static_cast<double>(a.size()) + 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  if (xx == 0 || yy == 0) return std::nullopt;
  return std::clamp(xy / std::sqrt(xx * yy), -1.0, 1.0);
}

double regret(const std::vector<double>& predicted, const std::vector<double>& measured) {
  TRIREME_CHECK(predicted.size() == measured.size() && !predicted.empty());
  const double least = *std::min_element(predicted.begin(), predicted.end());
  const double best = *std::min_element(measured.begin(), measured.end());
  double chosen = 0;
  for (size_t i = 0; i < predicted.size(); ++i)
    if (predicted[i] == least) chosen = std::max(chosen, measured[i]);
  return chosen / best - 1;
}

}  // namespace trireme::cost
