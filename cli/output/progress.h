// One line on the terminal that says how far a long command is.
#pragma once
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>

namespace trireme::cli {

// What a progress line is drawn on, and the clock that says when: an interface, so that a test can
// be both.
struct Terminal {
  using Clock = std::chrono::steady_clock;
  bool isShown = false;  // false: a log or a pipe
  std::function<Clock::time_point()> now;
  std::function<size_t()> width;                  // columns
  std::function<void(const std::string&)> write;  // at once
};
Terminal stderrTerminal();

// Draws only on what is shown, and only if the work has taken more than two seconds; logs and pipes
// see nothing. The line goes away with the object.
class Progress {
 public:
  explicit Progress(Terminal terminal = stderrTerminal());
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` of 1, and what to say beside the bar. Drawn at most ten times a second.
  void update(double done, const std::string& text);
  void clear();  // before other output

 private:
  Terminal terminal_;
  Terminal::Clock::time_point start_, drawn_;
  bool isVisible_ = false;
};

// "[#####-----] text", cut to `width` characters.
std::string drawProgress(double done, const std::string& text, size_t width);

}  // namespace trireme::cli
