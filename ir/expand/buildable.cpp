#include "ir/expand/buildable.h"

#include <fmt/format.h>

#include "ir/spec/load.h"

namespace trireme::expand {

using plan::StateSharding;

Status checkBuildable(const plan::Plan& p) {
  if (p.cp != 1)  // (E1)
    return invalidArgument(
        fmt::format("(E1) cp {}: context parallelism cannot be compiled yet; nearest: cp 1", p.cp));
  if (p.stateSharding != StateSharding::kNone && p.stateSharding != StateSharding::kOptimizer)
    return invalidArgument(  // (E2)
        fmt::format("(E2) state sharding {} cannot be compiled yet; nearest: optimizer",
                    plan::stateShardingName(p.stateSharding)));
  if (p.stateSharding == StateSharding::kOptimizer && p.dpReplicate != 1)  // (E3)
    return invalidArgument(
        fmt::format("(E3) state sharding optimizer with dp_replicate {} cannot be compiled yet; "
                    "nearest: dp_replicate 1 and dp_shard {}",
                    p.dpReplicate, p.dp()));
  if (p.recomputeLayers != 0)  // (E4)
    return invalidArgument(
        fmt::format("(E4) recompute_layers {}: recomputing some layers only cannot be compiled "
                    "yet; nearest: all of them (recompute_layers 0, or no --recompute-layers)",
                    p.recomputeLayers));
  const spec::Precision precision = p.training.precision;
  if (precision == spec::Precision::kFp8)  // (E5)
    return invalidArgument(fmt::format("(E5) precision {} cannot be compiled yet; nearest: bf16",
                                       spec::precisionName(precision)));
  for (size_t stage = 0; stage < p.layers.size(); ++stage)
    for (size_t chunk = 0; chunk < p.layers[stage].size(); ++chunk)
      if (p.layers[stage][chunk].count == 0)  // (E6)
        return invalidArgument(
            fmt::format("(E6) layers: stage {}, chunk {}: a virtual stage without layers cannot be "
                        "compiled yet; nearest: 1 layer",
                        stage, chunk));
  if (p.numMicrobatches() > kMostMicrobatches)  // (E7)
    return invalidArgument(fmt::format(
        "(E7) {} microbatches a step: programs have up to {}; nearest: "
        "global_batch_size {}",
        p.numMicrobatches(), kMostMicrobatches, kMostMicrobatches * p.microbatchSize * p.dp()));
  return {};
}

}  // namespace trireme::expand
