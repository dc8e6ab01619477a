// Lines of what is not the same: "name before -> after".
#pragma once
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

#include "ir/spec/quantity.h"
#include "ir/spec/sourced.h"

namespace trireme::planner {

inline std::string changeText(double value) { return fmt::format("{:.6g}", value); }
inline std::string changeText(int64_t value) { return fmt::format("{}", value); }
inline std::string changeText(bool value) { return value ? "true" : "false"; }
inline std::string changeText(std::string_view value) { return std::string(value); }
template <typename Tag>
std::string changeText(Quantity<Tag> value) {
  return spec::readableQuantity(value);
}

class ChangeLines {
 public:
  template <typename T>
  void add(std::string_view name, const T& before, const T& after) {
    if (before != after)
      lines_.push_back(fmt::format("{} {} -> {}", name, changeText(before), changeText(after)));
  }
  // Of numbers also how many times as much it is, if that can be seen in three digits.
  template <typename T>
  void addRatio(std::string_view name, const T& before, const T& after) {
    if (before == after) return;
    add(name, before, after);
    if (!(spec::plain(before) > 0 && spec::plain(after) > 0)) return;
    const std::string ratio = fmt::format("{:.3g}", spec::plain(after) / spec::plain(before));
    if (ratio != "1") lines_.back() += fmt::format(" (x {})", ratio);
  }
  void addLine(std::string line) { lines_.push_back(std::move(line)); }
  std::vector<std::string> take() { return std::move(lines_); }

 private:
  std::vector<std::string> lines_;
};

}  // namespace trireme::planner
