#include "ir/spec/cluster_spec.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme::spec {

const LinkTier& ClusterSpec::tierFor(int64_t span) const {
  TRIREME_CHECK(!tiers.empty());
  for (const LinkTier& tier : tiers)
    if (tier.devices >= span) return tier;
  return tiers.back();
}

Result<ClusterSpec> withNumDevices(ClusterSpec cluster, int64_t numDevices) {
  if (numDevices < 1)
    return Error(
        invalidArgument(fmt::format("a cluster has at least 1 device, not {}", numDevices)));
  for (size_t i = 0; i + 1 < cluster.tiers.size(); ++i) {
    LinkTier& tier = cluster.tiers[i];
    if (numDevices > tier.devices && numDevices % tier.devices != 0)
      return Error(invalidArgument(
          fmt::format("{} devices are not a whole number of groups of {} ({} of cluster '{}')",
                      numDevices, tier.devices, tier.name, cluster.name)));
    tier.devices = std::min(tier.devices, numDevices);
  }
  if (!cluster.tiers.empty()) cluster.tiers.back().devices = numDevices;
  cluster.numDevices = numDevices;
  return cluster;
}

}  // namespace trireme::spec
