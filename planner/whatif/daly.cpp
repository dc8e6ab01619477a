#include "planner/whatif/daly.h"

#include <algorithm>
#include <cmath>

#include "ir/spec/cluster_spec.h"

namespace trireme::planner {
namespace {

// The chance that at least `needed` of `owned` nodes work over the chance that one less does, or
// any number above `enough`; either chance alone may be too small for a double.
double tailRatio(int64_t needed, int64_t owned, double upOverDown, double enough) {
  double term = 1, sum = 0;
  for (int64_t working = needed; working <= owned; ++working) {
    term *= static_cast<double>(owned - working + 1) / static_cast<double>(working) * upOverDown;
    sum += term;
    if (sum > enough || term < sum * 1e-17) break;
  }
  return sum;
}

}  // namespace

Seconds youngInterval(const FailureRate& rate) {
  return Seconds(std::sqrt(2 * rate.save.count() * rate.meanBetween.count()));
}

Seconds dalyInterval(const FailureRate& rate) {
  const double ratio = rate.save / (rate.meanBetween * 2);
  if (ratio >= 1) return rate.meanBetween;
  return youngInterval(rate) * (1 + std::sqrt(ratio) / 3 + ratio / 9) - rate.save;
}

double goodputOf(const FailureRate& rate, Seconds interval) {
  const double m = rate.meanBetween.count(), t = interval.count();
  if (!(t > 0)) return std::exp(-rate.restart.count() / m);  // saved all the time, for nothing
  const double passes =
      std::exp(rate.restart.count() / m) * std::expm1((t + rate.save.count()) / m);
  return t / (m * passes);
}

double availabilityOf(int64_t needed, int64_t owned, Seconds meanBetween, Seconds repair) {
  const double up = meanBetween / (meanBetween + repair);
  const auto n = static_cast<double>(owned);
  const double mean = n * (repair / (meanBetween + repair));
  // Fifty standard deviations above the mean nothing is left.
  const double most =
      std::min(static_cast<double>(owned - needed), std::ceil(mean + 50 * (1 + std::sqrt(mean))));
  double chance = 0;
  for (auto down = static_cast<int64_t>(most); down >= 0; --down) {
    const auto k = static_cast<double>(down);
    // C(n, k) by logarithms: n goes to millions.
    double log =
        std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) + (n - k) * std::log(up);
    if (down > 0) log += k * std::log1p(-up);
    const double term = std::exp(log);
    chance += term;
    if (k < mean && term <= chance * 1e-17) break;  // what follows is less
  }
  return std::min(1.0, chance);
}

int64_t cheapestOwned(int64_t needed, int64_t owned, double extra, Seconds meanBetween,
                      Seconds repair) {
  const double up = meanBetween / (meanBetween + repair);
  const auto isOneMoreWorthIt = [&](int64_t n) {
    const double enough = (static_cast<double>(n) + extra) * up;
    return tailRatio(needed, n, meanBetween / repair, enough) < enough;
  };
  int64_t few = owned - 1, many = owned;  // one more than `few` is worth it
  while (many < spec::kMaxDevices && isOneMoreWorthIt(many)) {
    few = many;
    many = std::min(spec::kMaxDevices, many * 2);
  }
  while (many - few > 1) {
    const int64_t middle = few + (many - few) / 2;
    (isOneMoreWorthIt(middle) ? few : many) = middle;
  }
  return many;
}

}  // namespace trireme::planner
