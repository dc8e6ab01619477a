// Whether a plan that fits by its estimate is sure to.
#pragma once
#include <string>

#include "cost_models/estimate.h"
#include "ir/base/units.h"

namespace trireme::planner {

// What takes no more is sure to fit, and leaves what is to be free: of software that others make,
// whose peaks are predictions, all of a device's memory but its profile's memoryDoubt; of Trireme's
// own programs, exact but for a reserve that is put together from other programs' figures, all but
// half of that.
Bytes certainMemory(const cost::Estimate& estimate);
// "7 %" or "2.15 GiB": what that leaves free of the memory.
std::string certainRoomText(const cost::Estimate& estimate);

// Fits by less than its memory may be off.
bool isTight(const cost::Estimate& estimate);
// "peaks are 3 to 7 % off": why it may not fit though it is said to.
std::string doubtText(const spec::StackProfile& stack);
std::string doubtText(const cost::Estimate& estimate);

}  // namespace trireme::planner
