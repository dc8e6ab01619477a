#include "cli/simulate.h"

#include <fmt/format.h>

#include "cli/inputs.h"
#include "cli/write_file.h"
#include "cost_models/cluster_costs.h"
#include "cost_models/estimate.h"
#include "cost_models/simulate.h"
#include "ir/program/trace.h"
#include "ir/spec/load.h"

namespace trireme::cli {

Result<std::optional<Seconds>> simulateStep(const SimulateOptions& options,
                                            const program::Program& program,
                                            spec::Precision precision) {
  if (options.cluster.empty()) return std::nullopt;
  TRIREME_ASSIGN_OR_RETURN(const spec::ClusterSpec cluster, spec::loadCluster(options.cluster));
  TRIREME_ASSIGN_OR_RETURN(const spec::StackProfile stack, loadStackOrDefault(options.stack));
  TRIREME_RETURN_IF_ERROR(cost::checkCluster(cluster, precision));
  if (program.numRanks() > cluster.numDevices)
    return Error(
        invalidArgument(fmt::format("{}: the plan has {} ranks, the cluster {} devices",
                                    options.cluster, program.numRanks(), cluster.numDevices)));
  cost::SimulationOptions simulation;
  simulation.trace = !options.trace.empty();
  TRIREME_ASSIGN_OR_RETURN(const cost::Simulation result,
                           cost::simulate(program, cost::ClusterCosts(cluster, stack), simulation));
  if (simulation.trace)
    TRIREME_RETURN_IF_ERROR(
        writeFile(options.trace, program::toPerfettoJson(program, result.events)));
  return result.makespan;
}

}  // namespace trireme::cli
