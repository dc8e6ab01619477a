// Where what can be made again is kept between runs.
#pragma once
#include <string>

#include "runtime/comm/launch.h"

namespace trireme::cli {

// $XDG_CACHE_HOME/trireme, else $HOME/.cache/trireme; empty: neither variable has an absolute path
// (XDG Base Directory Specification). The folder need not exist.
std::string cacheFolder(const runtime::Environment& environment);

}  // namespace trireme::cli
