// A folder of checkpoints, one file per saved step: step-00000100.safetensors.
#pragma once
#include <cstdint>
#include <string>

#include "ir/base/status.h"

namespace trireme::cli {

// The file for the state after `numStepsDone` steps.
std::string checkpointPath(const std::string& folder, int64_t numStepsDone);

// What `--resume` means: a file itself, or the checkpoint of the latest step in a folder. Files of
// other names are ignored. kInvalidArgument: nothing there, or no checkpoint in the folder.
Result<std::string> findCheckpoint(const std::string& fileOrFolder);

}  // namespace trireme::cli
