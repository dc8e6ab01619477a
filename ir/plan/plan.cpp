#include "ir/plan/plan.h"

#include <fmt/compile.h>

#include <algorithm>

#include "ir/base/hash.h"

namespace trireme::plan {

std::string fingerprintText(const spec::ModelSpec& model) {
  // Naming every field makes the compiler refuse a new one that the fingerprint would miss. The
  // name is left out: it changes no computation.
  const auto& [name, family, numLayers, hiddenSize, numHeads, numKvHeads, headSize, ffnSize,
               vocabSize, maxSequence, norm, normEpsilon, activation, position, ropeTheta,
               ropeScaling, tiedEmbeddings, qkvBias, linearBias, initStd] = model;
  // Compiled, for every plan that is verified asks for it.
  std::string canonical = fmt::format(
      FMT_COMPILE("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}"),
      static_cast<int>(family), numLayers, hiddenSize, numHeads, numKvHeads, headSize, ffnSize,
      vocabSize, maxSequence, static_cast<int>(norm), normEpsilon, static_cast<int>(activation),
      static_cast<int>(position), ropeTheta, tiedEmbeddings, qkvBias, linearBias, initStd);
  // Models without it keep the fingerprint that they had before there was scaling.
  if (ropeScaling != RopeScaling{}) canonical += " " + ropeScalingText(ropeScaling);
  return canonical;
}

uint64_t fingerprintOf(const spec::ModelSpec& model) { return fnv1a(fingerprintText(model)); }

int64_t paddedVocab(const Plan& plan, const spec::ModelSpec& model) {
  const int64_t multiple = plan.vocabMultiple * plan.tp;
  return (model.vocabSize + multiple - 1) / multiple * multiple;
}

std::vector<std::vector<LayerRange>> evenLayers(int64_t numLayers, int64_t pp,
                                                int64_t virtualStages) {
  const int64_t numStages = pp * virtualStages;
  const int64_t numEmpty = std::max<int64_t>(numStages - numLayers, 0);
  TRIREME_CHECK(pp >= 1 && virtualStages >= 1 && numEmpty <= (pp > 1 ? 2 : 0));
  std::vector<std::vector<LayerRange>> layers(static_cast<size_t>(pp));
  LayerRange range;
  for (int64_t virtualStage = 0; virtualStage < numStages; ++virtualStage) {
    const bool isEmpty =
        (numEmpty > 0 && virtualStage + 1 == numStages) || (numEmpty > 1 && virtualStage == 0);
    range.count = numLayers / numStages + (virtualStage < numLayers % numStages ? 1 : 0);
    if (numEmpty > 0) range.count = isEmpty ? 0 : 1;
    layers[static_cast<size_t>(virtualStage % pp)].push_back(range);
    range.first += range.count;
  }
  return layers;
}

}  // namespace trireme::plan
