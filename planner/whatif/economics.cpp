#include "planner/whatif/economics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/spec/stack_on_device.h"

namespace trireme::planner {
namespace {

constexpr double kHour = 3600;

Goodput goodputOf(const Training& training, const FailureModel& model) {
  Goodput result;
  result.rate.meanBetween = model.deviceMeanBetween / static_cast<double>(training.used);
  result.rate.save = training.checkpoint / model.checkpointBandwidth;
  result.rate.restart = model.restart + result.rate.save;
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

}  // namespace trireme::planner
