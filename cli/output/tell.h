// Text for people on stderr.
#pragma once
#include <fmt/format.h>

#include <string>
#include <utility>

namespace trireme::cli {

// Nothing that the command does fails because nobody can read it: the terminal is closed, the disk
// of a log is full.
void writeToStderr(const std::string& text);

template <typename... Args>
void tell(fmt::format_string<Args...> format, Args&&... args) {
  writeToStderr(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace trireme::cli
