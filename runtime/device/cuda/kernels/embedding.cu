// Tables of tokens and of positions. Gradients are summed by column, over the tokens in order, so
// that they repeat bit by bit.
#include "runtime/device/cuda/kernels/lanes.h"

namespace trireme::runtime::cuda {
namespace {

template <typename T, typename S>
TRIREME_DEVICE void embedding(const OpArgs& a) {
  const int32_t* ids = operand<int32_t>(a, 0);
  const T* table = operand<T>(a, 1);
  T* y = operand<T>(a, 2);
  forEach(a.tokens * a.width, [&](int64_t i) {
    const int64_t row = ids[i / a.width] - a.firstColumn;
    const bool local = row >= 0 && row < a.rows;
    store(y[i], local ? value(table[row * a.width + i % a.width]) : S{0});
  });
}

template <typename T, typename S>
TRIREME_DEVICE void embeddingGrad(const OpArgs& a) {
  const int32_t* ids = operand<int32_t>(a, 0);
  const T* dy = operand<T>(a, 1);
  S* table = operand<S>(a, 2);
  forEach(a.width, [&](int64_t c) {
    for (int64_t token = 0; token < a.tokens; ++token) {
      const int64_t row = ids[token] - a.firstColumn;
      if (row >= 0 && row < a.rows) table[row * a.width + c] += value(dy[token * a.width + c]);
    }
  });
}

template <typename T, typename S>
TRIREME_DEVICE void addPosition(const OpArgs& a) {
  const T *x = operand<T>(a, 0), *position = operand<T>(a, 1);
  T* y = operand<T>(a, 2);
  forEach(a.tokens * a.width, [&](int64_t i) {
    const int64_t row = a.firstPosition + i / a.width / a.batch;
    store(y[i], value(x[i]) + value(position[row * a.width + i % a.width]));
  });
}

template <typename T, typename S>
TRIREME_DEVICE void positionGrad(const OpArgs& a) {
  const T* dy = operand<T>(a, 0);
  S* position = operand<S>(a, 1);
  forEach(a.tokens / a.batch * a.width, [&](int64_t i) {
    const int64_t s = i / a.width, c = i % a.width;
    double sum = 0;
    for (int64_t b = 0; b < a.batch; ++b) sum += value(dy[(s * a.batch + b) * a.width + c]);
    position[(a.firstPosition + s) * a.width + c] += static_cast<S>(sum);
  });
}

}  // namespace

TRIREME_OP_KERNEL(embedding, embedding)
TRIREME_OP_KERNEL(embedding_grad, embeddingGrad)
TRIREME_OP_KERNEL(add_position, addPosition)
TRIREME_OP_KERNEL(position_grad, positionGrad)

}  // namespace trireme::runtime::cuda
