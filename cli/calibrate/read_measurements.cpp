#include "cli/calibrate/read_measurements.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>
#include <utility>

#include "ir/spec/document.h"
#include "ir/spec/map_reader.h"

namespace trireme::cli {
namespace {

using program::OpKind;
using runtime::Exchange;
using runtime::GpuMeasurements;
using runtime::GpuStream;
using spec::MapReader;
using spec::Node;

// No machine's numbers are larger, and products of three sizes stay exact in a double.
constexpr int64_t kMostSize = int64_t{1} << 20;
constexpr int64_t kMostBytes = int64_t{1} << 50;
constexpr int64_t kMostGpus = 1024;
constexpr double kShortest = 1e-9, kLongest = 3600;  // seconds of a call

constexpr spec::EnumName<OpKind> kOps[] = {{"matmul", OpKind::kMatmul},
                                           {"matmul_grad_input", OpKind::kMatmulGradInput},
                                           {"matmul_grad_weight", OpKind::kMatmulGradWeight},
                                           {"attention", OpKind::kAttention},
                                           {"attention_grad", OpKind::kAttentionGrad}};
constexpr spec::EnumName<MathFormat> kTypes[] = {{"f64", MathFormat::kF64},
                                                 {"f32", MathFormat::kF32},
                                                 {"tf32", MathFormat::kTf32},
                                                 {"bf16", MathFormat::kBf16},
                                                 {"f16", MathFormat::kF16}};

bool isAttention(OpKind op) { return op == OpKind::kAttention || op == OpKind::kAttentionGrad; }

void readCount(MapReader& map, std::string_view key, int64_t most, int64_t* out) {
  map.required(key, out);
  const Node* node = map.child(key);
  if (node != nullptr && (*out < 1 || *out > most))
    map.fail(*node, fmt::format("must be 1 .. {}", most));
}

void readCount(MapReader& map, std::string_view key, int most, int* out) {
  int64_t value = *out;
  readCount(map, key, int64_t{most}, &value);
  *out = static_cast<int>(value);
}

void readSeconds(MapReader& map, std::string_view key, Seconds* out) {
  double seconds = 0;
  map.required(key, &seconds);
  const Node* node = map.child(key);
  if (node != nullptr && !(seconds >= kShortest && seconds <= kLongest))
    map.fail(*node, fmt::format("a call takes {} to {} s", kShortest, kLongest));
  *out = Seconds(seconds);
}

void readText(MapReader& map, std::string_view key, std::string* out) {
  map.required(key, out);
  const Node* node = map.child(key);
  if (node != nullptr && (out->empty() || out->size() > 256))
    map.fail(*node, "expected 1 to 256 bytes of text");
}

class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  Result<GpuMeasurements> read(const Node& root) {
    MapReader map(file_, root);
    TRIREME_RETURN_IF_ERROR(readFormat(map, root));
    readText(map, "date", &result_.date);
    readText(map, "trireme", &result_.version);
    readCount(map, "numGpus", kMostGpus, &result_.numGpus);
    readSeconds(map, "launchSeconds", &result_.launch);
    const Node* const gpu = map.requiredChild("gpu");
    const Node* const kernels = map.requiredChild("kernels");
    const Node* const streams = map.requiredChild("streams");
    const Node* const transfers = map.requiredChild("transfers");
    TRIREME_RETURN_IF_ERROR(map.finish());
    TRIREME_RETURN_IF_ERROR(readGpu(*gpu));
    TRIREME_RETURN_IF_ERROR(readEach(*kernels, &Reader::readKernel));
    TRIREME_RETURN_IF_ERROR(checkTypes(*kernels));
    TRIREME_RETURN_IF_ERROR(readEach(*streams, &Reader::readStream));
    TRIREME_RETURN_IF_ERROR(checkStreams(*streams));
    TRIREME_RETURN_IF_ERROR(readEach(*transfers, &Reader::readTransfer));
    TRIREME_RETURN_IF_ERROR(checkTransfers(*transfers));
    return std::move(result_);
  }

 private:
  Status readFormat(MapReader& map, const Node& root);
  Status readGpu(const Node& node);
  Status readEach(const Node& list, Status (Reader::*read)(const Node& node, size_t index));
  Status readKernel(const Node& node, size_t index);
  Status readStream(const Node& node, size_t index);
  Status readTransfer(const Node& node, size_t index);
  Status checkTypes(const Node& list) const;
  Status checkStreams(const Node& list) const;
  // Whether all of each collective and group are there, in order, and nothing else.
  Status checkTransfers(const Node& list) const;

  const std::string& file_;
  GpuMeasurements result_;
};

// They come first: another version may have other keys.
Status Reader::readFormat(MapReader& map, const Node& root) {
  std::string format;
  int64_t version = 0;
  map.required("format", &format);
  map.required("version", &version);
  TRIREME_RETURN_IF_ERROR(map.firstValueError());
  if (format != runtime::kGpuMeasurementsFormat)
    return spec::errorAt(file_, root.find("format")->mark,
                         fmt::format("expected '{}', which `trireme calibrate --gpu "
                                     "--save-measurements` writes",
                                     runtime::kGpuMeasurementsFormat));
  if (version != runtime::kGpuMeasurementsVersion)
    return spec::errorAt(
        file_, root.find("version")->mark,
        fmt::format("version {}: this trireme reads version {}; measure and read with the same one",
                    version, runtime::kGpuMeasurementsVersion));
  return {};
}

Status Reader::readGpu(const Node& node) {
  MapReader map(file_, node, "gpu.");
  runtime::GpuInfo& gpu = result_.gpu;
  readText(map, "name", &gpu.name);
  readCount(map, "capability", 10000, &gpu.capability);
  readCount(map, "multiprocessors", 1 << 20, &gpu.numMultiprocessors);
  readCount(map, "driverVersion", 1 << 30, &gpu.driverVersion);
  readCount(map, "totalBytes", kMostBytes, &gpu.totalBytes);
  readCount(map, "freeBytes", kMostBytes, &gpu.freeBytes);
  if (const Node* free = map.child("freeBytes"); free != nullptr && gpu.freeBytes > gpu.totalBytes)
    map.fail(*free, fmt::format("must be at most totalBytes ({})", gpu.totalBytes));
  return map.finish();
}

Status Reader::readEach(const Node& list, Status (Reader::*read)(const Node&, size_t)) {
  if (list.kind != Node::Kind::kList)
    return spec::errorAt(
        file_, list.mark,
        fmt::format("{}: expected a list, got {}", list.key, spec::describe(list)));
  for (size_t i = 0; i < list.items.size(); ++i)
    TRIREME_RETURN_IF_ERROR((this->*read)(list.items[i], i));
  return {};
}

Status Reader::readKernel(const Node& node, size_t index) {
  MapReader map(file_, node, fmt::format("kernels[{}].", index));
  GpuMeasurements::Kernel& kernel = result_.kernels.emplace_back();
  map.required<OpKind>("op", kOps, &kernel.probe.op);
  MathFormat format = MathFormat::kF32;
  map.required<MathFormat>("type", kTypes, &format);
  kernel.probe.type = runtime::operandType(format);
  kernel.probe.tf32 = format == MathFormat::kTf32;
  readSeconds(map, "seconds", &kernel.time);
  TRIREME_RETURN_IF_ERROR(map.firstValueError());
  if (isAttention(kernel.probe.op)) {
    if (kernel.probe.tf32) map.fail(*map.child("type"), "attention is in f64, f32, bf16 or f16");
    runtime::AttentionSizes shape;
    readCount(map, "sequence", kMostSize, &shape.sequence);
    readCount(map, "batch", kMostSize, &shape.batch);
    readCount(map, "heads", kMostSize, &shape.heads);
    readCount(map, "headSize", kMostSize, &shape.headSize);
    map.required("dropout", &shape.dropout);
    const Node* dropout = map.child("dropout");
    if (dropout != nullptr && !(shape.dropout >= 0 && shape.dropout < 1))
      map.fail(*dropout, "a probability is at least 0 and below 1");
    readCount(map, "headsPerGroup", kMostSize, &shape.headsPerGroup);
    const Node* queries = map.child("headsPerGroup");
    if (queries != nullptr && shape.headsPerGroup >= 1 && shape.heads % shape.headsPerGroup != 0)
      map.fail(*queries, fmt::format("must divide heads ({})", shape.heads));
    kernel.probe.shape = shape;
  } else {
    runtime::ProductShape shape;
    readCount(map, "tokens", kMostSize, &shape.tokens);
    readCount(map, "outputs", kMostSize, &shape.outputs);
    readCount(map, "inputs", kMostSize, &shape.inputs);
    kernel.probe.shape = shape;
  }
  return map.finish();
}

// The rates of a type are the best of its products and of its attentions.
Status Reader::checkTypes(const Node& list) const {
  if (result_.kernels.empty()) return spec::errorAt(file_, list.mark, "kernels: there is none");
  for (const spec::EnumName<MathFormat>& type : kTypes) {
    if (type.value == MathFormat::kTf32) continue;  // attention is in f32 there
    int64_t numProducts = 0, numAttentions = 0;
    for (const GpuMeasurements::Kernel& kernel : result_.kernels)
      if (formatOf(kernel.probe) == type.value)
        ++(isAttention(kernel.probe.op) ? numAttentions : numProducts);
    if ((numProducts == 0) != (numAttentions == 0))
      return spec::errorAt(
          file_, list.mark,
          fmt::format("kernels: no {} in {}", numProducts == 0 ? "matrix product" : "attention",
                      type.name));
  }
  return {};
}

Status Reader::readStream(const Node& node, size_t index) {
  constexpr spec::EnumName<GpuStream> kNames[] = {{"copy", GpuStream::kCopy},
                                                  {"sum of squares", GpuStream::kSumSquares},
                                                  {"AdamW", GpuStream::kAdamW}};
  MapReader map(file_, node, fmt::format("streams[{}].", index));
  GpuMeasurements::Stream& stream = result_.streams.emplace_back();
  double bytes = 0;
  map.required<GpuStream>("stream", kNames, &stream.stream);
  map.required("bytes", &bytes);
  if (const Node* place = map.child("bytes");
      place != nullptr && !(bytes >= 1 && bytes <= static_cast<double>(kMostBytes)))
    map.fail(*place, fmt::format("must be 1 .. {}", kMostBytes));
  stream.moved = Bytes(bytes);
  readSeconds(map, "seconds", &stream.time);
  return map.finish();
}

Status Reader::checkStreams(const Node& list) const {
  bool isWhole = result_.streams.size() == std::size(runtime::kGpuStreams);
  for (size_t i = 0; isWhole && i < result_.streams.size(); ++i)
    isWhole = result_.streams[i].stream == runtime::kGpuStreams[i];
  if (isWhole) return {};
  return spec::errorAt(file_, list.mark,
                       "streams: expected copy, sum of squares and AdamW, in this order");
}

Status Reader::readTransfer(const Node& node, size_t index) {
  constexpr spec::EnumName<Exchange> kNames[] = {{"all-reduce", Exchange::kAllReduce},
                                                 {"all-gather", Exchange::kAllGather},
                                                 {"reduce-scatter", Exchange::kReduceScatter},
                                                 {"message", Exchange::kSend}};
  MapReader map(file_, node, fmt::format("transfers[{}].", index));
  GpuMeasurements::Transfer& transfer = result_.transfers.emplace_back();
  map.required<Exchange>("exchange", kNames, &transfer.exchange);
  readCount(map, "group", kMostGpus, &transfer.group);
  readCount(map, "bytes", kMostBytes, &transfer.bytes);
  readSeconds(map, "seconds", &transfer.time);
  return map.finish();
}

Status Reader::checkTransfers(const Node& list) const {
  const auto& transfers = result_.transfers;
  size_t at = 0;
  const auto take = [&](Exchange exchange, int64_t group) {
    const size_t first = at;
    while (at < transfers.size() && transfers[at].exchange == exchange &&
           transfers[at].group == group &&
           (at == first || transfers[at].bytes > transfers[at - 1].bytes))
      ++at;
    return at - first;
  };
  const auto refuse = [&](Exchange exchange, int64_t group) {
    return spec::errorAt(
        file_, at < transfers.size() ? list.items[at].mark : list.mark,
        fmt::format("transfers: of {} GPUs, expected {} among {} here, with sizes that increase",
                    result_.numGpus, runtime::exchangeName(exchange), group));
  };
  for (const int32_t group :
       runtime::MeasuredGpus::groupSizes(static_cast<int32_t>(result_.numGpus)))
    for (const Exchange exchange : runtime::kMeasuredCollectives)
      if (take(exchange, group) == 0) return refuse(exchange, group);
  if (result_.numGpus > 1 && take(Exchange::kSend, 2) != 1) return refuse(Exchange::kSend, 2);
  if (at == transfers.size()) return {};
  return spec::errorAt(file_, list.items[at].mark,
                       fmt::format("transfers[{}]: of {} GPUs, nothing more was expected here", at,
                                   result_.numGpus));
}

}  // namespace

Result<GpuMeasurements> parseMeasurements(const std::string& text, const std::string& name) {
  TRIREME_ASSIGN_OR_RETURN(const Node root, spec::parseDocument(text, name));
  return Reader(name).read(root);
}

Result<GpuMeasurements> readMeasurements(const std::string& path) {
  TRIREME_ASSIGN_OR_RETURN(const std::string text, spec::readFile(path));
  return parseMeasurements(text, path);
}

}  // namespace trireme::cli
