// Collectives of ranks that share a device: element i of all members is combined in group order and
// written to all. bf16 and f16 are summed in f32 and rounded once.
#include "runtime/device/cuda/kernels/lanes.h"

namespace trireme::runtime::cuda {
namespace {

template <typename T, typename A, bool kMax>
TRIREME_DEVICE void reduce(const ReduceArgs& a) {
  forEach(a.end - a.begin, [&](int64_t offset) {
    const int64_t i = a.begin + offset;
    A result = value(static_cast<const T*>(a.inputs[0])[i]);
    for (int j = 1; j < a.numInputs; ++j) {
      const A next = value(static_cast<const T*>(a.inputs[j])[i]);
      if constexpr (kMax)
        result = largerOf(result, next);
      else
        result += next;
    }
    for (int j = 0; j < a.numOutputs; ++j) store(static_cast<T*>(a.outputs[j])[i], result);
  });
}

}  // namespace

TRIREME_KERNEL(reduce_sum_f64, ReduceArgs, (reduce<double, double, false>))
TRIREME_KERNEL(reduce_sum_f32, ReduceArgs, (reduce<float, float, false>))
TRIREME_KERNEL(reduce_sum_bf16, ReduceArgs, (reduce<Bf16, float, false>))
TRIREME_KERNEL(reduce_sum_f16, ReduceArgs, (reduce<F16, float, false>))
// Unsigned, so that an overflow wraps.
TRIREME_KERNEL(reduce_sum_i32, ReduceArgs, (reduce<uint32_t, uint32_t, false>))
TRIREME_KERNEL(reduce_max_f64, ReduceArgs, (reduce<double, double, true>))
TRIREME_KERNEL(reduce_max_f32, ReduceArgs, (reduce<float, float, true>))
TRIREME_KERNEL(reduce_max_bf16, ReduceArgs, (reduce<Bf16, float, true>))
TRIREME_KERNEL(reduce_max_f16, ReduceArgs, (reduce<F16, float, true>))
TRIREME_KERNEL(reduce_max_i32, ReduceArgs, (reduce<int32_t, int32_t, true>))

}  // namespace trireme::runtime::cuda
