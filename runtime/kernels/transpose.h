// A small transposition in registers, for packing.
#pragma once
#include <cstdint>
#include <cstring>

namespace trireme::runtime {

// 4 x 4 elements of 32 bits; strides in bytes.
inline void transpose4x4(const void* from, int64_t fromStride, void* to, int64_t toStride) {
  using V = int32_t __attribute__((vector_size(16)));
  const auto* source = static_cast<const char*>(from);
  auto* target = static_cast<char*>(to);
  V r[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) std::memcpy(&r[i], source + i * fromStride, sizeof(V));
  const V low01 = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
  const V high01 = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
  const V low23 = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
  const V high23 = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
  const V out[4] = {__builtin_shufflevector(low01, low23, 0, 1, 4, 5),
                    __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
                    __builtin_shufflevector(high01, high23, 0, 1, 4, 5),
                    __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) std::memcpy(target + i * toStride, &out[i], sizeof(V));
}

}  // namespace trireme::runtime
