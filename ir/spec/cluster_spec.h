// What hardware there is. Every number was loaded with a unit and a source.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ir/base/dtype.h"
#include "ir/base/status.h"
#include "ir/base/units.h"

namespace trireme::spec {

enum class DeviceKind : uint8_t { kHost, kCuda };

struct PeakRate {
  DType dtype = DType::kF32;
  FlopsPerSecond rate;
  bool operator==(const PeakRate&) const = default;
};

struct DeviceSpec {
  std::string name;
  DeviceKind kind = DeviceKind::kCuda;
  std::vector<PeakRate> matmul;      // dense peak per dtype
  double matmulEfficiency = 1.0;     // reachable share of the peak on large matrices
  double attentionEfficiency = 1.0;  // and in fused attention, of the products that it computes
  Bytes memory;
  BytesPerSecond memoryBandwidth;
  double memoryEfficiency = 1.0;
  Seconds launchOverhead;  // per kernel
  // How products fall short of matmulEfficiency (cost_models/gemm.h); 0 multiprocessors: they do
  // not.
  int64_t numMultiprocessors = 0;
  double tileDelivery = 0;  // elements: time to deliver operands to a tile, over its edges
  double depthRamp = 0;     // elements of depth that a tile's start and end take
  double waveShare = 1;     // of the last wave's idle multiprocessors that is felt
  double batchedMatmulEfficiency = 1;      // of many small products, over that of one large
  double attentionBackwardEfficiency = 0;  // 0: attentionEfficiency
  bool operator==(const DeviceSpec&) const = default;
};

// One level of the network: groups of `size` devices (counted in devices) joined at this level.
struct LinkTier {
  std::string name;          // "nvlink", "infiniband", "memory"...
  int64_t devices = 1;       // devices within one group of this tier
  BytesPerSecond bandwidth;  // per device, one direction, sustained
  Seconds latency;
  bool operator==(const LinkTier&) const = default;
};

inline constexpr int64_t kMaxDevices = int64_t{1} << 24;

struct ClusterSpec {
  std::string name;
  DeviceSpec device;
  int64_t numDevices = 1;
  bool scalable = false;        // more of the same can be had: withNumDevices() may enlarge it
  std::vector<LinkTier> tiers;  // innermost first; the last one spans all devices

  // The tier that joins a group of ranks that lie within one block of `span` consecutive devices:
  // the innermost that holds them, the last one for any larger span. Requires at least one tier.
  const LinkTier& tierFor(int64_t span) const;
  bool operator==(const ClusterSpec&) const = default;
};

// The same hardware with another number of devices: the last tier spans them all, inner groups
// larger than the cluster shrink to it. Apply it to the cluster as loaded (a shrunk group does not
// grow back). kInvalidArgument: the count is not 1 .. kMaxDevices, or not a whole number of inner
// groups.
Result<ClusterSpec> withNumDevices(ClusterSpec cluster, int64_t numDevices);

}  // namespace trireme::spec
