#include "runtime/kernels/embedding.h"

#include <algorithm>
#include <cstring>

namespace trireme::runtime {
namespace {

constexpr int64_t kGrainElements = 16384;

// The local row of a token's id; -1 if another shard has it.
int64_t localRow(const KernelCallArgs& args, const Tensor& ids, const Tensor& table,
                 int64_t token) {
  const int64_t row = ids.as<int32_t>()[token] - firstOfWidth(args, table.dim(0));
  return row >= 0 && row < table.dim(0) ? row : -1;
}

template <typename T>
void addRows(const KernelCallArgs& args) {
  const Tensor ids = inputOf(args, 0), dy = inputOf(args, 1), table = outputOf(args, 0);
  const int64_t width = table.dim(1), tokens = ids.elements();
  const int64_t grain = std::max<int64_t>(64, kGrainElements / tokens);
  parallelFor(*args.pool, width, grain, [&](int64_t begin, int64_t end) {
    for (int64_t token = 0; token < tokens; ++token) {
      const int64_t row = localRow(args, ids, table, token);
      if (row < 0) continue;
      const T* __restrict from = dy.as<T>() + token * width;
      SumOf<T>* __restrict to = table.as<SumOf<T>>() + row * width;
      for (int64_t c = begin; c < end; ++c) to[c] += widen(from[c]);
    }
  });
}

}  // namespace

bool isFastEmbedding(const KernelCallArgs& args) {
  const DType from = inputOf(args, 1).dtype(), to = outputOf(args, 0).dtype();
  if (args.op->kind == program::OpKind::kEmbedding) return from == to;
  return to == (byteSize(from) == 2 ? DType::kF32 : from);
}

void fastEmbedding(const KernelCallArgs& args) {
  const Tensor ids = inputOf(args, 0), table = inputOf(args, 1), y = outputOf(args, 0);
  const int64_t rowBytes = table.dim(1) * byteSize(table.dtype());
  const int64_t grain = std::max<int64_t>(1, kGrainElements / table.dim(1));
  parallelFor(*args.pool, ids.elements(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      const int64_t row = localRow(args, ids, table, token);
      char* to = y.as<char>() + token * rowBytes;
      if (row < 0)
        std::memset(to, 0, static_cast<size_t>(rowBytes));
      else
        std::memcpy(to, table.as<char>() + row * rowBytes, static_cast<size_t>(rowBytes));
    }
  });
}

void fastEmbeddingGrad(const KernelCallArgs& args) {
  switch (inputOf(args, 1).dtype()) {
    case DType::kF64:
      return addRows<double>(args);
    case DType::kF32:
      return addRows<float>(args);
    case DType::kF16:
      return addRows<F16>(args);
    default:
      return addRows<Bf16>(args);
  }
}

}  // namespace trireme::runtime
