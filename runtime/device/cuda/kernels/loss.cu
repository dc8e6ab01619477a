// Cross entropy over a vocabulary that may be split over the ranks of a tensor-parallel group. What
// reduces a token's logits has a thread block per token, so that few rows are under way at once: a
// second pass over a row finds it in the cache. Columns at or beyond the logical vocabulary are
// padding: in no maximum, no sum and no gradient.
#include "runtime/device/cuda/kernels/lanes.h"

namespace trireme::runtime::cuda {
namespace {

// One token's logits, in the type of sums and state.
template <typename T, typename S>
struct LogitRow {
  const T* logits;
  int64_t logicalColumns;

  TRIREME_DEVICE LogitRow(const OpArgs& a, int64_t row)
      : logits(operand<T>(a, 0) + row * a.width), logicalColumns(a.logicalColumns) {}
  TRIREME_DEVICE S at(int64_t column) const { return value(logits[column]); }

  TRIREME_DEVICE S max() const {
    return blockMax<S>(logicalColumns, [&](int64_t c) { return at(c); });
  }
  TRIREME_DEVICE S sumExp(S max) const {
    return static_cast<S>(blockSumOf(
        logicalColumns, [&](int64_t c) { return at(c); }, [=](S x) { return expOf(x - max); }));
  }
  TRIREME_DEVICE S target(int64_t label, S max) const {
    return label >= 0 && label < logicalColumns ? at(label) - max : S{0};
  }
};

template <typename T, typename S>
TRIREME_DEVICE void lossMax(const OpArgs& a) {
  forEachBlockRow(a.tokens, [&](int64_t row) {
    const S max = LogitRow<T, S>(a, row).max();
    onOneThread([&] { operand<S>(a, 1)[row] = max; });
  });
}

template <typename T, typename S>
TRIREME_DEVICE void lossTarget(const OpArgs& a) {
  const int32_t* labels = operand<int32_t>(a, 2);
  forEach(a.tokens, [&](int64_t row) {
    operand<S>(a, 3)[row] =
        LogitRow<T, S>(a, row).target(labels[row] - a.firstColumn, operand<S>(a, 1)[row]);
  });
}

template <typename T, typename S>
TRIREME_DEVICE void lossSumExp(const OpArgs& a) {
  forEachBlockRow(a.tokens, [&](int64_t row) {
    const S sum = LogitRow<T, S>(a, row).sumExp(operand<S>(a, 1)[row]);
    onOneThread([&] { operand<S>(a, 2)[row] = sum; });
  });
}

// logits, max, labels -> target, sumExp; kFindsMax: max is written as well.
template <typename T, typename S, bool kFindsMax>
TRIREME_DEVICE void lossParts(const OpArgs& a) {
  const int32_t* labels = operand<int32_t>(a, 2);
  forEachBlockRow(a.tokens, [&](int64_t token) {
    const LogitRow<T, S> row(a, token);
    const S max = kFindsMax ? row.max() : operand<S>(a, 1)[token];
    const S sum = row.sumExp(max);
    onOneThread([&] {
      if (kFindsMax) operand<S>(a, 1)[token] = max;
      operand<S>(a, 3)[token] = row.target(labels[token] - a.firstColumn, max);
      operand<S>(a, 4)[token] = sum;
    });
  });
}
template <typename T, typename S>
TRIREME_DEVICE void lossForward(const OpArgs& a) {
  lossParts<T, S, true>(a);
}
template <typename T, typename S>
TRIREME_DEVICE void lossSums(const OpArgs& a) {
  lossParts<T, S, false>(a);
}

template <typename T, typename S>
TRIREME_DEVICE void tokenLoss(const OpArgs& a) {
  const S *target = operand<S>(a, 0), *sumExp = operand<S>(a, 1);
  forEachBlockRow(1, [&](int64_t) {
    const double sum = blockSumOf(
        a.tokens,
        [=](int64_t token) {
          return logOf(static_cast<double>(sumExp[token])) - static_cast<double>(target[token]);
        },
        [](double loss) { return loss; });
    onOneThread([&] { *operand<double>(a, 2) += sum; });
  });
}

// logits, max, sumExp, labels -> dLogits, which may lie over the logits. A warp for some columns of
// a token.
template <typename T, typename S>
TRIREME_DEVICE void lossGrad(const OpArgs& a) {
  const T* logits = operand<T>(a, 0);
  T* dLogits = operand<T>(a, 4);
  const int64_t pieces = (a.width + kLossGradColumns - 1) / kLossGradColumns;
  forEachRow(a.tokens * pieces, [&](int64_t piece) {
    const int64_t row = piece / pieces, first = (piece - row * pieces) * kLossGradColumns;
    const S max = operand<S>(a, 1)[row], sum = operand<S>(a, 2)[row];
    const int64_t label = operand<int32_t>(a, 3)[row] - a.firstColumn;
    const double lossScale = a.lossScaling == nullptr ? 1 : a.lossScaling[kLossScale];
    const S scale = static_cast<S>(a.scale * lossScale), factor = scale / sum;
    forRowOf(
        smaller(kLossGradColumns, a.width - first),
        [&](int64_t i) { return static_cast<S>(value(logits[row * a.width + first + i])); },
        [&](int64_t i, S x) {
          const int64_t c = first + i;
          const S d = expOf(x - max) * factor - (c == label ? scale : S{0});
          store(dLogits[row * a.width + c], c < a.logicalColumns ? d : S{0});
        });
  });
}

}  // namespace

TRIREME_OP_BLOCK_KERNEL(loss_max, lossMax)
TRIREME_OP_KERNEL(loss_target, lossTarget)
TRIREME_OP_BLOCK_KERNEL(loss_sum_exp, lossSumExp)
TRIREME_OP_BLOCK_KERNEL(loss_forward, lossForward)
TRIREME_OP_BLOCK_KERNEL(loss_sums, lossSums)
TRIREME_OP_BLOCK_KERNEL(token_loss, tokenLoss)
TRIREME_OP_KERNEL(loss_grad, lossGrad)

}  // namespace trireme::runtime::cuda
