// Ops of a segment that cuBLASLt does as one: a matrix product, and as its epilogue the ops that
// follow it.
//
//   matmul, bias_add               y = x w^T + b
//   matmul, bias_add, gelu         z = gelu(y); y is written as well, if somebody reads it later
//   matmul_grad_input, gelu_grad   du = gelu'(u) (dy w)
//
// Sums stay in f32 until the end: the product is not rounded before the bias is added.
//
// A chain runs where its product stands. Nothing else may read what it does not write any more, and
// what it writes earlier may be nobody's memory meanwhile. Of bf16 and f32 only.
#pragma once
#include <optional>
#include <vector>

#include "ir/program/bundle.h"
#include "runtime/device/cuda/matmul.h"

namespace trireme::runtime::cuda {

// What a segment does, in order: an op of the library, or a generated kernel.
struct SegmentStep {
  const program::KernelCall* generated = nullptr;  // null: `op`
  const program::SegmentOp* op = nullptr;
};
// `compiled` null, or without calls: all ops by the library. Both outlive the result.
std::vector<SegmentStep> stepsOf(const program::Segment& segment,
                                 const program::CompiledSegment* compiled);

struct MatmulChain {
  std::vector<size_t> steps;  // the first is the product
  MatmulEpilogue epilogue;
};

// The longest chain that begins with step `first`, as far as operands say; none: that is no product
// or has no epilogue.
std::optional<MatmulChain> chainFrom(const program::Segment& segment,
                                     const std::vector<SegmentStep>& steps, size_t first);

// Whether memory allows it, for a call with these addresses: what the chain writes overlaps neither
// what it reads nor anything that the steps between its ops touch, and these leave alone what it
// reads.
bool isApart(const MatmulChain& chain, const program::Segment& segment,
             const std::vector<SegmentStep>& steps, const std::vector<void*>& addresses);

}  // namespace trireme::runtime::cuda
