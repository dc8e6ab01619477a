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

// Whether nothing is saved in the folder yet: it is missing, or has no checkpoint.
Result<bool> isWithoutCheckpoint(const std::string& folder);

// Why `checkpoint` was not loaded, and what to do about it: of a damaged file, the last intact
// checkpoint before it in its folder; of other training settings, a bundle with the checkpoint's.
Status withNextStep(Status reason, const std::string& checkpoint, uint64_t modelFingerprint);

// Whether a run that has done so many steps may save into the folder, which may be missing.
// kInvalidArgument: it holds a checkpoint of a later step, of another run, which a later --resume
// would take for this one's.
Status checkSaveFolder(const std::string& folder, int64_t numStepsDone);

// Removes what a run that was killed while it saved has left. For the holder of the folder's lock.
void removeUnfinished(const std::string& folder);

}  // namespace trireme::cli
