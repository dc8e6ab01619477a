// What `trireme compile` says of the bundle that it wrote.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "ir/base/units.h"
#include "ir/program/bundle.h"

namespace trireme::cli {

struct CompileReport {
  std::string folder;
  Seconds elapsed;
  std::optional<Seconds> simulated;  // of a step
};

// Lines of at most 100 columns, but for the folder's.
std::string compileText(const program::Bundle& bundle, const CompileReport& report);

// {"bundle", "plan", "target", "numRanks",
//  "roles": [{"name", "numRanks", "numLayers", "numTasks", "arenaBytes"}],
//  "code": {"numSegments", "numGeneratedKernels", "numLibraryCalls", "bytes"},
//  "simulatedSeconds" (or null), "seconds"}
nlohmann::json compileJson(const program::Bundle& bundle, const CompileReport& report);

}  // namespace trireme::cli
