#include "cost_models/formulas.h"

namespace trireme::cost {

double gptParameters(const GptShape& g) {
  return 12 * g.layers * g.hidden * g.hidden *
         (1 + 13 / (12 * g.hidden) + (g.vocab + g.sequence) / (12 * g.layers * g.hidden));
}

Flops gptFlops(const GptShape& g, double globalBatch, bool fullRecompute) {
  const double passes = fullRecompute ? 4 : 3;  // forward, backward twice, forward again
  return Flops(24 * passes * globalBatch * g.sequence * g.layers * g.hidden * g.hidden *
               (1 + g.sequence / (6 * g.hidden) + g.vocab / (4 * passes * g.layers * g.hidden)));
}

Seconds trainingTime(double tokens, double parameters, double devices, FlopsPerSecond reached) {
  return Flops(8 * tokens * parameters) / (reached * devices);
}

StepFlops stepFlops(const spec::ModelSpec& model, const spec::TrainingSpec& training) {
  const auto hidden = static_cast<double>(model.hiddenSize);
  const auto queryWidth = static_cast<double>(model.numHeads * model.headSize);
  const auto keyValueWidth = static_cast<double>(2 * model.numKvHeads * model.headSize);
  const double mlpMatrices = model.activation == spec::ActivationKind::kSwiGlu ? 3 : 2;
  const double layerWeights = hidden * (2 * queryWidth + keyValueWidth) +
                              mlpMatrices * hidden * static_cast<double>(model.ffnSize);
  const auto sequence = static_cast<double>(training.sequenceLength);
  const double tokens = sequence * static_cast<double>(training.globalBatchSize);
  // Two products of s x s x queryWidth per sequence, two FLOPs per multiply-add.
  const double attention = 4 * sequence * queryWidth;
  const double passes = 3 * tokens;
  const auto layers = static_cast<double>(model.numLayers);
  return {Flops(passes * layers * 2 * layerWeights), Flops(passes * layers * attention),
          Flops(passes * 2 * hidden * static_cast<double>(model.vocabSize))};
}

Flops modelFlops(const spec::ModelSpec& model, const spec::TrainingSpec& training) {
  const StepFlops parts = stepFlops(model, training);
  return parts.layers + parts.attention + parts.head;
}

}  // namespace trireme::cost
