#include "cli/simulate.h"

#include <fmt/format.h>

#include "cli/inputs.h"
#include "cli/write_file.h"
#include "cost_models/cluster_costs.h"
#include "cost_models/estimate.h"
#include "cost_models/memory.h"
#include "cost_models/simulate.h"
#include "ir/base/format.h"
#include "ir/program/trace.h"
#include "ir/spec/load.h"
#include "ir/spec/stack_on_device.h"

namespace trireme::cli {

namespace {

Status checkMemory(const std::string& file, const program::Program& program, const plan::Plan& plan,
                   const spec::ClusterSpec& cluster, const spec::StackProfile& stack) {
  const spec::DeviceSpec& device = cluster.device;
  for (const program::Role& role : program.roles) {
    const Bytes arena(static_cast<double>(role.arenaBytes));
    const Bytes needed = cost::reserveOf(program, role, plan, stack, cluster);
    const Bytes missing = arena + needed - device.memory;
    if (missing.count() <= 0) continue;
    const std::string reserve =
        needed.count() > 0 ? fmt::format(" and {} of reserve", formatBytes(needed)) : "";
    return invalidArgument(fmt::format(
        "{}: does not fit in memory: a rank of {} needs {}{}, device {} has {}: {} too much; "
        "`trireme plan` says what fits",
        file, role.name, formatBytes(arena), reserve, device.name, formatBytes(device.memory),
        formatBytes(missing)));
  }
  return {};
}

}  // namespace

Result<std::optional<Seconds>> simulateStep(const SimulateOptions& options, const plan::Plan& plan,
                                            const program::Program& program) {
  if (options.cluster.empty()) return std::nullopt;
  TRIREME_ASSIGN_OR_RETURN(spec::ClusterSpec loaded, spec::loadCluster(options.cluster));
  const Result<spec::ClusterSpec> grown = spec::withRoomFor(std::move(loaded), program.numRanks());
  if (!grown.has_value()) return Error(grown.error().withContext(options.cluster));
  const spec::ClusterSpec& cluster = *grown;
  TRIREME_ASSIGN_OR_RETURN(const spec::StackProfile stack, loadStackOrDefault(options.stack));
  if (!stack.ownPrograms)
    return Error(invalidArgument(
        fmt::format("--stack {}: what is simulated is Trireme's own program, and {} runs another; "
                    "`trireme plan --check` and `trireme run --stack` price the plan for it",
                    options.stack, stack.name)));
  TRIREME_RETURN_IF_ERROR(spec::checkDevice(stack, cluster.device).withContext(options.cluster));
  TRIREME_RETURN_IF_ERROR(cost::checkCluster(cluster, plan.training));
  if (program.numRanks() > cluster.numDevices)
    return Error(invalidArgument(
        fmt::format("{}: the plan has {} ranks, the cluster {} device{}", options.cluster,
                    program.numRanks(), cluster.numDevices, cluster.numDevices == 1 ? "" : "s")));
  TRIREME_RETURN_IF_ERROR(checkMemory(options.cluster, program, plan, cluster, stack));
  cost::SimulationOptions simulation;
  simulation.trace = !options.trace.empty();
  simulation.allRanks = simulation.trace && program.numRanks() <= kMostTracedRanks;
  TRIREME_ASSIGN_OR_RETURN(
      const cost::Simulation result,
      cost::simulate(program, cost::ClusterCosts(plan, cluster, stack), simulation));
  if (simulation.trace)
    TRIREME_RETURN_IF_ERROR(
        writeFile(options.trace, program::toPerfettoJson(program, result.events)));
  return result.makespan;
}

}  // namespace trireme::cli
