// Megatron-LM's --pipeline-model-parallel-layout.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/base/status.h"
#include "ir/plan/plan.h"

namespace trireme::codegen {

// Layers of every virtual stage, in their order, of a layout such as "Et*3|(tt|)*29,ttL": E the
// embedding, t a layer, L the loss, "|" between virtual stages, (...)*n and x*n repeat, commas mean
// nothing. As megatron/core/transformer/pipeline_parallel_layer_layout.py reads it, without m.
//
// kInvalidArgument: other characters, E not first or L not last, or not `numLayers` layers.
Result<std::vector<int64_t>> parseLayout(const std::string& layout, int64_t numLayers);

// How Megatron-LM divides layers without a layout.
struct StageSplit {
  int64_t numLayers = 1, pp = 1, virtualStages = 1;
  std::optional<int64_t> first, last;  // layers of the first and the last stage, all its chunks
  bool countsEmbedding = false, countsLoss = false;  // each as one layer
};

// Layers of every virtual stage, in their order, as get_num_layers_to_build() of
// megatron/core/transformer/transformer_block.py has them: the layers, with those that are
// counted, in equal parts, of which the first and last lose what was counted; or `first` and
// `last` as given, each in equal chunks, and the rest in equal parts.
//
// kInvalidArgument, to follow the flag's name: what Megatron-LM asserts does not hold.
Result<std::vector<int64_t>> splitLayers(const StageSplit& split);

// The same as a plan's layers: chunk c of stage s is virtual stage c * pp + s. Requires that pp
// divides the number of counts.
std::vector<std::vector<plan::LayerRange>> layersOf(const std::vector<int64_t>& counts, int64_t pp);

}  // namespace trireme::codegen
