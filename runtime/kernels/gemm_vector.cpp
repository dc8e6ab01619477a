// The engine of vector multiply-adds. Panels are in the type of the sums: 16 bits are widened when
// packed.
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "runtime/kernels/gemm_engine.h"
#include "runtime/kernels/transpose.h"

namespace trireme::runtime {
namespace {

using program::GemmBlocking;

#if defined(__x86_64__)
#define TRIREME_ISA avx512
#define TRIREME_TARGET __attribute__((target("avx512f")))
#define TRIREME_VECTOR_BYTES 64
#include "runtime/kernels/gemm_tile.inc"
#undef TRIREME_ISA
#undef TRIREME_TARGET
#undef TRIREME_VECTOR_BYTES
#define TRIREME_ISA avx2
#define TRIREME_TARGET __attribute__((target("avx2,fma")))
#define TRIREME_VECTOR_BYTES 32
#include "runtime/kernels/gemm_tile.inc"
#undef TRIREME_ISA
#undef TRIREME_TARGET
#undef TRIREME_VECTOR_BYTES
#endif
#define TRIREME_ISA baseline
#define TRIREME_TARGET
#define TRIREME_VECTOR_BYTES 16
#include "runtime/kernels/gemm_tile.inc"

// Not a power of two, which would put all rows of a panel into one set of the cache.
constexpr int kRowStride = GemmBlocking::kVectorDepth + GemmBlocking::kPad;

// A panel of a by rows, and by columns.
#define TRIREME_HEIGHTS(isa, rowStride, colStride)                                                \
  isa::heights<typename GemmEngine<T, Sum>::Heights, Sum, kVectors, rowStride, colStride, kStep>( \
      std::make_integer_sequence<int, kRows / kStep>{})
#define TRIREME_ENGINE(isa, tileRows, tileVectors)                             \
  template <typename T, typename Sum>                                          \
  GemmEngine<T, Sum> isa##Engine() {                                           \
    constexpr int kRows = tileRows, kStep = kRows / 3, kVectors = tileVectors, \
                  kCols = kVectors * isa::kVectorElements<Sum>;                \
    return {kRows,                                                             \
            kCols,                                                             \
            kStep,                                                             \
            GemmBlocking::kVectorDepth,                                        \
            GemmBlocking::kVectorDepth,                                        \
            1,                                                                 \
            sizeof(Sum),                                                       \
            0,                                                                 \
            isa::packByRows<T, Sum, kRows, kRowStride>,                        \
            isa::packByColumns<T, Sum, kRows>,                                 \
            TRIREME_HEIGHTS(isa, kRowStride, 1),                               \
            TRIREME_HEIGHTS(isa, 1, kRows),                                    \
            isa::packColumns<T, Sum, kCols>,                                   \
            nullptr,                                                           \
            nullptr};                                                          \
  }

// Tiles as large as the registers allow: the wider, the fewer loads a multiply-add of vectors
// takes, and the higher, the less of b comes from the second-level cache, whence 9 by 3 and not 6
// by 4.
#if defined(__x86_64__)
TRIREME_ENGINE(avx512, 9, 3)  // 27 sums, 3 vectors of b and 1 element of a in 32 registers
TRIREME_ENGINE(avx2, 6, 2)    // 12 + 2 + 1 in 16
#endif
TRIREME_ENGINE(baseline, 6, 2)

}  // namespace

template <typename T>
std::vector<const GemmEngine<T, SumOf<T>>*> vectorEngines() {
  using Engine = GemmEngine<T, SumOf<T>>;
  std::vector<const Engine*> engines;
#if defined(__x86_64__)
  static const Engine avx512 = avx512Engine<T, SumOf<T>>(), avx2 = avx2Engine<T, SumOf<T>>();
  if (__builtin_cpu_supports("avx512f")) engines.push_back(&avx512);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) engines.push_back(&avx2);
#endif
  static const Engine baseline = baselineEngine<T, SumOf<T>>();
  engines.push_back(&baseline);
  return engines;
}

template std::vector<const GemmEngine<float, float>*> vectorEngines<float>();
template std::vector<const GemmEngine<double, double>*> vectorEngines<double>();
template std::vector<const GemmEngine<Bf16, float>*> vectorEngines<Bf16>();
template std::vector<const GemmEngine<F16, float>*> vectorEngines<F16>();

}  // namespace trireme::runtime
