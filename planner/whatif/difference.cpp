#include "planner/whatif/difference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ir/base/format.h"
#include "planner/parts.h"
#include "planner/search/search.h"
#include "planner/supported.h"

namespace trireme::planner {
namespace {

// A power of ten, so that six digits of the longer step are seen.
Seconds unitOf(Seconds longest) {
  double unit = 1e-9;
  while (longest.count() / unit > 1e6) unit *= 10;
  return Seconds(unit);
}

Status checkPossible(const plan::Plan& plan, const Query& query) {
  TRIREME_RETURN_IF_ERROR(checkSupported(plan, query.model, withStackOnDevice(query).stack));
  TRIREME_RETURN_IF_ERROR(plan::verifyPlan(plan, query.model));
  const int64_t devices = query.pins.gpus.value_or(query.cluster.numDevices);
  if (plan.numRanks() <= devices) return {};
  return invalidArgument(
      fmt::format("it needs {} devices, there are {}", plan.numRanks(), devices));
}

Result<cost::Estimate> priceIfPossible(const plan::Plan& plan, const Query& query) {
  TRIREME_RETURN_IF_ERROR(checkPossible(plan, query));
  return cost::estimate(query.model, plan, query.cluster, query.stack);
}

// What the plan takes under another query than its own.
void priceSamePlan(const plan::Plan& plan, const Query& query, Difference& difference) {
  const Result<cost::Estimate> estimate = priceIfPossible(plan, query);
  if (!estimate.has_value())
    difference.noSamePlan = fmt::format("is not possible after: {}", estimate.error().message());
  else if (!estimate->fits())
    difference.noSamePlan =
        fmt::format("does not fit after: {} too much memory", formatBytes(estimate->missing()));
  else
    difference.samePlan = estimate->step;
}

}  // namespace

std::vector<int64_t> roundedToSum(const std::vector<double>& values) {
  std::vector<int64_t> rounded;
  std::vector<std::pair<double, size_t>> lost;  // the most first
  for (size_t i = 0; i < values.size(); ++i) {
    rounded.push_back(static_cast<int64_t>(std::floor(values[i])));
    lost.emplace_back(std::floor(values[i]) - values[i], i);
  }
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  int64_t missing = std::llround(sum) - std::accumulate(rounded.begin(), rounded.end(), int64_t{0});
  std::stable_sort(lost.begin(), lost.end());
  for (size_t i = 0; i < lost.size() && missing > 0; ++i, --missing) ++rounded[lost[i].second];
  return rounded;
}

Difference differenceOf(Side before, Side after) {
  Difference result;
  result.unit = unitOf(std::max(before.estimate.step, after.estimate.step));
  const auto a = breakdownParts(before.estimate.breakdown);
  const auto b = breakdownParts(after.estimate.breakdown);
  std::vector<double> changes;
  for (size_t i = 0; i < a.size(); ++i) changes.push_back((b[i].time - a[i].time) / result.unit);
  const std::vector<int64_t> rounded = roundedToSum(changes);
  for (size_t i = 0; i < a.size(); ++i)
    result.parts.push_back({a[i].name, a[i].time, b[i].time, rounded[i]});
  result.change = std::accumulate(rounded.begin(), rounded.end(), int64_t{0});
  result.before = std::move(before);
  result.after = std::move(after);
  return result;
}

Result<Difference> compareQueries(const std::string& beforeName, const Query& before,
                                  const std::string& afterName, const Query& after) {
  Result<PlanResult> a = searchPlan(before), b = searchPlan(after);
  if (!a.has_value()) return Error(a.error().withContext(beforeName));
  if (!b.has_value()) return Error(b.error().withContext(afterName));
  Difference result =
      differenceOf({beforeName, a->plan, a->estimate}, {afterName, b->plan, b->estimate});
  plan::Plan same = a->plan;
  same.training = after.training;
  same.stack = b->plan.stack;
  same.devicesPerHost = b->plan.numRanks() == same.numRanks() ? b->plan.devicesPerHost : 0;
  priceSamePlan(same, after, result);
  return result;
}

}  // namespace trireme::planner
