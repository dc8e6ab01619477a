// Small real programs, built straight from the order of each pipeline rank: an embedding, layers of
// two matrices, a head and the loss, with every convention of compiled programs (streams, events
// per slot, tags, tensor-parallel sums, data-parallel reduction). Independent of ir/expand.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ir/program/program.h"

namespace trireme::testing {

struct PipelineShape {
  int32_t tp = 1, pp = 1, dp = 1, virtualStages = 1;
  int32_t layersPerChunk = 1;
  int32_t numMicrobatches = 1;
  bool shardedState = false;
};

// A pass of one chunk; order[rank] lists those of a pipeline rank.
struct Pass {
  program::Direction direction = program::Direction::kForward;
  int32_t chunk = 0;
  int32_t microbatch = 0;
};
using Order = std::vector<std::vector<Pass>>;

// Written down from their definitions, not by the production generators.
Order gpipeOrder(int32_t pp, int32_t numMicrobatches);
Order oneForwardOneBackwardOrder(int32_t pp, int32_t numMicrobatches);
Order interleavedOrder(int32_t pp, int32_t virtualStages, int32_t numMicrobatches);

program::Program buildPipeline(const PipelineShape& shape, const Order& order);
// 1F1B or, with several virtual stages, interleaved.
program::Program buildPipeline(const PipelineShape& shape);

}  // namespace trireme::testing
