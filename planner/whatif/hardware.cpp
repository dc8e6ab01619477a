#include "planner/whatif/hardware.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <tuple>
#include <vector>

#include "ir/spec/load.h"
#include "ir/spec/map_reader.h"
#include "ir/spec/shipped.h"

namespace trireme::planner {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// The first word of a device's name: "h100" of "H100-80GB-SXM".
std::string gpuOf(const std::string& device) { return device.substr(0, device.find('-')); }

}  // namespace

Result<std::string> clusterOfGpu(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const std::string wanted = lower(name);
  if (spec::findShipped(spec::ShippedKind::kCluster, wanted)) return wanted;
  std::vector<std::string> gpus;
  std::vector<std::tuple<bool, size_t, std::string>> found;
  for (const std::string& cluster : spec::shippedNames(spec::ShippedKind::kCluster)) {
    const Result<spec::ClusterSpec> loaded = spec::loadCluster(cluster);
    if (!loaded.has_value() || loaded->device.kind == spec::DeviceKind::kHost) continue;
    const std::string device = lower(loaded->device.name);
    gpus.push_back(gpuOf(device));
    if ((device + "-").starts_with(wanted + "-"))
      found.emplace_back(!cluster.starts_with("dgx-"), cluster.size(), cluster);
  }
  std::sort(gpus.begin(), gpus.end());
  gpus.erase(std::unique(gpus.begin(), gpus.end()), gpus.end());
  if (found.empty())
    return Error(
        invalidArgument(fmt::format("unknown GPU '{}'{}", name, spec::suggestion(wanted, gpus))));
  return std::get<2>(*std::min_element(found.begin(), found.end()));
}

}  // namespace trireme::planner
