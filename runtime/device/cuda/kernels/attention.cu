// Causal attention with grouped queries, forward and backward, without a score matrix: the plain
// kernels. Formulas: runtime/kernels/reference_attention.cpp. One warp per query (forward, dq) or
// per key (dk and dv), which sums over the others in order: no atomics, repeatable bit by bit.
// Scores of 32 partners at a time, one per lane; then the sums over them, one column per lane.
#include "runtime/device/cuda/kernels/attention_head.h"

namespace trireme::runtime::cuda {
namespace {

constexpr int kMaxHeadSize = 256;
constexpr int kTile = 32;

// Row -> (batch, query head, position), position fastest.
TRIREME_DEVICE Head queryHeadOf(const OpArgs& a, int64_t row) {
  const int64_t head = row / a.sequence % (a.groups * a.headsPerGroup);
  const int64_t batch = row / a.sequence / (a.groups * a.headsPerGroup);
  return {a, batch, head / a.headsPerGroup, head % a.headsPerGroup};
}

// qkv -> ctx, lse. The sums are rescaled whenever a tile raises the maximum.
template <typename T, typename S>
TRIREME_DEVICE void attention(const OpArgs& a) {
  const T* qkv = operand<T>(a, 0);
  const int64_t rows = a.batch * a.groups * a.headsPerGroup * a.sequence;
  forEachRow(rows, [&](int64_t row) {
    const Head at = queryHeadOf(a, row);
    const int64_t query = row % a.sequence, size = a.headSize;
    const S scale = scoreScale<S>(a);
    S max = lowest<S>(), sum = 0;
    PerColumn<S, kMaxHeadSize> out;
    for (int64_t first = 0; first <= query; first += kTile) {
      PerLane<S> scores, weights;
      scores.fill([&](int lane) {
        const int64_t key = first + lane;
        return key <= query ? scale * dot<S>(qkv + at.q(query), qkv + at.k(key), size)
                            : lowest<S>();
      });
      const S tileMax = scores.max();
      const S newMax = max < tileMax || tileMax != tileMax ? tileMax : max;
      const S rescale = expOf(max - newMax);
      scores.fill([&, old = scores](int lane) { return expOf(old.mine(lane) - newMax); });
      sum = sum * rescale + scores.sum();
      max = newMax;
      weights.fill([&](int lane) {
        const int64_t key = first + lane;
        return key <= query ? scores.mine(lane) * static_cast<S>(at.keep(query, key)) : S{0};
      });
      out.forEach(size, [&](int64_t, S& x) { x *= rescale; });
      const int count = static_cast<int>(smaller(kTile, query + 1 - first));
      for (int j = 0; j < count; ++j) {
        const S weight = weights.at(j);
        const T* v = qkv + at.v(first + j);
        out.forEach(size, [&](int64_t c, S& x) { x += weight * value(v[c]); });
      }
    }
    T* ctx = operand<T>(a, 1) + at.ctx(query);
    out.forEach(size, [&](int64_t c, S& x) { store(ctx[c], x / sum); });
    onOneLane([&] { operand<S>(a, 2)[at.lse(query)] = max + logOf(sum); });
  });
}

// What the gradient needs of one (query, key). dScore = P (G' - delta), where delta = sum of P G'
// over the keys is dctx.ctx.
template <typename S>
struct PairGrad {
  S weight = 0;  // dropped probability
  S dScore = 0;  // times the score's scale
};

template <typename T, typename S>
TRIREME_DEVICE PairGrad<S> pairGrad(const Head& at, int64_t query, int64_t key, S delta) {
  const OpArgs& a = at.a;
  const T *qkv = operand<T>(a, 0), *dctx = operand<T>(a, 3) + at.ctx(query);
  const S scale = scoreScale<S>(a);
  const S score = scale * dot<S>(qkv + at.q(query), qkv + at.k(key), a.headSize);
  const S p = expOf(score - operand<S>(a, 2)[at.lse(query)]);
  const S keep = static_cast<S>(at.keep(query, key));
  const S g = dot<S>(dctx, qkv + at.v(key), a.headSize) * keep;
  return {p * keep, p * (g - delta) * scale};
}

// qkv, ctx, lse, dctx -> the q part of dqkv
template <typename T, typename S>
TRIREME_DEVICE void attentionGradQuery(const OpArgs& a) {
  const T* qkv = operand<T>(a, 0);
  const int64_t rows = a.batch * a.groups * a.headsPerGroup * a.sequence;
  forEachRow(rows, [&](int64_t row) {
    const Head at = queryHeadOf(a, row);
    const int64_t query = row % a.sequence;
    const S delta = deltaOf<T, S>(at, query);
    PerColumn<S, kMaxHeadSize> dq;
    for (int64_t first = 0; first <= query; first += kTile) {
      PerLane<S> dScores;
      dScores.fill([&](int lane) {
        const int64_t key = first + lane;
        return key <= query ? pairGrad<T, S>(at, query, key, delta).dScore : S{0};
      });
      const int count = static_cast<int>(smaller(kTile, query + 1 - first));
      for (int j = 0; j < count; ++j) {
        const S d = dScores.at(j);
        const T* k = qkv + at.k(first + j);
        dq.forEach(a.headSize, [&](int64_t c, S& x) { x += d * value(k[c]); });
      }
    }
    T* out = operand<T>(a, 4) + at.q(query);
    dq.forEach(a.headSize, [&](int64_t c, S& x) { store(out[c], x); });
  });
}

// The k and v parts of dqkv: sums over the query heads of the group and over later queries.
template <typename T, typename S>
TRIREME_DEVICE void attentionGradKey(const OpArgs& a) {
  const T *qkv = operand<T>(a, 0), *dctx = operand<T>(a, 3);
  forEachRow(a.batch * a.groups * a.sequence, [&](int64_t row) {
    const int64_t key = row % a.sequence;
    Head at{a, row / a.sequence / a.groups, row / a.sequence % a.groups, 0};
    PerColumn<S, kMaxHeadSize> dk, dv;
    for (; at.head < a.headsPerGroup; ++at.head)
      for (int64_t first = key; first < a.sequence; first += kTile) {
        PerLane<S> weights, dScores;
        weights.fill([&](int lane) {
          const int64_t query = first + lane;
          PairGrad<S> grad;
          if (query < a.sequence) grad = pairGrad<T, S>(at, query, key, deltaOf<T, S>(at, query));
          dScores.setMine(lane, grad.dScore);
          return grad.weight;
        });
        const int count = static_cast<int>(smaller(kTile, a.sequence - first));
        for (int j = 0; j < count; ++j) {
          const S weight = weights.at(j), d = dScores.at(j);
          const T *q = qkv + at.q(first + j), *dOut = dctx + at.ctx(first + j);
          dk.forEach(a.headSize, [&](int64_t c, S& x) { x += d * value(q[c]); });
          dv.forEach(a.headSize, [&](int64_t c, S& x) { x += weight * value(dOut[c]); });
        }
      }
    T *outK = operand<T>(a, 4) + at.k(key), *outV = operand<T>(a, 4) + at.v(key);
    dk.forEach(a.headSize, [&](int64_t c, S& x) { store(outK[c], x); });
    dv.forEach(a.headSize, [&](int64_t c, S& x) { store(outV[c], x); });
  });
}

}  // namespace

TRIREME_OP_KERNEL(attention, attention)
TRIREME_OP_KERNEL(attention_grad_query, attentionGradQuery)
TRIREME_OP_KERNEL(attention_grad_key, attentionGradKey)

}  // namespace trireme::runtime::cuda
