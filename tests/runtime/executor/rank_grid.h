// The ranks and groups of a tp x dp x pp grid: rank = (stage * dp + dpIndex) * tp + tpIndex, and
// role = stage.
#pragma once
#include "ir/program/program.h"

namespace trireme::runtime {

// Fills program.ranks and program.groups from program.tp, dp and pp.
void addRankGrid(program::Program& program);

}  // namespace trireme::runtime
