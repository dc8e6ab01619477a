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

#include "runtime/device/cuda/matmul.h"
#include "runtime/device/cuda/segment_steps.h"

namespace trireme::runtime::cuda {

struct MatmulChain {
  std::vector<size_t> steps;  // the first is the product
  MatmulEpilogue epilogue;
};

// The longest chain that begins with step `first`, as far as operands say; none: that is no product
// or has no epilogue.
std::optional<MatmulChain> chainFrom(const program::Segment& segment,
                                     const std::vector<SegmentStep>& steps, size_t first);

// For isApart().
MergedSteps mergedSteps(const MatmulChain& chain, const std::vector<SegmentStep>& steps);

}  // namespace trireme::runtime::cuda
