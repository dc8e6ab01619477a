// What hardware there is. Every number was loaded with a unit and a source.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/dtype.h"
#include "ir/base/status.h"
#include "ir/base/units.h"
#include "ir/spec/attention_kind.h"
#include "ir/spec/sources.h"

namespace trireme::spec {

enum class DeviceKind : uint8_t { kHost, kCuda };

struct PeakRate {
  MathFormat format = MathFormat::kF32;
  FlopsPerSecond rate;
  bool operator==(const PeakRate&) const = default;
};

// Shares of the matmul peak that a fused attention kernel reaches, of the products that it
// computes.
struct AttentionRate {
  AttentionKind kind = AttentionKind::kFlash2;
  double forward = 1, backward = 1;
  bool operator==(const AttentionRate&) const = default;
};

// What the time of a kernel is a sum over; cost_models/measured_kernels.h says how many of each an
// op has.
enum class KernelUnit : uint8_t {
  kCall,
  kRow,           // a token
  kElement,       // of the largest operand
  kProduct,       // a multiply-add of a matrix product, or of attention
  kInput,         // of a matrix product: an element of tokens x inputs,
  kOutput,        //   of tokens x outputs,
  kWeight,        //   of outputs x inputs
  kScore,         // of attention: an element of sequence x sequence that is computed,
  kDroppedScore,  //   and one that dropout draws a random number for
  kFarElement,    // an element beyond the first 2 MiB of a host's largest operand, in addition
};
inline constexpr size_t kNumKernelUnits = static_cast<size_t>(KernelUnit::kFarElement) + 1;

// A kernel of Trireme's runtime as measured: its time is the sum over units of count x per.
struct KernelTiming {
  std::string kernel;         // one of measuredKernelNames()
  DType dtype = DType::kF32;  // of the activations, or of the optimizer's state
  std::array<Seconds, kNumKernelUnits> per{};
  std::string source;
  bool operator==(const KernelTiming&) const = default;
};

// Every op of a program by its name in ir/program, then "sum_squares" and "adamw", and
// matrix products of factors in tf32 ("matmul_tf32"), whose dtype is f32.
const std::vector<std::string>& measuredKernelNames();

struct DeviceSpec {
  std::string name;
  std::string caution;  // what whoever compares it with others has to know; empty: nothing
  DeviceKind kind = DeviceKind::kCuda;
  std::vector<PeakRate> matmul;      // dense peak (no sparsity) per format
  double matmulEfficiency = 1.0;     // reachable share of the peak on large matrices
  double f8MatmulEfficiency = 0;     // the same of products in f8; 0: matmulEfficiency
  double f32MatmulEfficiency = 0;    // and in f32
  double tf32MatmulEfficiency = 0;   // and in tf32
  double f16MatmulEfficiency = 0;    // and in f16
  double attentionEfficiency = 1.0;  // and in fused attention, of the products that it computes
  Bytes memory;                      // what programs can allocate
  Bytes headroom;                    // that they shall leave free besides; no file says it
  BytesPerSecond memoryBandwidth;
  double memoryEfficiency = 1.0;
  Seconds launchOverhead;        // per kernel
  Watts power;                   // the most that it may draw; 0: not known
  double computeCapability = 0;  // of an NVIDIA GPU, 9.0 say; 0: not known

  // How products fall short of matmulEfficiency (cost_models/gemm.h); 0 multiprocessors: they do
  // not.
  int64_t numMultiprocessors = 0;
  double tileDelivery = 0;  // elements: time to deliver operands to a tile, over its edges
  double depthRamp = 0;     // elements of depth that a tile's start and end take
  double waveShare = 1;     // of the last wave's idle multiprocessors that is felt
  double batchedMatmulEfficiency = 1;    // of many small products, over that of one large
  double accumulationExposed = 0;        // of the traffic of a product's sums that it does not hide
  std::vector<AttentionRate> attention;  // of fused kernels; others have attentionEfficiency
  std::vector<KernelTiming> kernels;     // of Trireme's runtime, measured; others follow the rates
                                         // above

  // Reachable share of the peak of `format` on large matrices.
  double matmulShare(MathFormat format) const;
  // attentionEfficiency in both directions where the device has no rate for `kind`.
  AttentionRate attentionRate(AttentionKind kind) const;
  // Null if the device has no rate for `format`. A host multiplies tf32 and f16 in f32, and has
  // that rate unless another is given.
  const PeakRate* peak(MathFormat format) const;
  // Null if it was not measured.
  const KernelTiming* kernel(std::string_view name, DType dtype) const;
  bool operator==(const DeviceSpec&) const = default;
};

// What happens when several devices of a tier communicate at once.
enum class TierTopology : uint8_t {
  kSwitch,  // any device reaches any other at its full bandwidth: NVSwitch, NVL72, one leaf switch
  kMesh,    // links from device to device, so that a pair has a few of a device's links only: the
            // hybrid cube mesh of DGX-1
  kBus,     // one medium that all devices share: host memory, a PCIe root
  kRails,   // port i of every block of the tier before is on switch i: devices with the same place
            // in their blocks are one hop apart, others come through their block or a spine
  kTree,    // leaf switches below spines; see oversubscription
};

// What was measured. The bus bandwidth is that of nccl-tests (PERFORMANCE.md): with n members and t
// the time, factor x bytes / t, where the factor is
//
//   2 (n - 1)/n  all-reduce
//     (n - 1)/n  all-gather, reduce-scatter, all-to-all
//             1  broadcast, send
//
// and `bytes` the full tensor: what all-reduce holds on each member, what all-gather produces, what
// reduce-scatter consumes, what one member of an all-to-all holds.
enum class CollectiveKind : uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kBroadcast,
  kSend,
};

struct CollectivePoint {
  Bytes bytes;
  BytesPerSecond busBandwidth;
  bool operator==(const CollectivePoint&) const = default;
};

// One collective, measured over a range of sizes by `group` devices that lie in one block of the
// tier and fill the blocks of the tier before, as ranks in order do, or have `perBlock` devices in
// each of these.
struct CollectiveCurve {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  int64_t group = 2;
  std::vector<CollectivePoint> points;  // bytes strictly increasing
  std::string source;
  int64_t perBlock = 0;  // 0: in order
  bool operator==(const CollectiveCurve&) const = default;
};

// One level of the network: groups of `devices` devices joined at this level.
struct LinkTier {
  std::string name;          // "nvlink", "infiniband", "memory"...
  int64_t devices = 1;       // devices within one group of this tier
  BytesPerSecond bandwidth;  // line rate per device, one direction, when all devices send
  Seconds latency;
  TierTopology topology = TierTopology::kSwitch;
  double efficiency = 1;        // share of the line rate that large collectives reach
  double oversubscription = 1;  // what devices can send over what the tier can carry, at least 1
  // Ports by which a block of the tier before is joined to this one; its devices share them evenly.
  // 0: every device has links of its own.
  int64_t nics = 0;
  // Line rate between two devices when no others send: of a mesh, the links that a pair has. 0: as
  // ClusterSpec::sustainedPair says.
  BytesPerSecond pairBandwidth;
  std::vector<CollectiveCurve> curves;

  // Per device and direction, sustained, with all devices sending across the tier.
  BytesPerSecond sustained() const { return bandwidth * (efficiency / oversubscription); }
  bool operator==(const LinkTier&) const = default;
};

inline constexpr int64_t kMaxDevices = int64_t{1} << 24;

struct ClusterSpec {
  std::string name;
  DeviceSpec device;
  int64_t numDevices = 1;
  bool scalable = false;        // more of the same can be had: withNumDevices() may enlarge it
  int64_t hostDevices = 0;      // of one host, where no tier is one; 0: not said
  std::vector<LinkTier> tiers;  // innermost first; the last one spans all devices
  Sources sources;              // of every number but those of curves, which have their own

  // Devices of one host (operating system): hostDevices or, where it is not said, those of the
  // largest inner tier that is no more than hosts have and no network (ports, rails, tree);
  // 1 if all tiers are networks. 0: not known.
  int64_t devicesPerHost() const;
  // Whether a block of tiers[tier] holds `group` devices, or would if the cluster grew.
  bool holdsGroup(size_t tier, int64_t group) const;
  // What two devices reach across tiers[tier] when no others send: pairBandwidth or, where it is
  // not given, one of the ports that their blocks have, which without ports is the device's own;
  // times the tier's efficiency.
  BytesPerSecond sustainedPair(size_t tier) const;
  // Ports by which a host is joined to tiers[tier]: its share of those of its block, one at least;
  // without ports one for every device. Requires an inner tier before.
  double portsPerHost(size_t tier) const;
  bool operator==(const ClusterSpec&) const = default;
};

// The same hardware with another number of devices: the last tier spans them all, inner groups
// larger than the cluster shrink to it. Apply it to the cluster as loaded (a shrunk group does not
// grow back). kInvalidArgument: the count is not 1 .. kMaxDevices, or not a whole number of inner
// groups.
//
// Curves of groups that a shrunk tier cannot hold are left out.
Result<ClusterSpec> withNumDevices(ClusterSpec cluster, int64_t numDevices);
// With as many whole inner groups as so many ranks need, where the cluster is scalable and has
// fewer; otherwise as it is. kInvalidArgument: more than kMaxDevices.
Result<ClusterSpec> withRoomFor(ClusterSpec cluster, int64_t ranks);

}  // namespace trireme::spec
