// Element types of tensors, and formats of products.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

namespace trireme {

enum class DType : uint8_t { kF64, kF32, kBf16, kF16, kI32 };

constexpr int64_t byteSize(DType type) {
  switch (type) {
    case DType::kF64:
      return 8;
    case DType::kF32:
      return 4;
    case DType::kBf16:
      return 2;
    case DType::kF16:
      return 2;
    case DType::kI32:
      return 4;
  }
  return 0;
}

std::string_view dtypeName(DType type);  // "f64", "f32", "bf16", "f16", "i32"
std::optional<DType> parseDType(std::string_view name);

// What matrix units multiply. Not all of it is a DType: operands of tf32, fp8 and fp4 products are
// tensors of a wider type, converted for the product, and no program holds them.
enum class MathFormat : uint8_t { kF64, kF32, kTf32, kBf16, kF16, kF8, kF4 };

std::string_view mathFormatName(MathFormat format);  // "f64", "f32", "tf32", "bf16", ...
// The format of products of tensors of `type`; none for integers.
constexpr std::optional<MathFormat> mathFormatOf(DType type) {
  switch (type) {
    case DType::kF64:
      return MathFormat::kF64;
    case DType::kF32:
      return MathFormat::kF32;
    case DType::kBf16:
      return MathFormat::kBf16;
    case DType::kF16:
      return MathFormat::kF16;
    case DType::kI32:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace trireme
