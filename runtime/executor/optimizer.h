// The optimizer's arithmetic: AdamW with global norm clipping, and the schedule of its step size.
//
//   g = c * gradient, where c = min(1, clipNorm / (norm + 1e-6)), or 1 if clipNorm is 0; with a
//       scaled loss norm and gradient are over the scale
//   m = b1 m + (1 - b1) g          v = b2 v + (1 - b2) g^2
//   p = p - lr ((m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon) + weightDecay p)
//
// with t = step + 1, or takenSteps + 1 where steps are skipped. Loshchilov and Hutter, "Decoupled
// weight decay regularization", ICLR 2019. Everything is in state dtype and element by element, so
// that how a bucket is sharded or split over threads does not show.
#pragma once
#include <cstdint>

#include "ir/base/dtype.h"
#include "ir/program/program.h"
#include "runtime/kernels/kernels.h"

namespace trireme::runtime {

// Linear over the warm-up (step i uses (i + 1) / warmupSteps of the peak), then a cosine to
// minLearningRate over decaySteps, which it then keeps; decaySteps 0: the peak for ever.
double learningRateAt(const program::Training& training, int64_t step);

// sqrt of the squares' sum, added up in index order.
double gradientNorm(const double* squares, int64_t count);
double clipCoefficient(double clipNorm, double norm);

// The end of a step whose scaled gradient has this norm; the rule is program::LossScaling's.
void updateLossScaling(const program::Training& training, double norm,
                       program::LossScaling& scaling);

// base^exponent by repeated squaring: products only, so that every device has the same bits.
double powerOf(double base, int64_t exponent);

struct AdamWStep {
  double learningRate = 0, beta1 = 0, beta2 = 0, epsilon = 0;
  double gradientScale = 1;  // c
  int64_t number = 1;        // t
};

// The same element range of every array of a bucket. `parameter` is written in `computeType`; it
// may be `master` itself, if the types are equal.
struct AdamWArrays {
  DType stateType = DType::kF32, computeType = DType::kF32;
  void* parameter = nullptr;
  void* master = nullptr;
  const void* gradient = nullptr;
  void* moment1 = nullptr;
  void* moment2 = nullptr;
  int64_t elements = 0;
  double weightDecay = 0;
};

// Supports state f32 (compute f32, bf16 or f16) and f64 (compute f64).
// kInvalidArgument: any other pair of types.
Status adamW(const AdamWStep& step, const AdamWArrays& arrays, ThreadPool& pool);

// Sum of squares in f64, in an order that depends on `count` alone. Types f32 and f64.
double sumOfSquares(DType type, const void* data, int64_t count);

}  // namespace trireme::runtime
