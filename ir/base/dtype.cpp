#include "ir/base/dtype.h"

#include <array>

namespace trireme {
namespace {
constexpr std::array<std::string_view, 5> kTypeNames = {"f64", "f32", "bf16", "f16", "i32"};
constexpr std::array<std::string_view, 7> kFormatNames = {"f64", "f32", "tf32", "bf16",
                                                          "f16", "f8",  "f4"};
}  // namespace

std::string_view dtypeName(DType type) { return kTypeNames[static_cast<size_t>(type)]; }

std::optional<DType> parseDType(std::string_view name) {
  for (size_t i = 0; i < kTypeNames.size(); ++i)
    if (kTypeNames[i] == name) return static_cast<DType>(i);
  return std::nullopt;
}

std::string_view mathFormatName(MathFormat format) {
  return kFormatNames[static_cast<size_t>(format)];
}

}  // namespace trireme
