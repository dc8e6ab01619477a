#include "runtime/kernels/loss.h"

#include <algorithm>
#include <limits>

#include "runtime/kernels/row_kernels.h"

namespace trireme::runtime {
namespace {

// Logits are taken in pieces that stay in the first-level cache, widened if they have 16 bits.
constexpr int64_t kPiece = 1024;
constexpr int64_t kGrainElements = 65536;

// The logical part of one token's logits, in f32.
class LogitRow {
 public:
  LogitRow(const Tensor& logits, int64_t token) : logits_(logits), first_(token * logits.width()) {}

  // Columns [begin, end), at most kPiece of them; `buffer` holds kPiece.
  const float* piece(int64_t begin, int64_t end, float* buffer) const {
    if (logits_.dtype() == DType::kF32) return logits_.as<float>() + first_ + begin;
    if (logits_.dtype() == DType::kF16)
      rowWiden(logits_.as<F16>() + first_ + begin, end - begin, buffer);
    else
      rowWiden(logits_.as<Bf16>() + first_ + begin, end - begin, buffer);
    return buffer;
  }

 private:
  const Tensor& logits_;
  int64_t first_;
};

// body(token, row) for every token, in parallel.
template <typename Body>
void forEachToken(const KernelCallArgs& args, const Tensor& logits, Body body) {
  const int64_t grain = std::max<int64_t>(1, kGrainElements / logits.width());
  parallelFor(*args.pool, logits.tokens(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) body(token, LogitRow(logits, token));
  });
}

// One token's gradient, in f32, before the label's column is lowered.
struct GradRow {
  float max, factor;  // factor = scale / sumExp

  void piece(const LogitRow& row, int64_t begin, int64_t end, const Tensor& d, int64_t at) const {
    float buffer[kPiece];
    const float* x = row.piece(begin, end, buffer);
    if (d.dtype() == DType::kF32)
      return rowKernels().expTimes(x, end - begin, max, factor, d.as<float>() + at + begin);
    rowKernels().expTimes(x, end - begin, max, factor, buffer);
    if (d.dtype() == DType::kF16)
      rowNarrow(buffer, end - begin, d.as<F16>() + at + begin);
    else
      rowNarrow(buffer, end - begin, d.as<Bf16>() + at + begin);
  }
};

}  // namespace

bool isFastLoss(const KernelCallArgs& args) {
  const auto fast = [](DType type) {
    return type == DType::kF32 || type == DType::kBf16 || type == DType::kF16;
  };
  const bool grad = args.op->kind == program::OpKind::kLossGrad;
  return fast(inputOf(args, 0).dtype()) &&
         (!grad || outputOf(args, 0).dtype() == inputOf(args, 0).dtype());
}

void fastLossMax(const KernelCallArgs& args) {
  const Tensor logits = inputOf(args, 0), max = outputOf(args, 0);
  const int64_t logical = localLogicalColumns(args, logits.width());
  forEachToken(args, logits, [&](int64_t token, const LogitRow& row) {
    float buffer[kPiece];
    float largest = -std::numeric_limits<float>::infinity();
    for (int64_t begin = 0; begin < logical; begin += kPiece) {
      const int64_t end = std::min(begin + kPiece, logical);
      largest = std::max(largest, rowKernels().max(row.piece(begin, end, buffer), end - begin));
    }
    max.set(token, largest);
  });
}

void fastLossSumExp(const KernelCallArgs& args) {
  const Tensor logits = inputOf(args, 0), max = inputOf(args, 1), sumExp = outputOf(args, 0);
  const int64_t logical = localLogicalColumns(args, logits.width());
  forEachToken(args, logits, [&](int64_t token, const LogitRow& row) {
    float buffer[kPiece], exps[kPiece];
    const float shift = static_cast<float>(max.at(token));
    double sum = 0;
    for (int64_t begin = 0; begin < logical; begin += kPiece) {
      const int64_t end = std::min(begin + kPiece, logical);
      const float* x = row.piece(begin, end, buffer);
      sum += rowKernels().expSum(x, end - begin, 1.0f, shift, exps);
    }
    sumExp.set(token, sum);
  });
}

void fastLossGrad(const KernelCallArgs& args) {
  const Tensor logits = inputOf(args, 0), max = inputOf(args, 1), sumExp = inputOf(args, 2);
  const Tensor labels = inputOf(args, 3), dLogits = outputOf(args, 0);
  const int64_t width = logits.width(), logical = localLogicalColumns(args, width);
  const double scale = lossGradScale(args);
  forEachToken(args, logits, [&](int64_t token, const LogitRow& row) {
    const GradRow grad{static_cast<float>(max.at(token)),
                       static_cast<float>(scale / sumExp.at(token))};
    const int64_t at = token * width;
    const int64_t label = labels.as<int32_t>()[token] - firstOfWidth(args, width);
    const bool local = label >= 0 && label < logical;
    // Before the loop, for the gradient may be written over the logits.
    const double logit = local ? logits.at(at + label) : 0;
    for (int64_t begin = 0; begin < logical; begin += kPiece)
      grad.piece(row, begin, std::min(begin + kPiece, logical), dLogits, at);
    for (int64_t c = logical; c < width; ++c) dLogits.set(at + c, 0.0);
    if (local)
      dLogits.set(at + label, (std::exp(logit - max.at(token)) / sumExp.at(token) - 1) * scale);
  });
}

}  // namespace trireme::runtime
