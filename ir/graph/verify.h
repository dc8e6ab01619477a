// The rules of a model graph, for graphs that were not built from a spec.
#pragma once
#include "ir/base/status.h"
#include "ir/graph/graph.h"

namespace trireme::graph {

// What BlockBuilder lets pass and a block must nevertheless obey. Looks at the forward only.
// - (G1) probabilities are in [0, 1), epsilons at least 0, rotary bases more than 0, all finite;
// the
//   scaling of rotary positions makes sense (ir/base/rope.h) and other ops have none; no op is told
//   that its dims are sharded, nor the loss its scale;
// - (G2) the names of the parameters are distinct; a layer's have one "{}", others' none;
// - (G3) a parameter has 1 <= logical size <= size in every dim, and a deviation, at least 0, if
// and
//   only if it is drawn from a normal distribution;
// - (G4) every parameter is read by one op; the input and what an op makes first are read or leave
//   the block, so that each has a gradient;
// - (G5) a block ends in an activation, or else in the one loss, log(loss_sum_exp) -
//   loss_target over the same logits, maximum and vocabulary; only there are loss ops.
// kInvalidArgument: the broken rule, and where.
Status verifyBlock(const Block& block);

// verifyBlock() of every block, and what holds between them:
// - (G6) one residual stream [sequence, batch, hidden] goes through all blocks, from tokens to
// labels
//   [sequence, batch] of its size; layers and global batch are at least 1;
// - (G7) a name that two blocks use is a tied table of embedding and head, and the same there.
Status verifyForward(const ModelGraph& graph);

}  // namespace trireme::graph
