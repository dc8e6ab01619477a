// The vocabulary of computation: every op that a segment may contain, forward and backward, on the
// local (per-rank) tensors of one microbatch. The semantics (shapes, FLOPs, sharding, derivatives)
// are in ir/graph; the kernels that execute them are in runtime/kernels and codegen.
//
// Layout: activations are row-major [s, b, ...]: sequence outermost, so that a split along the
// sequence is a contiguous slice. A matrix is [out..., in...], y = x W^T, as in PyTorch.
//   h hidden   g key/value groups   f ffn   v (padded) vocabulary
//   e width of a group's fused q..q,k,v = (headsPerGroup + 2) headSize
//   c width of a group's output = headsPerGroup headSize
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/dtype.h"
#include "ir/base/rng.h"
#include "ir/base/rope.h"

namespace trireme::program {

enum class OpKind : uint8_t {
  // Forward.                inputs -> outputs
  kEmbedding,    // ids[s,b] i32, table[v,h] -> y[s,b,h]; a row outside the local shard gives zero
  kAddPosition,  // x[s,b,h], position[n,h] -> y[s,b,h]; row of a token = its global position
  kDropout,      // x -> y: x / (1 - p) where kept, else 0. Its own derivative.
  kLayerNorm,    // x[s,b,h], gamma[h], beta[h] -> y, mean[s,b], rstd[s,b]   (stats in state dtype)
  kRmsNorm,      // x[s,b,h], gamma[h] -> y, rstd[s,b]
  kMatmul,       // x[s,b,k...], w[o...,k...] -> y[s,b,o...]
  kBiasAdd,      // x[s,b,o...], bias[o...] -> y
  kGelu,         // u -> z, tanh form: 0.5 u (1 + tanh(0.7978845608028654 (u + 0.044715 u^3)))
  kSwiGlu,       // u[s,b,2,f] (gate, up) -> z[s,b,f]: silu(gate) * up
  kRotary,      // qkv[s,b,g,e] -> same with q and k rotated by position (ir/base/rope.h); pairs are
                // the halves (i, i + headSize/2)
  kAttention,   // qkv[s,b,g,e] -> ctx[s,b,g,c], lse[b,g*headsPerGroup,s] (state dtype); causal
  kAdd,         // x, y -> x + y
  kLossMax,     // logits[s,b,v] -> max[s,b] over the local logical columns (state dtype)
  kLossTarget,  // logits, max, labels[s,b] i32 -> (logit of the label - max) if local, else 0
  kLossSumExp,  // logits, max -> sum over local logical columns of exp(logit - max)
  kTokenLoss,   // target[s,b], sumExp[s,b] -> loss[1] f64 +=: sum of log(sumExp) - target
  // Backward. A "+=" output accumulates, in state dtype.
  kEmbeddingGrad,     // ids, dy[s,b,h] -> dTable[v,h] +=
  kPositionGrad,      // dy[s,b,h] -> dPosition[n,h] +=
  kLayerNormGrad,     // x, gamma, mean, rstd, dy -> dx, dGamma +=, dBeta +=
  kRmsNormGrad,       // x, gamma, rstd, dy -> dx, dGamma +=
  kMatmulGradInput,   // dy[s,b,o...], w[o...,k...] -> dx[s,b,k...]
  kMatmulGradWeight,  // dy[s,b,o...], x[s,b,k...] -> dw[o...,k...] +=
  kBiasGrad,          // dy[s,b,o...] -> dBias[o...] +=
  kGeluGrad,          // u, dz -> du
  kSwiGluGrad,        // u[s,b,2,f], dz[s,b,f] -> du[s,b,2,f]
  kRotaryGrad,        // dy -> dx: the inverse rotation
  kAttentionGrad,     // qkv, ctx, lse, dctx -> dqkv
  kLossGrad,          // logits, max, sumExp, labels -> dLogits = (softmax - onehot) * scale;
                      // padded columns get 0
};
inline constexpr int kNumOpKinds = static_cast<int>(OpKind::kLossGrad) + 1;

// The order of a sum over the tokens of a column: dBias, dGamma and dBeta above. Tokens are split
// into ranges of sumRangeTokens(tokens), the last of which may be shorter: at most kSumRanges,
// which the warps of a GPU's thread block sum at once. A range is summed over its tokens in order,
// from zero; the column is the sum of its ranges in order, from zero. Both are in f64, and are
// rounded once, when they are added to the output.
//
//   100 tokens, ranges of 8:   (0..7) (8..15) ... (88..95) (96..99)
inline constexpr int64_t kSumRanges = 32;
inline constexpr int64_t kSumRangeStep =
    8;  // a range is a multiple: loops take several rows at once
constexpr int64_t sumRangeTokens(int64_t tokens) {
  const int64_t step = kSumRanges * kSumRangeStep;
  return (tokens + step - 1) / step * kSumRangeStep;
}

std::string_view opName(OpKind kind);  // "embedding", "matmul_grad_weight", ...
std::optional<OpKind> parseOpKind(std::string_view name);

// What an op needs besides its operands. Fields that an op does not use stay at their defaults, so
// that equal ops compare equal.
struct OpAttributes {
  double epsilon = 0;      // norms
  double probability = 0;  // kDropout, kAttention(Grad): drop probability
  RngStream stream = RngStream::kInit;
  int64_t headSize = 0;       // kRotary(Grad), kAttention(Grad)
  int64_t headsPerGroup = 0;  // query heads per key/value head
  double ropeTheta = 0;       // kRotary(Grad)
  RopeScaling ropeScaling;    // kRotary(Grad)
  int64_t logicalVocab = 0;   // loss ops: columns at or beyond are padding
  // kLossGrad: 1 / tokens of the global batch; in f16 times the loss scale (Role::lossScaling).
  double scale = 0;
  // The local part starts at tpIndex * (local size) of that dim:
  bool sequenceSharded = false;  // dim s
  bool widthSharded = false;     // g (attention), v (embedding, loss)
  bool tf32 = false;             // matrix products: on a GPU of factors rounded to TF32
  bool operator==(const OpAttributes&) const = default;
};

// A tensor as an op sees it on one rank.
struct OperandType {
  DType dtype = DType::kF32;
  std::vector<int64_t> dims;  // local, row-major
  int64_t elements() const;
  int64_t bytes() const { return elements() * byteSize(dtype); }
  bool operator==(const OperandType&) const = default;
};

// inputs/outputs index Segment::operands. An elementwise op may write over one of its inputs.
struct SegmentOp {
  OpKind kind = OpKind::kAdd;
  OpAttributes attributes;
  std::vector<int32_t> inputs;
  std::vector<int32_t> outputs;
  bool operator==(const SegmentOp&) const = default;
};

// Straight-line code between two communications. Operands [0, numExternal) outlive the segment;
// the rest are temporaries: a kernel that fuses ops need not write them.
// In a run of generated ops (graph::isGenerated) two operands may share memory only if the op that
// writes the second is elementwise and is the last reader of the first, at the same index and
// element size. Library ops and collectives separate runs.
struct Segment {
  std::string name;  // "layer.forward.0": for listings and traces
  std::vector<OperandType> operands;
  std::vector<bool> temporary;  // per operand
  std::vector<SegmentOp> ops;
  bool operator==(const Segment&) const = default;
};

}  // namespace trireme::program
