// bfloat16 as the upper half of a float: conversions with round to nearest, ties to even.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

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

// One rounding, not two: the float in between is rounded to odd, which keeps the sticky bit.
inline Bf16 toBf16(double value) {
  const float nearest = static_cast<float>(value);
  if (!std::isfinite(nearest) || static_cast<double>(nearest) == value) return toBf16(nearest);
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if (std::abs(static_cast<double>(nearest)) > std::abs(value)) --bits;
  return toBf16(std::bit_cast<float>(bits | 1u));
}

// The type that elements of type T are summed in, and the ways there and back.
template <typename T>
using SumOf = std::conditional_t<std::is_same_v<T, Bf16>, float, T>;

template <typename T>
SumOf<T> widen(T value) {
  if constexpr (std::is_same_v<T, Bf16>)
    return toFloat(value);
  else
    return value;
}
template <typename T>
T narrow(SumOf<T> value) {
  if constexpr (std::is_same_v<T, Bf16>)
    return toBf16(value);
  else
    return value;
}

}  // namespace trireme::runtime
