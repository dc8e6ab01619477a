// The values that training starts from.
#pragma once
#include "runtime/executor/rank_program.h"

namespace trireme::runtime {

// Fills this rank's parameters and masters. The value of an element depends on the seed, the
// logical tensor and its place in it alone, so it is the same under any plan, in every replica and
// in every copy of a tied weight. Everything else of the arena (moments, padding) must be zero
// already.
void initializeParameters(const RankProgram& rank);

}  // namespace trireme::runtime
