#include "runtime/state/initialize.h"

#include "ir/base/rng.h"
#include "runtime/state/elements.h"
#include "runtime/state/layout.h"

namespace trireme::runtime {
namespace {

// Rounded to state dtype first, as the optimizer rounds when it writes a parameter.
double rounded(double value, DType state) {
  return state == DType::kF32 ? static_cast<double>(static_cast<float>(value)) : value;
}

void initializeTensor(const RankProgram& rank, const program::Parameter& parameter, int32_t layer,
                      StateKind kind) {
  const program::Training& training = rank.program->training;
  const RngKey key = makeRngKey(training.seed, 0, 0, RngStream::kInit);
  const auto tensor =
      static_cast<uint64_t>(parameter.logicalIndex + layer * parameter.logicalStride);
  forEachPiece(
      rank, parameter, layer, kind, [&](char* data, DType type, int64_t global, int64_t length) {
        for (int64_t i = 0; i < length; ++i) {
          double value = parameter.init == program::InitKind::kOnes ? 1 : 0;
          if (parameter.init == program::InitKind::kNormal)
            value =
                parameter.initStd * randomNormal(key, tensor, static_cast<uint64_t>(global + i));
          storeElement(data, type, i, rounded(value, training.stateDType));
        }
      });
}

}  // namespace

void initializeParameters(const RankProgram& rank) {
  for (const program::Parameter& parameter : rank.role->parameters) {
    if (parameter.init == program::InitKind::kZeros) continue;  // as the arena is
    const auto& bucket = rank.role->buckets[static_cast<size_t>(parameter.bucket)];
    for (int32_t layer = 0; layer < numTensors(parameter); ++layer) {
      initializeTensor(rank, parameter, layer, StateKind::kParameter);
      if (bucket.master >= 0) initializeTensor(rank, parameter, layer, StateKind::kMaster);
    }
  }
}

}  // namespace trireme::runtime
