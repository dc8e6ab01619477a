// Layer norm and RMS norm, one warp per token; formulas: runtime/kernels/reference_norm.cpp.
// The gradients of gamma and beta are column sums of their own kernels, which come before the
// gradient of x: that one may lie over dy.
#include "runtime/device/cuda/kernels/lanes.h"

namespace trireme::runtime::cuda {
namespace {

// x, gamma, beta -> y, mean, rstd
template <typename T, typename S>
TRIREME_DEVICE void layerNorm(const OpArgs& a) {
  forEachRow(a.tokens, [&](int64_t row) {
    const T *x = operand<T>(a, 0) + row * a.width, *gamma = operand<T>(a, 1);
    const T* beta = operand<T>(a, 2);
    T* y = operand<T>(a, 3) + row * a.width;
    const auto n = static_cast<double>(a.width);
    const double mean = rowSum(a.width, [=](int64_t c) { return value(x[c]); }) / n;
    const double variance = rowSum(a.width,
                                   [=](int64_t c) {
                                     const double d = value(x[c]) - mean;
                                     return d * d;
                                   }) /
                            n;
    const double rstd = 1 / sqrtOf(variance + a.epsilon);
    const S center = static_cast<S>(mean), factor = static_cast<S>(rstd);
    forRow(a.width, [=](int64_t c) {
      store(y[c], (value(x[c]) - center) * factor * value(gamma[c]) + value(beta[c]));
    });
    onOneLane([&] {
      operand<S>(a, 4)[row] = center;
      operand<S>(a, 5)[row] = factor;
    });
  });
}

// x, gamma -> y, rstd
template <typename T, typename S>
TRIREME_DEVICE void rmsNorm(const OpArgs& a) {
  forEachRow(a.tokens, [&](int64_t row) {
    const T *x = operand<T>(a, 0) + row * a.width, *gamma = operand<T>(a, 1);
    T* y = operand<T>(a, 2) + row * a.width;
    const double squares = rowSum(a.width, [=](int64_t c) {
      const double v = value(x[c]);
      return v * v;
    });
    const double rstd = 1 / sqrtOf(squares / static_cast<double>(a.width) + a.epsilon);
    const S factor = static_cast<S>(rstd);
    forRow(a.width, [=](int64_t c) { store(y[c], value(x[c]) * factor * value(gamma[c])); });
    onOneLane([&] { operand<S>(a, 3)[row] = factor; });
  });
}

// x, gamma, mean, rstd, dy -> dx, dGamma, dBeta
template <typename T, typename S>
TRIREME_DEVICE void layerNormGradColumns(const OpArgs& a) {
  const T *x = operand<T>(a, 0), *dy = operand<T>(a, 4);
  const S *mean = operand<S>(a, 2), *rstd = operand<S>(a, 3);
  columnSums<2>(
      columnsOf(a),
      [&](int64_t token, int64_t c, double* sums) {
        const S d = value(dy[token * a.width + c]);
        sums[0] += d * ((value(x[token * a.width + c]) - mean[token]) * rstd[token]);
        sums[1] += d;
      },
      [&](int64_t c, const double* sums) {
        addTo(operand<S>(a, 6)[c], sums[0]);
        addTo(operand<S>(a, 7)[c], sums[1]);
      });
}

template <typename T, typename S>
TRIREME_DEVICE void layerNormGrad(const OpArgs& a) {
  forEachRow(a.tokens, [&](int64_t row) {
    const T *x = operand<T>(a, 0) + row * a.width, *gamma = operand<T>(a, 1);
    const T* dy = operand<T>(a, 4) + row * a.width;
    T* dx = operand<T>(a, 5) + row * a.width;
    const S mean = operand<S>(a, 2)[row], rstd = operand<S>(a, 3)[row];
    const auto n = static_cast<double>(a.width);
    const auto g = [=](int64_t c) { return value(dy[c]) * value(gamma[c]); };
    const auto xhat = [=](int64_t c) { return (value(x[c]) - mean) * rstd; };
    const S meanG = static_cast<S>(rowSum(a.width, g) / n);
    const S meanGx = static_cast<S>(rowSum(a.width, [=](int64_t c) { return g(c) * xhat(c); }) / n);
    forRow(a.width, [=](int64_t c) { store(dx[c], rstd * (g(c) - meanG - xhat(c) * meanGx)); });
  });
}

// x, gamma, rstd, dy -> dx, dGamma
template <typename T, typename S>
TRIREME_DEVICE void rmsNormGradColumns(const OpArgs& a) {
  const T *x = operand<T>(a, 0), *dy = operand<T>(a, 3);
  const S* rstd = operand<S>(a, 2);
  columnSums<1>(
      columnsOf(a),
      [&](int64_t token, int64_t c, double* sums) {
        const S d = value(dy[token * a.width + c]);
        sums[0] += d * (value(x[token * a.width + c]) * rstd[token]);
      },
      [&](int64_t c, const double* sums) { addTo(operand<S>(a, 5)[c], sums[0]); });
}

template <typename T, typename S>
TRIREME_DEVICE void rmsNormGrad(const OpArgs& a) {
  forEachRow(a.tokens, [&](int64_t row) {
    const T *x = operand<T>(a, 0) + row * a.width, *gamma = operand<T>(a, 1);
    const T* dy = operand<T>(a, 3) + row * a.width;
    T* dx = operand<T>(a, 4) + row * a.width;
    const S rstd = operand<S>(a, 2)[row];
    const auto g = [=](int64_t c) { return value(dy[c]) * value(gamma[c]); };
    const auto xhat = [=](int64_t c) { return value(x[c]) * rstd; };
    const double sum = rowSum(a.width, [=](int64_t c) { return g(c) * xhat(c); });
    const S meanGx = static_cast<S>(sum / static_cast<double>(a.width));
    forRow(a.width, [=](int64_t c) { store(dx[c], rstd * (g(c) - xhat(c) * meanGx)); });
  });
}

}  // namespace

TRIREME_OP_KERNEL(layer_norm, layerNorm)
TRIREME_OP_BLOCK_KERNEL(layer_norm_grad_columns, layerNormGradColumns)
TRIREME_OP_KERNEL(layer_norm_grad, layerNormGrad)
TRIREME_OP_KERNEL(rms_norm, rmsNorm)
TRIREME_OP_BLOCK_KERNEL(rms_norm_grad_columns, rmsNormGradColumns)
TRIREME_OP_KERNEL(rms_norm_grad, rmsNormGrad)

}  // namespace trireme::runtime::cuda
