// The files that several subcommands read.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "ir/base/status.h"
#include "ir/spec/cluster_spec.h"
#include "ir/spec/stack_profile.h"

namespace trireme::cli {

// The stack profile at `path`; Trireme's own runtime if the path is empty. Errors: spec::loadStack.
Result<spec::StackProfile> loadStackOrDefault(const std::string& path);

// Gives the cluster from `path` the devices that --gpus wants beyond what it has: more of the same,
// if its file says that there are. Fewer are a part of it, and no business of this function.
// kInvalidArgument: there are no more; the message says what would help.
Status growCluster(std::optional<int64_t> gpus, const std::string& path,
                   spec::ClusterSpec& cluster);

}  // namespace trireme::cli
