// How far off an estimate may be.
#pragma once
#include <optional>

#include "cost_models/estimate.h"
#include "ir/base/units.h"
#include "ir/spec/stack_profile.h"

namespace trireme::cost {

//   low  = step (1 - min(w fasterRuns, 1)),  high = step (1 + w slowerRuns)
//   w    = sqrt(1 + (10 c)^2),  c the share of the step in collectives among tp ranks
//
// Collectives within layers are the least certain part: they wait for the slowest of tp
// processes, several times per layer. Two parts that err independently, a tenth of a step in these
// collectives as much as all the rest. Of the parts of a step it is the only one by which the
// sizes of errors on published rows could be told apart; the 10 was chosen on them
// (VALIDATION.md).
//
// None: the stack does not say how far its runs scatter.
std::optional<Interval> intervalOf(const Estimate& estimate, const spec::StackDescription& stack);

}  // namespace trireme::cost
