// How files name precisions.
#pragma once
#include "ir/spec/map_reader.h"
#include "ir/spec/training_spec.h"

namespace trireme::spec {

inline constexpr EnumName<Precision> kPrecisionArray[] = {{"fp64", Precision::kFp64},
                                                          {"fp32", Precision::kFp32},
                                                          {"bf16", Precision::kBf16},
                                                          {"fp16", Precision::kFp16},
                                                          {"fp8", Precision::kFp8}};
inline constexpr std::span<const EnumName<Precision>> kPrecisions = kPrecisionArray;

}  // namespace trireme::spec
