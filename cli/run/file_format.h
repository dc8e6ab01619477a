// Files that hold text or tokens only within something else.
#pragma once
#include <string>

#include "ir/base/status.h"

namespace trireme::cli {

// kInvalidArgument: by its first bytes, whatever its name, the file is an archive, a compressed
// file or an array with a header, which would be trained on as they lie; says what to do. A file
// that cannot be read is left to whoever reads it.
Status checkPlainData(const std::string& path);

}  // namespace trireme::cli
