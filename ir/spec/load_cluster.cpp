#include <fmt/format.h>

#include <algorithm>

#include "ir/spec/cluster_names.h"
#include "ir/spec/load.h"
#include "ir/spec/print.h"
#include "ir/spec/quantity.h"
#include "ir/spec/shipped.h"
#include "ir/spec/sourced.h"

namespace trireme::spec {
namespace {

// A map, and the file that it is in.
struct Part {
  std::string file;
  Node node;
};

// The map at `node` itself or, if `node` is a name, that of the shipped file of this name. `path`
// is the subject of messages: "device.".
Result<Part> openPart(const std::string& file, const Node& node, const std::string& path,
                      ShippedKind kind) {
  if (node.kind != Node::Kind::kScalar) return Part{file, node};
  if (const ShippedFile* shipped = findShipped(kind, node.text)) {
    const std::string name = shippedPath(*shipped);
    TRIREME_ASSIGN_OR_RETURN(Node root, parseDocument(std::string(shipped->text), name));
    return Part{name, std::move(root)};
  }
  return Error(errorAt(
      file, node.mark,
      fmt::format("{}: unknown {} {}{}", path.substr(0, path.size() - 1), shippedKindName(kind),
                  describe(node), suggestion(node.text, shippedNames(kind)))));
}

void readMatmul(MapReader& device, DeviceSpec* spec, Sources* sources) {
  const Node* node = device.requiredChild("matmul");
  if (!node) return;
  MapReader map(device.file(), *node, device.path() + "matmul.");
  map.collectSources(sources);
  for (const MathFormat format : kFormats) {
    if (!map.child(mathFormatName(format))) continue;
    PeakRate peak{format, {}};
    readPositive(map, mathFormatName(format), &peak.rate);
    spec->matmul.push_back(peak);
  }
  device.merge(map.finish());
  if (spec->matmul.empty())
    device.fail(*node, "needs the rate of at least one of f64, f32, tf32, bf16, f16, f8, f4");
}

constexpr double kMostCapability = 20;

// How products fall short of matmul_efficiency.
void readTiling(MapReader& map, DeviceSpec* device) {
  const auto notNegative = [&](std::string_view key, double* out) {
    if (map.child(key)) readNotNegative(map, key, out);
  };
  const auto efficiency = [&](std::string_view key, double* out) {
    if (map.child(key)) readEfficiency(map, key, out);
  };
  readPositiveIfGiven(map, "compute_capability", &device->computeCapability);
  if (device->computeCapability > kMostCapability)
    map.fail(*map.child("compute_capability"),
             fmt::format("must be at most {}, as 9.0 for sm_90, got {}", kMostCapability,
                         device->computeCapability));
  readPositiveIfGiven(map, "multiprocessors", &device->numMultiprocessors);
  notNegative("tile_delivery", &device->tileDelivery);
  notNegative("depth_ramp", &device->depthRamp);
  notNegative("wave_share", &device->waveShare);
  efficiency("f8_matmul_efficiency", &device->f8MatmulEfficiency);
  efficiency("f32_matmul_efficiency", &device->f32MatmulEfficiency);
  efficiency("tf32_matmul_efficiency", &device->tf32MatmulEfficiency);
  efficiency("f16_matmul_efficiency", &device->f16MatmulEfficiency);
  efficiency("batched_matmul_efficiency", &device->batchedMatmulEfficiency);
  efficiency("accumulation_exposed", &device->accumulationExposed);
  for (const EnumName<AttentionKind>& kind : kFlashKinds) {
    const std::string forward = fmt::format("{}_forward", kind.name);
    const std::string backward = fmt::format("{}_backward", kind.name);
    if (!map.child(forward) && !map.child(backward)) continue;
    AttentionRate rate{kind.value};
    readEfficiency(map, forward, &rate.forward);
    readEfficiency(map, backward, &rate.backward);
    device->attention.push_back(rate);
  }
}

void readKernel(MapReader& owner, const Node& node, const std::string& path, DeviceSpec* device) {
  MapReader map(owner.file(), node, path);
  KernelTiming timing;
  std::string dtype;
  map.required("kernel", &timing.kernel);
  map.required("dtype", &dtype);
  map.required("source", &timing.source);
  Seconds sum;
  for (const EnumName<KernelUnit>& unit : kKernelUnits) {
    Seconds& per = timing.per[static_cast<size_t>(unit.value)];
    map.optional(unit.name, &per);
    if (per.count() < 0) map.fail(*map.child(unit.name), "must not be negative");
    if (const Status status = checkMost(per); !status.ok())
      map.check(*map.child(unit.name), status);
    sum += per;
  }
  if (map.firstValueError().ok()) {
    const std::vector<std::string>& names = measuredKernelNames();
    const std::optional<DType> type = parseDType(dtype);
    timing.dtype = type.value_or(DType::kI32);
    if (std::find(names.begin(), names.end(), timing.kernel) == names.end())
      map.merge(map.errorFor({"kernel", fmt::format("unknown kernel '{}'{}", timing.kernel,
                                                    suggestion(timing.kernel, names))}));
    else if (!type || !mathFormatOf(*type))
      map.merge(
          map.errorFor({"dtype", fmt::format("must be f64, f32, bf16 or f16, got '{}'", dtype)}));
    else if (device->kernel(timing.kernel, timing.dtype) != nullptr)
      map.merge(map.errorFor(
          {"kernel", fmt::format("there is a {} in {} already", timing.kernel, dtype)}));
    else if (timing.source.find_first_not_of(" \t\n\r") == std::string::npos)
      map.merge(map.errorFor({"source", "is empty: say where the times come from"}));
    else if (!(sum.count() > 0))
      map.merge(map.errorFor({"kernel",
                              "takes no time: give a time for at least one of call, row, "
                              "element, product, ..."}));
  }
  owner.merge(map.finish());
  device->kernels.push_back(std::move(timing));
}

void readKernels(MapReader& map, DeviceSpec* device) {
  const Node* node = map.child("kernels");
  if (!node) return;
  if (node->kind != Node::Kind::kList)
    return map.fail(*node,
                    fmt::format("expected a list of measured kernels, got {}", describe(*node)));
  for (size_t i = 0; i < node->items.size() && map.firstValueError().ok(); ++i)
    readKernel(map, node->items[i], fmt::format("{}kernels[{}].", map.path(), i), device);
}

// Slips of a unit show: twice the fastest port that is announced (800 Gbit/s), or memory.
constexpr BytesPerSecond kFastestPort(200e9);
constexpr Bytes kMostGpuMemory(4e12);

// Of a GPU narrower formats are no slower, but for f64 beside f32, and for f16, which a P40 has for
// memory's sake alone, 64 times slower.
void checkGpu(MapReader& map, const DeviceSpec& device) {
  if (device.memory > kMostGpuMemory)
    map.fail(*map.child("memory"),
             fmt::format("must be at most {} on a GPU, got {}", printQuantity(kMostGpuMemory),
                         printQuantity(device.memory)));
  constexpr double kWithoutUnits = 100;
  const auto placeOf = [](MathFormat format) {
    return format == MathFormat::kF16 ? MathFormat::kBf16 : format;
  };
  for (const PeakRate& wide : device.matmul)
    for (const PeakRate& narrow : device.matmul)
      if (wide.format != MathFormat::kF64 && placeOf(narrow.format) > placeOf(wide.format) &&
          narrow.rate * (narrow.format == MathFormat::kF16 ? kWithoutUnits : 1) < wide.rate)
        return map.fail(*map.child("matmul"),
                        fmt::format("{} is slower with {} than {} with {}: is a unit wrong?",
                                    mathFormatName(narrow.format), printQuantity(narrow.rate),
                                    mathFormatName(wide.format), printQuantity(wide.rate)));
}

void readDevice(MapReader& cluster, DeviceSpec* device, Sources* sources) {
  const Node* node = cluster.requiredChild("device");
  if (!node) return;
  const Result<Part> part = openPart(cluster.file(), *node, "device.", ShippedKind::kDevice);
  if (!part.has_value()) return cluster.merge(part.error());
  MapReader map(part->file, part->node, "device.");
  map.collectSources(sources);
  map.required("name", &device->name);
  map.optional("caution", &device->caution);
  map.required("kind", kKinds, &device->kind);
  readMatmul(map, device, sources);
  readEfficiency(map, "matmul_efficiency", &device->matmulEfficiency);
  device->attentionEfficiency = device->matmulEfficiency;
  if (map.child("attention_efficiency"))
    readEfficiency(map, "attention_efficiency", &device->attentionEfficiency);
  readPositive(map, "memory", &device->memory);
  readPositive(map, "memory_bandwidth", &device->memoryBandwidth);
  readEfficiency(map, "memory_efficiency", &device->memoryEfficiency);
  readNotNegative(map, "launch_overhead", &device->launchOverhead);
  readPositiveIfGiven(map, "power", &device->power);
  readTiling(map, device);
  readKernels(map, device);
  if (map.firstValueError().ok() && device->kind == DeviceKind::kCuda) checkGpu(map, *device);
  cluster.merge(map.finish());
}

// [1 MiB, 45 GB/s]
Status readPoint(const Node& node, std::vector<CollectivePoint>* points) {
  if (node.kind != Node::Kind::kList || node.items.size() != 2)
    return invalidArgument(fmt::format(
        "expected a size and a bus bandwidth such as [1 MiB, 45 GB/s], got {}", describe(node)));
  CollectivePoint point;
  TRIREME_RETURN_IF_ERROR(readValue(node.items[0], &point.bytes));
  TRIREME_RETURN_IF_ERROR(readValue(node.items[1], &point.busBandwidth));
  if (!(point.bytes.count() > 0 && point.busBandwidth.count() > 0))
    return invalidArgument("the size and the bus bandwidth must be above 0");
  TRIREME_RETURN_IF_ERROR(checkLimits(point.bytes));
  TRIREME_RETURN_IF_ERROR(checkLimits(point.busBandwidth));
  if (!points->empty() && point.bytes <= points->back().bytes)
    return invalidArgument(fmt::format("sizes must increase, {} does not after {}",
                                       printQuantity(point.bytes),
                                       printQuantity(points->back().bytes)));
  points->push_back(point);
  return {};
}

void readPoints(MapReader& map, std::vector<CollectivePoint>* points) {
  const Node* node = map.requiredChild("points");
  if (!node) return;
  if (node->kind != Node::Kind::kList || node->items.empty()) {
    map.fail(*node,
             fmt::format("expected a list of points such as [[1 MiB, 45 GB/s]], got {}",
                         node->kind == Node::Kind::kList ? "an empty one" : describe(*node)));
    return;
  }
  for (size_t i = 0; i < node->items.size(); ++i) {
    const Node& item = node->items[i];
    const Status status = readPoint(item, points);
    if (status.ok()) continue;
    map.merge(errorAt(map.file(), item.mark,
                      fmt::format("{}points[{}]: {}", map.path(), i, status.message())));
    return;
  }
}

// `largest`: devices that a group of the tier may have.
void readCurve(MapReader& owner, const Node& node, const std::string& path, int64_t largest,
               LinkTier* tier) {
  MapReader map(owner.file(), node, path);
  CollectiveCurve curve;
  map.required("collective", kCollectives, &curve.kind);
  map.required("group", &curve.group);
  map.optional("per_block", &curve.perBlock);
  map.required("source", &curve.source);
  readPoints(map, &curve.points);
  if (map.firstValueError().ok()) {
    const auto same = [&](const CollectiveCurve& other) {
      return other.kind == curve.kind && other.group == curve.group &&
             other.perBlock == curve.perBlock;
    };
    if (curve.group < 2)
      map.merge(
          map.errorFor({"group", fmt::format("must be at least 2 devices, got {}", curve.group)}));
    else if (curve.group > largest)
      map.merge(map.errorFor({"group", fmt::format("must be at most the {} devices of the tier, "
                                                   "got {}",
                                                   largest, curve.group)}));
    else if (curve.perBlock < 0 || (curve.perBlock > 0 && curve.group % curve.perBlock != 0))
      map.merge(map.errorFor({"per_block", fmt::format("must divide the group of {}, got {}",
                                                       curve.group, curve.perBlock)}));
    else if (std::any_of(tier->curves.begin(), tier->curves.end(), same))
      map.merge(
          map.errorFor({"group", fmt::format("there is a curve of {} among {} devices already",
                                             nameOf(kCollectives, curve.kind), curve.group)}));
    else if (curve.source.find_first_not_of(" \t\n\r") == std::string::npos)
      map.merge(map.errorFor({"source", "is empty: say where the curve comes from"}));
  }
  owner.merge(map.finish());
  tier->curves.push_back(std::move(curve));
}

void readCurves(MapReader& map, int64_t largest, LinkTier* tier) {
  const Node* node = map.child("curves");
  if (!node) return;
  if (node->kind != Node::Kind::kList) {
    map.fail(*node, fmt::format("expected a list of curves, got {}", describe(*node)));
    return;
  }
  for (size_t i = 0; i < node->items.size() && map.firstValueError().ok(); ++i)
    readCurve(map, node->items[i], fmt::format("{}curves[{}].", map.path(), i), largest, tier);
}

// Of any network on Earth, there and back.
constexpr Seconds kMostLatency(1);

// Tiers nest: each joins whole groups of the one before, and the last joins all devices.
std::optional<Problem> findProblem(const LinkTier& tier, int64_t inner, bool isLast,
                                   int64_t numDevices) {
  if (tier.devices < 1)
    return Problem{"devices", fmt::format("must be at least 1, got {}", tier.devices)};
  if (tier.devices % inner != 0)
    return Problem{"devices", fmt::format("must be a multiple of the tier before ({}), got {}",
                                          inner, tier.devices)};
  if (isLast && tier.devices != numDevices)
    return Problem{"devices", fmt::format("the last tier must span all {} devices, got {}",
                                          numDevices, tier.devices)};
  if (tier.oversubscription < 1)
    return Problem{"oversubscription",
                   fmt::format("is what devices can send over what the tier carries, so at least "
                               "1, got {}",
                               tier.oversubscription)};
  if (tier.latency > kMostLatency)
    return Problem{"latency",
                   fmt::format("must be at most {:g} s, got {:g} s (us are microseconds)",
                               kMostLatency.count(), tier.latency.count())};
  if (tier.nics > 0) {
    const BytesPerSecond port =
        tier.bandwidth * (static_cast<double>(inner) / static_cast<double>(tier.nics));
    if (port > kFastestPort)
      return Problem{
          "bandwidth",
          fmt::format("of {} a device is {:.0f} Gbit/s a port ({} ports for {} devices), "
                      "faster than any: is it Gbit/s instead of GB/s?",
                      printQuantity(tier.bandwidth), port.count() / 125e6, tier.nics, inner)};
  }
  if (tier.pairBandwidth.count() > 0 && tier.nics > 0)
    return Problem{"pair_bandwidth", "follows from nics: remove one of them"};
  return std::nullopt;
}

// The last tier joins all devices, whose number the file says elsewhere.
void failOnDevices(MapReader& cluster, int64_t inner, int64_t numDevices) {
  const int64_t fewer = numDevices / inner * inner;
  const std::string message = fmt::format(
      "must be a multiple of the {} devices of a block of the tier before the last, got {}; "
      "nearest: {}{}",
      inner, numDevices, fewer > 0 ? fmt::format("{} or ", fewer) : "", fewer + inner);
  cluster.merge(cluster.errorFor({"num_devices", message}));
}

void readTier(MapReader& cluster, const Node& node, const std::string& path, bool isLast,
              ClusterSpec* spec) {
  const Result<Part> part = openPart(cluster.file(), node, path, ShippedKind::kLink);
  if (!part.has_value()) return cluster.merge(part.error());
  MapReader map(part->file, part->node, path);
  map.collectSources(&spec->sources);
  const int64_t inner = spec->tiers.empty() ? 1 : spec->tiers.back().devices;
  LinkTier tier;
  map.required("name", &tier.name);
  for (const LinkTier& before : spec->tiers)
    if (const Node* name = map.child("name"); name && before.name == tier.name)
      map.fail(*name,
               fmt::format("is '{}', as of a tier before: names tell links apart", tier.name));
  map.optional("topology", kTopologies, &tier.topology);
  if (isLast) {
    tier.devices = spec->numDevices;
    map.optional("devices", &tier.devices);
  } else {
    map.required("devices", &tier.devices);
  }
  readPositive(map, "bandwidth", &tier.bandwidth);
  if (map.child("efficiency")) readEfficiency(map, "efficiency", &tier.efficiency);
  readPositiveIfGiven(map, "oversubscription", &tier.oversubscription);
  readPositiveIfGiven(map, "nics", &tier.nics);
  readPositiveIfGiven(map, "pair_bandwidth", &tier.pairBandwidth);
  readNotNegative(map, "latency", &tier.latency);
  if (map.firstValueError().ok())
    if (const std::optional<Problem> problem = findProblem(tier, inner, isLast, spec->numDevices)) {
      if (isLast && problem->key == "devices" && map.isAbsent("devices"))
        failOnDevices(cluster, inner, spec->numDevices);
      else
        map.merge(map.errorFor(*problem));
    }
  // A scalable cluster may have been measured at another size than the file's.
  readCurves(map, isLast && spec->scalable ? kMaxDevices : tier.devices, &tier);
  spec->tiers.push_back(std::move(tier));
  cluster.merge(map.finish());
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

// A block of a tier has whole hosts, or a host has whole blocks; the cluster has whole hosts.
Status checkHosts(const ClusterSpec& cluster) {
  const int64_t host = cluster.hostDevices;
  for (size_t i = 0; i < cluster.tiers.size(); ++i) {
    const int64_t block = cluster.tiers[i].devices;
    const bool isLast = i + 1 == cluster.tiers.size();
    if (block % host == 0 || (!isLast && host % block == 0)) continue;
    int64_t nearest = std::min(host, block);
    while (block % nearest != 0) --nearest;
    return invalidArgument(fmt::format("must divide the {} devices of {}{}, got {}; nearest: {}",
                                       block, isLast ? "the cluster" : "a block of tier ",
                                       isLast ? "" : cluster.tiers[i].name, host, nearest));
  }
  return {};
}

}  // namespace

Result<DeviceSpec> shippedDevice(const std::string& name, Sources* sources) {
  const std::string file = "device " + name;
  TRIREME_ASSIGN_OR_RETURN(const Node root, parseDocument("device: " + printText(name), file));
  MapReader map(file, root);
  DeviceSpec device;
  readDevice(map, &device, sources);
  TRIREME_RETURN_IF_ERROR(map.finish());
  return device;
}

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
  map.optional("devices_per_host", &cluster.hostDevices);
  if (const Node* node = map.child("devices_per_host");
      node && (cluster.hostDevices < 1 || cluster.hostDevices > kMaxDevices))
    map.fail(*node, fmt::format("must be 1 to {}, got {}", kMaxDevices, cluster.hostDevices));
  readDevice(map, &cluster.device, &cluster.sources);
  readTiers(map, &cluster);
  if (const Node* node = map.child("devices_per_host"); node && map.firstValueError().ok())
    if (const Status status = checkHosts(cluster); !status.ok()) map.fail(*node, status.message());
  TRIREME_RETURN_IF_ERROR(map.finish());
  return cluster;
}

}  // namespace trireme::spec
