// The primitives of lanes.h for a host compiler: tests run the kernels without a GPU. One call
// stands for all threads of a launch, and one iteration of forEachRow() for a warp.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#define TRIREME_DEVICE inline
#define TRIREME_KERNEL(name, Args, function)                            \
  static const ::trireme::runtime::cuda::HostKernel kHostKernel_##name( \
      #name, sizeof(Args), [](const void* args) { function(*static_cast<const Args*>(args)); });

#define TRIREME_BLOCK_KERNEL TRIREME_KERNEL
#define TRIREME_TILE_KERNEL(name, Args, function, warps, blocks) \
  TRIREME_KERNEL(name, Args, function)

namespace trireme::runtime::cuda {
inline namespace on_host {

// Makes a kernel known by its name. Defined by whoever emulates a GPU.
struct HostKernel {
  HostKernel(const char* name, int64_t argsBytes, void (*run)(const void* args));
};

inline float floatOf(F16 x) { return toFloat(x); }
inline F16 f16Of(float x) { return toF16(x); }

inline double expOf(double x) { return std::exp(x); }
inline float expOf(float x) { return std::exp(x); }
inline double logOf(double x) { return std::log(x); }
inline float logOf(float x) { return std::log(x); }
inline double tanhOf(double x) { return std::tanh(x); }
inline float tanhOf(float x) { return std::tanh(x); }
inline double sqrtOf(double x) { return std::sqrt(x); }
inline float sqrtOf(float x) { return std::sqrt(x); }
inline double powOf(double x, double y) { return std::pow(x, y); }
inline void sinCosOf(double x, double* sine, double* cosine) {
  *sine = std::sin(x);
  *cosine = std::cos(x);
}
template <typename S>
S lowest() {
  return -std::numeric_limits<S>::infinity();
}

template <typename F>
void forEach(int64_t n, F f) {
  for (int64_t i = 0; i < n; ++i) f(i);
}
template <typename F>
void forEachRow(int64_t n, F f) {
  for (int64_t row = 0; row < n; ++row) f(row);
}
template <typename F>
void forRow(int64_t n, F f) {
  for (int64_t i = 0; i < n; ++i) f(i);
}
template <typename F>
void onOneLane(F f) {
  f();
}

template <typename S>
S largerOf(S a, S b) {
  return a < b || b != b ? b : a;
}

// One value per lane.
template <typename S>
class PerLane {
 public:
  template <typename F>
  void fill(F f) {
    for (int lane = 0; lane < 32; ++lane) values_[lane] = f(lane);
  }
  S sum() const {
    PerLane sums = *this;
    for (int distance = 16; distance > 0; distance >>= 1)
      for (int lane = 0; lane < distance; ++lane)
        sums.values_[lane] += sums.values_[lane + distance];
    return sums.values_[0];
  }
  S max() const {
    S largest = values_[0];
    for (S x : values_) largest = largerOf(largest, x);
    return largest;
  }
  S at(int lane) const { return values_[lane]; }
  S mine(int lane) const { return values_[lane]; }
  void setMine(int lane, S x) { values_[lane] = x; }
  void add(int lane, S x) { values_[lane] += x; }

 private:
  S values_[32] = {};
};

template <typename F>
double rowSum(int64_t n, F f) {
  PerLane<double> sums;
  for (int64_t i = 0; i < n; ++i) sums.add(static_cast<int>(i % 32), f(i));
  return sums.sum();
}
template <typename L, typename F>
void forRowOf(int64_t n, L load, F f) {
  for (int64_t i = 0; i < n; ++i) f(i, load(i));
}
template <typename L, typename F>
double rowSumOf(int64_t n, L load, F f) {
  return rowSum(n, [&](int64_t i) { return f(load(i)); });
}
template <typename S, typename F>
S rowMax(int64_t n, F f) {
  S largest = lowest<S>();
  for (int64_t i = 0; i < n; ++i) largest = largerOf(largest, f(i));
  return largest;
}

template <typename S, int N>
class PerColumn {
 public:
  template <typename F>
  void forEach(int64_t n, F f) {
    for (int64_t column = 0; column < n; ++column) f(column, values_[column]);
  }

 private:
  S values_[N] = {};
};

template <typename F>
bool anyOf(int64_t begin, int64_t end, F f) {
  for (int64_t i = begin; i < end; ++i)
    if (f(i)) return true;
  return false;
}
template <int N, typename F, typename G>
void forEachFew(int64_t begin, int64_t end, F f, G g) {
  int64_t found[N] = {};
  for (int64_t i = begin; i < end; ++i) {
    if (!f(i)) continue;
    found[0] = i;
    g(found, 1);
  }
}

template <int N, typename F, typename G>
void columnSums(const ColumnShape& shape, F f, G g) {
  for (int64_t column = 0; column < shape.columns; ++column) {
    double sums[N] = {};
    for (int64_t begin = 0; begin < shape.rows; begin += shape.rangeRows) {
      double range[N] = {};
      for (int64_t row = begin; row < std::min(begin + shape.rangeRows, shape.rows); ++row)
        f(row, column, range);
      for (int i = 0; i < N; ++i) sums[i] += range[i];
    }
    g(column, sums);
  }
}

template <typename I, typename F>
void forEachBlockRow(I n, F f) {
  for (I row = 0; row < n; ++row) f(row);
}
template <typename F>
void onOneThread(F f) {
  f();
}
template <typename L, typename F>
double blockSumOf(int64_t n, L load, F f) {
  PerLane<double> parts[kBlockSums / 32];
  for (int64_t i = 0; i < n; ++i)
    parts[i % kBlockSums / 32].add(static_cast<int>(i % 32), f(load(i)));
  double sum = 0;
  for (const PerLane<double>& part : parts) sum += part.sum();
  return sum;
}
template <typename S, typename L>
S blockMax(int64_t n, L load) {
  return rowMax<S>(n, load);
}

}  // namespace on_host
}  // namespace trireme::runtime::cuda
