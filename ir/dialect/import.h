// From ops to ir/graph. Internal to ir/dialect: verifiers and parseModelGraph() call it.
#pragma once
#include "ir/base/status.h"
#include "ir/dialect/dialect.h"
#include "ir/graph/graph.h"

namespace trireme::dialect {

// The forward of a block whose ops are verified. kInvalidArgument: (M4), (M5), (G1) to (G5).
Result<graph::Block> importBlock(BlockOp op);

// The graph, without backward, of a model whose blocks and calls are verified.
// kInvalidArgument: (M5), (M6), (G6), (G7).
Result<graph::ModelGraph> importModel(ModelOp op);

}  // namespace trireme::dialect
