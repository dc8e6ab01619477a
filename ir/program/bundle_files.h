// Whole files and folders, written so that a crash leaves the old or the new. Internal to
// ir/program.
#pragma once
#include <string>
#include <string_view>

#include "ir/base/status.h"

namespace trireme::program {

// kInvalidArgument: missing, not a file, or not readable.
Result<std::string> readWholeFile(const std::string& path);

// Flushed to the disk before it returns. kResourceExhausted: disk full. kInvalidArgument: any other
// failure.
Status writeWholeFile(const std::string& path, std::string_view bytes);

Status makeFolder(const std::string& path);
// Removes a folder that holds nothing but files; one that is not there is fine.
Status removeFolder(const std::string& path);
bool exists(const std::string& path);

// `folder` becomes what `partial` is; an existing `folder` is exchanged in one step and then
// removed.
Status moveIntoPlace(const std::string& partial, const std::string& folder);

}  // namespace trireme::program
