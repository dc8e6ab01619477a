// The simulated step of `trireme compile --cluster`.
#pragma once
#include <optional>
#include <string>

#include "ir/base/status.h"
#include "ir/base/units.h"
#include "ir/program/program.h"
#include "ir/spec/training_spec.h"

namespace trireme::cli {

struct SimulateOptions {
  std::string cluster;  // empty: do not simulate
  std::string stack;
  std::string trace;  // where the Perfetto trace goes; empty: nowhere
};

// Time of one step of a verified program. The trace has one rank of each kind: ranks that cannot be
// told apart take equal time. kInvalidArgument: the cluster has fewer devices than the program
// ranks, or devices with less memory than an arena takes; others: those of the specs,
// cost::simulate and writeFile.
Result<std::optional<Seconds>> simulateStep(const SimulateOptions& options,
                                            const program::Program& program,
                                            const spec::TrainingSpec& training);

}  // namespace trireme::cli
