#include "cli/output/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "cli/output/tell.h"

namespace trireme::cli {
namespace {

constexpr std::chrono::milliseconds kPatience{2000}, kPeriod{100};

size_t stderrWidth() {
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

Terminal stderrTerminal() {
  return {isatty(STDERR_FILENO) == 1, Terminal::Clock::now, stderrWidth, writeToStderr};
}

Progress::Progress(Terminal terminal)
    : terminal_(std::move(terminal)), start_(terminal_.now()), drawn_(start_) {}

Progress::~Progress() { clear(); }

void Progress::update(double done, const std::string& text) {
  if (!terminal_.isShown) return;
  const Terminal::Clock::time_point now = terminal_.now();
  if (now - start_ < kPatience || now - drawn_ < kPeriod) return;
  drawn_ = now;
  isVisible_ = true;
  terminal_.write("\r\033[K" + drawProgress(done, text, terminal_.width() - 1));
}

void Progress::clear() {
  if (!isVisible_) return;
  isVisible_ = false;
  terminal_.write("\r\033[K");
}

}  // namespace trireme::cli
