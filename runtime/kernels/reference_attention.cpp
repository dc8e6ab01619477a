// Reference of rotary embedding and of causal attention with grouped queries:
//   score = scale q.k    P = softmax over keys <= query    D = P dropped and rescaled
//   ctx = D v            lse = log(sum of exp(score))
// Backward, with G = dctx.v (the gradient of D) and G' = G dropped and rescaled alike:
//   dv += D dctx    dscore = P (G' - sum over keys of P G')    dq += scale dscore k    dk alike
#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/kernels/reference.h"

namespace trireme::runtime::reference {
namespace {

// One (batch, query head): where its rows are, and its random numbers.
struct Head {
  const KernelCallArgs& args;
  AttentionShape shape;
  int64_t batch, group, head;  // head within the group

  int64_t qkvRow(int64_t position) const {
    return ((position * shape.batch + batch) * shape.groups + group) * shape.qkvWidth();
  }
  int64_t q(int64_t position) const { return qkvRow(position) + head * shape.headSize; }
  int64_t k(int64_t position) const { return qkvRow(position) + shape.ctxWidth(); }
  int64_t v(int64_t position) const { return k(position) + shape.headSize; }
  int64_t ctx(int64_t position) const {
    return ((position * shape.batch + batch) * shape.groups + group) * shape.ctxWidth() +
           head * shape.headSize;
  }
  int64_t localHead() const { return group * shape.headsPerGroup + head; }
  int64_t lse(int64_t position) const {
    return (batch * shape.groups * shape.headsPerGroup + localHead()) * shape.sequence + position;
  }
  double scale() const { return 1 / std::sqrt(static_cast<double>(shape.headSize)); }

  // What dropout multiplies the probability of (query, key) with.
  double keep(int64_t query, int64_t key) const {
    const double p = args.op->attributes.probability;
    if (p == 0) return 1;
    const int64_t global = firstOfWidth(args, shape.groups * shape.headsPerGroup) + localHead();
    const uint64_t element =
        static_cast<uint64_t>((global * shape.sequence + query) * shape.sequence + key);
    const uint64_t sample = args.context->firstSample + static_cast<uint64_t>(batch);
    return randomWord(rngKeyOf(args), sample, element) >= dropoutThreshold(p) ? 1 / (1 - p) : 0;
  }
};

double dot(const Tensor& x, int64_t xAt, const Tensor& y, int64_t yAt, int64_t size) {
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += x.at(xAt + i) * y.at(yAt + i);
  return sum;
}

template <typename Body>
void forEachHead(const KernelCallArgs& args, const AttentionShape& shape, Body body) {
  for (int64_t b = 0; b < shape.batch; ++b)
    for (int64_t g = 0; g < shape.groups; ++g)
      for (int64_t h = 0; h < shape.headsPerGroup; ++h) body(Head{args, shape, b, g, h});
}

void forwardHead(const Head& at, const Tensor& qkv, const Tensor& ctx, const Tensor& lse) {
  const int64_t size = at.shape.headSize;
  for (int64_t query = 0; query < at.shape.sequence; ++query) {
    std::vector<double> scores(query + 1);
    for (int64_t key = 0; key <= query; ++key)
      scores[key] = at.scale() * dot(qkv, at.q(query), qkv, at.k(key), size);
    const double max = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (double score : scores) sum += std::exp(score - max);
    const double logSum = max + std::log(sum);
    std::vector<double> out(size);
    for (int64_t key = 0; key <= query; ++key) {
      const double p = std::exp(scores[key] - logSum) * at.keep(query, key);
      for (int64_t i = 0; i < size; ++i) out[i] += p * qkv.at(at.v(key) + i);
    }
    for (int64_t i = 0; i < size; ++i) ctx.set(at.ctx(query) + i, out[i]);
    lse.set(at.lse(query), logSum);
  }
}

// Adds the head's gradients to `sums`, which is laid out as dqkv.
void backwardHead(const Head& at, const Tensor& qkv, const Tensor& lse, const Tensor& dctx,
                  std::vector<double>& sums) {
  const int64_t size = at.shape.headSize;
  for (int64_t query = 0; query < at.shape.sequence; ++query) {
    std::vector<double> p(query + 1), g(query + 1);
    double pg = 0;
    for (int64_t key = 0; key <= query; ++key) {
      const double score = at.scale() * dot(qkv, at.q(query), qkv, at.k(key), size);
      p[key] = std::exp(score - lse.at(at.lse(query)));
      g[key] = dot(dctx, at.ctx(query), qkv, at.v(key), size) * at.keep(query, key);
      pg += p[key] * g[key];
    }
    for (int64_t key = 0; key <= query; ++key) {
      const double dropped = p[key] * at.keep(query, key);
      const double dScore = p[key] * (g[key] - pg) * at.scale();
      for (int64_t i = 0; i < size; ++i) {
        sums[at.v(key) + i] += dropped * dctx.at(at.ctx(query) + i);
        sums[at.q(query) + i] += dScore * qkv.at(at.k(key) + i);
        sums[at.k(key) + i] += dScore * qkv.at(at.q(query) + i);
      }
    }
  }
}

}  // namespace

void rotary(const KernelCallArgs& args, int direction) {
  const Tensor x = inputOf(args, 0), y = outputOf(args, 0);
  const program::OpAttributes& a = args.op->attributes;
  const AttentionShape shape = attentionShapeOf(a, x);
  const int64_t half = shape.headSize / 2, perPosition = x.elements() / shape.sequence;
  const int64_t first = firstPosition(args, shape.sequence);
  for (int64_t at = 0; at < x.elements(); at += shape.headSize) {
    const bool rotates = at % shape.qkvWidth() < shape.ctxWidth() + shape.headSize;
    const double position = static_cast<double>(first + at / perPosition);
    for (int64_t i = 0; i < half; ++i) {
      const double frequency = ropeFrequency(a.ropeTheta, a.ropeScaling, a.headSize, i);
      const double angle = rotates ? direction * position * frequency : 0;
      const double low = x.at(at + i), high = x.at(at + half + i);
      y.set(at + i, low * std::cos(angle) - high * std::sin(angle));
      y.set(at + half + i, high * std::cos(angle) + low * std::sin(angle));
    }
  }
}

void attention(const KernelCallArgs& args) {
  const Tensor qkv = inputOf(args, 0), ctx = outputOf(args, 0), lse = outputOf(args, 1);
  forEachHead(args, attentionShapeOf(args.op->attributes, qkv),
              [&](const Head& at) { forwardHead(at, qkv, ctx, lse); });
}

void attentionGrad(const KernelCallArgs& args) {
  const Tensor qkv = inputOf(args, 0), lse = inputOf(args, 2), dctx = inputOf(args, 3);
  const Tensor dqkv = outputOf(args, 0);
  std::vector<double> sums(dqkv.elements());
  forEachHead(args, attentionShapeOf(args.op->attributes, qkv),
              [&](const Head& at) { backwardHead(at, qkv, lse, dctx, sums); });
  for (int64_t i = 0; i < dqkv.elements(); ++i) dqkv.set(i, sums[i]);
}

}  // namespace trireme::runtime::reference
