#include "runtime/comm/reduce.h"

#include <algorithm>
#include <cstring>

#include "runtime/kernels/bf16.h"

namespace trireme::runtime {
namespace {

float widen(Bf16 x) { return toFloat(x); }
template <typename T>
T widen(T x) {
  return x;
}

void narrow(float x, Bf16& out) { out = toBf16(x); }
template <typename T>
void narrow(T x, T& out) {
  out = x;
}

// A NaN of either side stays: a maximum must not hide that something went wrong.
template <typename A>
A larger(A a, A b) {
  return (a < b || b != b) ? b : a;
}

constexpr int64_t kBlock = 1024;  // elements: the accumulator stays in the first-level cache

template <typename T, typename A, typename Op>
void reduceTyped(std::span<const void* const> inputs, std::span<void* const> outputs, int64_t begin,
                 int64_t end, Op op) {
  A sum[kBlock];
  T result[kBlock];
  for (int64_t first = begin; first < end; first += kBlock) {
    const int64_t n = std::min(kBlock, end - first);
    const T* in = static_cast<const T*>(inputs[0]) + first;
    for (int64_t i = 0; i < n; ++i) sum[i] = widen(in[i]);
    for (const void* next : inputs.subspan(1)) {
      in = static_cast<const T*>(next) + first;
      for (int64_t i = 0; i < n; ++i) sum[i] = op(sum[i], static_cast<A>(widen(in[i])));
    }
    for (int64_t i = 0; i < n; ++i) narrow(sum[i], result[i]);
    for (void* out : outputs)
      std::memcpy(static_cast<T*>(out) + first, result, static_cast<size_t>(n) * sizeof(T));
  }
}

template <typename T, typename A>
void dispatch(program::ReduceOp op, std::span<const void* const> inputs,
              std::span<void* const> outputs, int64_t begin, int64_t end) {
  if (op == program::ReduceOp::kSum)
    reduceTyped<T, A>(inputs, outputs, begin, end, [](A a, A b) { return static_cast<A>(a + b); });
  else
    reduceTyped<T, A>(inputs, outputs, begin, end, [](A a, A b) { return larger(a, b); });
}

}  // namespace

bool isReducible(DType type) { return type != DType::kF16; }

void reduceElements(DType type, program::ReduceOp op, std::span<const void* const> inputs,
                    std::span<void* const> outputs, int64_t begin, int64_t end) {
  switch (type) {
    case DType::kF64:
      return dispatch<double, double>(op, inputs, outputs, begin, end);
    case DType::kF32:
      return dispatch<float, float>(op, inputs, outputs, begin, end);
    case DType::kBf16:
      return dispatch<Bf16, float>(op, inputs, outputs, begin, end);
    // Unsigned, so that an overflow wraps.
    case DType::kI32:
      if (op == program::ReduceOp::kSum)
        return dispatch<uint32_t, uint32_t>(op, inputs, outputs, begin, end);
      return dispatch<int32_t, int32_t>(op, inputs, outputs, begin, end);
    case DType::kF16:
      return;
  }
}

}  // namespace trireme::runtime
