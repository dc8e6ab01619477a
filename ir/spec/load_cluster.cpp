#include <fmt/format.h>

#include "ir/spec/load.h"
#include "ir/spec/map_reader.h"
#include "ir/spec/sourced.h"

namespace trireme::spec {
namespace {

constexpr EnumName<DeviceKind> kKindArray[] = {{"host", DeviceKind::kHost},
                                               {"cuda", DeviceKind::kCuda}};
constexpr std::span<const EnumName<DeviceKind>> kKinds = kKindArray;

void readMatmul(MapReader& device, std::vector<PeakRate>* rates) {
  const Node* node = device.requiredChild("matmul");
  if (!node) return;
  MapReader map(device.file(), *node, device.path() + "matmul.");
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBf16, DType::kF16}) {
    if (!map.child(dtypeName(dtype))) continue;
    PeakRate peak{dtype, {}};
    readPositive(map, dtypeName(dtype), &peak.rate);
    rates->push_back(peak);
  }
  device.merge(map.finish());
  if (rates->empty()) device.fail(*node, "needs the rate of at least one of f64, f32, bf16, f16");
}

// How products fall short of matmul_efficiency; only with a number of multiprocessors.
void readTiling(MapReader& map, DeviceSpec* device) {
  if (!map.child("multiprocessors")) return;
  map.requiredSourced("multiprocessors", &device->numMultiprocessors);
  if (map.firstValueError().ok() && device->numMultiprocessors < 1)
    map.fail(*map.child("multiprocessors"), "must be at least 1");
  readNotNegative(map, "tile_delivery", &device->tileDelivery);
  readNotNegative(map, "depth_ramp", &device->depthRamp);
  readNotNegative(map, "wave_share", &device->waveShare);
  readEfficiency(map, "batched_matmul_efficiency", &device->batchedMatmulEfficiency);
  readEfficiency(map, "attention_backward_efficiency", &device->attentionBackwardEfficiency);
}

void readDevice(MapReader& cluster, DeviceSpec* device) {
  const Node* node = cluster.requiredChild("device");
  if (!node) return;
  MapReader map(cluster.file(), *node, "device.");
  map.required("name", &device->name);
  map.required("kind", kKinds, &device->kind);
  readMatmul(map, &device->matmul);
  readEfficiency(map, "matmul_efficiency", &device->matmulEfficiency);
  device->attentionEfficiency = device->matmulEfficiency;
  if (map.child("attention_efficiency"))
    readEfficiency(map, "attention_efficiency", &device->attentionEfficiency);
  readPositive(map, "memory", &device->memory);
  readPositive(map, "memory_bandwidth", &device->memoryBandwidth);
  readEfficiency(map, "memory_efficiency", &device->memoryEfficiency);
  readNotNegative(map, "launch_overhead", &device->launchOverhead);
  readTiling(map, device);
  cluster.merge(map.finish());
}

// Tiers nest: each joins whole groups of the one before, and the last joins all devices.
void readTier(MapReader& cluster, const Node& node, const std::string& path, bool isLast,
              ClusterSpec* spec) {
  MapReader map(cluster.file(), node, path);
  const int64_t inner = spec->tiers.empty() ? 1 : spec->tiers.back().devices;
  LinkTier tier;
  map.required("name", &tier.name);
  if (isLast) {
    tier.devices = spec->numDevices;
    map.optional("devices", &tier.devices);
  } else {
    map.required("devices", &tier.devices);
  }
  readPositive(map, "bandwidth", &tier.bandwidth);
  readNotNegative(map, "latency", &tier.latency);
  if (map.firstValueError().ok()) {
    if (tier.devices < 1 || tier.devices % inner != 0)
      map.merge(
          map.errorFor({"devices", fmt::format("must be a multiple of the tier before ({}), got {}",
                                               inner, tier.devices)}));
    else if (isLast && tier.devices != spec->numDevices)
      map.merge(
          map.errorFor({"devices", fmt::format("the last tier must span all {} devices, got {}",
                                               spec->numDevices, tier.devices)}));
  }
  cluster.merge(map.finish());
  spec->tiers.push_back(tier);
}

void readTiers(MapReader& cluster, ClusterSpec* spec) {
  const Node* node = cluster.requiredChild("tiers");
  if (!node) return;
  if (node->kind != Node::Kind::kList || node->items.empty()) {
    cluster.fail(*node,
                 fmt::format("expected a list of tiers, innermost first, got {}",
                             node->kind == Node::Kind::kList ? "an empty one" : describe(*node)));
    return;
  }
  for (size_t i = 0; i < node->items.size() && cluster.firstValueError().ok(); ++i)
    readTier(cluster, node->items[i], fmt::format("tiers[{}].", i), i + 1 == node->items.size(),
             spec);
}

}  // namespace

Result<ClusterSpec> parseCluster(const std::string& text, const std::string& name) {
  TRIREME_ASSIGN_OR_RETURN(const Node root, parseDocument(text, name));
  MapReader map(name, root);
  ClusterSpec cluster;
  map.required("name", &cluster.name);
  map.required("num_devices", &cluster.numDevices);
  map.optional("scalable", &cluster.scalable);
  if (const Node* node = map.child("num_devices");
      node && (cluster.numDevices < 1 || cluster.numDevices > kMaxDevices))
    map.fail(*node, fmt::format("must be 1 to {}, got {}", kMaxDevices, cluster.numDevices));
  readDevice(map, &cluster.device);
  readTiers(map, &cluster);
  TRIREME_RETURN_IF_ERROR(map.finish());
  return cluster;
}

}  // namespace trireme::spec
