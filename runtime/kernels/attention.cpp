#include "runtime/kernels/attention.h"

#include <algorithm>
#include <limits>

#include "runtime/kernels/attention_head.h"
#include "runtime/kernels/scratch.h"

namespace trireme::runtime {
namespace {

template <typename T>
struct Forward {
  using Sum = SumOf<T>;
  AttentionHead<T> at;
  Tensor qkv, ctx, lse;
  Sum* scores;      // [queries, keys]
  T* probs;         // [queries, keys], dropped
  Sum* out;         // [queries, headSize], not yet divided by sums
  Sum* maxima;      // [queries]
  Sum* sums;        // [queries]
  uint32_t* words;  // [keys]
  void* products;

  Forward(const AttentionHead<T>& head, const Tensor& qkvIn, const Tensor& ctxOut,
          const Tensor& lseOut, void* workspace)
      : at(head), qkv(qkvIn), ctx(ctxOut), lse(lseOut) {
    const int64_t size = std::min(AttentionBlocking::kRows, at.shape.sequence);
    Scratch scratch(workspace);
    scores = scratch.take<Sum>(size * size);
    probs = scratch.take<T>(size * size);
    out = scratch.take<Sum>(size * at.shape.headSize);
    maxima = scratch.take<Sum>(size);
    sums = scratch.take<Sum>(size);
    words = scratch.take<uint32_t>(size);
    products = scratch.take<char>(0);
  }

  void run() {
    const int64_t sequence = at.shape.sequence, size = AttentionBlocking::kRows;
    for (int64_t query = 0; query < sequence; query += size) {
      const int64_t queries = std::min(size, sequence - query);
      std::fill_n(maxima, queries, -std::numeric_limits<Sum>::infinity());
      std::fill_n(sums, queries, Sum{0});
      std::fill_n(out, queries * at.shape.headSize, Sum{0});
      for (int64_t key = 0; key <= query; key += size)
        addKeys({query, queries, key, std::min(size, sequence - key)});
      finish(query, queries);
    }
  }

 private:
  void addKeys(const AttentionBlock& block) {
    const int64_t size = at.shape.headSize;
    gemm(GemmCall<T, Sum>{block.queries, block.keys, size, at.qkvRows(qkv, at.q(), block.query),
                          at.qkvRows(qkv, at.k(), block.key).transposed(), scores, block.keys,
                          false},
         products);
    for (int64_t i = 0; i < block.queries; ++i) softmaxRow(block, i);
    gemm(GemmCall<T, Sum>{block.queries, size, block.keys, rowMajor<T>(probs, block.keys),
                          at.qkvRows(qkv, at.v(), block.key), out, size, true},
         products);
  }

  void softmaxRow(const AttentionBlock& block, int64_t i) {
    const int64_t visible = block.visible(i);
    Sum* row = scores + i * block.keys;
    const Sum max = std::max(maxima[i], at.scale() * rowMax(row, visible));
    const Sum shrink = std::exp(maxima[i] - max);
    maxima[i] = max;
    sums[i] = sums[i] * shrink + rowExpSum(row, visible, at.scale(), max, row);
    for (int64_t c = 0; c < at.shape.headSize && block.key > 0; ++c)
      out[i * at.shape.headSize + c] *= shrink;
    std::fill(row + visible, row + block.keys, Sum{0});
    if (at.drops()) {
      const uint32_t threshold = at.threshold();
      const Sum kept = at.keptFactor();
      at.drawRow(block.query + i, block.key, visible, words);
      for (int64_t j = 0; j < visible; ++j) row[j] *= words[j] >= threshold ? kept : Sum{0};
    }
    rowNarrow(row, block.keys, probs + i * block.keys);
  }

  void finish(int64_t query, int64_t queries) {
    for (int64_t i = 0; i < queries; ++i) {
      T* target = ctx.as<T>() + at.ctx() + (query + i) * at.ctxStride();
      const Sum factor = 1 / sums[i];
      Sum* row = out + i * at.shape.headSize;
      for (int64_t c = 0; c < at.shape.headSize; ++c) row[c] *= factor;
      rowNarrow(row, at.shape.headSize, target);
      lse.set(at.lse() + query + i, maxima[i] + std::log(sums[i]));
    }
  }
};

template <typename T>
void forward(const KernelCallArgs& args) {
  const Tensor qkv = inputOf(args, 0), ctx = outputOf(args, 0), lse = outputOf(args, 1);
  const AttentionShape shape = attentionShapeOf(args.op->attributes, qkv);
  const int64_t heads = shape.groups * shape.headsPerGroup;
  forEachUnit(args, shape.batch * heads, scratchBytesOf(shape, qkv, false),
              [&](void* scratch, int64_t unit) {
                const int64_t head = unit % heads;
                const AttentionHead<T> at{&args, shape, unit / heads, head / shape.headsPerGroup,
                                          head % shape.headsPerGroup};
                Forward<T>(at, qkv, ctx, lse, scratch).run();
              });
}

}  // namespace

bool isFastAttention(const KernelCallArgs& args) {
  const DType type = inputOf(args, 0).dtype();
  if (outputOf(args, 0).dtype() != type) return false;
  if (args.op->kind == program::OpKind::kAttention) return true;
  return inputOf(args, 1).dtype() == type && inputOf(args, 3).dtype() == type;
}

void fastAttention(const KernelCallArgs& args) {
  switch (inputOf(args, 0).dtype()) {
    case DType::kF64:
      return forward<double>(args);
    case DType::kF32:
      return forward<float>(args);
    case DType::kF16:
      return forward<F16>(args);
    default:
      return forward<Bf16>(args);
  }
}

}  // namespace trireme::runtime
