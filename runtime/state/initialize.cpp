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

// What of elements `first`... of the bucket is in the view.
void storeIn(const BucketView& view, int64_t first, std::span<const double> values) {
  const int64_t end = std::min(view.end, first + std::ssize(values));
  for (int64_t i = std::max(view.begin, first); i < end; ++i)
    storeElement(view.data, view.type, i - view.begin, values[static_cast<size_t>(i - first)]);
}

// One layer's tensor. The master is drawn with the parameter: normals take most of the time.
void initializeTensor(const RankProgram& rank, const program::Parameter& parameter, int32_t layer) {
  const program::Training& training = rank.program->training;
  const RngKey key = makeRngKey(training.seed, 0, 0, RngStream::kInit);
  const auto tensor =
      static_cast<uint64_t>(parameter.logicalIndex + layer * parameter.logicalStride);
  const bool normal = parameter.init == program::InitKind::kNormal;
  const int64_t start = parameter.offset + layer * parameter.layerStride;
  const bool hasMaster = rank.role->buckets[static_cast<size_t>(parameter.bucket)].master >= 0;
  const BucketView own = bucketViewAt(rank, parameter.bucket, StateKind::kParameter, start);
  const BucketView master =
      hasMaster ? bucketViewAt(rank, parameter.bucket, StateKind::kMaster, start) : BucketView{};
  std::array<double, 1024> buffer;  // some at a time
  const auto initializeRun = [&](int64_t local, int64_t global, int64_t length) {
    for (int64_t at = 0; at < length; at += std::ssize(buffer)) {
      const auto count = std::min<int64_t>(std::ssize(buffer), length - at);
      const std::span<double> values = std::span(buffer).first(static_cast<size_t>(count));
      if (normal)
        randomNormals(key, tensor, static_cast<uint64_t>(global + at), values);
      else
        std::ranges::fill(values, 1);
      for (double& value : values)
        value = rounded(normal ? parameter.initStd * value : value, training.stateDType);
      storeIn(own, start + local + at, values);
      if (hasMaster) storeIn(master, start + local + at, values);
    }
  };
  forEachRun(parameter, rank.program->tp, rank.info.tpIndex, initializeRun);
}

}  // namespace

void initializeParameters(const RankProgram& rank) {
  for (const program::Parameter& parameter : rank.role->parameters) {
    if (parameter.init == program::InitKind::kZeros) continue;  // as the arena is
    for (int32_t layer = 0; layer < numTensors(parameter); ++layer)
      initializeTensor(rank, parameter, layer);
  }
}

}  // namespace trireme::runtime
