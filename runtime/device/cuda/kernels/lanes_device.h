// The primitives of lanes.h for the GPU. Loops over elements are not unrolled: around the calls of
// the accurate division and exp that would cost spills.
#pragma once
#include <cmath>
#include <cstdint>

#define TRIREME_DEVICE __device__ __forceinline__
#if !defined(TRIREME_KERNEL)
#define TRIREME_KERNEL(name, Args, function) \
  extern "C" __global__ void __launch_bounds__(256) name(const Args args) { function(args); }
#define TRIREME_BLOCK_KERNEL(name, Args, function) \
  extern "C" __global__ void __launch_bounds__(1024) name(const Args args) { function(args); }
#define TRIREME_TILE_KERNEL(name, Args, function, warps, blocks)                             \
  extern "C" __global__ void __launch_bounds__((warps) * 32, blocks) name(const Args args) { \
    function(args);                                                                          \
  }
#endif

namespace trireme::runtime::cuda {
inline namespace on_device {

#if defined(__CUDACC__)
TRIREME_DEVICE float floatOf(F16 x) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(x.bits));
  return result;
}
TRIREME_DEVICE F16 f16Of(float x) {
  F16 result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(x));
  return result;
}
#else
TRIREME_DEVICE float floatOf(F16 x) { return toFloat(x); }
TRIREME_DEVICE F16 f16Of(float x) { return toF16(x); }
#endif

TRIREME_DEVICE double expOf(double x) { return ::exp(x); }
TRIREME_DEVICE float expOf(float x) { return ::expf(x); }
TRIREME_DEVICE double logOf(double x) { return ::log(x); }
TRIREME_DEVICE float logOf(float x) { return ::logf(x); }
TRIREME_DEVICE double tanhOf(double x) { return ::tanh(x); }
TRIREME_DEVICE float tanhOf(float x) { return ::tanhf(x); }
TRIREME_DEVICE double sqrtOf(double x) { return ::sqrt(x); }
TRIREME_DEVICE float sqrtOf(float x) { return ::sqrtf(x); }
TRIREME_DEVICE double powOf(double x, double y) { return ::pow(x, y); }
TRIREME_DEVICE void sinCosOf(double x, double* sine, double* cosine) { ::sincos(x, sine, cosine); }
template <typename S>
TRIREME_DEVICE S lowest() {
  return -static_cast<S>(INFINITY);
}

constexpr unsigned kAllLanes = 0xFFFFFFFFu;
TRIREME_DEVICE int laneIndex() { return static_cast<int>(threadIdx.x & 31u); }

template <typename F>
TRIREME_DEVICE void forEach(int64_t n, F f) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
#pragma unroll 1
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) f(i);
}

template <typename F>
TRIREME_DEVICE void forEachRow(int64_t n, F f) {
  const int64_t warps = (int64_t{gridDim.x} * blockDim.x) >> 5;
  for (int64_t row = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) >> 5; row < n; row += warps)
    f(row);
}

template <typename F>
TRIREME_DEVICE void forRow(int64_t n, F f) {
#pragma unroll 1
  for (int64_t i = laneIndex(); i < n; i += 32) f(i);
}

// Runs f on one lane, after all lanes have come here.
template <typename F>
TRIREME_DEVICE void onOneLane(F f) {
  __syncwarp();
  if (laneIndex() == 0) f();
}

template <typename S>
TRIREME_DEVICE S sumOfLanes(S sum) {
  for (int distance = 16; distance > 0; distance >>= 1)
    sum += __shfl_xor_sync(kAllLanes, sum, distance);
  return sum;
}

template <typename F>
TRIREME_DEVICE double rowSum(int64_t n, F f) {
  double sum = 0;
#pragma unroll 1
  for (int64_t i = laneIndex(); i < n; i += 32) sum += f(i);
  return sumOfLanes(sum);
}

// From this thread's first on.
template <int kStride, typename I, typename L, typename F>
TRIREME_DEVICE void forStrided(I first, I n, L load, F f) {
  using S = decltype(load(n));
  constexpr int kLoads = 32 / sizeof(S);
#pragma unroll 1
  for (; first < n; first += kStride * kLoads) {
    S values[kLoads];
#pragma unroll
    for (int k = 0; k < kLoads; ++k)
      if (first + kStride * k < n) values[k] = load(first + kStride * k);
#pragma unroll
    for (int k = 0; k < kLoads; ++k)
      if (first + kStride * k < n) f(first + kStride * k, values[k]);
  }
}

template <typename L, typename F>
TRIREME_DEVICE void forRowOf(int64_t n, L load, F f) {
  forStrided<32, int64_t>(laneIndex(), n, load, f);
}

template <typename L, typename F>
TRIREME_DEVICE double rowSumOf(int64_t n, L load, F f) {
  double sum = 0;
  forRowOf(n, load, [&](int64_t, auto x) { sum += f(x); });
  return sumOfLanes(sum);
}

// A NaN wins, as it must be seen.
template <typename S>
TRIREME_DEVICE S largerOf(S a, S b) {
  return a < b || b != b ? b : a;
}

template <typename S>
TRIREME_DEVICE S maxOfLanes(S largest) {
  for (int distance = 16; distance > 0; distance >>= 1)
    largest = largerOf(largest, __shfl_xor_sync(kAllLanes, largest, distance));
  return largest;
}

template <typename S, typename F>
TRIREME_DEVICE S rowMax(int64_t n, F f) {
  S largest = lowest<S>();
  forRowOf(n, f, [&](int64_t, S x) { largest = largerOf(largest, x); });
  return maxOfLanes(largest);
}

template <typename S>
class PerLane {
 public:
  template <typename F>
  TRIREME_DEVICE void fill(F f) {
    value_ = f(laneIndex());
  }
  TRIREME_DEVICE S sum() const { return sumOfLanes(value_); }
  TRIREME_DEVICE S max() const { return maxOfLanes(value_); }
  TRIREME_DEVICE S at(int lane) const { return __shfl_sync(kAllLanes, value_, lane); }
  // Inside fill(), of that lane.
  TRIREME_DEVICE S mine(int) const { return value_; }
  TRIREME_DEVICE void setMine(int, S x) { value_ = x; }

 private:
  S value_;
};

template <typename S, int N>
class PerColumn {
 public:
  // f(column, value) for columns below n <= N. Unrolled, so that the values stay in registers.
  template <typename F>
  TRIREME_DEVICE void forEach(int64_t n, F f) {
#pragma unroll
    for (int i = 0; i < N / 32; ++i)
      if (const int column = i * 32 + laneIndex(); column < n) f(column, values_[i]);
  }

 private:
  S values_[N / 32] = {};
};

template <typename F>
TRIREME_DEVICE bool anyOf(int64_t begin, int64_t end, F f) {
  for (int64_t first = begin; first < end; first += 32) {
    const int64_t i = first + laneIndex();
    if (__ballot_sync(kAllLanes, i < end && f(i)) != 0) return true;
  }
  return false;
}

template <int N, typename F, typename G>
TRIREME_DEVICE void forEachFew(int64_t begin, int64_t end, F f, G g) {
  int64_t found[N] = {};
  int count = 0;
  for (int64_t first = begin; first < end; first += 32) {
    const int64_t i = first + laneIndex();
    unsigned votes = __ballot_sync(kAllLanes, i < end && f(i));
    for (; votes != 0; votes &= votes - 1) {
      // No index that varies: they stay in registers.
#pragma unroll
      for (int k = 0; k < N; ++k)
        if (k == count) found[k] = first + __ffs(static_cast<int>(votes)) - 1;
      if (++count < N) continue;
      g(found, count);
      count = 0;
    }
  }
  if (count > 0) g(found, count);
}

TRIREME_DEVICE int warpInBlock() { return static_cast<int>(threadIdx.x >> 5); }
TRIREME_DEVICE int warpsInBlock() { return static_cast<int>(blockDim.x >> 5); }

// A block takes 32 columns, and each warp a range of rows. The ranges' sums meet in shared memory.
template <int N, typename F, typename G>
TRIREME_DEVICE void columnSums(const ColumnShape& shape, F f, G g) {
  __shared__ double ranges[N][kMaxRanges][32];
  const int lane = laneIndex();
  for (int64_t first = int64_t{blockIdx.x} * 32; first < shape.columns;
       first += int64_t{gridDim.x} * 32) {
    const int64_t column = first + lane;
    const bool exists = column < shape.columns;
    for (int range = warpInBlock(); range < kMaxRanges; range += warpsInBlock()) {
      double sums[N] = {};
      const int64_t begin = range * shape.rangeRows, next = begin + shape.rangeRows;
      const int64_t end = !exists ? begin : next < shape.rows ? next : shape.rows;
#pragma unroll 4
      for (int64_t row = begin; row < end; ++row) f(row, column, sums);
      for (int i = 0; i < N; ++i) ranges[i][range][lane] = sums[i];
    }
    __syncthreads();
    if (warpInBlock() == 0 && exists) {
      double sums[N] = {};
      for (int range = 0; range < kMaxRanges; ++range)
        for (int i = 0; i < N; ++i) sums[i] += ranges[i][range][lane];
      g(column, sums);
    }
    __syncthreads();  // The next columns' sums take the place of these.
  }
}

template <typename I, typename F>
TRIREME_DEVICE void forEachBlockRow(I n, F f) {
  for (I row = static_cast<I>(blockIdx.x); row < n; row += static_cast<I>(gridDim.x)) f(row);
}

template <typename F>
TRIREME_DEVICE void onOneThread(F f) {
  if (threadIdx.x == 0) f();
}

// partOf(first): of a warp, over the elements first, first + kBlockSums... of each lane. The parts
// meet in shared memory; all threads combine them, in order. Elements are counted in 32 bits, which
// saves the registers that a second block on a multiprocessor needs.
template <typename S, typename P, typename C>
TRIREME_DEVICE S combinedParts(P partOf, S start, C combine) {
  __shared__ S parts[kBlockSums / 32];
  for (int part = warpInBlock(); part < kBlockSums / 32; part += warpsInBlock()) {
    const S mine = partOf(part * 32 + laneIndex());
    if (laneIndex() == 0) parts[part] = mine;
  }
  __syncthreads();
  S all = start;
  for (S part : parts) all = combine(all, part);
  __syncthreads();  // The parts of the next row take the place of these.
  return all;
}

template <typename L, typename F>
TRIREME_DEVICE double blockSumOf(int64_t n, L load, F f) {
  const auto partOf = [&](int first) {
    double sum = 0;
    forStrided<kBlockSums>(first, static_cast<int>(n), load, [&](int, auto x) { sum += f(x); });
    return sumOfLanes(sum);
  };
  return combinedParts(partOf, 0.0, [](double a, double b) { return a + b; });
}

template <typename S, typename L>
TRIREME_DEVICE S blockMax(int64_t n, L load) {
  const auto partOf = [&](int first) {
    S largest = lowest<S>();
    forStrided<kBlockSums>(first, static_cast<int>(n), load,
                           [&](int, S x) { largest = largerOf(largest, x); });
    return maxOfLanes(largest);
  };
  return combinedParts(partOf, lowest<S>(), [](S a, S b) { return largerOf(a, b); });
}

}  // namespace on_device
}  // namespace trireme::runtime::cuda
