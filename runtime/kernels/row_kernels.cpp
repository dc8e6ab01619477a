#include "runtime/kernels/row_kernels.h"

#include <cstring>
#include <limits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace trireme::runtime {
namespace {

#if defined(__x86_64__)
#define TRIREME_ISA avx512
#define TRIREME_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))
#define TRIREME_VECTOR_BYTES 64
#include "runtime/kernels/row_kernels.inc"
#undef TRIREME_ISA
#undef TRIREME_TARGET
#undef TRIREME_VECTOR_BYTES
#define TRIREME_ISA avx2
#define TRIREME_TARGET __attribute__((target("avx2,fma")))
#define TRIREME_VECTOR_BYTES 32
#include "runtime/kernels/row_kernels.inc"
#undef TRIREME_ISA
#undef TRIREME_TARGET
#undef TRIREME_VECTOR_BYTES
#endif
#define TRIREME_ISA baseline
#define TRIREME_TARGET
#define TRIREME_VECTOR_BYTES 16
#include "runtime/kernels/row_kernels.inc"

std::vector<const RowKernels*> findRowKernels() {
  std::vector<const RowKernels*> found;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq"))
    found.push_back(&avx512::kRowKernels);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    found.push_back(&avx2::kRowKernels);
#endif
  found.push_back(&baseline::kRowKernels);
  return found;
}

}  // namespace

const std::vector<const RowKernels*>& rowKernelSets() {
  static const auto found = findRowKernels();
  return found;
}

const RowKernels& rowKernels() {
  static const RowKernels& picked = *rowKernelSets().front();
  return picked;
}

}  // namespace trireme::runtime
