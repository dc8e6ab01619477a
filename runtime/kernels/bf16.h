// bfloat16 as the upper half of a float: conversions with round to nearest, ties to even; and what
// the types of 16 bits have in common.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "runtime/kernels/f16.h"

namespace trireme::runtime {

struct Bf16 {
  uint16_t bits;
};

constexpr float toFloat(Bf16 value) { return std::bit_cast<float>(uint32_t{value.bits} << 16); }
constexpr float toFloat(float value) { return value; }

// Branch-free but for a select, so that loops over it become vector code. A NaN stays a NaN.
constexpr Bf16 toBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quieted = (bits >> 16) | 0x40u;
  return {static_cast<uint16_t>((bits & 0x7FFFFFFFu) > 0x7F800000u ? quieted : rounded)};
}

// The float next to `value` that is odd unless it is exact: rounding it to fewer bits is as
// rounding the double.
inline float toOddFloat(double value) {
  const float nearest = static_cast<float>(value);
  if (!std::isfinite(nearest) || static_cast<double>(nearest) == value) return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if (std::abs(static_cast<double>(nearest)) > std::abs(value)) --bits;
  return std::bit_cast<float>(bits | 1u);
}
inline Bf16 toBf16(double value) { return toBf16(toOddFloat(value)); }
inline F16 toF16(double value) { return toF16(toOddFloat(value)); }

template <typename T>
inline constexpr bool kIs16Bit = std::is_same_v<T, Bf16> || std::is_same_v<T, F16>;

// The type that elements of type T are summed in, and the ways there and back.
template <typename T>
using SumOf = std::conditional_t<kIs16Bit<T>, float, T>;

template <typename T>
SumOf<T> widen(T value) {
  if constexpr (kIs16Bit<T>)
    return toFloat(value);
  else
    return value;
}
template <typename T>
T narrow(SumOf<T> value) {
  if constexpr (std::is_same_v<T, Bf16>)
    return toBf16(value);
  else if constexpr (std::is_same_v<T, F16>)
    return toF16(value);
  else
    return value;
}

}  // namespace trireme::runtime
