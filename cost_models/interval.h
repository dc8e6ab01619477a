// How far off an estimate may be.
#pragma once
#include <cstdint>
#include <optional>

#include "cost_models/estimate.h"
#include "ir/base/units.h"
#include "ir/spec/stack_profile.h"

namespace trireme::cost {

//   low  = step (1 - min(w fasterRuns, 1)),  high = step (1 + w slowerRuns)
//   w    = 1 + 0.6 log2(tp) min(hostPace, 1) + 3 c
//   c      the share of the step in collectives among tp ranks and cp ranks
//
// Tensor-parallel ranks go in lockstep: at every collective all wait for the slowest, and whose CPU
// that is, how fast, and how often it hesitates, no row says. The more ranks, the more waiting; the
// longer the CPU needs next to the device (hostPace, estimate.h), the less of it hides behind the
// device's work. Collectives are uncertain themselves.
//
// Both factors were chosen on published rows that were not held out (VALIDATION.md).
//
// Of others, whose clusters, versions and habits differ from all that was compared:
//   low  = min(low, step (1 - fasterElsewhere)),  high = max(high, step (1 + slowerElsewhere))
//
// None: the stack does not say how far its runs scatter.
std::optional<Interval> intervalOf(const Estimate& estimate, int64_t tp,
                                   const spec::StackDescription& stack);

}  // namespace trireme::cost
