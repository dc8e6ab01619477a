// IEEE 754 binary16: conversions with round to nearest, ties to even; subnormals as they are, too
// large is infinite. Branch-free but for selects, so that loops over them become vector code.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

namespace trireme::runtime {

struct F16 {
  uint16_t bits;
};

// The 5 bits of exponent and 10 of mantissa, moved to where an f32 has them, are the value times
// 2^-112: also of a subnormal number, which is one of f32 then.
constexpr float toFloat(F16 value) {
  const uint32_t magnitude = value.bits & 0x7FFFu;
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  const uint32_t finite = std::bit_cast<uint32_t>(scaled);
  const uint32_t bits = magnitude >= 0x7C00u ? finite | 0x7F800000u : finite;
  return std::bit_cast<float>(bits | (uint32_t{value.bits} & 0x8000u) << 16);
}

constexpr F16 toF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  // From 2^-14 on: the exponent is 112 less, and 13 bits of the mantissa are rounded away. A carry
  // goes into the exponent, and past the largest number to infinity.
  const uint32_t rebased = magnitude - (112u << 23);
  const uint32_t normal = (rebased + 0xFFFu + ((rebased >> 13) & 1u)) >> 13;
  // Below: adding 1/2, whose last bit is worth 2^-24 as that of a subnormal f16, rounds to it.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
  const uint32_t subnormal = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5f);
  uint32_t rounded = magnitude < (113u << 23) ? subnormal : normal;
  rounded = magnitude >= (143u << 23) ? 0x7C00u : rounded;
  rounded = magnitude > 0x7F800000u ? 0x7E00u : rounded;
  return {static_cast<uint16_t>(rounded | (bits >> 16 & 0x8000u))};
}

}  // namespace trireme::runtime
