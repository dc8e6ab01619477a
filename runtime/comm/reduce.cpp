#include "runtime/comm/reduce.h"

#include <algorithm>
#include <cstring>

#include "runtime/kernels/bf16.h"

namespace trireme::runtime {
namespace {

// A NaN of either side stays: a maximum must not hide that something went wrong.
template <typename A>
A larger(A a, A b) {
  return (a < b || b != b) ? b : a;
}

constexpr int64_t kBlock = 1024;  // elements: the accumulator stays in the first-level cache

template <typename T, typename Op>
void reduceTyped(std::span<const void* const> inputs, std::span<void* const> outputs, int64_t begin,
                 int64_t end, Op op) {
  using A = SumOf<T>;
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
    for (int64_t i = 0; i < n; ++i) result[i] = narrow<T>(sum[i]);
    for (void* out : outputs)
      std::memcpy(static_cast<T*>(out) + first, result, static_cast<size_t>(n) * sizeof(T));
  }
}

template <typename T>
void dispatch(program::ReduceOp op, std::span<const void* const> inputs,
              std::span<void* const> outputs, int64_t begin, int64_t end) {
  using A = SumOf<T>;
  if (op == program::ReduceOp::kSum)
    reduceTyped<T>(inputs, outputs, begin, end, [](A a, A b) { return static_cast<A>(a + b); });
  else
    reduceTyped<T>(inputs, outputs, begin, end, [](A a, A b) { return larger(a, b); });
}

}  // namespace

void reduceElements(DType type, program::ReduceOp op, std::span<const void* const> inputs,
                    std::span<void* const> outputs, int64_t begin, int64_t end) {
  switch (type) {
    case DType::kF64:
      return dispatch<double>(op, inputs, outputs, begin, end);
    case DType::kF32:
      return dispatch<float>(op, inputs, outputs, begin, end);
    case DType::kBf16:
      return dispatch<Bf16>(op, inputs, outputs, begin, end);
    case DType::kF16:
      return dispatch<F16>(op, inputs, outputs, begin, end);
    // Unsigned, so that an overflow wraps.
    case DType::kI32:
      if (op == program::ReduceOp::kSum) return dispatch<uint32_t>(op, inputs, outputs, begin, end);
      return dispatch<int32_t>(op, inputs, outputs, begin, end);
  }
}

}  // namespace trireme::runtime
