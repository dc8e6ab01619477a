// What the user's choices imply, and which of them no plan can obey.
#pragma once
#include <cstdint>
#include <optional>

#include "ir/base/status.h"
#include "planner/query.h"

namespace trireme::planner {

// The pins with what they imply: pinned recomputeLayers full recomputation, and pinned layers the
// stages, whose number is pp * virtualStages, with one virtual stage unless pins.virtualStages,
// pins.pp or the limit of pp says otherwise.
// kInfeasible: it cannot be (P8), or other recomputation is pinned (P14).
Result<Pins> resolvePins(const Pins& pins);

// A plan of the choices that the pins make, and defaults: it says what they use
// (plan::choicesUsed), and need not be legal.
plan::Plan pinnedChoices(const Pins& pins);

// Whether a plan is one that the pins and limits leave.
bool obeys(const Pins& pins, const plan::Plan& plan);

// Refuses resolved pins that break a rule of verifyPlan, cannot be built (expand::checkBuildable),
// ask what the stack has not, or need more devices than `devices`, whatever the choices that are
// left free. What it accepts may still have no plan: then factorisations of the devices are in the
// way. kInfeasible: names the rule, the numbers and the nearest valid ones.
Status checkPins(const Query& query, int64_t devices);

}  // namespace trireme::planner
