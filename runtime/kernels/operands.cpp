#include "runtime/kernels/operands.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "ir/program/walk.h"

namespace trireme::runtime {
namespace {

using program::OpKind;

// Collects the first rule that the operands break. A rule is a literal: nothing is formatted unless
// it is broken.
class Checker {
 public:
  explicit Checker(const KernelCallArgs& args) : args_(args) {}

  Checker& require(bool holds, const char* rule) {
    if (!holds && broken_ == nullptr) broken_ = rule;
    return *this;
  }
  bool holds() const { return broken_ == nullptr; }
  Status status() const {
    if (holds()) return {};
    return invalidArgument(fmt::format("{}: {}", program::opName(args_.op->kind), broken_));
  }

 private:
  const KernelCallArgs& args_;
  const char* broken_ = nullptr;
};

bool isState(const Tensor& t) { return t.dtype() == DType::kF64 || t.dtype() == DType::kF32; }
bool isFloat(const Tensor& t) {
  return isState(t) || t.dtype() == DType::kBf16 || t.dtype() == DType::kF16;
}
bool isActivation(const Tensor& t) {
  return t.type->dims.size() >= 2 && isFloat(t) && t.tokens() > 0;
}
bool isIds(const Tensor& t) { return t.type->dims.size() == 2 && t.dtype() == DType::kI32; }
bool isMatrix(const Tensor& t) { return t.type->dims.size() == 2 && isFloat(t); }

constexpr const char* kElementwise = "operands must be float activations of the same size";
constexpr const char* kPerToken = "statistics must be f32 or f64, one per token";

void checkEmbedding(Checker& check, const Tensor& ids, const Tensor& table, const Tensor& y) {
  check.require(isIds(ids), "ids must be i32 [s, b]");
  check.require(isMatrix(table), "the table must be a float matrix [v, h]");
  check.require(isFloat(y), "the embedded tokens must be float");
  if (check.holds())
    check.require(y.elements() == ids.elements() * table.dim(1), "y must be [s, b, h]");
}

void checkPosition(Checker& check, const KernelCallArgs& args, const Tensor& x,
                   const Tensor& rows) {
  check.require(isActivation(x), "x must be a float activation [s, b, h]");
  check.require(isMatrix(rows), "positions must be a float matrix [n, h]");
  if (!check.holds()) return;
  check.require(rows.dim(1) == x.width(), "positions must be as wide as x");
  check.require(firstPosition(args, x.dim(0)) + x.dim(0) <= rows.dim(0),
                "the sequence is longer than the table of positions");
}

void checkSame(Checker& check, const Tensor& x, const Tensor& y) {
  check.require(isActivation(x) && isFloat(y) && x.elements() == y.elements(), kElementwise);
}

void checkPerToken(Checker& check, const Tensor& x, const Tensor& stat) {
  check.require(isState(stat) && stat.elements() == x.tokens(), kPerToken);
}

void checkVector(Checker& check, const Tensor& x, const Tensor& vector) {
  check.require(isFloat(vector) && vector.elements() == x.width(),
                "a per-column vector must be as wide as the activation");
}

void checkNorm(Checker& check, const KernelCallArgs& args) {
  const Tensor x = inputOf(args, 0);
  checkSame(check, x, outputOf(args, 0));
  if (!check.holds()) return;
  for (size_t i = 1; i < args.op->inputs.size(); ++i) checkVector(check, x, inputOf(args, i));
  for (size_t i = 1; i < args.op->outputs.size(); ++i) checkPerToken(check, x, outputOf(args, i));
}

// x, gamma, statistics..., dy -> dx, dGamma [, dBeta]
void checkNormGrad(Checker& check, const KernelCallArgs& args) {
  const Tensor x = inputOf(args, 0);
  const size_t dy = args.op->inputs.size() - 1;
  checkSame(check, x, outputOf(args, 0));
  if (!check.holds()) return;
  checkSame(check, x, inputOf(args, dy));
  checkVector(check, x, inputOf(args, 1));
  for (size_t i = 2; i < dy; ++i) checkPerToken(check, x, inputOf(args, i));
  for (size_t i = 1; i < args.op->outputs.size(); ++i) checkVector(check, x, outputOf(args, i));
}

// x[s,b,k...], w[o...,k...], y[s,b,o...]: y = x w^T.
void checkMatmul(Checker& check, const Tensor& x, const Tensor& w, const Tensor& y) {
  check.require(isActivation(x) && isActivation(y), "activations must be float [s, b, ...]");
  check.require(isFloat(w), "the weight must be float");
  if (!check.holds()) return;
  check.require(x.tokens() == y.tokens(), "activations must have the same tokens");
  check.require(w.elements() == x.width() * y.width(), "the weight must be [out..., in...]");
}

void checkSwiGlu(Checker& check, const Tensor& u, const Tensor& z) {
  check.require(isActivation(u) && u.type->dims.size() == 4 && u.dim(2) == 2,
                "u must be [s, b, 2, f]");
  check.require(isFloat(z) && 2 * z.elements() == u.elements(), "z must be [s, b, f]");
}

void checkQkv(Checker& check, const KernelCallArgs& args, const Tensor& qkv) {
  const program::OpAttributes& a = args.op->attributes;
  check.require(isActivation(qkv) && qkv.type->dims.size() == 4, "qkv must be [s, b, g, e]");
  check.require(a.headSize > 0 && a.headsPerGroup > 0, "head size and heads per group must be set");
  if (!check.holds()) return;
  check.require(qkv.dim(3) == (a.headsPerGroup + 2) * a.headSize,
                "a group must hold its q heads, k and v");
}

void checkRotary(Checker& check, const KernelCallArgs& args) {
  const Tensor qkv = inputOf(args, 0);
  checkQkv(check, args, qkv);
  if (!check.holds()) return;
  check.require(args.op->attributes.headSize % 2 == 0, "the head size must be even");
  check.require(args.op->attributes.ropeTheta > 0, "theta must be positive");
  check.require(!findProblem(args.op->attributes.ropeScaling).has_value(),
                "the scaling of rotary positions must make sense");
  checkSame(check, qkv, outputOf(args, 0));
}

void checkAttention(Checker& check, const KernelCallArgs& args, const Tensor& ctx,
                    const Tensor& lse) {
  const Tensor qkv = inputOf(args, 0);
  checkQkv(check, args, qkv);
  if (!check.holds()) return;
  const AttentionShape shape = attentionShapeOf(args.op->attributes, qkv);
  const int64_t heads = shape.groups * shape.headsPerGroup;
  check.require(isFloat(ctx) && ctx.elements() == qkv.tokens() * shape.groups * shape.ctxWidth(),
                "ctx must be [s, b, g, c]");
  check.require(isState(lse) && lse.elements() == qkv.tokens() * heads,
                "lse must be f32 or f64 [b, heads, s]");
  check.require(!args.op->attributes.sequenceSharded, "attention needs the whole sequence");
}

void checkLoss(Checker& check, const KernelCallArgs& args) {
  const Tensor logits = inputOf(args, 0);
  check.require(isActivation(logits), "logits must be float [s, b, v]");
  check.require(args.op->attributes.logicalVocab > 0, "the logical vocabulary must be set");
  if (!check.holds()) return;
  for (size_t i = 1; i < args.op->inputs.size(); ++i) {
    const Tensor t = inputOf(args, i);
    if (t.dtype() == DType::kI32)
      check.require(t.elements() == logits.tokens(), "labels must be i32 [s, b]");
    else
      checkPerToken(check, logits, t);
  }
  if (args.op->kind == OpKind::kLossGrad)
    checkSame(check, logits, outputOf(args, 0));
  else
    checkPerToken(check, logits, outputOf(args, 0));
}

void checkTokenLoss(Checker& check, const KernelCallArgs& args) {
  const Tensor loss = outputOf(args, 0);
  check.require(isState(inputOf(args, 0)) && isState(inputOf(args, 1)) &&
                    inputOf(args, 0).elements() == inputOf(args, 1).elements(),
                "target and sumExp must be f32 or f64, one per token");
  check.require(loss.dtype() == DType::kF64 && loss.elements() == 1, "the loss must be f64 [1]");
}

void checkElementwise(Checker& check, const KernelCallArgs& args) {
  for (size_t i = 0; i < args.op->inputs.size(); ++i)
    checkSame(check, inputOf(args, i), outputOf(args, 0));
}

void checkShapes(Checker& check, const KernelCallArgs& args) {
  const auto in = [&](size_t i) { return inputOf(args, i); };
  const auto out = [&](size_t i) { return outputOf(args, i); };
  switch (args.op->kind) {
    case OpKind::kEmbedding:
      return checkEmbedding(check, in(0), in(1), out(0));
    case OpKind::kEmbeddingGrad:
      return checkEmbedding(check, in(0), out(0), in(1));
    case OpKind::kAddPosition:
      checkSame(check, in(0), out(0));
      return checkPosition(check, args, in(0), in(1));
    case OpKind::kPositionGrad:
      return checkPosition(check, args, in(0), out(0));
    case OpKind::kDropout:
    case OpKind::kGelu:
    case OpKind::kAdd:
    case OpKind::kGeluGrad:
      return checkElementwise(check, args);
    case OpKind::kLayerNorm:
    case OpKind::kRmsNorm:
      return checkNorm(check, args);
    case OpKind::kLayerNormGrad:
    case OpKind::kRmsNormGrad:
      return checkNormGrad(check, args);
    case OpKind::kMatmul:
      return checkMatmul(check, in(0), in(1), out(0));
    case OpKind::kMatmulGradInput:
      return checkMatmul(check, out(0), in(1), in(0));
    case OpKind::kMatmulGradWeight:
      return checkMatmul(check, in(1), out(0), in(0));
    case OpKind::kBiasAdd:
      checkSame(check, in(0), out(0));
      if (check.holds()) checkVector(check, in(0), in(1));
      return;
    case OpKind::kBiasGrad:
      check.require(isActivation(in(0)), kElementwise);
      if (check.holds()) checkVector(check, in(0), out(0));
      return;
    case OpKind::kSwiGlu:
      return checkSwiGlu(check, in(0), out(0));
    case OpKind::kSwiGluGrad:
      checkSwiGlu(check, in(0), in(1));
      return checkSame(check, in(0), out(0));
    case OpKind::kRotary:
    case OpKind::kRotaryGrad:
      return checkRotary(check, args);
    case OpKind::kAttention:
      return checkAttention(check, args, out(0), out(1));
    case OpKind::kAttentionGrad:
      checkAttention(check, args, in(1), in(2));
      if (!check.holds()) return;
      checkSame(check, in(0), out(0));
      return checkSame(check, in(1), in(3));
    case OpKind::kLossMax:
    case OpKind::kLossTarget:
    case OpKind::kLossSumExp:
    case OpKind::kLossGrad:
      return checkLoss(check, args);
    case OpKind::kTokenLoss:
      return checkTokenLoss(check, args);
  }
}

}  // namespace

int64_t localLogicalColumns(const KernelCallArgs& args, int64_t localVocab) {
  const int64_t first = firstOfWidth(args, localVocab);
  return std::clamp<int64_t>(args.op->attributes.logicalVocab - first, 0, localVocab);
}

AttentionShape attentionShapeOf(const program::OpAttributes& attributes, const Tensor& qkv) {
  return {qkv.dim(0), qkv.dim(1), qkv.dim(2), attributes.headsPerGroup, attributes.headSize};
}

Status checkOperands(const KernelCallArgs& args) {
  Checker check(args);
  const program::Arity arity = program::arityOf(args.op->kind);
  check.require(
      std::ssize(args.op->inputs) == arity.inputs && std::ssize(args.op->outputs) == arity.outputs,
      "wrong number of operands");
  const double p = args.op->attributes.probability;
  check.require(p >= 0 && p < 1, "the drop probability must be in [0, 1)");
  if (check.holds()) checkShapes(check, args);
  return check.status();
}

}  // namespace trireme::runtime
