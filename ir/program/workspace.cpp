#include "ir/program/workspace.h"

namespace trireme::program {
namespace {

using Operands = std::vector<OperandType>;

const OperandType& inputOf(const SegmentOp& op, const Operands& operands, size_t i) {
  return operands[static_cast<size_t>(op.inputs[i])];
}
const OperandType& outputOf(const SegmentOp& op, const Operands& operands, size_t i) {
  return operands[static_cast<size_t>(op.outputs[i])];
}

// m, n and k of the product that the op is; see runtime/kernels/matmul.cpp.
GemmShape matmulShape(const SegmentOp& op, const Operands& operands) {
  const OperandType& first = inputOf(op, operands, 0);
  const OperandType& product = outputOf(op, operands, 0);
  const int64_t elementBytes = byteSize(first.dtype);
  const bool staged = byteSize(product.dtype) < 4;
  if (op.kind == OpKind::kMatmulGradWeight) {
    const int64_t tokens = first.dims[0] * first.dims[1];
    const int64_t out = first.elements() / tokens;
    return {out, product.elements() / out, tokens, elementBytes, staged};
  }
  const int64_t tokens = first.dims[0] * first.dims[1];
  return {tokens, product.elements() / tokens, first.elements() / tokens, elementBytes, staged};
}

}  // namespace

int64_t hostWorkspaceBytes(const SegmentOp& op, const Operands& operands) {
  switch (op.kind) {
    case OpKind::kMatmul:
    case OpKind::kMatmulGradInput:
    case OpKind::kMatmulGradWeight:
      return parallelGemmScratchBytes(matmulShape(op, operands));
    default: return 0;
  }
}

}  // namespace trireme::program
