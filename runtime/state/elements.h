// Element access through double, for the paths where speed does not matter.
#pragma once
#include <cstdint>

#include "ir/base/dtype.h"
#include "runtime/kernels/bf16.h"

namespace trireme::runtime {

inline double loadElement(const void* data, DType type, int64_t i) {
  switch (type) {
    case DType::kF64:
      return static_cast<const double*>(data)[i];
    case DType::kF32:
      return static_cast<const float*>(data)[i];
    case DType::kBf16:
      return toFloat(static_cast<const Bf16*>(data)[i]);
    case DType::kI32:
      return static_cast<const int32_t*>(data)[i];
    case DType::kF16:
      return toFloat(static_cast<const F16*>(data)[i]);
  }
  return 0;
}

inline void storeElement(void* data, DType type, int64_t i, double value) {
  switch (type) {
    case DType::kF64:
      static_cast<double*>(data)[i] = value;
      break;
    case DType::kF32:
      static_cast<float*>(data)[i] = static_cast<float>(value);
      break;
    case DType::kBf16:
      static_cast<Bf16*>(data)[i] = toBf16(static_cast<float>(value));
      break;
    case DType::kI32:
      static_cast<int32_t*>(data)[i] = static_cast<int32_t>(value);
      break;
    case DType::kF16:
      static_cast<F16*>(data)[i] = toF16(static_cast<float>(value));
      break;
  }
}

}  // namespace trireme::runtime
