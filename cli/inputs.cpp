#include "cli/inputs.h"

#include "ir/spec/load.h"

namespace trireme::cli {

Result<spec::StackProfile> loadStackOrDefault(const std::string& path) {
  if (path.empty()) return spec::StackProfile{};
  return spec::loadStack(path);
}

}  // namespace trireme::cli
