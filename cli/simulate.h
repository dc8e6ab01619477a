// The simulated step of `trireme compile --simulate`.
#pragma once
#include <string>

#include "ir/base/status.h"
#include "ir/expand/expand.h"
#include "ir/plan/plan.h"
#include "ir/spec/model_spec.h"

namespace trireme::cli {

struct SimulateOptions {
  std::string trace;  // empty: do not simulate
  std::string cluster, stack;
};

// Writes the Perfetto trace. Errors: those of the specs, cost::simulate and writeFile.
Status writeSimulation(const SimulateOptions& options, const expand::Expansion& expansion,
                       const spec::ModelSpec& model, const plan::Plan& plan);

}  // namespace trireme::cli
