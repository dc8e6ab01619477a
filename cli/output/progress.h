// One line on the terminal that says how far a long command is.
#pragma once
#include <chrono>
#include <string>

namespace trireme::cli {

// Draws on stderr, and only if that is a terminal and the work has taken more than two seconds;
// logs and pipes see nothing. The line goes away with the object.
class Progress {
 public:
  Progress();
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` of 1, and what to say beside the bar. Drawn at most ten times a second.
  void update(double done, const std::string& text);
  void clear();  // before other output

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_, drawn_;
  bool isTerminal_ = false;
  bool isVisible_ = false;
};

// "[#####-----] text", cut to `width` characters.
std::string drawProgress(double done, const std::string& text, size_t width);

}  // namespace trireme::cli
