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
#define TRIREME_HEIGHTS(isa, rowStride, colStride)                                         \
  isa::heights<typename GemmEngine<T, Sum>::Heights, Sum, kVectors, rowStride, colStride>( \
      std::make_integer_sequence<int, kRows / 2>{})
#define TRIREME_ENGINE(isa, tileRows, tileVectors)              \
  template <typename T, typename Sum>                           \
  GemmEngine<T, Sum> isa##Engine() {                            \
    constexpr int kRows = tileRows, kVectors = tileVectors,     \
                  kCols = kVectors * isa::kVectorElements<Sum>; \
    return {kRows,                                              \
            kCols,                                              \
            2,                                                  \
            GemmBlocking::kVectorDepth,                         \
            1,                                                  \
            sizeof(Sum),                                        \
            false,                                              \
            isa::packByRows<T, Sum, kRows, kRowStride>,         \
            isa::packByColumns<T, Sum, kRows>,                  \
            TRIREME_HEIGHTS(isa, kRowStride, 1),                \
            TRIREME_HEIGHTS(isa, 1, kRows),                     \
            isa::packColumns<T, Sum, kCols>,                    \
            nullptr,                                            \
            nullptr};                                           \
  }

// Tiles as wide as the registers allow: a multiply-add of vectors takes the fewest loads then.
#if defined(__x86_64__)
TRIREME_ENGINE(avx512, 6, 4)  // 24 sums, 4 vectors of b and 1 element of a in 32 registers
TRIREME_ENGINE(avx2, 6, 2)    // 12 + 2 + 1 in 16
#endif
TRIREME_ENGINE(baseline, 6, 2)

template <typename T, typename Sum>
GemmEngine<T, Sum> pickEngine() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return avx512Engine<T, Sum>();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2Engine<T, Sum>();
#endif
  return baselineEngine<T, Sum>();
}

}  // namespace

template <typename T, typename Sum>
const GemmEngine<T, Sum>& vectorEngine() {
  static const GemmEngine<T, Sum> engine = pickEngine<T, Sum>();
  return engine;
}

template const GemmEngine<float, float>& vectorEngine();
template const GemmEngine<double, double>& vectorEngine();
template const GemmEngine<Bf16, float>& vectorEngine();
template const GemmEngine<F16, float>& vectorEngine();

}  // namespace trireme::runtime
