// Reference of the vocabulary-parallel cross entropy. Columns at or beyond the logical vocabulary
// are padding: in no maximum, no sum and no gradient.
#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/kernels/reference.h"

namespace trireme::runtime::reference {
namespace {

struct Columns {
  int64_t width, first, logical;  // local columns; global index of the first; not padding
};

Columns columnsOf(const KernelCallArgs& args, const Tensor& logits) {
  const int64_t width = logits.width();
  return {width, firstOfWidth(args, width), localLogicalColumns(args, width)};
}

}  // namespace

void lossMax(const KernelCallArgs& args) {
  const Tensor logits = inputOf(args, 0), max = outputOf(args, 0);
  const Columns columns = columnsOf(args, logits);
  for (int64_t token = 0; token < logits.tokens(); ++token) {
    double largest = -std::numeric_limits<double>::infinity();
    for (int64_t c = 0; c < columns.logical; ++c)
      largest = std::max(largest, logits.at(token * columns.width + c));
    max.set(token, largest);
  }
}

void lossTarget(const KernelCallArgs& args) {
  const Tensor logits = inputOf(args, 0), max = inputOf(args, 1), labels = inputOf(args, 2);
  const Tensor target = outputOf(args, 0);
  const Columns columns = columnsOf(args, logits);
  for (int64_t token = 0; token < logits.tokens(); ++token) {
    const int64_t column = labels.as<int32_t>()[token] - columns.first;
    const bool local = column >= 0 && column < columns.logical;
    target.set(token, local ? logits.at(token * columns.width + column) - max.at(token) : 0.0);
  }
}

void lossSumExp(const KernelCallArgs& args) {
  const Tensor logits = inputOf(args, 0), max = inputOf(args, 1), sumExp = outputOf(args, 0);
  const Columns columns = columnsOf(args, logits);
  for (int64_t token = 0; token < logits.tokens(); ++token) {
    double sum = 0;
    for (int64_t c = 0; c < columns.logical; ++c)
      sum += std::exp(logits.at(token * columns.width + c) - max.at(token));
    sumExp.set(token, sum);
  }
}

void tokenLoss(const KernelCallArgs& args) {
  const Tensor target = inputOf(args, 0), sumExp = inputOf(args, 1), loss = outputOf(args, 0);
  double sum = 0;
  for (int64_t token = 0; token < target.elements(); ++token)
    sum += std::log(sumExp.at(token)) - target.at(token);
  loss.add(0, sum);
}

void lossGrad(const KernelCallArgs& args) {
  const Tensor logits = inputOf(args, 0), max = inputOf(args, 1), sumExp = inputOf(args, 2);
  const Tensor labels = inputOf(args, 3), dLogits = outputOf(args, 0);
  const Columns columns = columnsOf(args, logits);
  const double scale = lossGradScale(args);
  for (int64_t token = 0; token < logits.tokens(); ++token)
    for (int64_t c = 0; c < columns.width; ++c) {
      const int64_t i = token * columns.width + c;
      const double softmax = std::exp(logits.at(i) - max.at(token)) / sumExp.at(token);
      const double onehot = labels.as<int32_t>()[token] == columns.first + c ? 1 : 0;
      dLogits.set(i, c < columns.logical ? (softmax - onehot) * scale : 0.0);
    }
}

}  // namespace trireme::runtime::reference
