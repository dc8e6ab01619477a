// Models that are small enough to check by hand.
#pragma once
#include <cstdint>

#include "ir/spec/model_spec.h"

namespace trireme::small {

inline spec::ModelSpec gpt(int64_t layers = 8, int64_t hidden = 64, int64_t heads = 4) {
  spec::ModelSpec model;
  model.name = "small-gpt";
  model.numLayers = layers;
  model.hiddenSize = hidden;
  model.numHeads = model.numKvHeads = heads;
  model.headSize = hidden / heads;
  model.ffnSize = 4 * hidden;
  model.vocabSize = 512;
  model.maxSequence = 128;
  return model;
}

// A GPT of the same sizes with the ops and the biases of Llama, and tables of its own.
inline spec::ModelSpec asLlama(spec::ModelSpec model) {
  model.name = "small-llama";
  model.family = spec::ModelFamily::kLlama;
  model.norm = spec::NormKind::kRmsNorm;
  model.activation = spec::ActivationKind::kSwiGlu;
  model.position = spec::PositionKind::kRotary;
  model.tiedEmbeddings = model.qkvBias = model.linearBias = false;
  return model;
}

}  // namespace trireme::small
