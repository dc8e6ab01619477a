// Element types of tensors.
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

}  // namespace trireme
