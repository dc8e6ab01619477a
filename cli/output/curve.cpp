#include "cli/output/curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace trireme::cli {
namespace {

// The mean of each column's values; of those that are not finite, nothing is left but NaN.
std::vector<double> toColumns(const std::vector<double>& values, size_t width) {
  std::vector<double> columns;
  for (size_t i = 0; i < width; ++i) {
    const size_t begin = i * values.size() / width, end = (i + 1) * values.size() / width;
    double sum = 0;
    for (size_t j = begin; j < end; ++j) sum += values[j];
    columns.push_back(sum / static_cast<double>(end - begin));
  }
  return columns;
}

}  // namespace

std::string drawCurve(const std::vector<double>& values, int64_t first, int width, int height) {
  const std::vector<double> columns =
      toColumns(values, std::min(values.size(), static_cast<size_t>(width)));
  double low = INFINITY, high = -INFINITY;
  for (const double value : columns) {
    if (!std::isfinite(value)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  if (low > high) return "";

  std::vector<std::string> rows(static_cast<size_t>(height), std::string(columns.size(), ' '));
  for (size_t i = 0; i < columns.size(); ++i) {
    if (!std::isfinite(columns[i])) continue;
    const double place = high == low ? 0 : (high - columns[i]) / (high - low);
    rows[static_cast<size_t>(std::lround(place * (height - 1)))][i] = '*';
  }
  const std::string labels[] = {fmt::format("{:.4g}", high), fmt::format("{:.4g}", low)};
  const size_t margin = std::max(labels[0].size(), labels[1].size());
  std::string text;
  for (size_t row = 0; row < rows.size(); ++row) {
    const bool isEnd = row == 0 || row + 1 == rows.size();
    rows[row].erase(rows[row].find_last_not_of(' ') + 1);
    text += fmt::format("  {:>{}} |{}\n", isEnd ? labels[row == 0 ? 0 : 1] : "", margin, rows[row]);
  }
  const std::string last = fmt::format("{}", first + static_cast<int64_t>(values.size()) - 1);
  const std::string start = fmt::format("{}", first);
  const size_t rest = std::max(columns.size(), start.size() + 1 + last.size()) - start.size();
  text += fmt::format("  {:>{}} +{}\n", "", margin, std::string(columns.size(), '-'));
  text +=
      fmt::format("  {:>{}}  {}{:>{}}\n", "", margin, start, values.size() > 1 ? last : "", rest);
  text.erase(text.find_last_not_of(" \n") + 1);
  return text + "\n";
}

}  // namespace trireme::cli
