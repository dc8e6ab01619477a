// Statistics of predictions against measurements. Every definition is stated, because several are
// in use.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

namespace trireme::cost {

// Percentile p in [0, 1] of a non-empty sample: the ordered values stand at 0, 1/(n-1) ... 1, and
// between them it is linear (the default of NumPy, type 7 of Hyndman and Fan 1996). One value is
// every percentile.
double percentile(std::vector<double> values, double p);
// percentile(values, 0.5): the middle value, or the mean of the two middle ones.
double median(std::vector<double> values);

// Errors (predicted - measured) / measured of one group.
struct ErrorSummary {
  int64_t count = 0;
  double medianAbsolute = 0;
  double meanAbsolute = 0;
  double p90Absolute = 0;
  double meanSigned = 0;  // above 0: predictions are too slow
  double worst = 0;       // the one of the largest magnitude, signed; the first of several
  int64_t worstIndex = -1;
};
// All zero, worstIndex -1, of no errors.
ErrorSummary summarize(const std::vector<double>& errors);

// Ranks 1..n of the values; equal ones share the mean of their ranks.
std::vector<double> ranksOf(const std::vector<double>& values);

// Spearman's rank correlation: Pearson's of the ranks, in [-1, 1]. None where it is not defined:
// fewer than two pairs, or all values of one side equal. Requires as many of each.
std::optional<double> spearman(const std::vector<double>& a, const std::vector<double>& b);

// What choosing by prediction costs: with i the choice with the least prediction,
//   measured[i] / min measured - 1, at least 0.
// Of several least predictions the one that was measured slowest counts: the choice between them is
// luck. Requires as many of each, at least one, measured above 0.
double regret(const std::vector<double>& predicted, const std::vector<double>& measured);

}  // namespace trireme::cost
