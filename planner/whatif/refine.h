// Deadlines and budgets between the numbers of devices that were swept.
#pragma once
#include <functional>

#include "planner/whatif/rows.h"

namespace trireme::planner {

// What may be between two numbers of devices: whole nodes, or single devices where there are none.
int64_t devicesAtOnce(const spec::ClusterSpec& cluster);

// Fills in answers.refinements for every deadline and budget that anything keeps to, under every
// condition, and puts the points that it plans behind those that were swept.
//
//   deadline   the fewest devices, and with a price the cheapest
//   budget     the fastest
//
// of all multiples of devicesAtOnce between the smallest and the largest number swept, on every
// curve (points that differ in devices alone, under one scenario). A single number swept is the
// most that there may be: fewer are asked about too. Time and cost need not be monotone: idle nodes
// are paid for and are spares. But steps are never slower on more devices, which bounds what is
// between two numbers (leastEconomics); branch and bound halves what the bounds leave. The answer
// is the best of all numbers, as far as that holds. To the fewest devices belongs `beyond`, one
// node less, unless fewer were not asked about.
//
// `onPlanned` hears of every point; it returns whether to go on. If not, what is missing is not
// filled in.
void refineAnswers(Answers& answers, const std::function<bool()>& onPlanned);

}  // namespace trireme::planner
