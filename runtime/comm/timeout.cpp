#include "runtime/comm/timeout.h"

#include <fmt/format.h>

#include <cstdint>

namespace trireme::runtime {

Status checkTimeout(double seconds) {
  if (!(seconds > 0)) return invalidArgument("the timeout must be positive");
  if (seconds <= kMostTimeoutSeconds) return {};
  return invalidArgument(fmt::format("the timeout is {} s; it may be {} s at most", seconds,
                                     static_cast<int64_t>(kMostTimeoutSeconds)));
}

std::chrono::nanoseconds timeoutOf(double seconds) {
  return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
}

}  // namespace trireme::runtime
