#include "ir/program/workspace.h"

namespace trireme::program {
namespace {

using Operands = std::vector<OperandType>;

constexpr int64_t kAlignment = 256;  // of what a GPU's kernels get of a workspace

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

int64_t attentionWorkspace(const SegmentOp& op, const Operands& operands, bool backward) {
  const OperandType& qkv = inputOf(op, operands, 0);
  const int64_t onHost =
      kMaxKernelThreads *
      attentionScratchBytes({qkv.dims[0], op.attributes.headSize, byteSize(qkv.dtype), backward});
  return backward ? std::max(onHost, attentionDeltaBytes(inputOf(op, operands, 2)) + kAlignment)
                  : onHost;
}

}  // namespace

// The arrays of Forward in attention.cpp and of Backward in attention_grad.cpp.
int64_t attentionScratchBytes(const AttentionScratchShape& shape) {
  const int64_t size = std::min(AttentionBlocking::kRows, shape.sequence);
  const int64_t sumBytes = std::max<int64_t>(shape.elementBytes, 4);
  const int64_t longest = std::max(size, shape.headSize);
  const int64_t squares =
      roundUp(size * size * sumBytes, 64) + roundUp(size * size * shape.elementBytes, 64);
  const int64_t rows = shape.backward ? shape.sequence : size;
  const int64_t outputs = roundUp(rows * shape.headSize * sumBytes, 64);
  const int64_t perRow = 2 * roundUp(rows * sumBytes, 64) + roundUp(size * 4, 64);
  return 64 + (shape.backward ? 2 : 1) * squares + (shape.backward ? 3 : 1) * outputs + perRow +
         gemmScratchBytes({longest, longest, longest, shape.elementBytes, false});
}

int64_t attentionDeltaBytes(const OperandType& logSums) {
  return logSums.elements() * static_cast<int64_t>(sizeof(float));
}

int64_t kernelWorkspaceBytes(const SegmentOp& op, const Operands& operands) {
  switch (op.kind) {
    case OpKind::kMatmul:
    case OpKind::kMatmulGradInput:
    case OpKind::kMatmulGradWeight:
      return parallelGemmScratchBytes(matmulShape(op, operands));
    case OpKind::kAttention:
      return attentionWorkspace(op, operands, false);
    case OpKind::kAttentionGrad:
      return attentionWorkspace(op, operands, true);
    default:
      return 0;
  }
}

}  // namespace trireme::program
