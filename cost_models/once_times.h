// What a stage does once per step, beside the flush.
#pragma once
#include <algorithm>

#include "ir/base/units.h"

namespace trireme::cost {

// The gradient norm is the whole model's: no stage updates before all have reduced. Of several
// stages the step takes the longest of each (where they do not wait all is `reducing`):
//   step = flush + max over stages of reducing + max over stages of updating
struct OnceTimes {
  Seconds reducing;  // gradients, as far as no backward hides it; tied tables and the norm
  Seconds updating;  // the optimizer, and gathering what it made
  Seconds total() const { return reducing + updating; }
};

inline OnceTimes longest(const OnceTimes& a, const OnceTimes& b) {
  return {std::max(a.reducing, b.reducing), std::max(a.updating, b.updating)};
}
inline OnceTimes shortest(const OnceTimes& a, const OnceTimes& b) {
  return {std::min(a.reducing, b.reducing), std::min(a.updating, b.updating)};
}

}  // namespace trireme::cost
