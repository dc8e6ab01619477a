#include "cost_models/attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "cost_models/compute.h"
#include "cost_models/formulas.h"
#include "cost_models/gemm.h"

namespace trireme::cost {
namespace {

constexpr double kBackwardProducts = 5.0 / 2;  // q k^T again and four gradients, for two forward
constexpr double kBlock = 128;                 // queries and keys of a block of a fused kernel
constexpr double kManyWaves = 8;               // of which the last, partly filled one is not felt
constexpr int64_t kSoftmaxHeads = 4;           // of a block of the fused softmax

struct Scores {
  int64_t heads = 1;  // of all sequences of a microbatch, on this rank
  int64_t queries = 1, keys = 1, headSize = 1;
  double element = 2;  // bytes
  FlopsPerSecond peak;

  double elements() const { return asDouble(heads) * asDouble(queries) * asDouble(keys); }
};

Scores scoresOf(const spec::ModelSpec& model, const plan::Plan& plan,
                const spec::DeviceSpec& device) {
  const DType dtype = spec::computeDType(plan.training.precision);
  Scores s;
  s.heads = plan.microbatchSize * model.numHeads / plan.tp;
  s.keys = plan.training.sequenceLength;
  s.queries = s.keys / plan.cp;
  s.headSize = model.headSize;
  s.element = asDouble(byteSize(dtype));
  s.peak = matmulPeak(device, dtype);
  return s;
}

// How much longer a kernel takes because its last wave of blocks is not full.
double waveLoss(const Scores& s, const spec::DeviceSpec& device) {
  if (device.numMultiprocessors == 0) return 1;
  const double waves =
      asDouble(s.heads) * asDouble(s.queries) / kBlock / asDouble(device.numMultiprocessors);
  return waves < kManyWaves ? std::max(1.0, std::ceil(waves) / waves) : 1;
}

AttentionTime flashTime(const Scores& s, const spec::ModelSpec& model,
                        const spec::DeviceSpec& device, spec::AttentionKind kind,
                        Direction direction) {
  const bool forward = direction == Direction::kForward;
  const double diagonal = 1 + kBlock / asDouble(s.keys);
  const Flops flops(4 * s.elements() * asDouble(s.headSize) * kCausalShare * diagonal *
                    (forward ? 1 : kBackwardProducts));
  const spec::AttentionRate rate = device.attentionRate(kind);
  const double reached = forward ? rate.forward : rate.backward;
  const double queryShare = 1 + asDouble(model.numKvHeads) / asDouble(model.numHeads);
  const Bytes moved(2 * asDouble(s.heads) * asDouble(s.queries) * asDouble(s.headSize) * s.element *
                    queryShare * (forward ? 1 : 2));
  const Seconds products = flops / (s.peak * reached) * waveLoss(s, device);
  const int64_t kernels = forward ? 1 : 2;
  return {std::max(products + device.launchOverhead, streamTime(moved, device)), kernels};
}

// Of one further step.
Bytes ringTraffic(const Scores& s, const spec::ModelSpec& model,
                  const spec::StackDescription& stack, Direction direction) {
  const double keyShare = asDouble(model.numKvHeads) / asDouble(model.numHeads);
  return Bytes(stack.ringBytes * asDouble(s.heads) * asDouble(s.queries) * asDouble(s.headSize) *
               (direction == Direction::kForward ? 1 : 1 + 2 * keyShare));
}

// One batch of products per head, [rows, inner] x [inner, cols].
Seconds batched(const Scores& s, int64_t rows, int64_t cols, int64_t inner,
                const spec::DeviceSpec& device) {
  return productTime({rows, cols, inner, s.heads, s.element, s.element}, s.peak, device,
                     device.batchedMatmulEfficiency);
}

// Bytes per score of every kernel between the products, but for dropout.
std::vector<double> softmaxPasses(const Scores& s, spec::AttentionKind kind, bool forward) {
  const double e = s.element;
  if (kind != spec::AttentionKind::kFusedSoftmax)
    return forward ? std::vector{2 * e, 2 * e + 1} : std::vector{3 * e, 2 * e};
  if (s.heads % kSoftmaxHeads == 0) return {(forward ? 2 : 3) * e};
  if (forward) return {e + 4, 8, 9, 8, 4 + e};
  return {e + 4, 12, 9, 8, 4 + e};
}

AttentionTime unfusedTime(const Scores& s, spec::AttentionKind kind, bool dropout,
                          const spec::DeviceSpec& device, Direction direction) {
  AttentionTime time;
  const auto products = [&](int64_t rows, int64_t cols, int64_t inner, int64_t times) {
    time.device += batched(s, rows, cols, inner, device) * asDouble(times);
    time.numKernels += times;
  };
  const auto pass = [&](double bytesPerScore) {
    time.device += streamTime(Bytes(bytesPerScore * s.elements()), device);
    ++time.numKernels;
  };
  const bool forward = direction == Direction::kForward;
  products(s.queries, s.keys, s.headSize, 1);
  products(s.queries, s.headSize, s.keys, 1);
  if (!forward) products(s.keys, s.headSize, s.queries, 2);
  for (const double bytes : softmaxPasses(s, kind, forward)) pass(bytes);
  if (dropout) pass(2 * s.element + 1);
  return time;
}

}  // namespace

AttentionTime attentionTime(const spec::ModelSpec& model, const plan::Plan& plan,
                            const spec::DeviceSpec& device, const spec::StackDescription& stack,
                            Direction direction) {
  const Scores s = scoresOf(model, plan, device);
  if (spec::isFlash(stack.attention)) {
    AttentionTime time = flashTime(s, model, device, stack.attention, direction);
    if (plan.cp > 1) {
      const double others = asDouble(plan.cp - 1);
      time.device = time.device * (1 + others / asDouble(plan.cp) *
                                           (1 / stack.blockAttentionEfficiency - 1)) +
                    streamTime(ringTraffic(s, model, stack, direction), device) * others;
    }
    return time;
  }
  return unfusedTime(s, stack.attention, plan.training.attentionDropout > 0, device, direction);
}

double keyValueBytes(const spec::ModelSpec& model, const plan::Plan& plan) {
  const double element = asDouble(byteSize(spec::computeDType(plan.training.precision)));
  return 2 * element *
         asDouble(plan.microbatchSize * plan.training.sequenceLength * model.headSize) *
         asDouble(model.numKvHeads) / asDouble(plan.tp);
}

}  // namespace trireme::cost
