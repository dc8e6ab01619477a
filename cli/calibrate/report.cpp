#include "cli/calibrate/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ir/base/format.h"
#include "ir/spec/cluster_names.h"

namespace trireme::cli {
namespace {

std::string rateText(FlopsPerSecond rate) {
  return rate.count() < 1e13 ? fmt::format("{:.1f} GFLOP/s", rate.count() * 1e-9)
                             : fmt::format("{:.1f} TFLOP/s", rate.count() * 1e-12);
}

bool isHost(const MeasuredCluster& measured) {
  return measured.cluster.device.kind == spec::DeviceKind::kHost;
}

// What large products reach.
FlopsPerSecond reachedRate(const spec::DeviceSpec& device, const spec::PeakRate& peak) {
  return peak.rate * device.matmulShare(peak.format);
}

BytesPerSecond reachedBandwidth(const spec::DeviceSpec& device) {
  return device.memoryBandwidth * device.memoryEfficiency;
}

// The file may have rates of more formats.
bool isMeasured(const MeasuredCluster& measured, MathFormat format) {
  const auto& kernels = measured.fit.kernels;
  return std::any_of(kernels.begin(), kernels.end(), [&](const spec::KernelTiming& kernel) {
    const bool tf32 = kernel.kernel.ends_with("_tf32");
    return (tf32 ? MathFormat::kTf32 : mathFormatOf(kernel.dtype)) == format &&
           kernel.kernel.starts_with("matmul");
  });
}

// Of the largest payload, among the ranks of the measurement.
std::string allReduceText(const MeasuredCluster& measured) {
  std::string text = "none: there is one rank";
  for (const spec::LinkTier& tier : measured.cluster.tiers)
    for (const spec::CollectiveCurve& curve : tier.curves)
      if (curve.kind == spec::CollectiveKind::kAllReduce && curve.group == measured.numRanks)
        text = fmt::format("{} bus bandwidth among {} ranks at {}",
                           bandwidthText(curve.points.back().busBandwidth), curve.group,
                           formatBytes(curve.points.back().bytes));
  return text;
}

// With its size: of a product tokens x inputs, tokens x outputs and so on.
nlohmann::json toJson(const spec::KernelTiming& kernel, const cost::FittedTime& time) {
  nlohmann::json json = {{"kernel", kernel.kernel},
                         {"dtype", dtypeName(kernel.dtype)},
                         {"measuredSeconds", time.measured.count()},
                         {"fittedSeconds", time.fitted.count()}};
  for (const spec::EnumName<spec::KernelUnit>& unit : spec::kKernelUnits)
    if (const double count = time.counts[static_cast<size_t>(unit.value)]; count > 0)
      json["counts"][std::string(unit.name)] = count;
  return json;
}

}  // namespace

std::string bandwidthText(BytesPerSecond rate) {
  return fmt::format("{:.1f} GB/s", rate.count() * 1e-9);
}

nlohmann::json curvesJson(const spec::ClusterSpec& cluster) {
  nlohmann::json curves = nlohmann::json::array();
  for (const spec::LinkTier& tier : cluster.tiers)
    for (const spec::CollectiveCurve& curve : tier.curves) {
      nlohmann::json points = nlohmann::json::array();
      for (const spec::CollectivePoint& point : curve.points)
        points.push_back({point.bytes.count(), point.busBandwidth.count()});
      curves.push_back({{"tier", tier.name},
                        {"collective", spec::nameOf(spec::kCollectives, curve.kind)},
                        {"group", curve.group},
                        {"perBlock", curve.perBlock},
                        {"bytesAndBusBandwidth", std::move(points)}});
    }
  return curves;
}

nlohmann::json toJson(const MeasuredCluster& measured) {
  const spec::DeviceSpec& device = measured.cluster.device;
  nlohmann::json json = {{"cluster", measured.cluster.name},
                         {"ranks", measured.numRanks},
                         {"memoryBytes", device.memory.count()},
                         {"memoryBandwidth", reachedBandwidth(device).count()},
                         {"launchSeconds", device.launchOverhead.count()},
                         {"curves", curvesJson(measured.cluster)}};
  for (const spec::PeakRate& peak : device.matmul)
    if (isMeasured(measured, peak.format))
      json["matmulFlopsPerSecond"][std::string(mathFormatName(peak.format))] =
          reachedRate(device, peak).count();
  for (const MeasuredStream& stream : measured.streams)
    json["streams"][stream.name] = stream.bandwidth.count();
  for (size_t i = 0; i < measured.fit.kernels.size(); ++i) {
    const spec::KernelTiming& kernel = measured.fit.kernels[i];
    nlohmann::json entry = {{"kernel", kernel.kernel},
                            {"dtype", dtypeName(kernel.dtype)},
                            {"sizes", measured.fit.numTimed[i]},
                            {"meanError", measured.fit.meanErrors[i]}};
    for (const spec::EnumName<spec::KernelUnit>& unit : spec::kKernelUnits)
      if (const Seconds per = kernel.per[static_cast<size_t>(unit.value)]; per.count() > 0)
        entry["secondsPer"][std::string(unit.name)] = per.count();
    json["kernels"].push_back(std::move(entry));
    for (const cost::FittedTime& time : measured.fit.times[i])
      json["timedKernels"].push_back(toJson(kernel, time));
  }
  return json;
}

std::string toTable(const MeasuredCluster& measured) {
  const spec::DeviceSpec& device = measured.cluster.device;
  std::string text = fmt::format("{:<14}{}, {} of this machine's ranks at once\n", "cluster",
                                 measured.cluster.name, measured.numRanks);
  if (!isHost(measured)) text += fmt::format("{:<14}{}\n", "GPU", device.name);
  for (const spec::PeakRate& peak : device.matmul)
    if (isMeasured(measured, peak.format))
      text += fmt::format("{:<14}{}, {} per rank\n", "products", mathFormatName(peak.format),
                          rateText(reachedRate(device, peak)));
  text += fmt::format("{:<14}{} and {} per rank\n", "memory", formatBytes(device.memory),
                      bandwidthText(reachedBandwidth(device)));
  if (!isHost(measured))
    text += fmt::format("{:<14}{} each\n", "launches", formatSeconds(device.launchOverhead));
  text += fmt::format("{:<14}{}\n", "all-reduce", allReduceText(measured));
  double error = 0;
  int timed = 0;
  for (size_t i = 0; i < measured.fit.kernels.size(); ++i) {
    error += measured.fit.meanErrors[i] * measured.fit.numTimed[i];
    timed += measured.fit.numTimed[i];
  }
  text += fmt::format("{:<14}{} fitted to {} times, mean error {:.1f} %\n", "kernels",
                      measured.fit.kernels.size(), timed, error / timed * 100);
  return text;
}

}  // namespace trireme::cli
