// Writes scalars so that parseDocument reads back the same value.
#pragma once
#include <string>

namespace trireme::spec {

// Plain if no reader can mistake it for anything but text, else in double quotes with escapes.
std::string printText(const std::string& text);

}  // namespace trireme::spec
