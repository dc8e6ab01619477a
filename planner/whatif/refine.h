// Deadlines and budgets between the numbers of devices that were swept.
#pragma once
#include <functional>

#include "planner/whatif/rows.h"

namespace trireme::planner {

// What may be between two numbers of devices: whole nodes, or single devices where there are none.
int64_t devicesAtOnce(const spec::ClusterSpec& cluster);

// Fills in answers.refinements for every deadline and budget that any point keeps to, under every
// condition, and puts the points that it plans behind those that were swept.
//
//   deadline   the fewest devices: bisection between the smallest number swept that meets it and
//              the next smaller one, of every curve (points that differ in devices alone, under one
//              scenario)
//   deadline   with a price also the cheapest, searched as budgets are
//   budget     the fastest: all numbers between those swept, but for those that cannot be better,
//              since more devices are never slower and all are paid for
//
// A single number swept is the most that there may be: fewer are asked about too. What failures and
// spares make of time and cost need not be monotone; then the answer is the best of what was
// planned. Where bisection ends at the answer to a deadline, `beyond`, one node less, was planned
// and does not meet it. Numbers between those swept are multiples of devicesAtOnce.
//
// `onPlanned` hears of every point; it returns whether to go on. If not, what is missing is not
// filled in.
void refineAnswers(Answers& answers, const std::function<bool()>& onPlanned);

}  // namespace trireme::planner
