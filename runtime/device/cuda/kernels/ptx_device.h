// What tiles_device.h is made of: the PTX instructions of sm_80 and later, and which numbers of a
// tile a lane has. Where tests stand in for a GPU, they bring the instructions
// (tests/support/warp_kernels.cpp).
//
// Lane l = 4 g + t holds (PTX ISA, "Matrix Fragments for mma.m16n8k16")
//   of a factor's 16 x 16: rows g and g + 8, columns 2 t, 2 t + 1 and those + 8, two to a register
//   of b's 16 x 8:         column g, rows 2 t, 2 t + 1 and those + 8
//   of the sums' 16 x 8:   rows g and g + 8, columns 2 t, 2 t + 1
#pragma once
#include <cstdint>
#include <type_traits>

namespace trireme::runtime::cuda {
inline namespace on_device {

TRIREME_DEVICE int laneGroup() { return laneIndex() >> 2; }
TRIREME_DEVICE int laneColumn() { return (laneIndex() & 3) * 2; }

// Row g or g + 8 of this lane.
struct TileRow {
  int index;
  int half;
};
TRIREME_DEVICE TileRow tileRow(int half) { return {laneGroup() + 8 * half, half}; }

template <typename T>
TRIREME_DEVICE uint32_t twoAt(const T* row, int column) {
  return row == nullptr ? 0u : *reinterpret_cast<const uint32_t*>(row + column);
}

#if defined(__CUDACC__)
// c += a b for a 16 x 16, b 16 x 8, both in T.
#define TRIREME_MULTIPLY_ADD_TILE(type)                                               \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                 \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                       \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
template <typename T>
TRIREME_DEVICE void multiplyAddTile(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1) {
  if constexpr (std::is_same_v<T, F16>)
    TRIREME_MULTIPLY_ADD_TILE("f16");
  else
    TRIREME_MULTIPLY_ADD_TILE("bf16");
}
#undef TRIREME_MULTIPLY_ADD_TILE

template <typename T>
TRIREME_DEVICE uint32_t roundedPair(float low, float high) {
  uint32_t pair;
  if constexpr (std::is_same_v<T, F16>)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// 2^x within two units of the last place.
TRIREME_DEVICE float exp2Of(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

TRIREME_DEVICE uint32_t sharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}
// Four 8 x 8 of 16 bits, whose rows have 16 bytes: lane 8 m + i says where row i of the m-th is.
// Lane 4 g + t gets of each row g's numbers 2 t and 2 t + 1 or, transposed, those of column g in
// the rows 2 t and 2 t + 1.
TRIREME_DEVICE void loadMatrices(uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(sharedAddress(row))
               : "memory");
}
TRIREME_DEVICE void loadTransposed(uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(sharedAddress(row))
               : "memory");
}

// Starts copying kBytes (4 or 16) to shared memory; `from` null: zeros.
template <int kBytes>
TRIREME_DEVICE void startCopy(void* shared, const void* from) {
  const uint32_t to = sharedAddress(shared);
  if constexpr (kBytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(from == nullptr ? 0 : 16)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from),
                 "r"(from == nullptr ? 0 : 4)
                 : "memory");
}
// Ends a group of this thread's copies.
TRIREME_DEVICE void endCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until all but the last group are there.
TRIREME_DEVICE void waitForCopies() { asm volatile("cp.async.wait_group 1;" ::: "memory"); }
#endif

TRIREME_DEVICE float multiplyAdd(float a, float b, float c) { return ::fmaf(a, b, c); }

// Sums and maxima over the four lanes of a row.
TRIREME_DEVICE float sumOfRow(float sum) {
  sum += __shfl_xor_sync(kAllLanes, sum, 1);
  return sum + __shfl_xor_sync(kAllLanes, sum, 2);
}
TRIREME_DEVICE float maxOfRow(float largest) {
  largest = largerOf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
  return largerOf(largest, __shfl_xor_sync(kAllLanes, largest, 2));
}

}  // namespace on_device
}  // namespace trireme::runtime::cuda
