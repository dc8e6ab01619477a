// The files that several subcommands read.
#pragma once
#include <string>

#include "ir/base/status.h"
#include "ir/spec/cluster_spec.h"
#include "ir/spec/stack_profile.h"

namespace trireme::cli {

// The stack profile at `path`; Trireme's own runtime if the path is empty. Errors: spec::loadStack.
Result<spec::StackProfile> loadStackOrDefault(const std::string& path);

}  // namespace trireme::cli
