// A loss scale that never changes, which some programs have a word for, in those of TrainingSpec:
// the least that it may be from the start, and doubled after more steps than any training has.
#pragma once
#include "ir/spec/training_spec.h"

namespace trireme::codegen {

constexpr int64_t kEndlessWindow = int64_t{1} << 53;  // steps; the most of (T7)

constexpr bool hasFixedLossScale(const spec::TrainingSpec& t) {
  return t.initialLossScale == t.minLossScale && t.lossScaleWindow == kEndlessWindow;
}

constexpr void fixLossScale(double scale, spec::TrainingSpec& t) {
  t.initialLossScale = t.minLossScale = scale;
  t.lossScaleWindow = kEndlessWindow;
}

}  // namespace trireme::codegen
