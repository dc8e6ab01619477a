// Specs that tests of costs and of the planner share: small enough to check by hand.
#pragma once
#include "ir/spec/cluster_spec.h"
#include "tests/support/small_plan.h"

namespace trireme::small {

// Blocks of `perNode` fast-linked devices: 10 TFLOP/s, 1 TB/s, 100 GB/s within, 10 GB/s between.
inline spec::ClusterSpec cluster(int64_t devices = 8, int64_t perNode = 4) {
  using namespace literals;
  spec::ClusterSpec cluster;
  cluster.name = "small";
  cluster.numDevices = devices;
  cluster.device.name = "device";
  cluster.device.matmul = {{MathFormat::kBf16, FlopsPerSecond(10e12)},
                           {MathFormat::kF32, FlopsPerSecond(5e12)}};
  cluster.device.memory = 16_GiB;
  cluster.device.memoryBandwidth = 1000_GBps;
  cluster.device.launchOverhead = 1_us;
  if (perNode < devices) cluster.tiers.push_back({"inner", perNode, 100_GBps, 2_us});
  cluster.tiers.push_back({"outer", devices, 10_GBps, 5_us});
  return cluster;
}

}  // namespace trireme::small
