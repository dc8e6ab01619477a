#include "cli/run/cache_folder.h"

#include <filesystem>

namespace trireme::cli {

namespace fs = std::filesystem;

std::string cacheFolder(const runtime::Environment& environment) {
  const auto absolute = [&](const char* name) {
    const fs::path path = environment(name).value_or("");
    return path.is_absolute() ? path : fs::path();
  };
  if (const fs::path caches = absolute("XDG_CACHE_HOME"); !caches.empty())
    return caches / "trireme";
  if (const fs::path home = absolute("HOME"); !home.empty()) return home / ".cache" / "trireme";
  return "";
}

}  // namespace trireme::cli
