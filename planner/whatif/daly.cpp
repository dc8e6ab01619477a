#include "planner/whatif/daly.h"

#include <algorithm>
#include <cmath>

namespace trireme::planner {

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
  double chance = 0;
  for (int64_t down = 0; down <= owned - needed; ++down) {
    const auto k = static_cast<double>(down);
    // C(n, k) by logarithms: n goes to millions.
    double log =
        std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) + (n - k) * std::log(up);
    if (down > 0) log += k * std::log1p(-up);
    chance += std::exp(log);
  }
  return std::min(1.0, chance);
}

}  // namespace trireme::planner
