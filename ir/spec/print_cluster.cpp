#include <fmt/format.h>

#include "ir/spec/cluster_names.h"
#include "ir/spec/load.h"
#include "ir/spec/print.h"
#include "ir/spec/quantity.h"

namespace trireme::spec {
namespace {

// Writes numbers with their sources.
class ClusterPrinter {
 public:
  explicit ClusterPrinter(const Sources& sources) : sources_(sources) {}

  template <typename T>
  void line(std::string_view indent, std::string_view key, const T& value) {
    text += fmt::format("{}{}: {}\n", indent, key, value);
  }
  template <typename T>
  void sourced(std::string_view indent, const std::string& path, std::string_view key,
               const T& value) {
    const auto found = sources_.find(path + std::string(key));
    text += fmt::format("{}{}: {{value: {}, source: {}}}\n", indent, key, textOf(value),
                        printText(found == sources_.end() ? "" : found->second));
  }

  // Left out if it is what the loader takes for a key that is not there.
  template <typename T>
  void sourcedUnless(const T& absent, std::string_view indent, const std::string& path,
                     std::string_view key, const T& value) {
    if (value != absent || sources_.count(path + std::string(key)) > 0)
      sourced(indent, path, key, value);
  }

  std::string text;

 private:
  static std::string textOf(double value) { return fmt::format("{}", value); }
  static std::string textOf(int64_t value) { return fmt::format("{}", value); }
  template <typename Tag>
  static std::string textOf(Quantity<Tag> value) {
    return printQuantity(value);
  }

  const Sources& sources_;
};

void printKernels(const std::vector<KernelTiming>& kernels, ClusterPrinter& out) {
  if (kernels.empty()) return;
  out.text += "  kernels:\n";
  for (const KernelTiming& kernel : kernels) {
    out.line("    - ", "kernel", kernel.kernel);
    out.line("      ", "dtype", dtypeName(kernel.dtype));
    out.line("      ", "source", printText(kernel.source));
    for (const EnumName<KernelUnit>& unit : kKernelUnits)
      if (const Seconds per = kernel.per[static_cast<size_t>(unit.value)]; per.count() != 0)
        out.line("      ", unit.name, printQuantity(per));
  }
}

void printDevice(const DeviceSpec& device, ClusterPrinter& out) {
  out.text += "device:\n";
  out.line("  ", "name", printText(device.name));
  if (!device.caution.empty()) out.line("  ", "caution", printText(device.caution));
  out.line("  ", "kind", nameOf(kKinds, device.kind));
  out.text += "  matmul:\n";
  for (const PeakRate& peak : device.matmul)
    out.sourced("    ", "device.matmul.", mathFormatName(peak.format), peak.rate);
  const auto number = [&](std::string_view key, const auto& value) {
    out.sourced("  ", "device.", key, value);
  };
  const auto numberUnless = [&](const auto& absent, std::string_view key, const auto& value) {
    out.sourcedUnless(absent, "  ", "device.", key, value);
  };
  const DeviceSpec absent;
  number("matmul_efficiency", device.matmulEfficiency);
  numberUnless(device.matmulEfficiency, "attention_efficiency", device.attentionEfficiency);
  number("memory", device.memory);
  number("memory_bandwidth", device.memoryBandwidth);
  number("memory_efficiency", device.memoryEfficiency);
  number("launch_overhead", device.launchOverhead);
  numberUnless(absent.power, "power", device.power);
  numberUnless(absent.computeCapability, "compute_capability", device.computeCapability);
  numberUnless(absent.numMultiprocessors, "multiprocessors", device.numMultiprocessors);
  numberUnless(absent.tileDelivery, "tile_delivery", device.tileDelivery);
  numberUnless(absent.depthRamp, "depth_ramp", device.depthRamp);
  numberUnless(absent.waveShare, "wave_share", device.waveShare);
  numberUnless(absent.batchedMatmulEfficiency, "batched_matmul_efficiency",
               device.batchedMatmulEfficiency);
  numberUnless(absent.f8MatmulEfficiency, "f8_matmul_efficiency", device.f8MatmulEfficiency);
  numberUnless(absent.f32MatmulEfficiency, "f32_matmul_efficiency", device.f32MatmulEfficiency);
  numberUnless(absent.tf32MatmulEfficiency, "tf32_matmul_efficiency", device.tf32MatmulEfficiency);
  numberUnless(absent.f16MatmulEfficiency, "f16_matmul_efficiency", device.f16MatmulEfficiency);
  numberUnless(absent.accumulationExposed, "accumulation_exposed", device.accumulationExposed);
  for (const AttentionRate& rate : device.attention) {
    number(fmt::format("{}_forward", nameOf(kFlashKinds, rate.kind)), rate.forward);
    number(fmt::format("{}_backward", nameOf(kFlashKinds, rate.kind)), rate.backward);
  }
  printKernels(device.kernels, out);
}

void printCurve(const CollectiveCurve& curve, ClusterPrinter& out) {
  out.line("      - ", "collective", nameOf(kCollectives, curve.kind));
  out.line("        ", "group", curve.group);
  if (curve.perBlock > 0) out.line("        ", "per_block", curve.perBlock);
  out.line("        ", "source", printText(curve.source));
  out.text += "        points:\n";
  for (const CollectivePoint& point : curve.points)
    out.text += fmt::format("          - [{}, {}]\n", printQuantity(point.bytes),
                            printQuantity(point.busBandwidth));
}

void printTier(const LinkTier& tier, const std::string& path, ClusterPrinter& out) {
  out.line("  - ", "name", printText(tier.name));
  out.line("    ", "topology", nameOf(kTopologies, tier.topology));
  out.line("    ", "devices", tier.devices);
  const LinkTier absent;
  out.sourced("    ", path, "bandwidth", tier.bandwidth);
  out.sourcedUnless(absent.efficiency, "    ", path, "efficiency", tier.efficiency);
  out.sourcedUnless(absent.oversubscription, "    ", path, "oversubscription",
                    tier.oversubscription);
  out.sourcedUnless(absent.nics, "    ", path, "nics", tier.nics);
  out.sourcedUnless(absent.pairBandwidth, "    ", path, "pair_bandwidth", tier.pairBandwidth);
  out.sourced("    ", path, "latency", tier.latency);
  if (tier.curves.empty()) return;
  out.text += "    curves:\n";
  for (const CollectiveCurve& curve : tier.curves) printCurve(curve, out);
}

}  // namespace

Result<std::string> printCluster(const ClusterSpec& cluster) {
  ClusterPrinter out(cluster.sources);
  out.line("", "name", printText(cluster.name));
  out.line("", "num_devices", cluster.numDevices);
  out.line("", "scalable", cluster.scalable);
  if (cluster.hostDevices > 0) out.line("", "devices_per_host", cluster.hostDevices);
  printDevice(cluster.device, out);
  out.text += "tiers:\n";
  for (size_t i = 0; i < cluster.tiers.size(); ++i)
    printTier(cluster.tiers[i], fmt::format("tiers[{}].", i), out);
  // The loader knows every rule; a number without a source breaks one of them.
  if (const Result<ClusterSpec> again = parseCluster(out.text, "printed cluster");
      !again.has_value())
    return Error(again.error());
  return std::move(out.text);
}

}  // namespace trireme::spec
