// Graphs for the tests of the textual form.
#pragma once
#include <string>

#include "ir/graph/graph.h"
#include "tests/support/small_model.h"

namespace trireme::dialect {

inline spec::ModelSpec tinyGpt() {
  spec::ModelSpec model = small::gpt(3, 8, 2);
  model.name = "tiny-gpt";
  model.ffnSize = 16;
  model.vocabSize = 10;
  model.maxSequence = 6;
  return model;
}

inline spec::ModelSpec tinyLlama() {
  spec::ModelSpec model = small::asLlama(tinyGpt());
  model.name = "tiny-llama";
  model.numKvHeads = 1;
  return model;
}

inline spec::ModelSpec scaledLlama() {
  spec::ModelSpec model = tinyLlama();
  model.ropeScaling = {RopeScalingKind::kLlama3, 8, 1, 4, 8192};
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
