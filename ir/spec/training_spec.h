// How to train: everything that changes the numbers but not where they are computed.
#pragma once
#include <cstdint>

#include "ir/base/dtype.h"

namespace trireme::spec {

// kBf16: bf16 compute and parameters, fp32 gradients and master weights.
// kFp16: the same in fp16, with loss scaling.
// kFp8:  as kBf16, but the linear layers multiply in fp8; attention and the head do not.
// Trireme's own programs are made in all but fp8, which is planned for other stacks.
enum class Precision : uint8_t { kFp64, kFp32, kBf16, kFp16, kFp8 };

// Of activations and parameters.
constexpr DType computeDType(Precision p) {
  switch (p) {
    case Precision::kFp64:
      return DType::kF64;
    case Precision::kFp32:
      return DType::kF32;
    case Precision::kFp16:
      return DType::kF16;
    case Precision::kBf16:
    case Precision::kFp8:
      return DType::kBf16;
  }
  return DType::kBf16;
}
// Gradients, master weights, optimizer state, norm statistics and losses.
constexpr DType stateDType(Precision p) {
  return p == Precision::kFp64 ? DType::kF64 : DType::kF32;
}

struct TrainingSpec {
  Precision precision = Precision::kFp32;
  uint64_t seed = 1234;
  int64_t sequenceLength = 0;   // tokens per sample
  int64_t globalBatchSize = 0;  // samples per step
  // Dropout probabilities in [0, 1).
  double embeddingDropout = 0.0;
  double attentionDropout = 0.0;
  double residualDropout = 0.0;
  // AdamW: p -= lr * (mhat / (sqrt(vhat) + epsilon) + weightDecay * p), Loshchilov & Hutter 2019.
  // Decay applies to matrices and embeddings, never to biases and norms.
  double learningRate = 3e-4;
  double minLearningRate = 0.0;  // the cosine ends here
  int64_t warmupSteps = 0;       // linear from 0: step i of the warm-up uses (i + 1) / warmupSteps
  int64_t decaySteps = 0;        // cosine over these steps after the warm-up; 0: constant
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weightDecay = 0.1;
  double clipNorm = 1.0;  // global L2 norm; 0: no clipping
  // fp32 only: on GPUs the factors of the linear layers' products are rounded to TF32 (10 bits of
  // mantissa), the sums are in fp32. Hosts multiply in fp32 all the same.
  bool tf32 = false;
  // fp16 only: the gradient of the loss is multiplied by a scale, which is halved when a gradient
  // of the step is not finite (that step is skipped) and doubled after a window of other steps.
  double initialLossScale = 65536;
  int64_t lossScaleWindow = 2000;  // steps
  double minLossScale = 1;

  // Learning rate of `step` (0-based).
  double learningRateAt(int64_t step) const;
  bool operator==(const TrainingSpec&) const = default;
};

// Of the products of the linear layers, on a device that can choose (a GPU).
constexpr MathFormat linearFormat(const TrainingSpec& training) {
  if (training.tf32) return MathFormat::kTf32;
  return training.precision == Precision::kFp8 ? MathFormat::kF8
                                               : *mathFormatOf(computeDType(training.precision));
}

}  // namespace trireme::spec
