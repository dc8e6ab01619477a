// The segments that a calibration of hosts times: see measured_kernels.h.
#include <fmt/format.h>

#include "cost_models/measured_kernels.h"
#include "ir/graph/semantics.h"

namespace trireme::cost {
namespace {

using program::OpAttributes;
using program::OperandType;
using program::OpKind;
using program::Segment;

class Probes {
 public:
  explicit Probes(DType compute)
      : compute_(compute), state_(compute == DType::kF64 ? DType::kF64 : DType::kF32) {}

  void add(OpKind kind, std::vector<OperandType> inputs, OpAttributes attributes = {},
           int64_t rows = 0) {
    auto outputs = graph::inferOutputs(kind, attributes, inputs, state_, rows);
    TRIREME_CHECK(outputs.has_value());
    Segment segment;
    segment.name = fmt::format("{}.{}", program::opName(kind), segments.size());
    program::SegmentOp op{kind, attributes, {}, {}};
    for (OperandType& type : inputs) {
      op.inputs.push_back(static_cast<int32_t>(segment.operands.size()));
      segment.operands.push_back(std::move(type));
    }
    for (OperandType& type : *outputs) {
      op.outputs.push_back(static_cast<int32_t>(segment.operands.size()));
      segment.operands.push_back(std::move(type));
    }
    segment.temporary.assign(segment.operands.size(), false);
    segment.ops.push_back(std::move(op));
    segments.push_back(std::move(segment));
  }

  OperandType compute(std::vector<int64_t> dims) const { return {compute_, std::move(dims)}; }
  OperandType state(std::vector<int64_t> dims) const { return {state_, std::move(dims)}; }
  static OperandType ids(std::vector<int64_t> dims) { return {DType::kI32, std::move(dims)}; }

  std::vector<Segment> segments;

 private:
  DType compute_, state_;
};

// Tokens, outputs, inputs.
struct ProductSize {
  int64_t tokens, outputs, inputs;
};
constexpr ProductSize kProducts[] = {
    {16, 128, 128},   {64, 128, 128},    {256, 128, 128},  {2048, 128, 128},  {512, 512, 128},
    {512, 128, 512},  {1024, 384, 128},  {64, 512, 512},   {512, 512, 512},   {64, 2048, 512},
    {64, 512, 2048},  {256, 768, 768},   {512, 768, 768},  {256, 2304, 768},  {256, 768, 2304},
    {1024, 768, 768}, {128, 2048, 2048}, {256, 3072, 768}, {1024, 3072, 768}, {1024, 768, 3072},
    {512, 8192, 768}};

void addProducts(Probes& probes) {
  for (const ProductSize& p : kProducts) {
    const OperandType x = probes.compute({p.tokens, 1, p.inputs});
    const OperandType y = probes.compute({p.tokens, 1, p.outputs});
    const OperandType w = probes.compute({p.outputs, p.inputs});
    probes.add(OpKind::kMatmul, {x, w});
    probes.add(OpKind::kMatmulGradInput, {y, w});
    probes.add(OpKind::kMatmulGradWeight, {y, x});
  }
}

struct AttentionSize {
  int64_t sequence, batch, heads, headSize;
};
constexpr AttentionSize kAttentions[] = {{32, 4, 4, 32},  {64, 2, 4, 64},   {128, 4, 4, 32},
                                         {128, 1, 4, 64}, {256, 1, 4, 64},  {512, 1, 2, 64},
                                         {384, 1, 2, 32}, {256, 1, 2, 128}, {1024, 1, 1, 64}};

void addAttention(Probes& probes) {
  for (const AttentionSize& a : kAttentions)
    for (double probability : {0.0, 0.1}) {
      OpAttributes attributes;
      attributes.headSize = a.headSize;
      attributes.headsPerGroup = 1;
      attributes.probability = probability;
      attributes.stream = RngStream::kAttentionDropout;
      const OperandType qkv = probes.compute({a.sequence, a.batch, a.heads, 3 * a.headSize});
      const OperandType context = probes.compute({a.sequence, a.batch, a.heads, a.headSize});
      const OperandType lse = probes.state({a.batch, a.heads, a.sequence});
      probes.add(OpKind::kAttention, {qkv}, attributes);
      probes.add(OpKind::kAttentionGrad, {qkv, context, lse, context}, attributes);
    }
}

// Sequence, batch and width of activations.
struct RowsSize {
  int64_t sequence, batch, width;
};
// Mostly larger than a second-level cache, as activations are.
constexpr RowsSize kRows[] = {{1, 1, 8},     {64, 4, 128},  {128, 4, 256},  {512, 1, 768},
                              {256, 4, 512}, {512, 4, 512}, {512, 4, 1024}, {512, 4, 2048}};

void addRows(Probes& probes) {
  for (const RowsSize& r : kRows) {
    const OperandType x = probes.compute({r.sequence, r.batch, r.width});
    const OperandType vector = probes.compute({r.width});
    const OperandType table = probes.compute({r.sequence, r.width});
    const OperandType stat = probes.state({r.sequence, r.batch});
    const OperandType gate = probes.compute({r.sequence, r.batch, 2, r.width / 2});
    const OperandType half = probes.compute({r.sequence, r.batch, r.width / 2});
    OpAttributes dropout, norm, rotary;
    dropout.probability = 0.1;
    dropout.stream = RngStream::kMlpOutDropout;
    norm.epsilon = 1e-5;
    rotary.headSize = r.width / 4;
    rotary.headsPerGroup = 2;
    rotary.ropeTheta = 10000;
    const OperandType heads = probes.compute({r.sequence, r.batch, 1, r.width});
    const OperandType ids = Probes::ids({r.sequence, r.batch});
    probes.add(OpKind::kEmbedding, {ids, probes.compute({1024, r.width})});
    probes.add(OpKind::kEmbeddingGrad, {ids, x}, {}, 1024);
    probes.add(OpKind::kAddPosition, {x, table});
    probes.add(OpKind::kPositionGrad, {x}, {}, r.sequence);
    probes.add(OpKind::kDropout, {x}, dropout);
    probes.add(OpKind::kLayerNorm, {x, vector, vector}, norm);
    probes.add(OpKind::kLayerNormGrad, {x, vector, stat, stat, x}, norm);
    probes.add(OpKind::kRmsNorm, {x, vector}, norm);
    probes.add(OpKind::kRmsNormGrad, {x, vector, stat, x}, norm);
    probes.add(OpKind::kBiasAdd, {x, vector});
    probes.add(OpKind::kBiasGrad, {x});
    probes.add(OpKind::kGelu, {x});
    probes.add(OpKind::kGeluGrad, {x, x});
    probes.add(OpKind::kSwiGlu, {gate});
    probes.add(OpKind::kSwiGluGrad, {gate, half});
    probes.add(OpKind::kRotary, {heads}, rotary);
    probes.add(OpKind::kRotaryGrad, {heads}, rotary);
    probes.add(OpKind::kAdd, {x, x});
  }
}

void addLoss(Probes& probes) {
  for (const RowsSize& r : {RowsSize{64, 1, 256},
                            {128, 4, 256},
                            {64, 1, 2048},
                            {32, 1, 8192},
                            {64, 1, 32768},
                            {128, 1, 50304}}) {
    OpAttributes loss;
    loss.logicalVocab = r.width - 1;
    loss.scale = 1e-3;
    const OperandType logits = probes.compute({r.sequence, r.batch, r.width});
    const OperandType stat = probes.state({r.sequence, r.batch});
    const OperandType labels = Probes::ids({r.sequence, r.batch});
    probes.add(OpKind::kLossMax, {logits}, loss);
    probes.add(OpKind::kLossTarget, {logits, stat, labels}, loss);
    probes.add(OpKind::kLossSumExp, {logits, stat}, loss);
    probes.add(OpKind::kTokenLoss, {stat, stat});
    probes.add(OpKind::kLossGrad, {logits, stat, stat, labels}, loss);
  }
}

}  // namespace

std::vector<Segment> hostProbes(DType type) {
  Probes probes(type);
  addProducts(probes);
  addAttention(probes);
  addRows(probes);
  addLoss(probes);
  return std::move(probes.segments);
}

}  // namespace trireme::cost
