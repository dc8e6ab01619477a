// Where the rows of one (batch, query head) are, and its random numbers.
#pragma once
#include <cmath>

#include "runtime/kernels/gemm.h"
#include "runtime/kernels/operands.h"
#include "runtime/kernels/row_kernels.h"

namespace trireme::runtime {

using program::AttentionBlocking;

// T is the type of the activations. Rows of one head are `stride` apart.
template <typename T>
struct AttentionHead {
  const KernelCallArgs* args;
  AttentionShape shape;
  int64_t batch, group, head;  // head within the group

  int64_t qkvStride() const { return shape.batch * shape.groups * shape.qkvWidth(); }
  int64_t ctxStride() const { return shape.batch * shape.groups * shape.ctxWidth(); }
  int64_t row() const { return batch * shape.groups + group; }

  // Offsets of position 0.
  int64_t q() const { return row() * shape.qkvWidth() + head * shape.headSize; }
  int64_t k() const { return row() * shape.qkvWidth() + shape.ctxWidth(); }
  int64_t v() const { return k() + shape.headSize; }
  int64_t ctx() const { return row() * shape.ctxWidth() + head * shape.headSize; }
  int64_t heads() const { return shape.groups * shape.headsPerGroup; }
  int64_t localHead() const { return group * shape.headsPerGroup + head; }
  int64_t lse() const { return (batch * heads() + localHead()) * shape.sequence; }

  MatrixRef<T> qkvRows(const Tensor& t, int64_t offset, int64_t position) const {
    return rowMajor<T>(t.as<T>() + offset + position * qkvStride(), qkvStride());
  }
  MatrixRef<T> ctxRows(const Tensor& t, int64_t position) const {
    return rowMajor<T>(t.as<T>() + ctx() + position * ctxStride(), ctxStride());
  }

  SumOf<T> scale() const { return SumOf<T>{1} / std::sqrt(static_cast<SumOf<T>>(shape.headSize)); }
  bool drops() const { return args->op->attributes.probability > 0; }
  uint32_t threshold() const { return dropoutThreshold(args->op->attributes.probability); }
  SumOf<T> keptFactor() const {
    return static_cast<SumOf<T>>(1 / (1 - args->op->attributes.probability));
  }
  // Random words of keys [key, key + n) of `query`.
  void drawRow(int64_t query, int64_t key, int64_t n, uint32_t* words) const {
    const int64_t globalHead = firstOfWidth(*args, heads()) + localHead();
    const int64_t element = (globalHead * shape.sequence + query) * shape.sequence + key;
    rowKernels().randomWords(rngKeyOf(*args), args->context->firstSample + batch,
                             static_cast<uint64_t>(element), n, words);
  }
};

// A block of queries against a block of keys. Blocks start at multiples of the same size, so the
// diagonal crosses only blocks that start at the same position.
struct AttentionBlock {
  int64_t query, queries, key, keys;

  // Keys of the block that the i-th query may see.
  int64_t visible(int64_t i) const {
    return query + i - key + 1 < keys ? query + i - key + 1 : keys;
  }
};

// Calls body(piece's scratch, unit) for every unit, in pieces that each have their own scratch.
template <typename Body>
void forEachUnit(const KernelCallArgs& args, int64_t units, int64_t scratchBytes, Body body) {
  const int64_t most = std::min<int64_t>(args.pool->numThreads(), program::kMaxKernelThreads);
  const int64_t pieces = std::clamp<int64_t>(units, 1, most);
  args.pool->run(static_cast<int>(pieces), [&](int piece) {
    char* scratch = static_cast<char*>(args.workspace) + piece * scratchBytes;
    for (int64_t unit = units * piece / pieces; unit < units * (piece + 1) / pieces; ++unit)
      body(scratch, unit);
  });
}

inline int64_t scratchBytesOf(const AttentionShape& shape, const Tensor& qkv, bool backward) {
  return program::attentionScratchBytes(
      {shape.sequence, shape.headSize, byteSize(qkv.dtype()), backward});
}

}  // namespace trireme::runtime
