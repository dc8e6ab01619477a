// Parts of the reader of torchtitan's TOML. Internal to codegen/import.
#pragma once
#include <string>
#include <vector>

#include "codegen/import/config.h"
#include "ir/plan/plan.h"
#include "ir/spec/model_spec.h"

namespace trireme::codegen {

// The settings by the names of v0.2.2, the last release that reads TOML: what older versions call
// them, what says nothing of a plan, and what is refused because it cannot be priced.
void nameTorchtitanSettings(Config& config);

// Whether the degrees are in [training] and [experimental], as they were until early 2025.
bool hasLayoutOf2024(const Config& config);

// Of settings that change the time of fp8 and are not priced: those that are on.
std::vector<std::string> uncountedOfFp8(Config& config);

// The items of a list, or what is between commas.
std::vector<std::string> namesIn(const spec::Node& node);

// Schedule and layers of every stage. Reads pp from the plan.
void readTorchtitanStages(Config& config, const spec::ModelSpec& model, plan::Plan& plan);

}  // namespace trireme::codegen
