// What the three kinds of block cost one rank, and the lower bounds that follow for any plan.
#pragma once
#include <cstdint>
#include <memory>

#include "cost_models/described_blocks.h"
#include "cost_models/once_times.h"
#include "cost_models/pipeline.h"
#include "cost_models/topology.h"
#include "ir/base/status.h"
#include "ir/graph/graph.h"
#include "ir/plan/plan.h"
#include "planner/query.h"
#include "planner/space/space.h"

namespace trireme::planner {

// Alignment of places in the arena, several of them per layer: the activations of layers may be so
// much less than was read off.
inline constexpr Bytes kAlignmentSlack(4096);

// A pass of one microbatch: compute and the collectives of its tensor-parallel group.
struct PassTimes {
  Seconds forward, backward;
  Seconds weights;  // where a plan splits the backward, which is without them
  Seconds total() const { return forward + backward + weights; }
};

// Elements on one rank of a layer's matrices: those that its tensor-parallel group divides, and
// others. Each kind is reduced, and gathered, in a bucket of its own.
struct LayerMatrices {
  // Each begins at a multiple of so many, and so does every member's share of a layer.
  static constexpr int64_t kAlignment = 16;
  int64_t split = 0, whole = 0;
  double all() const { return static_cast<double>(split + whole); }
  int64_t numBuckets() const { return (split > 0 ? 1 : 0) + (whole > 0 ? 1 : 0); }
};

// Read off the bodies of a small plan with the same tp, cp, microbatch, recompute, sequence
// parallelism and overlap over tp, so that they are what the estimate of any other plan is made of.
// For a stack with a description they are those of cost::describeBlocks.
struct BlockCosts {
  PassTimes layer, embedding, head;
  Bytes border;          // residual stream that goes to the next stage, without scatter-gather
  Seconds borderGather;  // of one border that came scattered
  // Parameters on one rank.
  double layerElements = 0, embeddingElements = 0, headElements = 0;
  double tiedElements = 0;  // of the head, which are also the embedding's
  // Matrices of a layer and of an untied head, whose gradients the last backward may reduce.
  LayerMatrices layerMatrices;
  double headMatrixElements = 0;
  // Flat runs that are reduced and stepped one by one: first, inner, last stage.
  int64_t firstBuckets = 0, innerBuckets = 0, lastBuckets = 0;
  Bytes squares;  // summed over the model for the gradient norm
  // Activations of one microbatch in flight, lower bounds.
  Bytes layerActivations, chunkActivations, headActivations;
  // Scratch, library workspace and what else does not depend on layers: first, inner, last stage.
  Bytes firstScratch, innerScratch, lastScratch;
  std::shared_ptr<const cost::DescribedBlocks> described;  // of a stack with a description
  PassTimes splitLayer;  // of such a stack, where a plan splits the backward
};

// How ranks lie over the tiers, as far as block costs depend on it: ranks in a block of each tier
// but the last, which holds all; or all of them, if they are fewer.
std::vector<int64_t> innerBlocks(const Query& query, const cost::Ranks& ranks);

// Costs for plans like `plan` whose ranks lie over the tiers as its own. With `single` (plan.pp ==
// 1) the embedding includes the head. `similar`: costs for plans that differ in recomputation at
// most, if there are any, which saves most of the work where the stack has a description. `graphs`:
// of the query's model, for several calls. Errors: those of cost::estimate.
Result<BlockCosts> probeBlocks(const Query& query, const plan::Plan& plan,
                               const BlockCosts* similar = nullptr,
                               graph::Graphs* graphs = nullptr);

// What `blocks` are for a plan on a cluster that differs in nothing but the links among cp ranks.
// For stacks with a description.
BlockCosts withContextLinks(const Query& query, const plan::Plan& plan, const BlockCosts& blocks);

struct PlanBound {
  Seconds time;  // cost::estimate of the plan is at least this; may be 0 if the memory is too much
  Bytes memory;  // of the fullest rank, at least
};

// Admissible: what the estimate adds is left out (padding, alignment, sums of norm gradients over
// tp), what remains is computed by the same functions (cost::pipelineTime, collectives). For a
// stack with a description it is the estimate.
PlanBound boundOf(const Query& query, const plan::Plan& plan, const BlockCosts& blocks);

// Links of the groups that reduce and gather once per step.
struct StepLinks {
  cost::Levels data, norms, tables;
};
StepLinks stepLinksOf(const Query& query, const plan::Plan& plan);

// Of a plan of Trireme's own programs, what that is made of: one stage, each part at least. Of
// plan.layers it reads plan.layers[rank] alone, and that they are as many as stages.
struct StageBound {
  cost::StageTimes times;
  cost::OnceTimes once;  // step_bound.cpp
};
// `links`: of the plan, whatever its layers.
StageBound stageBoundOf(const Query& query, const plan::Plan& plan, const BlockCosts& blocks,
                        size_t rank, const StepLinks& links);
// Its times alone.
cost::StageTimes stageTimesOf(const plan::Plan& plan, const BlockCosts& blocks, size_t rank);
// And `once` at least, however many layers more the stage has and on whatever chunks.
cost::OnceTimes leastOnceOf(const Query& query, const plan::Plan& plan, const BlockCosts& blocks,
                            size_t rank, const StepLinks& links);
// The pipeline of such a plan but for the stages.
cost::Pipeline pipelineOf(const Query& query, const plan::Plan& plan, const BlockCosts& blocks);

// Every plan of the group has a rank that needs at least this: one with ceil(layers / pp) layers,
// of which one microbatch is alive, its state shared as widely as the stack can.
Bytes leastMemory(const Query& query, const Group& group, const BlockCosts& blocks);
// With leastReserve() at hand.
Bytes leastMemory(const Query& query, const Group& group, const BlockCosts& blocks, Bytes reserve);

// The same, and no more than that, by the blocks of a group whose microbatches are one sample and
// that has the backward whole: activations are as many times as large. For Trireme's own programs.
Bytes leastMemoryBySample(const Query& query, const Group& group, const BlockCosts& ofSample,
                          Bytes reserve);

// The same of a plan whose layers are not cut yet, its state shared as the plan says.
Bytes leastMemory(const Query& query, const plan::Plan& plan, const BlockCosts& blocks);

// Whether the ranks can hold the layers between them, each with its share of the state and the
// microbatches that its schedule keeps in flight. False: no cut of the plan fits. True says little.
// For stacks with a description; recomputation, if full, is of all layers.
bool mayHoldLayers(const Query& query, const plan::Plan& plan, const BlockCosts& blocks);
// The same of cuts with any numbers of layers on the chunks of a stage, of an interleaved plan.
bool mayHoldUnevenly(const Query& query, const plan::Plan& plan, const BlockCosts& blocks);

// What a rank needs beside the plan's tensors, whatever its layers, at least.
Bytes leastReserve(const Query& query, const plan::Plan& plan);
// Of any plan of the group. It depends on its degrees, overlap and whether it splits the backward.
Bytes leastReserve(const Query& query, const Group& group);

// Bytes of one rank with `elements` parameters: weights, gradients and optimizer state, of which
// the plan may have others hold a part.
Bytes stateBytes(const Query& query, double elements, const plan::Plan& plan);

}  // namespace trireme::planner
