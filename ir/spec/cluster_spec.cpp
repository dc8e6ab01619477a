#include "ir/spec/cluster_spec.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme::spec {
const PeakRate* DeviceSpec::peak(MathFormat format) const {
  for (const PeakRate& rate : matmul)
    if (rate.format == format) return &rate;
  const bool isInF32 = format == MathFormat::kTf32 || format == MathFormat::kF16;
  return kind == DeviceKind::kHost && isInF32 ? peak(MathFormat::kF32) : nullptr;
}

double DeviceSpec::matmulShare(MathFormat format) const {
  if (format == MathFormat::kF8 && f8MatmulEfficiency > 0) return f8MatmulEfficiency;
  if (format == MathFormat::kF32 && f32MatmulEfficiency > 0) return f32MatmulEfficiency;
  if (format == MathFormat::kTf32 && tf32MatmulEfficiency > 0) return tf32MatmulEfficiency;
  if (format == MathFormat::kF16 && f16MatmulEfficiency > 0) return f16MatmulEfficiency;
  return matmulEfficiency;
}

AttentionRate DeviceSpec::attentionRate(AttentionKind kind) const {
  for (const AttentionRate& rate : attention)
    if (rate.kind == kind) return rate;
  return {kind, attentionEfficiency, attentionEfficiency};
}

const KernelTiming* DeviceSpec::kernel(std::string_view name, DType dtype) const {
  for (const KernelTiming& timing : kernels)
    if (timing.dtype == dtype && timing.kernel == name) return &timing;
  return nullptr;
}

const std::vector<std::string>& measuredKernelNames() {
  static const std::vector<std::string> names = {"embedding",
                                                 "add_position",
                                                 "dropout",
                                                 "layer_norm",
                                                 "rms_norm",
                                                 "matmul",
                                                 "bias_add",
                                                 "gelu",
                                                 "swiglu",
                                                 "rotary",
                                                 "attention",
                                                 "add",
                                                 "loss_max",
                                                 "loss_target",
                                                 "loss_sum_exp",
                                                 "token_loss",
                                                 "embedding_grad",
                                                 "position_grad",
                                                 "layer_norm_grad",
                                                 "rms_norm_grad",
                                                 "matmul_grad_input",
                                                 "matmul_grad_weight",
                                                 "bias_grad",
                                                 "gelu_grad",
                                                 "swiglu_grad",
                                                 "rotary_grad",
                                                 "attention_grad",
                                                 "loss_grad",
                                                 "sum_squares",
                                                 "adamw",
                                                 "matmul_tf32",
                                                 "matmul_grad_input_tf32",
                                                 "matmul_grad_weight_tf32"};
  return names;
}

int64_t ClusterSpec::devicesPerHost() const {
  constexpr int64_t kMost = 16;  // DGX-2
  if (hostDevices > 0) return hostDevices;
  const auto isNetwork = [](const LinkTier& tier) {
    return tier.nics > 0 || tier.topology == TierTopology::kRails ||
           tier.topology == TierTopology::kTree;
  };
  if (!tiers.empty() && isNetwork(tiers.front())) return 1;
  const size_t numInner = tiers.size() > 1 ? tiers.size() - 1 : tiers.size();
  int64_t devices = 0;
  for (size_t i = 0; i < numInner && !isNetwork(tiers[i]); ++i)
    if (tiers[i].devices <= kMost) devices = tiers[i].devices;
  return devices;
}

bool ClusterSpec::holdsGroup(size_t tier, int64_t group) const {
  TRIREME_CHECK(tier < tiers.size());
  const bool grows = scalable && tier + 1 == tiers.size();
  return grows || group <= tiers[tier].devices;
}

BytesPerSecond ClusterSpec::sustainedPair(size_t tier) const {
  TRIREME_CHECK(tier < tiers.size());
  const LinkTier& t = tiers[tier];
  BytesPerSecond rate = t.bandwidth;
  if (t.pairBandwidth.count() > 0)
    rate = t.pairBandwidth;
  else if (t.nics > 0)
    rate = t.bandwidth * (static_cast<double>(tier == 0 ? 1 : tiers[tier - 1].devices) /
                          static_cast<double>(t.nics));
  return rate * t.efficiency;
}

double ClusterSpec::portsPerHost(size_t tier) const {
  TRIREME_CHECK(tier > 0 && tier < tiers.size());
  const auto block = static_cast<double>(tiers[tier - 1].devices);
  const int64_t known = devicesPerHost();
  const double host = known > 0 ? std::min(static_cast<double>(known), block) : block;
  const double ports = tiers[tier].nics > 0 ? static_cast<double>(tiers[tier].nics) : block;
  return std::max(1.0, ports * host / block);
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
  for (size_t i = 0; i < cluster.tiers.size(); ++i)
    std::erase_if(cluster.tiers[i].curves, [&](const CollectiveCurve& curve) {
      return !cluster.holdsGroup(i, curve.group);
    });
  return cluster;
}

Result<ClusterSpec> withRoomFor(ClusterSpec cluster, int64_t ranks) {
  if (!cluster.scalable || ranks <= cluster.numDevices) return cluster;
  if (ranks > kMaxDevices) return withNumDevices(std::move(cluster), ranks);  // which says so
  const int64_t group =
      cluster.tiers.size() > 1 ? cluster.tiers[cluster.tiers.size() - 2].devices : 1;
  return withNumDevices(std::move(cluster), (ranks + group - 1) / group * group);
}

}  // namespace trireme::spec
