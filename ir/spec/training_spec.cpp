#include "ir/spec/training_spec.h"

#include <cmath>
#include <numbers>

#include "ir/base/status.h"

namespace trireme::spec {

double TrainingSpec::learningRateAt(int64_t step) const {
  TRIREME_CHECK(step >= 0);
  if (step < warmupSteps)
    return learningRate * (static_cast<double>(step + 1) / static_cast<double>(warmupSteps));
  if (decaySteps == 0) return learningRate;
  const int64_t decayed = step - warmupSteps;
  if (decayed >= decaySteps) return minLearningRate;
  const double progress = static_cast<double>(decayed) / static_cast<double>(decaySteps);
  const double share = 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  return minLearningRate + share * (learningRate - minLearningRate);
}

}  // namespace trireme::spec
