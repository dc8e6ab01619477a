// Dispatch of the reference, and its tables and matrix products.
#include "runtime/kernels/reference.h"

namespace trireme::runtime {
namespace reference {

void embedding(const KernelCallArgs& args) {
  const Tensor ids = inputOf(args, 0), table = inputOf(args, 1), y = outputOf(args, 0);
  const int64_t rows = table.dim(0), width = table.dim(1);
  const int64_t first = firstOfWidth(args, rows);
  for (int64_t token = 0; token < ids.elements(); ++token) {
    const int64_t row = ids.as<int32_t>()[token] - first;
    const bool local = row >= 0 && row < rows;
    for (int64_t c = 0; c < width; ++c)
      y.set(token * width + c, local ? table.at(row * width + c) : 0.0);
  }
}

void embeddingGrad(const KernelCallArgs& args) {
  const Tensor ids = inputOf(args, 0), dy = inputOf(args, 1), table = outputOf(args, 0);
  const int64_t rows = table.dim(0), width = table.dim(1);
  const int64_t first = firstOfWidth(args, rows);
  for (int64_t token = 0; token < ids.elements(); ++token) {
    const int64_t row = ids.as<int32_t>()[token] - first;
    if (row < 0 || row >= rows) continue;
    for (int64_t c = 0; c < width; ++c) table.add(row * width + c, dy.at(token * width + c));
  }
}

void addPosition(const KernelCallArgs& args) {
  const Tensor x = inputOf(args, 0), position = inputOf(args, 1), y = outputOf(args, 0);
  const int64_t first = firstPosition(args, x.dim(0)), batch = x.dim(1), width = x.width();
  for (int64_t token = 0; token < x.tokens(); ++token)
    for (int64_t c = 0; c < width; ++c) {
      const int64_t i = token * width + c;
      y.set(i, x.at(i) + position.at((first + token / batch) * width + c));
    }
}

void positionGrad(const KernelCallArgs& args) {
  const Tensor dy = inputOf(args, 0), position = outputOf(args, 0);
  const int64_t first = firstPosition(args, dy.dim(0)), batch = dy.dim(1), width = dy.width();
  for (int64_t s = 0; s < dy.dim(0); ++s)
    for (int64_t c = 0; c < width; ++c) {
      double sum = 0;
      for (int64_t b = 0; b < batch; ++b) sum += dy.at((s * batch + b) * width + c);
      position.add((first + s) * width + c, sum);
    }
}

void matmul(const KernelCallArgs& args) {
  const Tensor x = inputOf(args, 0), w = inputOf(args, 1), y = outputOf(args, 0);
  const int64_t in = x.width(), out = y.width();
  for (int64_t token = 0; token < x.tokens(); ++token)
    for (int64_t o = 0; o < out; ++o) {
      double sum = 0;
      for (int64_t k = 0; k < in; ++k) sum += x.at(token * in + k) * w.at(o * in + k);
      y.set(token * out + o, sum);
    }
}

void matmulGradInput(const KernelCallArgs& args) {
  const Tensor dy = inputOf(args, 0), w = inputOf(args, 1), dx = outputOf(args, 0);
  const int64_t in = dx.width(), out = dy.width();
  for (int64_t token = 0; token < dy.tokens(); ++token)
    for (int64_t k = 0; k < in; ++k) {
      double sum = 0;
      for (int64_t o = 0; o < out; ++o) sum += dy.at(token * out + o) * w.at(o * in + k);
      dx.set(token * in + k, sum);
    }
}

void matmulGradWeight(const KernelCallArgs& args) {
  const Tensor dy = inputOf(args, 0), x = inputOf(args, 1), dw = outputOf(args, 0);
  const int64_t in = x.width(), out = dy.width();
  for (int64_t o = 0; o < out; ++o)
    for (int64_t k = 0; k < in; ++k) {
      double sum = 0;
      for (int64_t token = 0; token < dy.tokens(); ++token)
        sum += dy.at(token * out + o) * x.at(token * in + k);
      if (args.overwrite)
        dw.set(o * in + k, sum);
      else
        dw.add(o * in + k, sum);
    }
}

namespace {

void dispatch(const KernelCallArgs& args) {
  using program::OpKind;
  switch (args.op->kind) {
    case OpKind::kEmbedding:
      return embedding(args);
    case OpKind::kAddPosition:
      return addPosition(args);
    case OpKind::kDropout:
      return dropout(args);
    case OpKind::kLayerNorm:
      return layerNorm(args);
    case OpKind::kRmsNorm:
      return rmsNorm(args);
    case OpKind::kMatmul:
      return matmul(args);
    case OpKind::kBiasAdd:
      return biasAdd(args);
    case OpKind::kGelu:
      return gelu(args);
    case OpKind::kSwiGlu:
      return swiGlu(args);
    case OpKind::kRotary:
      return rotary(args, +1);
    case OpKind::kAttention:
      return attention(args);
    case OpKind::kAdd:
      return add(args);
    case OpKind::kLossMax:
      return lossMax(args);
    case OpKind::kLossTarget:
      return lossTarget(args);
    case OpKind::kLossSumExp:
      return lossSumExp(args);
    case OpKind::kTokenLoss:
      return tokenLoss(args);
    case OpKind::kEmbeddingGrad:
      return embeddingGrad(args);
    case OpKind::kPositionGrad:
      return positionGrad(args);
    case OpKind::kLayerNormGrad:
      return layerNormGrad(args);
    case OpKind::kRmsNormGrad:
      return rmsNormGrad(args);
    case OpKind::kMatmulGradInput:
      return matmulGradInput(args);
    case OpKind::kMatmulGradWeight:
      return matmulGradWeight(args);
    case OpKind::kBiasGrad:
      return biasGrad(args);
    case OpKind::kGeluGrad:
      return geluGrad(args);
    case OpKind::kSwiGluGrad:
      return swiGluGrad(args);
    case OpKind::kRotaryGrad:
      return rotary(args, -1);
    case OpKind::kAttentionGrad:
      return attentionGrad(args);
    case OpKind::kLossGrad:
      return lossGrad(args);
  }
}

}  // namespace
}  // namespace reference

Status runReferenceOp(const KernelCallArgs& args) {
  TRIREME_RETURN_IF_ERROR(checkOperands(args));
  reference::dispatch(args);
  return {};
}

}  // namespace trireme::runtime
