#include "runtime/measure/gpu_probes.h"

#include <fmt/format.h>

#include "ir/base/rng.h"

namespace trireme::runtime {
namespace {

using program::OperandType;
using program::OpKind;
using program::Segment;

// Those of layers with 1024, 2048, 4096 and 8192 hidden, whole and as parts of eight, and of a
// head; then those of the steps of bench/gpu (GPT-2 of 768, 1024 and 1600, Llama of 2048) on one
// GPU.
constexpr ProductShape kProducts[] = {
    {256, 1024, 1024},   {1024, 1024, 1024},   {4096, 1024, 1024},  {1024, 3072, 1024},
    {4096, 3072, 1024},  {1024, 4096, 1024},   {8192, 4096, 1024},  {1024, 1024, 4096},
    {8192, 1024, 4096},  {512, 2048, 2048},    {2048, 2048, 2048},  {2048, 6144, 2048},
    {8192, 8192, 2048},  {2048, 2048, 8192},   {8192, 512, 4096},   {2048, 4096, 512},
    {1024, 4096, 4096},  {4096, 4096, 4096},   {4096, 11008, 4096}, {4096, 4096, 11008},
    {2048, 1280, 8192},  {2048, 8192, 1024},   {2048, 8192, 8192},  {2048, 3584, 8192},
    {2048, 8192, 3584},  {2048, 32000, 2048},  {32768, 2304, 768},  {32768, 768, 768},
    {32768, 3072, 768},  {32768, 768, 3072},   {32768, 50304, 768}, {16384, 3072, 1024},
    {16384, 1024, 1024}, {16384, 4096, 1024},  {16384, 1024, 4096}, {16384, 50304, 1024},
    {8192, 4800, 1600},  {8192, 1600, 1600},   {8192, 6400, 1600},  {8192, 1600, 6400},
    {8192, 50304, 1600}, {16384, 3072, 2048},  {16384, 2048, 2048}, {16384, 16384, 2048},
    {16384, 2048, 8192}, {16384, 128256, 2048}};

// With heads that have kernels for tensor cores in bf16.
constexpr AttentionSizes kAttentions[] = {
    {256, 8, 16, 64},        {512, 4, 16, 64},   {1024, 2, 16, 64},  {2048, 1, 16, 64},
    {4096, 1, 8, 64},        {1024, 2, 12, 96},  {512, 4, 16, 128},  {1024, 2, 16, 128},
    {2048, 1, 8, 128},       {2048, 2, 16, 128}, {4096, 1, 16, 128}, {8192, 1, 8, 128},
    {1024, 1, 32, 128, 0, 4}};

// Those of bench/gpu, and of larger groups: on tensor cores alone, for without they take seconds.
constexpr AttentionSizes kLargeAttentions[] = {{1024, 32, 12, 64},       {1024, 16, 16, 64},
                                               {1024, 8, 25, 64},        {2048, 8, 32, 64, 0, 4},
                                               {2048, 2, 32, 128, 0, 4}, {4096, 1, 64, 128, 0, 8}};

DType stateType(DType type) { return type == DType::kF64 ? DType::kF64 : DType::kF32; }

// Operands in the order of the op's inputs, then its outputs.
Segment oneOp(OpKind op, std::vector<OperandType> operands, int32_t numInputs) {
  Segment segment;
  segment.operands = std::move(operands);
  segment.temporary.assign(segment.operands.size(), false);
  program::SegmentOp& only = segment.ops.emplace_back();
  only.kind = op;
  for (int32_t i = 0; i < std::ssize(segment.operands); ++i)
    (i < numInputs ? only.inputs : only.outputs).push_back(i);
  return segment;
}

Segment productSegment(const GpuProbe& probe, const ProductShape& shape) {
  const OpKind op = probe.op;
  const DType type = probe.type;
  const OperandType x{type, {shape.tokens, 1, shape.inputs}};
  const OperandType y{type, {shape.tokens, 1, shape.outputs}};
  const OperandType w{type, {shape.outputs, shape.inputs}};
  Segment segment = op == OpKind::kMatmul ? oneOp(op, {x, w, y}, 2)
                    : op == OpKind::kMatmulGradInput
                        ? oneOp(op, {y, w, x}, 2)
                        : oneOp(op, {y, x, {stateType(type), w.dims}}, 2);
  segment.ops.front().attributes.tf32 = probe.tf32;
  return segment;
}

Segment attentionSegment(OpKind op, DType type, const AttentionSizes& shape) {
  const int64_t s = shape.sequence, b = shape.batch, queries = shape.headsPerGroup;
  const int64_t groups = shape.heads / queries;
  const OperandType qkv{type, {s, b, groups, (queries + 2) * shape.headSize}};
  const OperandType context{type, {s, b, groups, queries * shape.headSize}};
  const OperandType lse{stateType(type), {b, shape.heads, s}};
  Segment segment = op == OpKind::kAttention ? oneOp(op, {qkv, context, lse}, 1)
                                             : oneOp(op, {qkv, context, lse, context, qkv}, 4);
  program::OpAttributes& attributes = segment.ops.front().attributes;
  attributes.headSize = shape.headSize;
  attributes.headsPerGroup = queries;
  attributes.probability = shape.dropout;
  attributes.stream = RngStream::kAttentionDropout;
  return segment;
}

}  // namespace

Segment segmentOf(const GpuProbe& probe) {
  const auto* product = std::get_if<ProductShape>(&probe.shape);
  Segment segment = product != nullptr ? productSegment(probe, *product)
                                       : attentionSegment(probe.op, probe.type,
                                                          std::get<AttentionSizes>(probe.shape));
  segment.name = fmt::format("probe of {}", program::opName(probe.op));
  return segment;
}

MathFormat formatOf(const GpuProbe& probe) {
  return probe.tf32 ? MathFormat::kTf32 : *mathFormatOf(probe.type);
}

DType operandType(MathFormat format) {
  for (const DType type : {DType::kF64, DType::kBf16, DType::kF16})
    if (mathFormatOf(type) == format) return type;
  return DType::kF32;
}

std::vector<GpuProbe> gpuProbes(MathFormat format, Bytes most) {
  const DType type = operandType(format);
  const bool tf32 = format == MathFormat::kTf32;
  std::vector<GpuProbe> probes;
  for (const ProductShape& shape : kProducts)
    for (const OpKind op : {OpKind::kMatmul, OpKind::kMatmulGradInput, OpKind::kMatmulGradWeight})
      probes.push_back({op, type, shape, tf32});
  std::vector<AttentionSizes> attentions;
  if (!tf32) attentions.assign(std::begin(kAttentions), std::end(kAttentions));
  if (byteSize(type) == 2)
    attentions.insert(attentions.end(), std::begin(kLargeAttentions), std::end(kLargeAttentions));
  for (AttentionSizes shape : attentions)
    for (const double dropout : {0.0, 0.1}) {
      shape.dropout = dropout;
      for (const OpKind op : {OpKind::kAttention, OpKind::kAttentionGrad})
        probes.push_back({op, type, shape});
    }
  std::erase_if(probes, [&](const GpuProbe& probe) {
    double bytes = 0;
    for (const OperandType& operand : segmentOf(probe).operands)
      bytes += static_cast<double>(operand.bytes());
    return bytes > most.count();
  });
  return probes;
}

}  // namespace trireme::runtime
