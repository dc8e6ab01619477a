// The optimizer instructions of the executor: which part of a bucket this rank counts and steps.
#include <algorithm>

#include "runtime/executor/executor.h"
#include "runtime/state/layout.h"

namespace trireme::runtime {

// Every element of the model's gradient is counted by exactly one of the ranks whose squares are
// added up: the ranks of the model group, or of the world as soon as any bucket is sharded.
// - copies of tied weights: never
// - replicated over tp: by tp member 0
// - sharded over dp: by its owner
// - not sharded, while another bucket is: by dp member 0
void Executor::buildNormRows() {
  const program::Role& role = *rank_.role;
  bool anySharded = false;
  for (const program::Role& any : rank_.program->roles)
    for (const program::Bucket& bucket : any.buckets) anySharded = anySharded || bucket.sharded;
  normRows_.resize(role.buckets.size());
  bucketRows_.reserve(role.buckets.size());
  for (const program::Parameter& parameter : role.parameters) {
    if (parameter.copy) continue;
    const program::Bucket& bucket = role.buckets[static_cast<size_t>(parameter.bucket)];
    const bool counts = (parameter.tpDim >= 0 || rank_.info.tpIndex == 0) &&
                        (bucket.sharded || !anySharded || rank_.info.dpIndex == 0);
    for (int32_t layer = 0; layer < numTensors(parameter); ++layer) {
      const int64_t start = parameter.offset + layer * parameter.layerStride;
      const BucketView view = bucketViewAt(rank_, parameter.bucket, StateKind::kGradient, start);
      const int64_t begin = std::max(start, view.begin);
      const int64_t end = std::min(start + parameter.localElements(rank_.program->tp), view.end);
      NormRow row;
      row.logicalIndex = parameter.logicalIndex + layer * parameter.logicalStride;
      row.data = view.data + (begin - view.begin) * byteSize(view.type);
      row.elements = counts ? std::max<int64_t>(0, end - begin) : 0;
      normRows_[static_cast<size_t>(parameter.bucket)].push_back(row);
    }
  }
}

// Consecutive instructions of one kind and on the same squares, of a bucket each, are one call of
// the device: alone each would wait until the launches of the last have come to their end.
std::span<const FlatInstruction> Executor::runFrom(const FlatBody& body, int32_t begin,
                                                   int32_t end) const {
  using program::InstructionKind;
  const std::span<const Flat> rest(body.instructions.data() + begin,
                                   static_cast<size_t>(end - begin));
  const Flat& first = rest.front();
  const auto squaresOf = [&](const Flat& instruction) {
    return rank_.operands[static_cast<size_t>(instruction.firstOperand)].base;
  };
  const auto joins = [&](const Flat& next) {
    return next.kind == first.kind && next.stream == first.stream && next.event == first.event &&
           squaresOf(next) == squaresOf(first);
  };
  const bool isPerBucket =
      first.kind == InstructionKind::kSumSquares || first.kind == InstructionKind::kAdamW;
  if (!isPerBucket || first.stream != program::Stream::kCompute || first.event.base >= 0)
    return rest.first(1);
  size_t size = 1;
  while (size < rest.size() && joins(rest[size])) ++size;
  return rest.first(size);
}

Status Executor::sumSquares(std::span<const Flat> run, int32_t repeat, int32_t slot) {
  bucketRows_.clear();
  for (const Flat& instruction : run) {
    const auto bucket = static_cast<size_t>(instruction.bucket);
    const int32_t gradient = rank_.role->buckets[bucket].gradient;
    bucketRows_.push_back({instruction.bucket,
                           rank_.role->buffers[static_cast<size_t>(gradient)].dtype,
                           normRows_[bucket]});
  }
  return context_.device->sumSquares(
      bucketRows_, reinterpret_cast<double*>(operand(run.front(), 0, repeat, slot)));
}

// One per piece of a bucket that is sharded.
void Executor::buildArrays() {
  arrays_.resize(rank_.role->buckets.size());
  size_t total = 0;
  for (int32_t bucket = 0; bucket < std::ssize(arrays_); ++bucket) {
    for (const BucketView& moment1 : bucketViews(rank_, bucket, StateKind::kMoment1))
      arrays_[static_cast<size_t>(bucket)].push_back(arraysOf(bucket, moment1));
    total += arrays_[static_cast<size_t>(bucket)].size();
  }
  bucketArrays_.reserve(total);
}

AdamWArrays Executor::arraysOf(int32_t bucket, const BucketView& moment1) const {
  const auto viewOf = [&](StateKind kind) {
    return bucketViewAt(rank_, bucket, kind, moment1.begin);
  };
  const auto at = [&](const BucketView& view) {
    return view.data + (moment1.begin - view.begin) * byteSize(view.type);
  };
  const BucketView parameter = viewOf(StateKind::kParameter), master = viewOf(StateKind::kMaster);
  AdamWArrays arrays;
  arrays.stateType = master.type;
  arrays.computeType = parameter.type;
  arrays.parameter = at(parameter);
  arrays.master = at(master);
  arrays.gradient = viewOf(StateKind::kGradient).data;
  arrays.moment1 = moment1.data;
  arrays.moment2 = viewOf(StateKind::kMoment2).data;
  arrays.elements = moment1.end - moment1.begin;
  const bool decays = rank_.role->buckets[static_cast<size_t>(bucket)].decay;
  arrays.weightDecay = decays ? rank_.program->training.weightDecay : 0;
  return arrays;
}

Status Executor::adamWStep(std::span<const Flat> run, int32_t repeat, int32_t slot) {
  const program::Training& training = rank_.program->training;
  AdamWCall call;
  call.clipNorm = training.clipNorm;
  call.squares = {reinterpret_cast<const double*>(operand(run.front(), 0, repeat, slot)),
                  run.front().elements};
  call.lossScaling = rank_.lossScaling();
  AdamWStep& step = call.step;
  step.learningRate = learningRateAt(training, step_);
  step.beta1 = training.beta1;
  step.beta2 = training.beta2;
  step.epsilon = training.epsilon;
  step.number = step_ + 1;
  bucketArrays_.clear();
  for (const Flat& instruction : run) {
    const std::vector<AdamWArrays>& arrays = arrays_[static_cast<size_t>(instruction.bucket)];
    bucketArrays_.insert(bucketArrays_.end(), arrays.begin(), arrays.end());
  }
  call.buckets = bucketArrays_;
  return context_.device->adamW(call);
}

Status Executor::updateLossScale(const Flat& instruction, int32_t repeat, int32_t slot) {
  LossScaleUpdate update;
  update.training = &rank_.program->training;
  update.squares = {reinterpret_cast<const double*>(operand(instruction, 0, repeat, slot)),
                    instruction.elements};
  update.lossScaling = rank_.lossScaling();
  return context_.device->updateLossScale(update);
}

}  // namespace trireme::runtime
