#include "cli/calibrate/gpu_cluster.h"

#include <algorithm>
#include <cmath>

#include "cost_models/compute.h"
#include "cost_models/nccl_tests.h"
#include "ir/base/format.h"
#include "ir/spec/load.h"
#include "ir/spec/quantity.h"
#include "ir/spec/shipped.h"

namespace trireme::cli {
namespace {

using runtime::Exchange;
using runtime::GpuMeasurements;

Bytes asBytes(int64_t bytes) { return Bytes(static_cast<double>(bytes)); }

// The best that kernels of a type reached, beside their launches.
struct BestRates {
  FlopsPerSecond matmul, attention;
  int numMatmuls = 0, numAttentions = 0;
};

// The innermost that holds the GPUs; cluster.tiers.size(): none.
size_t tierOf(const spec::ClusterSpec& cluster, int64_t numGpus) {
  size_t tier = 0;
  while (tier < cluster.tiers.size() && !cluster.holdsGroup(tier, numGpus)) ++tier;
  return tier;
}

class GpuCluster {
 public:
  GpuCluster(const GpuMeasurements& measurements, const GpuClusterOptions& options)
      : measured_(measurements), options_(options), source_(measurementSource(measurements)) {
    for (const GpuMeasurements::Kernel& kernel : measurements.kernels) {
      segments_.push_back(runtime::segmentOf(kernel.probe));
      const MathFormat format = formatOf(kernel.probe);
      if (!isMeasured(format)) formats_.push_back(format);
    }
  }

  Result<MeasuredCluster> describe() {
    TRIREME_RETURN_IF_ERROR(describeCluster());
    for (const GpuMeasurements::Stream& stream : measured_.streams)
      result_.streams.push_back({std::string(runtime::gpuStreamName(stream.stream)),
                                 rounded(stream.moved / stream.time)});
    if (measured_.numGpus > 1) TRIREME_RETURN_IF_ERROR(describeLinks());
    TRIREME_RETURN_IF_ERROR(fitKernels());
    describeDevice();
    return std::move(result_);
  }

 private:
  spec::ClusterSpec& cluster() { return result_.cluster; }
  spec::DeviceSpec& device() { return result_.cluster.device; }
  void source(const std::string& key, const std::string& text) { cluster().sources[key] = text; }

  Status describeCluster();
  Status addCurves();
  Status describeLinks();
  Status fitKernels();
  bool isMeasured(MathFormat format) const {
    return std::find(formats_.begin(), formats_.end(), format) != formats_.end();
  }
  BestRates bestRates(MathFormat format) const;
  void describeDevice();
  void describeMatmul(MathFormat format);
  void setShare(MathFormat format, double share, const std::string& shareSource);
  void describeAttention();
  void describeMemory();

  const GpuMeasurements& measured_;
  const GpuClusterOptions& options_;
  std::string source_;
  MeasuredCluster result_;
  bool isKnown_ = false;                    // the device has the peaks of a data sheet
  size_t tier_ = 0;                         // that joins the GPUs
  std::vector<program::Segment> segments_;  // one per kernel
  std::vector<MathFormat> formats_;         // of the kernels
};

// What is known of the GPU and of what joins it.
Status GpuCluster::describeCluster() {
  const runtime::GpuInfo& gpu = measured_.gpu;
  TRIREME_RETURN_IF_ERROR(checkBase(options_.base, gpu, measured_.numGpus));
  if (options_.base != nullptr) {
    cluster() = *options_.base;
    tier_ = tierOf(cluster(), measured_.numGpus);
    isKnown_ = true;
  } else {
    spec::LinkTier tier;
    tier.name = "links";
    tier.devices = measured_.numGpus;
    cluster().tiers = {tier};
    cluster().numDevices = measured_.numGpus;
    const std::string known = shippedDeviceOf(gpu.name, asBytes(gpu.totalBytes));
    isKnown_ = !known.empty();
    if (isKnown_) {
      TRIREME_ASSIGN_OR_RETURN(device(), spec::shippedDevice(known, &cluster().sources));
    }
  }
  result_.numRanks = measured_.numGpus;
  cluster().name = options_.name;
  device().name = gpu.name;
  device().kind = spec::DeviceKind::kCuda;
  return {};
}

// Transfers of one collective and group follow each other.
Status GpuCluster::addCurves() {
  cost::NcclSweep sweep;
  for (size_t i = 0; i < measured_.transfers.size(); ++i) {
    const GpuMeasurements::Transfer& t = measured_.transfers[i];
    if (t.exchange == Exchange::kSend) continue;
    sweep.kind = collectiveOf(t.exchange);
    sweep.numRanks = t.group;
    sweep.points.push_back(curvePoint(t.exchange, t.group, t.bytes, t.time));
    const GpuMeasurements::Transfer* next =
        i + 1 < measured_.transfers.size() ? &measured_.transfers[i + 1] : nullptr;
    if (next != nullptr && next->exchange == t.exchange && next->group == t.group) continue;
    TRIREME_RETURN_IF_ERROR(cost::addSweep(cluster(), tier_, sweep, source_));
    sweep.points.clear();
  }
  return {};
}

// What sends without a curve take is the link: a pair's bandwidth, and the latency of a ring's
// step.
Status GpuCluster::describeLinks() {
  TRIREME_RETURN_IF_ERROR(addCurves());
  spec::LinkTier& tier = cluster().tiers[tier_];
  const auto& transfers = measured_.transfers;
  const auto smallest =
      std::find_if(transfers.begin(), transfers.end(), [&](const GpuMeasurements::Transfer& t) {
        return t.exchange == Exchange::kAllReduce && t.group == measured_.numGpus;
      });
  const auto sent = std::find_if(
      transfers.begin(), transfers.end(),
      [](const GpuMeasurements::Transfer& t) { return t.exchange == Exchange::kSend; });
  if (smallest == transfers.end() || sent == transfers.end())
    return invalidArgument("no message, or no all-reduce among all GPUs, was measured");
  const BytesPerSecond pair = asBytes(sent->bytes) / sent->time;
  const std::string key = fmt::format("tiers[{}].", tier_);
  const std::string message =
      fmt::format("{}: a message of {}", source_, formatBytes(asBytes(sent->bytes)));
  const int64_t numSteps = 2 * (measured_.numGpus - 1);
  tier.latency = rounded(smallest->time / static_cast<double>(numSteps));
  source(key + "latency",
         fmt::format("{}: all-reduce of {} among {}, by its {} ring steps", source_,
                     formatBytes(asBytes(smallest->bytes)), measured_.numGpus, numSteps));
  if (options_.base == nullptr) {
    tier.bandwidth = rounded(pair);
    source(key + "bandwidth", message + ", by all pairs at once");
  } else if (tier.nics == 0) {
    tier.pairBandwidth = rounded(pair / tier.efficiency);
    source(key + "pair_bandwidth", message + ", over the efficiency");
  }
  return {};
}

Status GpuCluster::fitKernels() {
  std::vector<cost::TimedKernel> timed;
  for (size_t i = 0; i < segments_.size(); ++i) {
    const program::SegmentOp& op = segments_[i].ops.front();
    timed.push_back({std::string(cost::kernelName(op, spec::DeviceKind::kCuda)),
                     cost::kernelType(op, segments_[i].operands),
                     cost::countsOf(op, segments_[i].operands, spec::DeviceKind::kCuda),
                     measured_.kernels[i].time});
  }
  TRIREME_ASSIGN_OR_RETURN(result_.fit, cost::fitKernels(timed));
  for (size_t i = 0; i < result_.fit.kernels.size(); ++i)
    result_.fit.kernels[i].source =
        fmt::format("{}: fit to {} sizes, mean error {:.1f} %", source_, result_.fit.numTimed[i],
                    result_.fit.meanErrors[i] * 100);
  device().kernels = result_.fit.kernels;
  return {};
}

void GpuCluster::describeDevice() {
  spec::DeviceSpec& d = device();
  const runtime::GpuInfo& gpu = measured_.gpu;
  d.launchOverhead = rounded(measured_.launch);
  source("device.launch_overhead", source_ + ": of a kernel that adds 32 numbers, back to back");
  d.memory = asBytes(gpu.totalBytes);
  source("device.memory", source_ + ": all that the driver offers");
  d.computeCapability = gpu.capability / 10.0;
  source("device.compute_capability", source_ + ": as the driver says");
  d.numMultiprocessors = gpu.numMultiprocessors;
  source("device.multiprocessors", source_ + ": as the driver says");
  describeMemory();
  for (const MathFormat format : formats_) describeMatmul(format);
  std::sort(d.matmul.begin(), d.matmul.end(),
            [](const auto& a, const auto& b) { return a.format < b.format; });
  describeAttention();
  if (options_.base != nullptr || measured_.numGpus > 1) return;
  cluster().tiers.front().bandwidth = d.memoryBandwidth;
  source("tiers[0].bandwidth", "that of the memory; one GPU sends nothing");
  source("tiers[0].latency", "one GPU sends nothing");
}

// What nothing exceeds, as the model takes it.
void GpuCluster::describeMemory() {
  spec::DeviceSpec& d = device();
  MeasuredStream best;
  for (const MeasuredStream& stream : result_.streams)
    if (best.bandwidth < stream.bandwidth) best = stream;
  const std::string reached =
      fmt::format("{}: {}, {}", source_, spec::readableQuantity(best.bandwidth), best.name);
  if (isKnown_ && best.bandwidth <= d.memoryBandwidth) {
    d.memoryEfficiency = roundedTo4Digits(best.bandwidth / d.memoryBandwidth);
    source("device.memory_efficiency", reached);
    return;
  }
  d.memoryBandwidth = best.bandwidth;
  d.memoryEfficiency = 1;
  source("device.memory_bandwidth", reached);
  source("device.memory_efficiency", "the bandwidth above is measured, not a peak");
}

// As estimates have it: a launch, and then the kernel's FLOPs.
BestRates GpuCluster::bestRates(MathFormat format) const {
  const spec::StackProfile own;
  BestRates best;
  for (size_t i = 0; i < segments_.size(); ++i) {
    const cost::KernelWork work = cost::kernelsOf(segments_[i], own).front();
    if (work.format != format) continue;
    const Seconds time = measured_.kernels[i].time;
    const FlopsPerSecond rate = work.flops / std::max(time - measured_.launch, time * 0.5);
    FlopsPerSecond& rateOf = work.fusedAttention ? best.attention : best.matmul;
    rateOf = std::max(rateOf, rate);
    ++(work.fusedAttention ? best.numAttentions : best.numMatmuls);
  }
  return best;
}

// A peak that measurements exceed is none. Every format has its own share of it.
void GpuCluster::describeMatmul(MathFormat format) {
  spec::DeviceSpec& d = device();
  const BestRates best = bestRates(format);
  const std::string reached = fmt::format("{}: {}, the best of {} products in {}", source_,
                                          spec::readableQuantity(rounded(best.matmul)),
                                          best.numMatmuls, mathFormatName(format));
  const auto peak = std::find_if(d.matmul.begin(), d.matmul.end(),
                                 [&](const spec::PeakRate& rate) { return rate.format == format; });
  double share = 1;
  std::string shareSource = "the rate above is measured, not a peak";
  if (peak != d.matmul.end() && isKnown_ && best.matmul <= peak->rate) {
    share = roundedTo4Digits(best.matmul / peak->rate);
    shareSource = reached;
  } else {
    if (peak != d.matmul.end()) d.matmul.erase(peak);
    d.matmul.push_back({format, rounded(best.matmul)});
    source(fmt::format("device.matmul.{}", mathFormatName(format)), reached);
  }
  setShare(format, share, shareSource);
}

// matmul_efficiency is that of bf16; where only f16 was measured, of f16.
void GpuCluster::setShare(MathFormat format, double share, const std::string& shareSource) {
  spec::DeviceSpec& d = device();
  const auto set = [&](double& efficiency, const char* prefix) {
    efficiency = share;
    source(fmt::format("device.{}matmul_efficiency", prefix), shareSource);
  };
  if (format == MathFormat::kF32) return set(d.f32MatmulEfficiency, "f32_");
  if (format == MathFormat::kTf32) return set(d.tf32MatmulEfficiency, "tf32_");
  if (format == MathFormat::kF16 && isMeasured(MathFormat::kBf16))
    return set(d.f16MatmulEfficiency, "f16_");
  set(d.matmulEfficiency, "");
  d.caution.clear();  // it was about numbers of another machine
}

// The roofline's share has to hold for all types; `kernels` say what each takes.
void GpuCluster::describeAttention() {
  spec::DeviceSpec& d = device();
  double best = 0;
  int number = 0;
  for (const MathFormat format : formats_) {
    const BestRates rates = bestRates(format);
    best = std::max(best, rates.attention / d.peak(format)->rate);
    number += rates.numAttentions;
  }
  d.attentionEfficiency = std::min(1.0, roundedTo4Digits(best));
  source("device.attention_efficiency",
         fmt::format("{}: the best of {} calls of Trireme's attention", source_, number));
}

}  // namespace

std::string measurementSource(const GpuMeasurements& measurements) {
  const int driver = measurements.gpu.driverVersion;
  const int64_t numGpus = measurements.numGpus;
  return fmt::format("measured on {} by trireme calibrate {} on {} (driver of CUDA {}.{}){}",
                     measurements.date, measurements.version, measurements.gpu.name, driver / 1000,
                     driver % 1000 / 10,
                     numGpus == 1 ? "" : fmt::format(", {} GPUs at once", numGpus));
}

// Whoever names a cluster of A100 on a machine of H100 has taken the wrong one. A device that is
// not shipped may be anything.
Status checkBase(const spec::ClusterSpec* base, const runtime::GpuInfo& gpu, int64_t numGpus) {
  if (base == nullptr) return {};
  if (tierOf(*base, numGpus) == base->tiers.size())
    return invalidArgument(fmt::format("{} GPUs are measured, cluster '{}' has {} devices", numGpus,
                                       base->name, base->numDevices));
  const std::string& named = base->device.name;
  if (named == gpu.name) return {};
  const std::string here = shippedDeviceOf(gpu.name, asBytes(gpu.totalBytes));
  for (const std::string& name : spec::shippedNames(spec::ShippedKind::kDevice)) {
    spec::Sources sources;
    TRIREME_ASSIGN_OR_RETURN(const spec::DeviceSpec shipped, spec::shippedDevice(name, &sources));
    if (shipped.name == named && name != here)
      return invalidArgument(
          fmt::format("cluster '{}' has {} and the measured machine {}: name a cluster "
                      "of these GPUs, or a file with a device of your own",
                      base->name, named, gpu.name));
  }
  return {};
}

Result<MeasuredCluster> clusterOf(const GpuMeasurements& measurements,
                                  const GpuClusterOptions& options) {
  return GpuCluster(measurements, options).describe();
}

}  // namespace trireme::cli
