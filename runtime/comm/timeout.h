// How long ranks wait for each other.
#pragma once
#include <algorithm>
#include <chrono>

#include "ir/base/status.h"

namespace trireme::runtime {

// Eleven days; that, and small multiples, can be added to any clock.
inline constexpr double kMostTimeoutSeconds = 1e6;

// kInvalidArgument: not above 0, or above kMostTimeoutSeconds.
Status checkTimeout(double seconds);
// Of a timeout that checkTimeout() lets pass, up to twice over.
std::chrono::nanoseconds timeoutOf(double seconds);

// How long somebody has waited, without the time in which this process did not run: it was stopped
// (Ctrl-Z, a job that its scheduler suspends), and whom it waits for perhaps as well. Whoever waits
// looks every kLook; between two looks at most kMostBetween counts.
class WaitClock {
 public:
  static constexpr std::chrono::milliseconds kLook{100}, kMostBetween{500};

  void restart() {
    looked_ = std::chrono::steady_clock::now();
    waited_ = {};
  }
  std::chrono::nanoseconds waited() {
    const auto now = std::chrono::steady_clock::now();
    waited_ += std::min<std::chrono::nanoseconds>(now - looked_, kMostBetween);
    looked_ = now;
    return waited_;
  }

 private:
  std::chrono::steady_clock::time_point looked_ = std::chrono::steady_clock::now();
  std::chrono::nanoseconds waited_{};
};

}  // namespace trireme::runtime
