// How long ranks wait for each other.
#pragma once
#include <chrono>

#include "ir/base/status.h"

namespace trireme::runtime {

// Eleven days; that, and small multiples, can be added to any clock.
inline constexpr double kMostTimeoutSeconds = 1e6;

// kInvalidArgument: not above 0, or above kMostTimeoutSeconds.
Status checkTimeout(double seconds);
// Of a timeout that checkTimeout() lets pass, up to twice over.
std::chrono::nanoseconds timeoutOf(double seconds);

}  // namespace trireme::runtime
