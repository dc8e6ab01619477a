// Plays the orders of a schedule against the clock, with communication that costs nothing.
#pragma once
#include <cstdint>

#include "ir/schedule/schedule.h"

namespace trireme::testing {

// Of one virtual stage of a schedule without virtual stages; a chunk takes 1 / virtualStages of it.
struct PassTimes {
  int64_t forward = 1, backward = 2, weights = 0;
};

// The end of the last task. A task starts when its rank is free and its input is there. Fails the
// test if ranks wait for each other.
double replaySeconds(const schedule::Schedule& schedule, const PassTimes& times);

}  // namespace trireme::testing
