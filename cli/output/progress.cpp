#include "cli/output/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace trireme::cli {
namespace {

constexpr std::chrono::milliseconds kPatience{2000}, kPeriod{100};

size_t terminalWidth() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace

std::string drawProgress(double done, const std::string& text, size_t width) {
  constexpr int kBar = 10;
  const double share = std::clamp(done, 0.0, 1.0);
  const auto full = static_cast<size_t>(std::floor(share * kBar));
  const std::string line =
      fmt::format("[{}{}] {}", std::string(full, '#'), std::string(kBar - full, '-'), text);
  return line.substr(0, width);
}

Progress::Progress()
    : start_(Clock::now()), drawn_(start_), isTerminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() { clear(); }

void Progress::update(double done, const std::string& text) {
  const Clock::time_point now = Clock::now();
  if (!isTerminal_ || now - start_ < kPatience || now - drawn_ < kPeriod) return;
  drawn_ = now;
  isVisible_ = true;
  fmt::print(stderr, "\r\033[K{}", drawProgress(done, text, terminalWidth() - 1));
  std::fflush(stderr);
}

void Progress::clear() {
  if (!isVisible_) return;
  isVisible_ = false;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
}

}  // namespace trireme::cli
