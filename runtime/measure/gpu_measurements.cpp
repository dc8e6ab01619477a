#include "runtime/measure/gpu_measurements.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ir/base/format.h"
#include "ir/base/version.h"

namespace trireme::runtime {
namespace {

using nlohmann::ordered_json;

Bytes asBytes(int64_t bytes) { return Bytes(static_cast<double>(bytes)); }

class Survey {
 public:
  Survey(MeasuredGpus& gpus, const GpuMeasureOptions& options) : gpus_(gpus), options_(options) {}

  Result<GpuMeasurements> run() {
    result_.date = options_.date;
    result_.version = kVersion;
    result_.gpu = gpus_.info();
    result_.numGpus = gpus_.numRanks();
    TRIREME_RETURN_IF_ERROR(start());
    TRIREME_RETURN_IF_ERROR(measureKernels());
    TRIREME_RETURN_IF_ERROR(measureStreams());
    if (gpus_.numRanks() > 1) TRIREME_RETURN_IF_ERROR(measureTransfers());
    return std::move(result_);
  }

 private:
  void step(const std::string& what) {
    options_.progress(static_cast<double>(stepsDone_++) / static_cast<double>(numSteps_), what);
  }
  Status start();
  Status measureKernels();
  Status measureStreams();
  Status measureTransfers();
  Status measureTransfer(Exchange exchange, int32_t group, int64_t size);

  MeasuredGpus& gpus_;
  const GpuMeasureOptions& options_;
  GpuMeasurements result_;
  std::vector<int64_t> sizes_;  // of collectives
  size_t numSteps_ = 1, stepsDone_ = 0;
};

int64_t numProducts(const GpuProbe& probe) {
  const auto* shape = std::get_if<ProductShape>(&probe.shape);
  return shape == nullptr ? 0 : shape->tokens * shape->outputs * shape->inputs;
}

Status Survey::start() {
  const GpuInfo& gpu = gpus_.info();
  const int64_t bytes = std::min(options_.mostMemory, gpu.freeBytes / 10 * 9);
  if (bytes < options_.leastMemory)
    return resourceExhausted(fmt::format(
        "measuring takes at least {} of {}, of which {} are free: end what else runs there",
        formatBytes(asBytes(options_.leastMemory)), gpu.name, formatBytes(asBytes(gpu.freeBytes))));
  std::vector<program::Segment> segments;
  size_t longest = 0;
  for (const MathFormat format : options_.formats)
    for (const GpuProbe& probe : gpuProbes(format, asBytes(bytes / 2))) {
      segments.push_back(segmentOf(probe));
      result_.kernels.push_back({probe, {}});
      if (numProducts(probe) > numProducts(result_.kernels[longest].probe))
        longest = segments.size() - 1;
    }
  step("loading kernels");
  TRIREME_RETURN_IF_ERROR(gpus_.start(std::move(segments), bytes));
  TRIREME_RETURN_IF_ERROR(gpus_.warmUp(longest));
  constexpr int64_t kSmallest = 1 << 10, kLargest = 1 << 30, kFactor = 4;
  for (int64_t size = kSmallest; size <= std::min(kLargest, gpus_.tensorBytes() / 2);
       size *= kFactor)
    sizes_.push_back(size);
  const size_t numGroups = MeasuredGpus::groupSizes(gpus_.numRanks()).size();
  numSteps_ = 2 + result_.kernels.size() + std::size(kGpuStreams) +
              numGroups * std::size(kMeasuredCollectives) * sizes_.size() + 1;
  return {};
}

Status Survey::measureKernels() {
  step("launches");
  TRIREME_ASSIGN_OR_RETURN(result_.launch, gpus_.launch());
  for (size_t i = 0; i < result_.kernels.size(); ++i) {
    GpuMeasurements::Kernel& kernel = result_.kernels[i];
    step(fmt::format("{} in {}", program::opName(kernel.probe.op),
                     mathFormatName(formatOf(kernel.probe))));
    TRIREME_ASSIGN_OR_RETURN(kernel.time, gpus_.segment(i));
  }
  return {};
}

Status Survey::measureStreams() {
  for (const GpuStream stream : kGpuStreams) {
    step(fmt::format("memory, {}", gpuStreamName(stream)));
    TRIREME_ASSIGN_OR_RETURN(const MeasuredGpus::Traffic traffic, gpus_.stream(stream));
    result_.streams.push_back({stream, traffic.moved, traffic.time});
  }
  return {};
}

// `size` is rounded up to what divides among the group.
Status Survey::measureTransfer(Exchange exchange, int32_t group, int64_t size) {
  const int64_t multiple = 4 * group;
  const int64_t bytes = (size + multiple - 1) / multiple * multiple;
  TRIREME_ASSIGN_OR_RETURN(const Seconds time, gpus_.exchange(exchange, group, bytes));
  result_.transfers.push_back({exchange, group, bytes, time});
  return {};
}

Status Survey::measureTransfers() {
  for (const int32_t group : MeasuredGpus::groupSizes(gpus_.numRanks()))
    for (const Exchange exchange : kMeasuredCollectives)
      for (const int64_t size : sizes_) {
        step(fmt::format("collectives among {} GPUs", group));
        TRIREME_RETURN_IF_ERROR(measureTransfer(exchange, group, size));
      }
  step("messages");
  return measureTransfer(Exchange::kSend, 2, sizes_.back());
}

ordered_json toJson(const GpuInfo& gpu) {
  return {{"name", gpu.name},
          {"capability", gpu.capability},
          {"multiprocessors", gpu.numMultiprocessors},
          {"driverVersion", gpu.driverVersion},
          {"totalBytes", gpu.totalBytes},
          {"freeBytes", gpu.freeBytes}};
}

ordered_json toJson(const GpuMeasurements::Kernel& kernel) {
  ordered_json json = {{"op", program::opName(kernel.probe.op)},
                       {"type", mathFormatName(formatOf(kernel.probe))}};
  if (const auto* product = std::get_if<ProductShape>(&kernel.probe.shape)) {
    json["tokens"] = product->tokens;
    json["outputs"] = product->outputs;
    json["inputs"] = product->inputs;
  } else {
    const auto& attention = std::get<AttentionSizes>(kernel.probe.shape);
    json["sequence"] = attention.sequence;
    json["batch"] = attention.batch;
    json["heads"] = attention.heads;
    json["headSize"] = attention.headSize;
    json["dropout"] = attention.dropout;
    json["headsPerGroup"] = attention.headsPerGroup;
  }
  json["seconds"] = kernel.time.count();
  return json;
}

ordered_json toJson(const GpuMeasurements::Stream& stream) {
  return {{"stream", gpuStreamName(stream.stream)},
          {"bytes", stream.moved.count()},
          {"seconds", stream.time.count()}};
}

ordered_json toJson(const GpuMeasurements::Transfer& transfer) {
  return {{"exchange", exchangeName(transfer.exchange)},
          {"group", transfer.group},
          {"bytes", transfer.bytes},
          {"seconds", transfer.time.count()}};
}

template <typename T>
std::string listText(const std::vector<T>& items) {
  std::string text = "[";
  for (size_t i = 0; i < items.size(); ++i)
    text += fmt::format("{}\n    {}", i == 0 ? "" : ",", toJson(items[i]).dump());
  return text + (items.empty() ? "]" : "\n  ]");
}

}  // namespace

std::string_view gpuStreamName(GpuStream stream) {
  switch (stream) {
    case GpuStream::kCopy:
      return "copy";
    case GpuStream::kSumSquares:
      return "sum of squares";
    case GpuStream::kAdamW:
      break;
  }
  return "AdamW";
}

std::string_view exchangeName(Exchange exchange) {
  switch (exchange) {
    case Exchange::kAllReduce:
      return "all-reduce";
    case Exchange::kAllGather:
      return "all-gather";
    case Exchange::kReduceScatter:
      return "reduce-scatter";
    case Exchange::kSend:
      break;
  }
  return "message";
}

Result<GpuMeasurements> takeMeasurements(MeasuredGpus& gpus, const GpuMeasureOptions& options) {
  return Survey(gpus, options).run();
}

std::string printMeasurements(const GpuMeasurements& measurements) {
  std::string text = "{";
  const auto add = [&](const char* key, const std::string& value) {
    text += fmt::format("{}\n  \"{}\": {}", text.size() == 1 ? "" : ",", key, value);
  };
  const auto dump = [](const auto& value) { return ordered_json(value).dump(); };
  add("format", dump(kGpuMeasurementsFormat));
  add("version", dump(kGpuMeasurementsVersion));
  add("date", dump(measurements.date));
  add("trireme", dump(measurements.version));
  add("gpu", toJson(measurements.gpu).dump());
  add("numGpus", dump(measurements.numGpus));
  add("launchSeconds", dump(measurements.launch.count()));
  add("kernels", listText(measurements.kernels));
  add("streams", listText(measurements.streams));
  add("transfers", listText(measurements.transfers));
  return text + "\n}\n";
}

}  // namespace trireme::runtime
