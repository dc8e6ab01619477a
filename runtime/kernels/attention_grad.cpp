#include <algorithm>

#include "runtime/kernels/attention.h"
#include "runtime/kernels/attention_head.h"
#include "runtime/kernels/scratch.h"

namespace trireme::runtime {
namespace {

// The gradients of one (batch, group). Sums are kept for the whole sequence of a head (dq) or of
// the group (dk, dv), and rounded at the end.
template <typename T>
struct Backward {
  using Sum = SumOf<T>;
  AttentionHead<T> at;
  Tensor qkv, ctx, lse, dctx, dqkv;
  Sum *scores, *dProbs;  // [queries, keys]
  T *dropped, *dScores;  // [queries, keys]: factors of dv, and of dq and dk
  Sum* deltas;           // [sequence]: ctx.dctx
  Sum *dq, *dk, *dv;     // [sequence, headSize]
  uint32_t* words;       // [keys]
  void* products;

  Backward(const AttentionHead<T>& head, const KernelCallArgs& args, void* workspace)
      : at(head),
        qkv(inputOf(args, 0)),
        ctx(inputOf(args, 1)),
        lse(inputOf(args, 2)),
        dctx(inputOf(args, 3)),
        dqkv(outputOf(args, 0)) {
    const int64_t size = std::min(AttentionBlocking::kRows, at.shape.sequence);
    const int64_t rows = at.shape.sequence * at.shape.headSize;
    Scratch scratch(workspace);
    scores = scratch.take<Sum>(size * size);
    dProbs = scratch.take<Sum>(size * size);
    dropped = scratch.take<T>(size * size);
    dScores = scratch.take<T>(size * size);
    deltas = scratch.take<Sum>(at.shape.sequence);
    dq = scratch.take<Sum>(rows);
    dk = scratch.take<Sum>(rows);
    dv = scratch.take<Sum>(rows);
    words = scratch.take<uint32_t>(size);
    products = scratch.take<char>(0);
  }

  void run() {
    const int64_t rows = at.shape.sequence * at.shape.headSize;
    std::fill_n(dk, rows, Sum{0});
    std::fill_n(dv, rows, Sum{0});
    for (at.head = 0; at.head < at.shape.headsPerGroup; ++at.head) {
      std::fill_n(dq, rows, Sum{0});
      runHead();
      write(dq, at.q());
    }
    write(dk, at.k());
    write(dv, at.v());
  }

 private:
  void runHead() {
    const int64_t sequence = at.shape.sequence, size = AttentionBlocking::kRows;
    for (int64_t i = 0; i < sequence; ++i) {
      const int64_t offset = at.ctx() + i * at.ctxStride();
      deltas[i] = rowDot(ctx.as<T>() + offset, dctx.as<T>() + offset, at.shape.headSize);
    }
    for (int64_t key = 0; key < sequence; key += size)
      for (int64_t query = key; query < sequence; query += size)
        addBlock({query, std::min(size, sequence - query), key, std::min(size, sequence - key)});
  }

  void addBlock(const AttentionBlock& b) {
    const int64_t size = at.shape.headSize;
    const auto q = at.qkvRows(qkv, at.q(), b.query), k = at.qkvRows(qkv, at.k(), b.key);
    const auto v = at.qkvRows(qkv, at.v(), b.key), dy = at.ctxRows(dctx, b.query);
    multiply({b.queries, b.keys, size, q, k.transposed(), scores, b.keys, false});
    multiply({b.queries, b.keys, size, dy, v.transposed(), dProbs, b.keys, false});
    for (int64_t i = 0; i < b.queries; ++i) differentiateRow(b, i);
    const auto p = rowMajor<T>(dropped, b.keys), ds = rowMajor<T>(dScores, b.keys);
    multiply({b.keys, size, b.queries, p.transposed(), dy, dv + b.key * size, size, true});
    multiply({b.keys, size, b.queries, ds.transposed(), q, dk + b.key * size, size, true});
    multiply({b.queries, size, b.keys, ds, k, dq + b.query * size, size, true});
  }

  void multiply(const GemmCall<T, Sum>& call) const { gemm(call, products); }

  void differentiateRow(const AttentionBlock& b, int64_t i) const {
    const int64_t visible = b.visible(i), query = b.query + i;
    Sum *p = scores + i * b.keys, *g = dProbs + i * b.keys;
    rowExpSum(p, visible, at.scale(), static_cast<Sum>(lse.at(at.lse() + query)), p);
    std::fill(p + visible, p + b.keys, Sum{0});
    if (!at.drops()) rowNarrow(p, b.keys, dropped + i * b.keys);
    if (at.drops()) dropRow(b, i, p, g);
    rowSoftmaxGrad(p, b.keys, deltas[query], at.scale(), g);
    rowNarrow(g, b.keys, dScores + i * b.keys);
  }

  // The dropped probabilities, for dv; and the gradient of the undropped, in g.
  void dropRow(const AttentionBlock& b, int64_t i, const Sum* p, Sum* g) const {
    const uint32_t threshold = at.threshold();
    const Sum kept = at.keptFactor();
    const int64_t visible = b.visible(i);
    at.drawRow(b.query + i, b.key, visible, words);
    T* row = dropped + i * b.keys;
    for (int64_t j = 0; j < visible; ++j) {
      const Sum keep = words[j] >= threshold ? kept : Sum{0};
      row[j] = narrow<T>(p[j] * keep);
      g[j] *= keep;
    }
    std::fill(row + visible, row + b.keys, T{0});
  }

  void write(const Sum* rows, int64_t offset) const {
    const int64_t size = at.shape.headSize;
    for (int64_t i = 0; i < at.shape.sequence; ++i)
      rowNarrow(rows + i * size, size, dqkv.as<T>() + offset + i * at.qkvStride());
  }
};

template <typename T>
void backward(const KernelCallArgs& args) {
  const Tensor qkv = inputOf(args, 0);
  const AttentionShape shape = attentionShapeOf(args.op->attributes, qkv);
  forEachUnit(args, shape.batch * shape.groups, scratchBytesOf(shape, qkv, true),
              [&](void* scratch, int64_t unit) {
                const AttentionHead<T> at{&args, shape, unit / shape.groups, unit % shape.groups,
                                          0};
                Backward<T>(at, args, scratch).run();
              });
}

}  // namespace

void fastAttentionGrad(const KernelCallArgs& args) {
  switch (inputOf(args, 0).dtype()) {
    case DType::kF64:
      return backward<double>(args);
    case DType::kF32:
      return backward<float>(args);
    case DType::kF16:
      return backward<F16>(args);
    default:
      return backward<Bf16>(args);
  }
}

}  // namespace trireme::runtime
