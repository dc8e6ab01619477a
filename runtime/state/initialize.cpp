#include "runtime/state/initialize.h"

#include <algorithm>
#include <array>
#include <span>

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
  const bool normal = parameter.init == program::InitKind::kNormal;
  const double scale = normal ? parameter.initStd : 1;
  std::array<double, 1024> values;  // some at a time
  values.fill(1);
  forEachPiece(
      rank, parameter, layer, kind, [&](char* data, DType type, int64_t global, int64_t length) {
        for (int64_t done = 0; done < length;) {
          const int64_t count = std::min<int64_t>(length - done, values.size());
          if (normal)
            randomNormals(key, tensor, static_cast<uint64_t>(global + done),
                          std::span(values).first(static_cast<size_t>(count)));
          for (int64_t i = 0; i < count; ++i)
            storeElement(data, type, done + i,
                         rounded(scale * values[static_cast<size_t>(i)], training.stateDType));
          done += count;
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
