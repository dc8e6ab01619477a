#include "planner/whatif/hardware.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "ir/spec/load.h"
#include "ir/spec/map_reader.h"
#include "ir/spec/shipped.h"
#include "ir/spec/suggestion.h"

namespace trireme::planner {
namespace {

// Of shipped clusters but hosts: the name, and its device's.
std::vector<std::pair<std::string, std::string>> devicesOfClusters() {
  std::vector<std::pair<std::string, std::string>> devices;
  for (const std::string& name : spec::shippedNames(spec::ShippedKind::kCluster)) {
    const Result<spec::ClusterSpec> cluster = spec::loadCluster(name);
    if (cluster.has_value() && cluster->device.kind != spec::DeviceKind::kHost)
      devices.emplace_back(name, spec::lowerCase(cluster->device.name));
  }
  return devices;
}

}  // namespace

std::vector<std::string> gpuNames() {
  std::set<std::string> names;
  for (const auto& [cluster, device] : devicesOfClusters())
    names.insert(device.substr(0, device.find('-')));
  return {names.begin(), names.end()};
}

Result<std::string> clusterOfGpu(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const std::string wanted = spec::lowerCase(name);
  if (spec::findShipped(spec::ShippedKind::kCluster, wanted)) return wanted;
  std::vector<std::tuple<bool, size_t, std::string>> found;
  for (const auto& [cluster, device] : devicesOfClusters())
    if ((device + "-").starts_with(wanted + "-"))
      found.emplace_back(!cluster.starts_with("dgx-"), cluster.size(), cluster);
  if (found.empty())
    return Error(invalidArgument(
        fmt::format("unknown GPU '{}'{}", name, spec::suggestion(wanted, gpuNames()))));
  return std::get<2>(*std::min_element(found.begin(), found.end()));
}

}  // namespace trireme::planner
