// Cross entropy's passes over the logits that run as one kernel (kernels/loss.cu), so that a
// token's logits are read from memory once, and then from the cache.
//
//   loss_max, loss_target, loss_sum_exp   where the vocabulary is whole
//   loss_target, loss_sum_exp             where it is split: the maximum is reduced before
//
// Results have the same bits.
#pragma once
#include <optional>
#include <vector>

#include "runtime/device/cuda/segment_steps.h"

namespace trireme::runtime::cuda {

// The ops outlive it.
struct LossChain {
  const program::SegmentOp* max = nullptr;  // null: not in it
  const program::SegmentOp* target = nullptr;
  const program::SegmentOp* sumExp = nullptr;
  MergedSteps merged;
};

// The longest that begins with step `first`, as far as operands say; none: that begins none.
std::optional<LossChain> lossChainFrom(const std::vector<SegmentStep>& steps, size_t first);

}  // namespace trireme::runtime::cuda
