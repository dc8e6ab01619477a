// Tables of tokens and of positions. Gradients are summed by column, over the tokens in order, so
// that they repeat bit by bit.
#include "runtime/device/cuda/kernels/lanes.h"

namespace trireme::runtime::cuda {
namespace {

constexpr int64_t kGradColumns = 256;
constexpr int kGradTokens = 4;

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

// A warp for the first token of each id, and for kGradColumns columns of it: it looks for the other
// tokens of that id. The ids are read by every warp, but from the caches; of most frequent ones, an
// earlier token is found at once.
template <typename T, typename S>
TRIREME_DEVICE void embeddingGrad(const OpArgs& a) {
  const int32_t* ids = operand<int32_t>(a, 0);
  const T* dy = operand<T>(a, 1);
  const int64_t parts = (a.width + kGradColumns - 1) / kGradColumns;
  forEachRow(a.tokens * parts, [&](int64_t i) {
    const int64_t token = i / parts, first = i % parts * kGradColumns;
    const int32_t id = ids[token];
    const int64_t row = id - a.firstColumn;
    if (row < 0 || row >= a.rows) return;
    if (anyOf(0, token, [=](int64_t back) { return ids[token - 1 - back] == id; })) return;
    const int64_t columns = smaller(kGradColumns, a.width - first);
    S* to = operand<S>(a, 2) + row * a.width + first;
    const T* from = dy + first;
    PerColumn<S, kGradColumns> sums;
    sums.forEach(columns, [&](int64_t c, S& sum) { sum = to[c]; });
    forEachFew<kGradTokens>(
        token, a.tokens, [=](int64_t other) { return ids[other] == id; },
        [&](const int64_t* tokens, int count) {
          const T* rows[kGradTokens];
          for (int k = 0; k < kGradTokens; ++k) rows[k] = from + tokens[k] * a.width;
          sums.forEach(columns, [&](int64_t c, S& sum) {
            S terms[kGradTokens];
            for (int k = 0; k < kGradTokens; ++k) terms[k] = k < count ? value(rows[k][c]) : S{0};
            for (int k = 0; k < kGradTokens; ++k)
              if (k < count) sum += terms[k];
          });
        });
    sums.forEach(columns, [&](int64_t c, S& sum) { to[c] = sum; });
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
