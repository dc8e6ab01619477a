// Graphs for the tests of the textual form.
#pragma once
#include <string>

#include "ir/graph/graph.h"

namespace trireme::dialect {

inline spec::ModelSpec tinyGpt() {
  return {.name = "tiny-gpt",
          .numLayers = 3,
          .hiddenSize = 8,
          .numHeads = 2,
          .numKvHeads = 2,
          .headSize = 4,
          .ffnSize = 16,
          .vocabSize = 10,
          .maxSequence = 6};
}

inline spec::ModelSpec tinyLlama() {
  spec::ModelSpec model = tinyGpt();
  model.name = "tiny-llama";
  model.family = spec::ModelFamily::kLlama;
  model.numKvHeads = 1;
  model.norm = spec::NormKind::kRmsNorm;
  model.activation = spec::ActivationKind::kSwiGlu;
  model.position = spec::PositionKind::kRotary;
  model.tiedEmbeddings = model.qkvBias = model.linearBias = false;
  return model;
}

inline spec::TrainingSpec training(spec::Precision precision, double dropout,
                                   int64_t sequenceLength = 4) {
  spec::TrainingSpec spec;
  spec.precision = precision;
  spec.sequenceLength = sequenceLength;
  spec.globalBatchSize = 6;
  spec.embeddingDropout = dropout;
  spec.attentionDropout = dropout / 3;
  spec.residualDropout = dropout / 2;
  return spec;
}

}  // namespace trireme::dialect
