// Cross entropy over a vocabulary that may be split over the ranks of a tensor-parallel group; one
// warp per token, and a thread block for the sum over all of them. Columns at or beyond the logical vocabulary are padding: in no maximum, no sum
// and no gradient.
#include "runtime/device/cuda/kernels/lanes.h"

namespace trireme::runtime::cuda {
namespace {

template <typename T, typename S>
TRIREME_DEVICE void lossMax(const OpArgs& a) {
  forEachRow(a.tokens, [&](int64_t row) {
    const T* logits = operand<T>(a, 0) + row * a.width;
    const S largest =
        rowMax<S>(a.logicalColumns, [=](int64_t c) { return static_cast<S>(value(logits[c])); });
    onOneLane([&] { operand<S>(a, 1)[row] = largest; });
  });
}

template <typename T, typename S>
TRIREME_DEVICE void lossTarget(const OpArgs& a) {
  const int32_t* labels = operand<int32_t>(a, 2);
  forEach(a.tokens, [&](int64_t row) {
    const int64_t column = labels[row] - a.firstColumn;
    const bool local = column >= 0 && column < a.logicalColumns;
    operand<S>(a, 3)[row] =
        local ? value(operand<T>(a, 0)[row * a.width + column]) - operand<S>(a, 1)[row] : S{0};
  });
}

template <typename T, typename S>
TRIREME_DEVICE void lossSumExp(const OpArgs& a) {
  forEachRow(a.tokens, [&](int64_t row) {
    const T* logits = operand<T>(a, 0) + row * a.width;
    const S max = operand<S>(a, 1)[row];
    const double sum = rowSumOf(
        a.logicalColumns, [=](int64_t c) { return static_cast<S>(value(logits[c])); },
        [=](S x) { return expOf(x - max); });
    onOneLane([&] { operand<S>(a, 2)[row] = static_cast<S>(sum); });
  });
}

template <typename T, typename S>
TRIREME_DEVICE void tokenLoss(const OpArgs& a) {
  const S *target = operand<S>(a, 0), *sumExp = operand<S>(a, 1);
  blockSum(
      a.tokens,
      [=](int64_t token) {
        return logOf(static_cast<double>(sumExp[token])) - static_cast<double>(target[token]);
      },
      [&](double sum) { *operand<double>(a, 2) += sum; });
}

// logits, max, sumExp, labels -> dLogits, which may lie over the logits.
template <typename T, typename S>
TRIREME_DEVICE void lossGrad(const OpArgs& a) {
  const T* logits = operand<T>(a, 0);
  T* dLogits = operand<T>(a, 4);
  forEachRow(a.tokens, [&](int64_t row) {
    const S max = operand<S>(a, 1)[row], sum = operand<S>(a, 2)[row];
    const int64_t label = operand<int32_t>(a, 3)[row] - a.firstColumn;
    const double lossScale = a.lossScaling == nullptr ? 1 : a.lossScaling[kLossScale];
    const S scale = static_cast<S>(a.scale * lossScale), factor = scale / sum;
    forRowOf(
        a.width, [&](int64_t c) { return static_cast<S>(value(logits[row * a.width + c])); },
        [&](int64_t c, S x) {
          const S d = expOf(x - max) * factor - (c == label ? scale : S{0});
          store(dLogits[row * a.width + c], c < a.logicalColumns ? d : S{0});
        });
  });
}

}  // namespace

TRIREME_OP_KERNEL(loss_max, lossMax)
TRIREME_OP_KERNEL(loss_target, lossTarget)
TRIREME_OP_KERNEL(loss_sum_exp, lossSumExp)
TRIREME_OP_BLOCK_KERNEL(token_loss, tokenLoss)
TRIREME_OP_KERNEL(loss_grad, lossGrad)

}  // namespace trireme::runtime::cuda
