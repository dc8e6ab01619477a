#include "runtime/measure/gpu_probes.h"

#include <fmt/format.h>

#include "ir/base/rng.h"

namespace trireme::runtime {
namespace {

using program::OperandType;
using program::OpKind;
using program::Segment;

// Those of layers with 1024, 2048, 4096 and 8192 hidden, whole and as parts of eight, and of a
// head.
constexpr ProductShape kProducts[] = {
    {256, 1024, 1024},  {1024, 1024, 1024}, {4096, 1024, 1024},  {1024, 3072, 1024},
    {4096, 3072, 1024}, {1024, 4096, 1024}, {8192, 4096, 1024},  {1024, 1024, 4096},
    {8192, 1024, 4096}, {512, 2048, 2048},  {2048, 2048, 2048},  {2048, 6144, 2048},
    {8192, 8192, 2048}, {2048, 2048, 8192}, {8192, 512, 4096},   {2048, 4096, 512},
    {1024, 4096, 4096}, {4096, 4096, 4096}, {4096, 11008, 4096}, {4096, 4096, 11008},
    {2048, 1280, 8192}, {2048, 8192, 1024}, {2048, 8192, 8192},  {2048, 3584, 8192},
    {2048, 8192, 3584}, {2048, 32000, 2048}};

// With heads that have kernels for tensor cores in bf16.
constexpr AttentionShape kAttentions[] = {
    {256, 8, 16, 64},  {512, 4, 16, 64},   {1024, 2, 16, 64},  {2048, 1, 16, 64},
    {4096, 1, 8, 64},  {1024, 2, 12, 96},  {512, 4, 16, 128},  {1024, 2, 16, 128},
    {2048, 1, 8, 128}, {2048, 2, 16, 128}, {4096, 1, 16, 128}, {8192, 1, 8, 128}};

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

Segment productSegment(OpKind op, DType type, const ProductShape& shape) {
  const OperandType x{type, {shape.tokens, 1, shape.inputs}};
  const OperandType y{type, {shape.tokens, 1, shape.outputs}};
  const OperandType w{type, {shape.outputs, shape.inputs}};
  if (op == OpKind::kMatmul) return oneOp(op, {x, w, y}, 2);
  if (op == OpKind::kMatmulGradInput) return oneOp(op, {y, w, x}, 2);
  return oneOp(op, {y, x, {stateType(type), w.dims}}, 2);
}

Segment attentionSegment(OpKind op, DType type, const AttentionShape& shape) {
  const int64_t s = shape.sequence, b = shape.batch, heads = shape.heads;
  const OperandType qkv{type, {s, b, heads, 3 * shape.headSize}};
  const OperandType context{type, {s, b, heads, shape.headSize}};
  const OperandType lse{stateType(type), {b, heads, s}};
  Segment segment = op == OpKind::kAttention ? oneOp(op, {qkv, context, lse}, 1)
                                             : oneOp(op, {qkv, context, lse, context, qkv}, 4);
  program::OpAttributes& attributes = segment.ops.front().attributes;
  attributes.headSize = shape.headSize;
  attributes.headsPerGroup = 1;
  attributes.probability = shape.dropout;
  attributes.stream = RngStream::kAttentionDropout;
  return segment;
}

}  // namespace

Segment segmentOf(const GpuProbe& probe) {
  const auto* product = std::get_if<ProductShape>(&probe.shape);
  Segment segment = product != nullptr ? productSegment(probe.op, probe.type, *product)
                                       : attentionSegment(probe.op, probe.type,
                                                          std::get<AttentionShape>(probe.shape));
  segment.name = fmt::format("probe of {}", program::opName(probe.op));
  return segment;
}

std::vector<GpuProbe> gpuProbes(DType type, Bytes most) {
  std::vector<GpuProbe> probes;
  for (const ProductShape& shape : kProducts)
    for (const OpKind op : {OpKind::kMatmul, OpKind::kMatmulGradInput, OpKind::kMatmulGradWeight})
      probes.push_back({op, type, shape});
  for (AttentionShape shape : kAttentions)
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
