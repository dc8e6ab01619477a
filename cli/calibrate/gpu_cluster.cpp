#include "cli/calibrate/measure_gpus.h"

#include <algorithm>
#include <cmath>

#include "cost_models/compute.h"
#include "cost_models/nccl_tests.h"
#include "ir/base/format.h"
#include "ir/base/version.h"
#include "ir/program/op.h"
#include "ir/spec/load.h"
#include "ir/spec/quantity.h"
#include "ir/spec/shipped.h"

namespace trireme::cli {
namespace {

using runtime::Exchange;
using runtime::GpuStream;
using runtime::MeasuredGpus;

struct NamedStream {
  GpuStream stream;
  const char* name;
};
constexpr NamedStream kStreams[] = {{GpuStream::kCopy, "copy"},
                                    {GpuStream::kSumSquares, "sum of squares"},
                                    {GpuStream::kAdamW, "AdamW"}};
constexpr Exchange kCollectives[] = {Exchange::kAllReduce, Exchange::kAllGather,
                                     Exchange::kReduceScatter};

Bytes asBytes(int64_t bytes) { return Bytes(static_cast<double>(bytes)); }

// The best that kernels of a type reached, beside their launches.
struct BestRates {
  FlopsPerSecond matmul, attention;
  int numMatmuls = 0, numAttentions = 0;
};

class GpuMeasurement {
 public:
  GpuMeasurement(const MeasureGpuOptions& options, std::unique_ptr<MeasuredGpus> gpus)
      : options_(options),
        gpus_(std::move(gpus)),
        source_(measurementSource(gpus_->info(), options.numRanks)) {}

  Result<MeasuredCluster> run() {
    TRIREME_RETURN_IF_ERROR(describeCluster());
    TRIREME_RETURN_IF_ERROR(start());
    TRIREME_RETURN_IF_ERROR(measureKernels());
    TRIREME_RETURN_IF_ERROR(measureStreams());
    if (options_.numRanks > 1) TRIREME_RETURN_IF_ERROR(measureLinks());
    TRIREME_RETURN_IF_ERROR(fitKernels());
    describeDevice();
    return std::move(result_);
  }

 private:
  spec::ClusterSpec& cluster() { return result_.cluster; }
  spec::DeviceSpec& device() { return result_.cluster.device; }
  void source(const std::string& key, const std::string& text) { cluster().sources[key] = text; }
  void step(const std::string& what) {
    options_.progress(static_cast<double>(stepsDone_++) / static_cast<double>(numSteps_), what);
  }

  Status describeCluster();
  Status checkBase() const;
  Status start();
  Status measureKernels();
  Status measureStreams();
  Status measureLinks();
  Status fitKernels();
  void describeDevice();
  void describeMatmul(DType type);
  void describeAttention();
  void describeMemory();

  const MeasureGpuOptions& options_;
  std::unique_ptr<MeasuredGpus> gpus_;
  std::string source_;
  MeasuredCluster result_;
  bool isKnown_ = false;  // the device has the peaks of a data sheet
  size_t tier_ = 0;       // that joins the GPUs
  std::vector<program::Segment> probes_;
  std::vector<int64_t> sizes_;  // of collectives
  std::vector<Seconds> times_;  // of the probes
  Seconds launch_;
  size_t numSteps_ = 1, stepsDone_ = 0;
};

// Whoever names a cluster of A100 on a machine of H100 has taken the wrong one. A device that is
// not shipped may be anything.
Status GpuMeasurement::checkBase() const {
  const runtime::GpuInfo& gpu = gpus_->info();
  const std::string& named = options_.base->device.name;
  if (named == gpu.name) return {};
  const std::string here = shippedDeviceOf(gpu.name, asBytes(gpu.totalBytes));
  for (const std::string& name : spec::shippedNames(spec::ShippedKind::kDevice)) {
    spec::Sources sources;
    TRIREME_ASSIGN_OR_RETURN(const spec::DeviceSpec shipped, spec::shippedDevice(name, &sources));
    if (shipped.name == named && name != here)
      return invalidArgument(
          fmt::format("cluster '{}' has {} and this machine {}: name a cluster "
                      "of these GPUs, or a file with a device of your own",
                      options_.base->name, named, gpu.name));
  }
  return {};
}

// Before anything is measured: what is known of the GPU and of what joins it.
Status GpuMeasurement::describeCluster() {
  const runtime::GpuInfo& gpu = gpus_->info();
  const int64_t numRanks = options_.numRanks;
  if (options_.base != nullptr) {
    TRIREME_RETURN_IF_ERROR(checkBase());
    cluster() = *options_.base;
    while (tier_ < cluster().tiers.size() && !cluster().holdsGroup(tier_, numRanks)) ++tier_;
    if (tier_ == cluster().tiers.size())
      return invalidArgument(fmt::format("{} GPUs are measured, cluster '{}' has {} devices",
                                         numRanks, cluster().name, cluster().numDevices));
    isKnown_ = true;
  } else {
    spec::LinkTier tier;
    tier.name = "links";
    tier.devices = numRanks;
    cluster().tiers = {tier};
    cluster().numDevices = numRanks;
    const std::string known = shippedDeviceOf(gpu.name, asBytes(gpu.totalBytes));
    isKnown_ = !known.empty();
    if (isKnown_) {
      TRIREME_ASSIGN_OR_RETURN(device(), spec::shippedDevice(known, &cluster().sources));
    }
  }
  result_.numRanks = numRanks;
  cluster().name = options_.name;
  device().name = gpu.name;
  device().kind = spec::DeviceKind::kCuda;
  return {};
}

Status GpuMeasurement::start() {
  const runtime::GpuInfo& gpu = gpus_->info();
  const int64_t bytes = std::min(options_.mostMemory, gpu.freeBytes / 10 * 9);
  if (bytes < options_.leastMemory)
    return resourceExhausted(fmt::format(
        "measuring takes at least {} of {}, of which {} are free: end what else runs there",
        formatBytes(asBytes(options_.leastMemory)), gpu.name, formatBytes(asBytes(gpu.freeBytes))));
  for (const DType type : options_.types)
    for (program::Segment& probe : cost::gpuProbes(type, asBytes(bytes / 2)))
      probes_.push_back(std::move(probe));
  step("loading kernels");
  TRIREME_RETURN_IF_ERROR(gpus_->start(probes_, bytes));
  const auto productsOf = [](const program::Segment& probe) {
    const cost::KernelCounts counts = cost::countsOf(probe.ops.front(), probe.operands);
    return counts[static_cast<size_t>(spec::KernelUnit::kProduct)];
  };
  const auto longest =
      std::max_element(probes_.begin(), probes_.end(),
                       [&](const auto& a, const auto& b) { return productsOf(a) < productsOf(b); });
  TRIREME_RETURN_IF_ERROR(gpus_->warmUp(static_cast<size_t>(longest - probes_.begin())));
  constexpr int64_t kSmallest = 1 << 10, kLargest = 1 << 30, kFactor = 4;
  for (int64_t size = kSmallest; size <= std::min(kLargest, gpus_->tensorBytes() / 2);
       size *= kFactor)
    sizes_.push_back(size);
  const size_t numGroups = MeasuredGpus::groupSizes(gpus_->numRanks()).size();
  numSteps_ = 2 + probes_.size() + std::size(kStreams) +
              numGroups * std::size(kCollectives) * sizes_.size() + 1;
  return {};
}

Status GpuMeasurement::measureKernels() {
  step("launches");
  TRIREME_ASSIGN_OR_RETURN(launch_, gpus_->launch());
  for (size_t i = 0; i < probes_.size(); ++i) {
    const program::SegmentOp& op = probes_[i].ops.front();
    step(fmt::format("{} in {}", program::opName(op.kind),
                     dtypeName(cost::kernelType(op, probes_[i].operands))));
    TRIREME_ASSIGN_OR_RETURN(times_.emplace_back(), gpus_->segment(i));
  }
  return {};
}

Status GpuMeasurement::measureStreams() {
  for (const NamedStream& named : kStreams) {
    step(fmt::format("memory, {}", named.name));
    TRIREME_ASSIGN_OR_RETURN(const MeasuredGpus::Traffic traffic, gpus_->stream(named.stream));
    result_.streams.push_back({named.name, rounded(traffic.moved / traffic.time)});
  }
  return {};
}

// What sends without a curve take is the link: a pair's bandwidth, and the latency of a ring's
// step.
Status GpuMeasurement::measureLinks() {
  spec::LinkTier& tier = cluster().tiers[tier_];
  Seconds least;
  for (const int32_t group : MeasuredGpus::groupSizes(gpus_->numRanks()))
    for (const Exchange exchange : kCollectives) {
      const auto timeOf = [&](int64_t bytes) -> Result<Seconds> {
        step(fmt::format("collectives among {} GPUs", group));
        TRIREME_ASSIGN_OR_RETURN(const Seconds time, gpus_->exchange(exchange, group, bytes));
        if (exchange == Exchange::kAllReduce && bytes < 2 * sizes_.front()) least = time;
        return time;
      };
      TRIREME_ASSIGN_OR_RETURN(const spec::CollectiveCurve curve,
                               measureCurve(exchange, group, sizes_, source_, timeOf));
      TRIREME_RETURN_IF_ERROR(cost::addSweep(
          cluster(), tier_, {curve.kind, curve.group, curve.points, 0}, curve.source));
    }
  step("messages");
  TRIREME_ASSIGN_OR_RETURN(const Seconds sent, gpus_->exchange(Exchange::kSend, 2, sizes_.back()));
  const BytesPerSecond pair = asBytes(sizes_.back()) / sent;
  const std::string key = fmt::format("tiers[{}].", tier_);
  const std::string message =
      fmt::format("{}: a message of {}", source_, formatBytes(asBytes(sizes_.back())));
  tier.latency = rounded(least / (2.0 * static_cast<double>(options_.numRanks - 1)));
  source(key + "latency", fmt::format("{}: all-reduce of {} among {}, by its {} ring steps",
                                      source_, formatBytes(asBytes(sizes_.front())),
                                      options_.numRanks, 2 * (options_.numRanks - 1)));
  if (options_.base == nullptr) {
    tier.bandwidth = rounded(pair);
    source(key + "bandwidth", message + ", by all pairs at once");
  } else if (tier.nics == 0) {
    tier.pairBandwidth = rounded(pair / tier.efficiency);
    source(key + "pair_bandwidth", message + ", over the efficiency");
  }
  return {};
}

Status GpuMeasurement::fitKernels() {
  std::vector<cost::TimedKernel> timed;
  for (size_t i = 0; i < probes_.size(); ++i) {
    const program::SegmentOp& op = probes_[i].ops.front();
    timed.push_back({std::string(program::opName(op.kind)),
                     cost::kernelType(op, probes_[i].operands),
                     cost::countsOf(op, probes_[i].operands), times_[i]});
  }
  TRIREME_ASSIGN_OR_RETURN(result_.fit, cost::fitKernels(timed));
  for (size_t i = 0; i < result_.fit.kernels.size(); ++i)
    result_.fit.kernels[i].source =
        fmt::format("{}: fit to {} sizes, mean error {:.1f} %", source_, result_.fit.numTimed[i],
                    result_.fit.meanErrors[i] * 100);
  device().kernels = result_.fit.kernels;
  return {};
}

void GpuMeasurement::describeDevice() {
  spec::DeviceSpec& d = device();
  const runtime::GpuInfo& gpu = gpus_->info();
  d.launchOverhead = rounded(launch_);
  source("device.launch_overhead", source_ + ": of a kernel that adds 32 numbers, back to back");
  d.memory = asBytes(gpu.totalBytes);
  source("device.memory", source_ + ": all that the driver offers");
  d.numMultiprocessors = gpu.numMultiprocessors;
  source("device.multiprocessors", source_ + ": as the driver says");
  describeMemory();
  for (const DType type : options_.types) describeMatmul(type);
  std::sort(d.matmul.begin(), d.matmul.end(),
            [](const auto& a, const auto& b) { return a.format < b.format; });
  describeAttention();
  if (options_.base != nullptr || options_.numRanks > 1) return;
  cluster().tiers.front().bandwidth = d.memoryBandwidth;
  source("tiers[0].bandwidth", "that of the memory; one GPU sends nothing");
  source("tiers[0].latency", "one GPU sends nothing");
}

// What nothing exceeds, as the model takes it.
void GpuMeasurement::describeMemory() {
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
BestRates bestRates(const std::vector<program::Segment>& probes, const std::vector<Seconds>& times,
                    DType type, Seconds launch) {
  const spec::StackProfile own;
  BestRates best;
  for (size_t i = 0; i < probes.size(); ++i) {
    const cost::KernelWork work = cost::kernelsOf(probes[i], own).front();
    if (work.format != *mathFormatOf(type)) continue;
    const FlopsPerSecond rate = work.flops / std::max(times[i] - launch, times[i] * 0.5);
    FlopsPerSecond& rateOf = work.fusedAttention ? best.attention : best.matmul;
    rateOf = std::max(rateOf, rate);
    ++(work.fusedAttention ? best.numAttentions : best.numMatmuls);
  }
  return best;
}

// A peak that measurements exceed is none. Every format has its own share of it.
void GpuMeasurement::describeMatmul(DType type) {
  spec::DeviceSpec& d = device();
  const MathFormat format = *mathFormatOf(type);
  const BestRates best = bestRates(probes_, times_, type, launch_);
  const std::string reached =
      fmt::format("{}: {}, the best of {} products in {}", source_,
                  spec::readableQuantity(rounded(best.matmul)), best.numMatmuls, dtypeName(type));
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
  if (format == MathFormat::kF32) {
    d.f32MatmulEfficiency = share;
    source("device.f32_matmul_efficiency", shareSource);
    return;
  }
  d.matmulEfficiency = share;
  source("device.matmul_efficiency", shareSource);
}

// The roofline's share has to hold for all types; `kernels` say what each takes.
void GpuMeasurement::describeAttention() {
  spec::DeviceSpec& d = device();
  double best = 0;
  int number = 0;
  for (const DType type : options_.types) {
    const BestRates rates = bestRates(probes_, times_, type, launch_);
    best = std::max(best, rates.attention / d.peak(*mathFormatOf(type))->rate);
    number += rates.numAttentions;
  }
  d.attentionEfficiency = std::min(1.0, roundedTo4Digits(best));
  source("device.attention_efficiency",
         fmt::format("{}: the best of {} calls of Trireme's attention", source_, number));
}

}  // namespace

std::string measurementSource(const runtime::GpuInfo& gpu, int64_t numRanks) {
  return fmt::format("measured on {} by trireme calibrate {} on {} (driver of CUDA {}.{}){}",
                     today(), kVersion, gpu.name, gpu.driverVersion / 1000,
                     gpu.driverVersion % 1000 / 10,
                     numRanks == 1 ? "" : fmt::format(", {} GPUs at once", numRanks));
}

Result<MeasuredCluster> measureGpus(const runtime::cuda::Apis& apis,
                                    const MeasureGpuOptions& options) {
  TRIREME_ASSIGN_OR_RETURN(
      std::unique_ptr<MeasuredGpus> gpus,
      MeasuredGpus::open(apis, static_cast<int32_t>(options.numRanks), options.timing));
  return GpuMeasurement(options, std::move(gpus)).run();
}

}  // namespace trireme::cli
