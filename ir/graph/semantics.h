// What each op means, once: shapes, work, bytes, what it keeps for its backward, and its sharding.
#pragma once
#include <vector>

#include "ir/base/status.h"
#include "ir/base/units.h"
#include "ir/graph/graph.h"
#include "ir/program/op.h"

namespace trireme::graph {

// Types of the outputs from the (local or global) types of the inputs; also for accumulating ones.
// `state` is the state dtype (statistics, gradients of parameters).
// kInvalidArgument: number, rank, size or dtype of the inputs is wrong (says which and what was
// expected). Ops whose output size is not implied by the inputs (kPositionGrad, kEmbeddingGrad:
// rows of the table) take `rows` for it.
Result<std::vector<program::OperandType>> inferOutputs(
    OpKind kind, const OpAttributes& attributes, const std::vector<program::OperandType>& inputs,
    DType state, int64_t rows = 0);

// Labels of the outputs' dims from those of the inputs' dims.
// kInvalidArgument: a dim of an input is not the one that the op works on.
Result<std::vector<Labels>> inferLabels(OpKind kind, const std::vector<Labels>& inputs);

// The tensors that a forward op makes, but for their names.
// kInvalidArgument: as inferOutputs and inferLabels; the op is one of the backward; or an input is
// of another kind than the op reads there (a parameter, ids, an activation, a statistic).
Result<std::vector<Tensor>> inferTensors(OpKind kind, const OpAttributes& attributes,
                                         const std::vector<const Tensor*>& inputs);

bool isForward(OpKind kind);  // else an op of the backward

// Multiply-adds count as two. Elementwise work is counted as 0: it is bound by bytes.
// Causal attention counts the full s x s products, as model FLOPs are counted in the field.
Flops opFlops(const program::SegmentOp& op, const std::vector<program::OperandType>& operands);

// Bytes that the op must read and write at least once.
Bytes opBytes(const program::SegmentOp& op, const std::vector<program::OperandType>& operands);

bool isElementwise(OpKind kind);  // one output element from the same element of the inputs
// Compiled by codegen, which fuses neighbours: in a run of such ops, each row may go through all of
// them before the next row is read. The others are library kernels and run one at a time.
bool isGenerated(OpKind kind);
bool accumulates(OpKind kind, int output);  // "+=": the output is also read
// Recomputed in the backward under selective recomputation (the attention core).
bool isSelectivelyRecomputed(OpKind kind);

// The sharding rule. A label present in an input and absent from an output is contracted: if it is
// split over an axis, the result is partial over that axis, to be summed (for kLossMax: maximised).
// These labels of an op's operands must be whole:
bool mustBeWhole(OpKind kind, Label label);

}  // namespace trireme::graph
