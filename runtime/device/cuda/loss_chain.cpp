#include "runtime/device/cuda/loss_chain.h"

#include <algorithm>

namespace trireme::runtime::cuda {
namespace {

using program::OpKind;
using program::SegmentOp;

const SegmentOp* opAt(const std::vector<SegmentStep>& steps, size_t i, OpKind kind) {
  const SegmentOp* op = steps[i].op;
  return op != nullptr && op->kind == kind ? op : nullptr;
}

// The first such op at or behind a step that is of these logits, of this maximum and of the same
// shard.
std::optional<size_t> find(const std::vector<SegmentStep>& steps, size_t from, OpKind kind,
                           const SegmentOp& first) {
  const int32_t logits = first.inputs[0];
  const int32_t max = first.kind == OpKind::kLossMax ? first.outputs[0] : first.inputs[1];
  for (size_t i = from; i < steps.size(); ++i) {
    const SegmentOp* op = opAt(steps, i, kind);
    if (op != nullptr && op->inputs[0] == logits && op->inputs[1] == max &&
        op->attributes == first.attributes)
      return i;
  }
  return std::nullopt;
}

}  // namespace

std::optional<LossChain> lossChainFrom(const std::vector<SegmentStep>& steps, size_t first) {
  LossChain chain;
  chain.max = opAt(steps, first, OpKind::kLossMax);
  if (chain.max == nullptr && opAt(steps, first, OpKind::kLossTarget) == nullptr &&
      opAt(steps, first, OpKind::kLossSumExp) == nullptr)
    return std::nullopt;
  const auto target = find(steps, first, OpKind::kLossTarget, *steps[first].op);
  const auto sumExp = find(steps, first, OpKind::kLossSumExp, *steps[first].op);
  if (!target || !sumExp) return std::nullopt;
  chain.target = steps[*target].op;
  chain.sumExp = steps[*sumExp].op;
  chain.merged = {{*target, *sumExp},
                  {chain.target->inputs[0], chain.target->inputs[2]},
                  {chain.target->outputs[0], chain.sumExp->outputs[0]}};
  const int32_t max = chain.target->inputs[1];
  if (chain.max != nullptr) chain.merged.steps.push_back(first);
  (chain.max != nullptr ? chain.merged.written : chain.merged.read).push_back(max);
  std::sort(chain.merged.steps.begin(), chain.merged.steps.end());
  return chain;
}

}  // namespace trireme::runtime::cuda
