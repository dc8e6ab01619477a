// Files that are complete or not there at all.
#pragma once
#include <string>

#include "ir/base/status.h"

namespace trireme::cli {

// Writes beside `path` and renames, so that whatever was there survives any failure. A device or a
// pipe (/dev/stdout) is written directly.
// kResourceExhausted: the disk is full. kUnavailable: any other reason, such as a missing folder.
Status writeFile(const std::string& path, const std::string& text);

}  // namespace trireme::cli
