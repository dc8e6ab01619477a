// Choices that are not left to the search, as flags of `plan` and `whatif`.
#pragma once
#include <CLI/App.hpp>
#include <vector>

#include "planner/query.h"

namespace trireme::cli {

// The group of --tp, --pp...
inline constexpr const char* kDegreesGroup = "Degrees (default: the planner's choice)";
inline constexpr const char* kLimitsGroup = "Limits (default: none)";

// All but --gpus, which means another thing to each command. Returns them; they are the app's.
std::vector<CLI::Option*> addPins(CLI::App& app, planner::Pins* pins);

}  // namespace trireme::cli
