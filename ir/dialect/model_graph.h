// The model graph as text, and back. Needs no MLIR header.
#pragma once
#include <string>

#include "ir/base/status.h"
#include "ir/graph/graph.h"

namespace trireme::dialect {

// One `trireme.model`, with the forward of each block and the body that repeats the layer. Requires
// graph::verifyForward(graph).
std::string printModelGraph(const graph::ModelGraph& graph);

// The inverse: the graph whose text this is, with its backward, which is derived. `name` is that of
// the file, for messages.
// kInvalidArgument: with file, line and column; a rule of the dialect (D1) to (D4), (M1) to (M6) or
// of the graph (G1) to (G7) is broken, or the text is no module with one model.
Result<graph::ModelGraph> parseModelGraph(const std::string& text, const std::string& name);

}  // namespace trireme::dialect
