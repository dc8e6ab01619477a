#include "planner/whatif/economics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/spec/stack_on_device.h"

namespace trireme::planner {
namespace {

constexpr double kHour = 3600;

int64_t stepsOf(const Training& training, const Scenario& scenario) {
  return static_cast<int64_t>(
      std::ceil(scenario.tokens / static_cast<double>(training.tokensPerStep)));
}

FailureRate rateOf(const Training& training, const FailureModel& model) {
  const Seconds save = training.checkpoint / model.checkpointBandwidth;
  return {model.deviceMeanBetween / static_cast<double>(training.used), save, model.restart + save};
}

Goodput goodputOf(const Training& training, const FailureModel& model) {
  Goodput result;
  result.rate = rateOf(training, model);
  result.young = youngInterval(result.rate);
  result.interval = dalyInterval(result.rate);
  result.goodput = goodputOf(result.rate, result.interval);
  if (!model.repair) return result;
  const int64_t needed = training.nodesUsed;
  const int64_t idle = std::max<int64_t>(0, training.gpus / training.perNode - needed);
  const Seconds meanBetween = model.deviceMeanBetween / static_cast<double>(training.perNode);
  int64_t owned = needed + std::max(idle, model.spares.value_or(0));
  if (!model.spares) {
    const double present =
        static_cast<double>(training.gpus) / static_cast<double>(training.perNode);
    owned = cheapestOwned(needed, owned, present - static_cast<double>(owned), meanBetween,
                          *model.repair);
  }
  result.spares = owned - needed;
  result.bought = result.spares - idle;
  result.availability = availabilityOf(needed, owned, meanBetween, *model.repair);
  return result;
}

}  // namespace

Bytes checkpointBytes(int64_t numParameters, const spec::StackProfile& stack,
                      spec::Precision precision, const spec::DeviceSpec& device) {
  double perParameter = 3 * static_cast<double>(byteSize(spec::stateDType(precision)));
  if (!stack.ownPrograms) {
    const auto used = spec::descriptionOn(stack.description, precision, device);
    perParameter = used.parameterBytes + used.optimizerBytes;
  }
  return Bytes(perParameter * static_cast<double>(numParameters));
}

Economics economicsOf(const Training& training, const Scenario& scenario) {
  Economics result;
  result.steps = stepsOf(training, scenario);
  result.busy = training.step * static_cast<double>(result.steps);
  result.wall = result.busy;
  double paid = static_cast<double>(training.gpus);
  if (scenario.failures) {
    result.goodput = goodputOf(training, *scenario.failures);
    const double share = result.goodput->goodput * result.goodput->availability;
    result.wall =
        share > 0 ? result.busy / share : Seconds(std::numeric_limits<double>::infinity());
    paid += static_cast<double>(result.goodput->bought * training.perNode);
  }
  if (!std::isfinite(result.wall.count())) return result;
  const double hours = result.wall.count() / kHour;
  if (scenario.price) result.cost = *scenario.price * paid * hours;
  const Watts power = scenario.power.value_or(training.power);
  if (power.count() > 0)
    result.energy = power.count() * static_cast<double>(training.used) * result.wall.count();
  return result;
}

LeastEconomics leastEconomics(const Training& least, int64_t mostGpus, int64_t mostNodesUsed,
                              const Scenario& scenario) {
  constexpr double kBelow = 1 - 1e-12;  // sums and products round
  // While all nodes are there.
  Seconds wall = least.step * static_cast<double>(stepsOf(least, scenario)) * kBelow;
  double share = 1, paid = static_cast<double>(least.gpus);
  if (scenario.failures) {
    const FailureModel& model = *scenario.failures;
    const FailureRate rate = rateOf(least, model);
    const double goodput = goodputOf(rate, dalyInterval(rate));
    constexpr double kNever = std::numeric_limits<double>::infinity();
    if (!(goodput > 0)) return {Seconds(kNever), kNever};
    wall = wall / goodput;
    if (model.repair) {
      const Seconds meanBetween = model.deviceMeanBetween / static_cast<double>(least.perNode);
      const auto cheapest = [&](int64_t needed, int64_t owned) {
        return cheapestOwned(needed, owned, 0, meanBetween, *model.repair);
      };
      const int64_t needed = least.nodesUsed, present = least.gpus / least.perNode;
      const int64_t owned = cheapest(needed, std::max(present, needed + model.spares.value_or(0)));
      paid = static_cast<double>(owned * least.perNode) /
             availabilityOf(needed, owned, meanBetween, *model.repair);
      const int64_t most =
          model.spares ? needed + *model.spares : cheapest(mostNodesUsed, mostNodesUsed);
      share = availabilityOf(needed, std::max(most, mostGpus / least.perNode), meanBetween,
                             *model.repair);
    }
  }
  return {wall / share, scenario.price.value_or(0) * paid * (wall.count() / kHour)};
}

}  // namespace trireme::planner
