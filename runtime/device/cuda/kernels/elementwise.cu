// Kernels that work on one element at a time, and the column sums that belong to them. An element
// is read before it is written, so an output may be one of the inputs.
#include "runtime/device/cuda/kernels/lanes.h"

namespace trireme::runtime::cuda {
namespace {

template <typename T, typename S>
TRIREME_DEVICE void add(const OpArgs& a) {
  const T *x = operand<T>(a, 0), *y = operand<T>(a, 1);
  T* sum = operand<T>(a, 2);
  forEach(a.tokens * a.width, [=](int64_t i) { store(sum[i], value(x[i]) + value(y[i])); });
}

template <typename T, typename S>
TRIREME_DEVICE void biasAdd(const OpArgs& a) {
  const T *x = operand<T>(a, 0), *bias = operand<T>(a, 1);
  T* y = operand<T>(a, 2);
  const int64_t width = a.width;
  forEach(a.tokens * width, [=](int64_t i) { store(y[i], value(x[i]) + value(bias[i % width])); });
}

template <typename T, typename S>
TRIREME_DEVICE void biasGrad(const OpArgs& a) {
  const T* dy = operand<T>(a, 0);
  S* dBias = operand<S>(a, 1);
  columnSums<1>(
      columnsOf(a),
      [&](int64_t token, int64_t c, double* sums) { sums[0] += value(dy[token * a.width + c]); },
      [&](int64_t c, const double* sums) { addTo(dBias[c], sums[0]); });
}

template <typename T, typename S>
TRIREME_DEVICE void dropout(const OpArgs& a) {
  const T* x = operand<T>(a, 0);
  T* y = operand<T>(a, 1);
  const S keepScale = static_cast<S>(a.keepScale);
  forEach(a.tokens * a.width, [&](int64_t i) {
    const int64_t token = i / a.width, column = i % a.width;
    const auto sample = a.firstSample + static_cast<uint64_t>(token % a.batch);
    const int64_t element = (a.firstPosition + token / a.batch) * a.width + column;
    const bool kept = isKept(a, sample, static_cast<uint64_t>(element));
    store(y[i], kept ? value(x[i]) * keepScale : S{0});
  });
}

// u sigmoid(2 w), which is 0.5 u (1 + tanh(w)) without its cancellation.
template <typename S>
TRIREME_DEVICE S geluInner(S u) {
  const S scale = static_cast<S>(0.7978845608028654), cubic = static_cast<S>(0.044715);
  return scale * (u + cubic * u * u * u);
}
template <typename S>
TRIREME_DEVICE S sigmoid(S x) {
  return 1 / (1 + expOf(-x));
}

template <typename T, typename S>
TRIREME_DEVICE void gelu(const OpArgs& a) {
  const T* u = operand<T>(a, 0);
  T* z = operand<T>(a, 1);
  forEach(a.tokens * a.width, [=](int64_t i) {
    const S x = value(u[i]);
    store(z[i], x * sigmoid(2 * geluInner(x)));
  });
}

template <typename T, typename S>
TRIREME_DEVICE void geluGrad(const OpArgs& a) {
  const T *u = operand<T>(a, 0), *dz = operand<T>(a, 1);
  T* du = operand<T>(a, 2);
  const S scale = static_cast<S>(0.7978845608028654), cubic = static_cast<S>(0.044715);
  forEach(a.tokens * a.width, [=](int64_t i) {
    const S x = value(u[i]);
    const S s = sigmoid(2 * geluInner(x));
    const S inner = scale * (1 + 3 * cubic * x * x);
    store(du[i], value(dz[i]) * (s + x * (2 * s * (1 - s)) * inner));
  });
}

// u[s,b,2,f]; width = f.
template <typename T, typename S>
TRIREME_DEVICE void swiGlu(const OpArgs& a) {
  const T* u = operand<T>(a, 0);
  T* z = operand<T>(a, 1);
  const int64_t width = a.width;
  forEach(a.tokens * width, [=](int64_t i) {
    const int64_t at = 2 * (i / width) * width + i % width;
    const S gate = value(u[at]), up = value(u[at + width]);
    store(z[i], gate * sigmoid(gate) * up);
  });
}

template <typename T, typename S>
TRIREME_DEVICE void swiGluGrad(const OpArgs& a) {
  const T *u = operand<T>(a, 0), *dz = operand<T>(a, 1);
  T* du = operand<T>(a, 2);
  const int64_t width = a.width;
  forEach(a.tokens * width, [=](int64_t i) {
    const int64_t at = 2 * (i / width) * width + i % width;
    const S gate = value(u[at]), up = value(u[at + width]), d = value(dz[i]);
    const S s = sigmoid(gate);
    store(du[at], d * up * s * (1 + gate * (1 - s)));
    store(du[at + width], d * gate * s);
  });
}

// One thread per pair (i, i + headSize / 2) of a head of q or k, and per pair of v, which is
// copied.
template <typename T, typename S>
TRIREME_DEVICE void rotary(const OpArgs& a) {
  const T* x = operand<T>(a, 0);
  T* y = operand<T>(a, 1);
  const int64_t half = a.headSize / 2, pairs = a.tokens * a.width / 2;
  const int64_t groupWidth = (a.headsPerGroup + 2) * a.headSize;
  forEach(pairs, [&](int64_t pair) {
    const int64_t i = pair % half, at = pair / half * a.headSize + i;
    const bool rotates = at % groupWidth < groupWidth - a.headSize;
    double sine = 0, cosine = 1;
    if (rotates) {
      const int64_t position = a.firstPosition + at / (a.width * a.batch);
      const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(a.headSize);
      const double frequency = scaledFrequency(a.ropeScaling, powOf(a.theta, exponent));
      sinCosOf(a.direction * static_cast<double>(position) * frequency, &sine, &cosine);
    }
    const S c = static_cast<S>(cosine), s = static_cast<S>(sine);
    const S low = value(x[at]), high = value(x[at + half]);
    store(y[at], low * c - high * s);
    store(y[at + half], high * c + low * s);
  });
}

}  // namespace

TRIREME_OP_KERNEL(add, add)
TRIREME_OP_KERNEL(bias_add, biasAdd)
TRIREME_OP_BLOCK_KERNEL(bias_grad, biasGrad)
TRIREME_OP_KERNEL(dropout, dropout)
TRIREME_OP_KERNEL(gelu, gelu)
TRIREME_OP_KERNEL(gelu_grad, geluGrad)
TRIREME_OP_KERNEL(swiglu, swiGlu)
TRIREME_OP_KERNEL(swiglu_grad, swiGluGrad)
TRIREME_OP_KERNEL(rotary, rotary)

}  // namespace trireme::runtime::cuda
