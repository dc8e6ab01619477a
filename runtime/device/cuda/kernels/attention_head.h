// Where the rows of a head are, and what all kernels of attention compute of them.
#pragma once
#include "runtime/device/cuda/kernels/lanes.h"

namespace trireme::runtime::cuda {

// One (batch, query head) and where its rows are, in elements.
struct Head {
  const OpArgs& a;
  int64_t batch, group, head;  // head within the group

  TRIREME_DEVICE int64_t qkvRow(int64_t position) const {
    return ((position * a.batch + batch) * a.groups + group) * (a.headsPerGroup + 2) * a.headSize;
  }
  TRIREME_DEVICE int64_t q(int64_t position) const { return qkvRow(position) + head * a.headSize; }
  TRIREME_DEVICE int64_t k(int64_t position) const {
    return qkvRow(position) + a.headsPerGroup * a.headSize;
  }
  TRIREME_DEVICE int64_t v(int64_t position) const { return k(position) + a.headSize; }
  TRIREME_DEVICE int64_t ctx(int64_t position) const {
    return (((position * a.batch + batch) * a.groups + group) * a.headsPerGroup + head) *
           a.headSize;
  }
  TRIREME_DEVICE int64_t localHead() const { return group * a.headsPerGroup + head; }
  TRIREME_DEVICE int64_t lse(int64_t position) const {
    return (batch * a.groups * a.headsPerGroup + localHead()) * a.sequence + position;
  }
  TRIREME_DEVICE bool keeps(int64_t query, int64_t key) const {
    const int64_t element = ((a.firstColumn + localHead()) * a.sequence + query) * a.sequence + key;
    return isKept(a, a.firstSample + static_cast<uint64_t>(batch), static_cast<uint64_t>(element));
  }
  // What dropout multiplies the probability of (query, key) with.
  TRIREME_DEVICE double keep(int64_t query, int64_t key) const {
    if (a.keepScale == 0) return 1;
    return keeps(query, key) ? a.keepScale : 0;
  }
};

template <typename S, typename T>
TRIREME_DEVICE S dot(const T* x, const T* y, int64_t size) {
  S sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += value(x[i]) * value(y[i]);
  return sum;
}

template <typename S>
TRIREME_DEVICE S scoreScale(const OpArgs& a) {
  return static_cast<S>(1 / sqrtOf(static_cast<double>(a.headSize)));
}

// The sum over the keys of P G', which is dctx.ctx.
template <typename T, typename S>
TRIREME_DEVICE S deltaOf(const Head& at, int64_t query) {
  return dot<S>(operand<T>(at.a, 1) + at.ctx(query), operand<T>(at.a, 3) + at.ctx(query),
                at.a.headSize);
}

}  // namespace trireme::runtime::cuda
