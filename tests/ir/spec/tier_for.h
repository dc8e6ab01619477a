// The innermost tier that joins `span` devices, the last one for more.
#pragma once
#include <algorithm>

#include "ir/spec/cluster_spec.h"

namespace trireme::spec {

inline const LinkTier& tierFor(const ClusterSpec& cluster, int64_t span) {
  const auto found = std::find_if(cluster.tiers.begin(), cluster.tiers.end(),
                                  [&](const LinkTier& tier) { return tier.devices >= span; });
  return found == cluster.tiers.end() ? cluster.tiers.back() : *found;
}

}  // namespace trireme::spec
