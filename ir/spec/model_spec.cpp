#include "ir/spec/model_spec.h"

namespace trireme::spec {

int64_t ModelSpec::numParameters() const {
  // 128 bits, so that sizes that verifyModel would refuse do not overflow on the way.
  const __int128 hidden = hiddenSize;
  const __int128 query = static_cast<__int128>(numHeads) * headSize;
  const __int128 queryKeyValue = query + 2 * static_cast<__int128>(numKvHeads) * headSize;
  const __int128 ffn = ffnSize;
  const int ffnInputs = activation == ActivationKind::kSwiGlu ? 2 : 1;

  __int128 layer = hidden * queryKeyValue + query * hidden + (ffnInputs + 1) * hidden * ffn;
  if (qkvBias) layer += queryKeyValue;
  if (linearBias) layer += hidden + ffnInputs * ffn + hidden;
  const __int128 normSize = norm == NormKind::kLayerNorm ? 2 * hidden : hidden;
  layer += 2 * normSize;

  __int128 total = numLayers * layer + normSize;
  total += (tiedEmbeddings ? 1 : 2) * static_cast<__int128>(vocabSize) * hidden;
  if (position == PositionKind::kLearned) total += static_cast<__int128>(maxSequence) * hidden;
  return static_cast<int64_t>(total);
}

}  // namespace trireme::spec
