#include "cli/calibrate/measure_cluster.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "cli/calibrate/these_gpus.h"
#include "cli/code_generator.h"
#include "ir/base/format.h"
#include "ir/base/version.h"
#include "runtime/executor/host_memory.h"
#include "runtime/measure/measure.h"

namespace trireme::cli {
namespace {

using runtime::MeasuredRanks;
using spec::KernelUnit;

constexpr double kKernelShare = 0.85;  // of the whole time, for the progress

std::string processorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name"))
      if (const size_t colon = line.find(": "); colon != std::string::npos)
        return line.substr(colon + 2);
  return "an unnamed processor";
}

class Measurement {
 public:
  explicit Measurement(const MeasureOptions& options)
      : options_(options), ranks_(static_cast<int32_t>(options.numRanks), options.window) {}

  Result<MeasuredCluster> run() {
    TRIREME_RETURN_IF_ERROR(ranks_.start());
    cluster().name = options_.name;
    cluster().numDevices = result_.numRanks = options_.numRanks;
    TRIREME_RETURN_IF_ERROR(measureKernels());
    TRIREME_RETURN_IF_ERROR(measureMemory());
    TRIREME_RETURN_IF_ERROR(fitKernels());
    TRIREME_RETURN_IF_ERROR(describeDevice());
    TRIREME_RETURN_IF_ERROR(measureLinks());
    return std::move(result_);
  }

 private:
  const MeasureOptions& options_;
  MeasuredRanks ranks_;
  std::vector<cost::TimedKernel> timed_;
  MeasuredCluster result_;

  spec::ClusterSpec& cluster() { return result_.cluster; }
  spec::DeviceSpec& device() { return result_.cluster.device; }
  void source(const std::string& path, const std::string& what) {
    cluster().sources[path] = what.empty() ? options_.source : what;
  }

  Status checkMemory(const std::vector<program::Segment>& probes) const;
  Status measureKernels();
  // Of each rank that is at work: the cores share what cache is large.
  int64_t footprint() const {
    return std::max(options_.footprint / 8, options_.footprint / ranks_.atOnce());
  }
  // Of the optimizer.
  std::vector<DType> stateTypes() const;

  Status measureMemory();
  Status fitKernels();
  Status describeDevice();
  Result<spec::CollectiveCurve> measureCurve(runtime::Exchange exchange, int64_t group);
  Status measureLinks();
};

// Pages of operands are real: more of them than there is memory would end the process.
Status Measurement::checkMemory(const std::vector<program::Segment>& probes) const {
  int64_t largest = 0;
  for (const program::Segment& probe : probes)
    largest = std::max(largest, runtime::bytesOfCopies(probe, footprint()));
  const Bytes need(static_cast<double>(largest) * ranks_.atOnce());
  const std::optional<Bytes> available = runtime::availableMemory();
  if (!available || need <= *available) return {};
  return resourceExhausted(fmt::format(
      "{} ranks at once take {} to measure kernels, and {} are available; measure fewer "
      "(--ranks)",
      ranks_.atOnce(), formatBytes(need), formatBytes(*available)));
}

// Every probe alone, as the runtime executes it in a bundle.
Status Measurement::measureKernels() {
  const Result<const codegen::Generator*> generator = loadCodeGenerator();
  if (!generator)
    return unavailable(fmt::format(
        "kernels of this machine's processor cannot be measured: {}; GPUs can be (--gpu), and the "
        "output of nccl-tests be read (--nccl-tests)",
        generator.error().message()));
  program::Bundle bundle;
  std::vector<program::Segment>& probes = bundle.program.segments;
  for (DType type : options_.types)
    for (program::Segment& probe : cost::hostProbes(type)) probes.push_back(std::move(probe));
  TRIREME_RETURN_IF_ERROR(checkMemory(probes));
  options_.progress(0, "compiling kernels");
  TRIREME_ASSIGN_OR_RETURN(codegen::CompiledKernels compiled,
                           (*generator)->compileSegments(probes, {}));
  bundle.kernels = std::move(compiled.segments);
  bundle.sharedObject = std::move(compiled.sharedObject);
  bundle.target = std::move(compiled.target);
  TRIREME_ASSIGN_OR_RETURN(const runtime::SegmentCode code,
                           runtime::SegmentCode::load(bundle, false));
  std::vector<runtime::OperandMemory> memory(static_cast<size_t>(options_.numRanks));
  for (size_t i = 0; i < probes.size(); ++i) {
    const program::Segment& probe = probes[i];
    const program::SegmentOp& op = probe.ops.front();
    const std::string kernel(program::opName(op.kind));
    const DType type = cost::kernelType(op, probe.operands);
    options_.progress(kKernelShare * static_cast<double>(i) / static_cast<double>(probes.size()),
                      fmt::format("{} in {}", kernel, dtypeName(type)));
    TRIREME_ASSIGN_OR_RETURN(const Seconds time,
                             runtime::measureSegment(ranks_, bundle, code, i, footprint(), memory));
    timed_.push_back(
        {kernel, type, cost::countsOf(op, probe.operands, spec::DeviceKind::kHost), time});
  }
  return {};
}

std::vector<DType> Measurement::stateTypes() const {
  std::vector<DType> types;
  for (DType state : {DType::kF64, DType::kF32})
    if (std::ranges::any_of(options_.types, [&](DType type) {
          return (type == DType::kF64) == (state == DType::kF64);
        }))
      types.push_back(state);
  return types;
}

// Over arrays that no cache holds, as in a step, between two of which everything else runs. The
// bandwidth is the best that any of it reaches: the model takes it for what nothing exceeds.
Status Measurement::measureMemory() {
  using runtime::MemoryWork;
  options_.progress(kKernelShare, "memory");
  struct Stream {
    MemoryWork work;
    std::string kernel;
    double passes;  // over an array, read or written
  };
  const Stream streams[] = {{MemoryWork::kTriad, "", 4},  // with the line that a write loads first
                            {MemoryWork::kZero, "", 1},
                            {MemoryWork::kSumSquares, "sum_squares", 1},
                            {MemoryWork::kAdamW, "adamw", 7}};
  BytesPerSecond best;
  const std::vector<DType> types = stateTypes();
  for (DType state : types)
    for (const Stream& stream : streams)
      for (int64_t part : {2, 1}) {
        if (stream.kernel.empty() && (state != types.front() || part > 1)) continue;
        const DType type = stream.kernel.empty() ? DType::kF32 : state;
        const int64_t bytes = footprint() / part / numArrays(stream.work);
        const int64_t elements = bytes / byteSize(type);
        TRIREME_ASSIGN_OR_RETURN(const Seconds time,
                                 runtime::measureMemory(ranks_, stream.work, type, elements));
        const Bytes moved(stream.passes * static_cast<double>(elements * byteSize(type)));
        best = std::max(best, moved / time);
        if (!stream.kernel.empty())
          timed_.push_back(
              {stream.kernel, type, cost::countsOf(static_cast<double>(elements)), time});
      }
  device().memoryBandwidth = rounded(best);
  source("device.memory_bandwidth",
         fmt::format("{}: the best of STREAM triad, zeroing, sum of squares and AdamW over {}",
                     options_.source, formatBytes(Bytes(static_cast<double>(footprint())))));
  return {};
}

Status Measurement::fitKernels() {
  TRIREME_ASSIGN_OR_RETURN(result_.fit, cost::fitKernels(timed_));
  for (size_t i = 0; i < result_.fit.kernels.size(); ++i)
    result_.fit.kernels[i].source =
        fmt::format("{}: fit to {} sizes, mean error {:.1f} %", options_.source,
                    result_.fit.numTimed[i], result_.fit.meanErrors[i] * 100);
  device().kernels = result_.fit.kernels;
  // What large products approach; a kernel whose fit has no such rate has the best measured one.
  for (DType type : options_.types) {
    double rate = 0;
    constexpr auto kProduct = static_cast<size_t>(KernelUnit::kProduct);
    for (const cost::TimedKernel& timed : timed_)
      if (timed.dtype == type && timed.kernel.starts_with("matmul"))
        rate = std::max(rate, 2 * timed.counts[kProduct] / timed.time.count());
    for (const spec::KernelTiming& kernel : device().kernels)
      if (kernel.dtype == type && kernel.kernel.starts_with("matmul") &&
          kernel.per[kProduct].count() > 0)
        rate = std::max(rate, 2 / kernel.per[kProduct].count());
    device().matmul.push_back({*mathFormatOf(type), rounded(FlopsPerSecond(rate))});
    source(fmt::format("device.matmul.{}", dtypeName(type)),
           options_.source + ": what large products approach");
  }
  return {};
}

Status Measurement::describeDevice() {
  spec::DeviceSpec& d = device();
  d.name = "host-rank";
  d.kind = spec::DeviceKind::kHost;
  source("device.memory_efficiency", "the bandwidth above is measured, not a peak");
  source("device.matmul_efficiency", "the rates above are measured, not peaks");
  const std::optional<Bytes> available = runtime::availableMemory();
  if (!available) return unavailable("the system does not tell how much memory is available");
  const double mib = 1 << 20;
  d.memory =
      Bytes(std::floor(available->count() / static_cast<double>(options_.numRanks) / mib) * mib);
  source("device.memory", options_.source + ": available then, shared by the ranks");
  d.launchOverhead = Seconds(1);
  for (const cost::TimedKernel& timed : timed_)
    d.launchOverhead = std::min(d.launchOverhead, rounded(timed.time));
  source("device.launch_overhead", options_.source + ": the shortest call of a kernel");
  return {};
}

// `bytes` are multiples of 4 group.
Result<spec::CollectiveCurve> Measurement::measureCurve(runtime::Exchange exchange, int64_t group) {
  spec::CollectiveCurve curve{collectiveOf(exchange), group, {}, options_.source};
  for (const int64_t size : {1 << 10, 1 << 13, 1 << 16, 1 << 19, 1 << 22}) {
    const int64_t multiple = 4 * group;
    const int64_t bytes = (size + multiple - 1) / multiple * multiple;
    TRIREME_ASSIGN_OR_RETURN(
        const Seconds time,
        runtime::measureExchange(ranks_, exchange, static_cast<int32_t>(group), bytes));
    curve.points.push_back(curvePoint(exchange, group, bytes, time));
  }
  return curve;
}

Status Measurement::measureLinks() {
  using runtime::Exchange;
  constexpr int64_t kSmall = 64, kLarge = int64_t{4} << 20;
  spec::LinkTier tier;
  tier.name = "memory";
  tier.devices = options_.numRanks;
  tier.topology = spec::TierTopology::kBus;
  if (options_.numRanks == 1) {
    tier.bandwidth = device().memoryBandwidth;
    source("tiers[0].bandwidth", "that of the memory; one rank sends nothing");
    source("tiers[0].latency", "one rank sends nothing");
    cluster().tiers = {tier};
    return {};
  }
  options_.progress(0.92, "messages");
  TRIREME_ASSIGN_OR_RETURN(const Seconds small,
                           runtime::measureExchange(ranks_, Exchange::kSend, 2, kSmall));
  TRIREME_ASSIGN_OR_RETURN(const Seconds large,
                           runtime::measureExchange(ranks_, Exchange::kSend, 2, kLarge));
  tier.latency = rounded(small);
  tier.bandwidth =
      rounded(Bytes(static_cast<double>(kLarge)) / std::max(large - small, large * 0.5));
  source("tiers[0].latency", options_.source + ": a message of 64 B");
  source("tiers[0].bandwidth", options_.source + ": a message of 4 MiB, less the latency");
  for (int64_t group = 2; group <= options_.numRanks; ++group) {
    if (options_.numRanks % group != 0) continue;
    options_.progress(0.94, fmt::format("collectives among {} ranks", group));
    for (Exchange exchange :
         {Exchange::kAllReduce, Exchange::kAllGather, Exchange::kReduceScatter}) {
      TRIREME_ASSIGN_OR_RETURN(tier.curves.emplace_back(), measureCurve(exchange, group));
    }
  }
  cluster().tiers = {std::move(tier)};
  return {};
}

}  // namespace

int64_t bytesBeyondCaches() {
  constexpr int64_t kLeast = int64_t{256} << 20, kMost = int64_t{1} << 30;
  return std::clamp<int64_t>(2 * int64_t{sysconf(_SC_LEVEL3_CACHE_SIZE)}, kLeast, kMost);
}

std::string measurementSource(int64_t numRanks) {
  return fmt::format(
      "measured on {} by trireme calibrate {} on {}, {} {} at once on "
      "{} cores",
      today(), kVersion, processorName(), numRanks, numRanks == 1 ? "rank" : "ranks",
      runtime::coresOfThisMachine());
}

Result<MeasuredCluster> measureCluster(const MeasureOptions& options) {
  return Measurement(options).run();
}

}  // namespace trireme::cli
