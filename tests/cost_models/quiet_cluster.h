// Clusters on which nothing takes time but what a test counts.
#pragma once
#include "tests/cost_models/small_specs.h"

namespace trireme::cost {

// 10 TFLOP/s, 1 TB/s, no launches.
inline spec::DeviceSpec deviceWithoutOverhead() {
  spec::DeviceSpec device = small::cluster().device;
  device.launchOverhead = Seconds(0);
  return device;
}

inline spec::ClusterSpec quietCluster(int64_t devices = 8, int64_t perNode = 8) {
  spec::ClusterSpec cluster = small::cluster(devices, perNode);
  cluster.device = deviceWithoutOverhead();
  for (spec::LinkTier& tier : cluster.tiers) tier.latency = Seconds(0);
  return cluster;
}

}  // namespace trireme::cost
