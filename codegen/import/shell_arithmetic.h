// What $((...)) is.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace trireme::codegen {

// Names, with or without a dollar, are looked up. Absent: a name without a value, a value that is
// no whole number, what does not fit into 64 bits, or anything but numbers, names, parentheses,
// + - * / % ** ! && || and comparisons.
using ShellLookup = std::function<std::optional<std::string>(const std::string& name)>;
std::optional<int64_t> shellArithmetic(const std::string& text, const ShellLookup& lookup);

// A whole number, blanks around it or not.
std::optional<int64_t> shellNumber(const std::string& text);

}  // namespace trireme::codegen
