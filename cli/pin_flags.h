// Choices that are not left to the search, as flags of `plan` and `whatif`.
#pragma once
#include <CLI/App.hpp>
#include <string>

#include "planner/query.h"

namespace trireme::cli {

// The group of --tp, --pp...
inline constexpr const char* kDegreesGroup = "Degrees (default: the planner's choice)";

// "--max-virtual-stages".
std::string limitFlag(const planner::Degree& degree);

// All but --gpus, which means another thing to each command.
void addPins(CLI::App& app, planner::Pins* pins);

}  // namespace trireme::cli
