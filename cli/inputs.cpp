#include "cli/inputs.h"

#include <fmt/format.h>

#include "ir/spec/load.h"

namespace trireme::cli {

Result<spec::StackProfile> loadStackOrDefault(const std::string& path) {
  if (path.empty()) return spec::StackProfile{};
  return spec::loadStack(path);
}

Status growCluster(std::optional<int64_t> gpus, const std::string& path,
                   spec::ClusterSpec& cluster) {
  const int64_t wanted = gpus.value_or(0);
  if (wanted <= cluster.numDevices) return {};
  if (!cluster.scalable)
    return invalidArgument(fmt::format(
        "--gpus {}: cluster '{}' has {} devices; nearest: {}; if there are more, raise num_devices "
        "in {}, or set 'scalable: true' there if it may have any number",
        wanted, cluster.name, cluster.numDevices, cluster.numDevices, path));
  Result<spec::ClusterSpec> grown = spec::withNumDevices(cluster, wanted);
  if (!grown.has_value()) return grown.error().withContext("--gpus");
  cluster = *std::move(grown);
  return {};
}

}  // namespace trireme::cli
