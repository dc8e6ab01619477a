#include "cli/simulate.h"

namespace trireme::cli {
Status writeSimulation(const SimulateOptions&, const expand::Expansion&, const spec::ModelSpec&,
                       const plan::Plan&) {
  return {};
}
}  // namespace trireme::cli
