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
  if (numDevices < 1 || numDevices > kMaxDevices)
    return Error(invalidArgument(
        fmt::format("a cluster has 1 to {} devices, not {}", kMaxDevices, numDevices)));
  const LinkTier* whole = nullptr;  // The largest inner group that the cluster still has whole.
  for (size_t i = 0; i + 1 < cluster.tiers.size(); ++i) {
    if (cluster.tiers[i].devices < numDevices) whole = &cluster.tiers[i];
  }
  if (whole != nullptr && numDevices % whole->devices != 0) {
    const int64_t below = numDevices / whole->devices * whole->devices;
    return Error(invalidArgument(fmt::format(
        "{} devices are not a whole number of groups of {} ({} of "
        "cluster '{}'); nearest: {} or {}",
        numDevices, whole->devices, whole->name, cluster.name, below, below + whole->devices)));
  }
  for (LinkTier& tier : cluster.tiers) tier.devices = std::min(tier.devices, numDevices);
  if (!cluster.tiers.empty()) cluster.tiers.back().devices = numDevices;
  cluster.numDevices = numDevices;
  return cluster;
}

}  // namespace trireme::spec
