// How kernels are written: in terms of rows and elements, never of threads.
//
//   forEach(n, f)       f(i) for i in [0, n), in any order, one thread each
//   forEachRow(n, f)    f(row), one warp each; inside f, all lanes take the same branches and
//     forRow(n, f)        f(i) for i in [0, n), divided over the lanes
//     rowSum(n, f)        sum of f(i) in f64: lane i mod 32 in order, then a butterfly over lanes
//     forRowOf(n, load, f), rowSumOf(n, load, f)   f(i, load(i)), sum of f(load(i)): several loads
//                         of a lane are under way at once; all of them come before the f
//     PerLane<S>          one value per lane
//     PerColumn<S, N>     an array of up to N values, divided over the lanes
//     anyOf(b, e, f)      whether f(i) holds for some i in [b, e)
//     forEachFew<N>(b, e, f, g)   g(those, count) for the i in [b, e) for which f(i) holds, in
//                         order, at most N at once: so that their loads are under way together
//
// And for a whole thread block (TRIREME_BLOCK_KERNEL, blocks of up to 1024 threads;
// TRIREME_TILE_KERNEL, of so many warps, with room for so many blocks on a multiprocessor):
//
//   columnSums<N>(shape, f, g)  N sums over the rows of each column, in f64, in the order that
//                         ir/program/op.h says: f(row, column, sums) adds the terms of a row to
//                         sums[N], g(column, sums) is called once per column
//   forEachBlockRow(n, f) f(row), one block each; inside f, all threads take the same branches
//     blockSumOf(n, load, f)   sum of f(load(i)) in f64, for all threads: element i is added to sum
//                         i mod 1024, in order; a butterfly over each 32 of these; and their sums
//                         in order. However many warps the block has. n below 2^30
//     blockMax<S>(n, load)     the largest, for all threads
//     onOneThread(f)      on the first, which waits for no other
//
// On the GPU that is lanes_device.h. Compiled by a host compiler (lanes_host.h) one thread stands
// for a whole warp: the same sums in the same order. So kernels run in tests without a GPU; and
// lanes_device.h runs there as well, with fibers for threads (TRIREME_WARPS_OF_FIBERS).
#pragma once
#include <cstdint>

#include "runtime/device/cuda/kernels/args.h"
#include "runtime/kernels/bf16.h"
#if defined(__CUDACC__) || defined(TRIREME_WARPS_OF_FIBERS)
#include "runtime/device/cuda/kernels/lanes_device.h"
#else
#include "runtime/device/cuda/kernels/lanes_host.h"
#endif

namespace trireme::runtime::cuda {

TRIREME_DEVICE ColumnShape columnsOf(const OpArgs& a) { return {a.tokens, a.rangeTokens, a.width}; }

TRIREME_DEVICE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// 16 bits are computed in f32.
TRIREME_DEVICE float value(Bf16 x) { return toFloat(x); }
TRIREME_DEVICE float value(F16 x) { return floatOf(x); }
template <typename T>
TRIREME_DEVICE T value(T x) {
  return x;
}

// Rounds, where the types differ.
TRIREME_DEVICE void store(Bf16& to, float x) { to = toBf16(x); }
TRIREME_DEVICE void store(F16& to, float x) { to = f16Of(x); }
template <typename T>
TRIREME_DEVICE void store(T& to, T x) {
  to = x;
}

// Adds a sum in f64 to what is there; rounds once.
template <typename S>
TRIREME_DEVICE void addTo(S& to, double sum) {
  to = static_cast<S>(static_cast<double>(to) + sum);
}

template <typename T>
TRIREME_DEVICE T* operand(const OpArgs& a, int i) {
  return static_cast<T*>(a.operands[i]);
}

// Philox-4x32-10 as in ir/base/rng.h, which nvcc takes for host code. Tests compare them.
TRIREME_DEVICE uint32_t randomWordOf(uint32_t keyLow, uint32_t keyHigh, uint64_t sample,
                                     uint64_t element) {
  const uint64_t quad = element >> 2;
  uint32_t c0 = static_cast<uint32_t>(quad), c1 = static_cast<uint32_t>(quad >> 32);
  uint32_t c2 = static_cast<uint32_t>(sample), c3 = static_cast<uint32_t>(sample >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0;
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ keyLow;
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ keyHigh;
    c0 = n0, c1 = static_cast<uint32_t>(p1), c2 = n2, c3 = static_cast<uint32_t>(p0);
    keyLow += 0x9E3779B9u;
    keyHigh += 0xBB67AE85u;
  }
  const uint32_t low = (element & 1) != 0 ? c1 : c0, high = (element & 1) != 0 ? c3 : c2;
  return (element & 2) != 0 ? high : low;
}

TRIREME_DEVICE bool isKept(const OpArgs& a, uint64_t sample, uint64_t element) {
  return randomWordOf(a.keyLow, a.keyHigh, sample, element) >= a.dropThreshold;
}

}  // namespace trireme::runtime::cuda

// The kernels of an op: name_f64, name_f32, name_bf16 and name_f16, which call function<T,
// S>(OpArgs) with the type of activations and that of sums and state.
#define TRIREME_OP_KERNEL(name, function)                        \
  TRIREME_KERNEL(name##_f64, OpArgs, (function<double, double>)) \
  TRIREME_KERNEL(name##_f32, OpArgs, (function<float, float>))   \
  TRIREME_KERNEL(name##_bf16, OpArgs, (function<Bf16, float>))   \
  TRIREME_KERNEL(name##_f16, OpArgs, (function<F16, float>))
#define TRIREME_OP_BLOCK_KERNEL(name, function)                        \
  TRIREME_BLOCK_KERNEL(name##_f64, OpArgs, (function<double, double>)) \
  TRIREME_BLOCK_KERNEL(name##_f32, OpArgs, (function<float, float>))   \
  TRIREME_BLOCK_KERNEL(name##_bf16, OpArgs, (function<Bf16, float>))   \
  TRIREME_BLOCK_KERNEL(name##_f16, OpArgs, (function<F16, float>))
