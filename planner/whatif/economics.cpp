#include "planner/whatif/economics.h"

#include <cmath>
#include <limits>

namespace trireme::planner {
namespace {

constexpr double kHour = 3600;

Goodput goodputOf(const Training& training, const FailureModel& model) {
  Goodput result;
  result.rate.meanBetween = model.deviceMeanBetween / static_cast<double>(training.gpus);
  result.rate.save = training.checkpoint / model.checkpointBandwidth;
  result.rate.restart = model.restart;
  result.young = youngInterval(result.rate);
  result.interval = dalyInterval(result.rate);
  result.goodput = goodputOf(result.rate, result.interval);
  result.spares = model.spares.value_or(0);
  if (!model.repair) return result;
  const int64_t nodes = (training.gpus + training.perNode - 1) / training.perNode;
  const Seconds nodeMeanBetween = model.deviceMeanBetween / static_cast<double>(training.perNode);
  const auto available = [&](int64_t spares) {
    return availabilityOf(nodes, nodes + spares, nodeMeanBetween, *model.repair);
  };
  result.availability = available(result.spares);
  if (model.spares) return result;
  // Cheapest: the least nodes paid for over availability, which has one minimum; the chance of a
  // node more than the mean that is down rises steeply, so that a few steps without gain are
  // enough.
  const auto priceOf = [&](int64_t spares, double availability) {
    return static_cast<double>(nodes + spares) / availability;
  };
  double best = priceOf(0, result.availability);
  for (int64_t spares = 1; spares <= nodes; ++spares) {
    const double availability = available(spares);
    if (const double price = priceOf(spares, availability); price < best) {
      best = price;
      result.spares = spares;
      result.availability = availability;
    } else if (availability > 0.5) {
      break;
    }
  }
  return result;
}

}  // namespace

Bytes checkpointBytes(int64_t numParameters, int64_t stateBytes) {
  return Bytes(3.0 * static_cast<double>(numParameters) * static_cast<double>(stateBytes));
}

Economics economicsOf(const Training& training, const Scenario& scenario) {
  Economics result;
  result.steps = static_cast<int64_t>(
      std::ceil(scenario.tokens / static_cast<double>(training.tokensPerStep)));
  result.busy = training.step * static_cast<double>(result.steps);
  result.wall = result.busy;
  double paid = static_cast<double>(training.gpus);
  if (scenario.failures) {
    result.goodput = goodputOf(training, *scenario.failures);
    const double share = result.goodput->goodput * result.goodput->availability;
    result.wall =
        share > 0 ? result.busy / share : Seconds(std::numeric_limits<double>::infinity());
    paid += static_cast<double>(result.goodput->spares * training.perNode);
  }
  const double hours = result.wall.count() / kHour;
  if (scenario.price) result.cost = *scenario.price * paid * hours;
  const Watts power = scenario.power.value_or(training.power);
  if (power.count() > 0)
    result.energy = power.count() * static_cast<double>(training.gpus) * result.wall.count();
  return result;
}

}  // namespace trireme::planner
