// What model to train: every number that shapes the computation, none that a plan may choose.
#pragma once
#include <cstdint>
#include <string>

#include "ir/base/rope.h"

namespace trireme::spec {

enum class ModelFamily : uint8_t { kGpt, kLlama };
enum class NormKind : uint8_t { kLayerNorm, kRmsNorm };
enum class ActivationKind : uint8_t { kGeluTanh, kSwiGlu };
enum class PositionKind : uint8_t { kLearned, kRotary };

// A decoder-only transformer with pre-normalisation.
struct ModelSpec {
  std::string name;
  ModelFamily family = ModelFamily::kGpt;
  int64_t numLayers = 0;
  int64_t hiddenSize = 0;
  int64_t numHeads = 0;
  int64_t numKvHeads = 0;  // == numHeads without grouped-query attention
  int64_t headSize = 0;    // usually hiddenSize / numHeads
  int64_t ffnSize = 0;
  int64_t vocabSize = 0;    // logical rows, before padding
  int64_t maxSequence = 0;  // rows of the learned positions; the longest legal sequence
  NormKind norm = NormKind::kLayerNorm;
  double normEpsilon = 1e-5;
  ActivationKind activation = ActivationKind::kGeluTanh;
  PositionKind position = PositionKind::kLearned;
  double ropeTheta = 10000.0;
  RopeScaling ropeScaling;  // of the rotary frequencies
  bool tiedEmbeddings = true;
  bool qkvBias = true;     // GPT-2, Qwen2
  bool linearBias = true;  // biases of all other matrices (GPT-2)
  double initStd = 0.02;   // matrices before a residual: initStd / sqrt(2 numLayers)

  // Exact number of trainable parameters, unpadded vocabulary; tied weights count once.
  int64_t numParameters() const;
  bool operator==(const ModelSpec&) const = default;
};

}  // namespace trireme::spec
