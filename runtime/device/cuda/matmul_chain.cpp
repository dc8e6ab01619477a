#include "runtime/device/cuda/matmul_chain.h"

#include <algorithm>

namespace trireme::runtime::cuda {
namespace {

using program::OpKind;
using program::Segment;
using program::SegmentOp;

bool contains(const std::vector<int32_t>& list, int32_t operand) {
  return std::find(list.begin(), list.end(), operand) != list.end();
}

// Which a generated kernel reads or writes: it does not say which of the two.
bool touches(const SegmentStep& step, int32_t operand) {
  if (step.generated != nullptr) return contains(step.generated->operands, operand);
  return contains(step.op->inputs, operand) || contains(step.op->outputs, operand);
}

class Finder {
 public:
  Finder(const Segment& segment, const std::vector<SegmentStep>& steps)
      : segment_(segment), steps_(steps) {}

  std::optional<MatmulChain> find(size_t first) {
    const SegmentOp* product = steps_[first].op;
    if (product == nullptr || !hasType(product->outputs[0])) return std::nullopt;
    MatmulChain chain{{first}, {}};
    if (product->kind == OpKind::kMatmul && extend(chain, OpKind::kBiasAdd, 0)) {
      const SegmentOp& bias = *steps_[chain.steps.back()].op;
      chain.epilogue = {EpilogueKind::kBias, bias.inputs[1], -1, bias.outputs[0]};
      const int32_t sum = bias.outputs[0];
      if (const auto gelu = next(chain, OpKind::kGelu, 0);
          gelu && sum != steps_[*gelu].op->outputs[0]) {
        const bool isKept = !isOnlyBetween(sum, chain.steps.back(), *gelu);
        chain.steps.push_back(*gelu);
        chain.epilogue = {EpilogueKind::kGelu, bias.inputs[1], isKept ? sum : -1,
                          steps_[*gelu].op->outputs[0]};
      }
      return chain;
    }
    if (product->kind == OpKind::kMatmulGradInput && extend(chain, OpKind::kGeluGrad, 1)) {
      const SegmentOp& gelu = *steps_[chain.steps.back()].op;
      chain.epilogue = {EpilogueKind::kGeluGrad, -1, gelu.inputs[0], gelu.outputs[0]};
      return chain;
    }
    return std::nullopt;
  }

 private:
  bool hasType(int32_t operand) const {
    const DType type = segment_.operands[static_cast<size_t>(operand)].dtype;
    return type == DType::kBf16 || type == DType::kF16 || type == DType::kF32;
  }

  // The first later step that touches the chain's last result, if it is such an op on it.
  std::optional<size_t> next(const MatmulChain& chain, OpKind kind, size_t input) const {
    const int32_t result = steps_[chain.steps.back()].op->outputs[0];
    for (size_t i = chain.steps.back() + 1; i < steps_.size(); ++i) {
      if (!touches(steps_[i], result)) continue;
      const SegmentOp* op = steps_[i].op;
      const bool fits = op != nullptr && op->kind == kind && op->inputs[input] == result;
      return fits ? std::optional(i) : std::nullopt;
    }
    return std::nullopt;
  }

  // Whether nobody but these two touches it, within the segment and after it.
  bool isOnlyBetween(int32_t operand, size_t writer, size_t reader) const {
    if (!segment_.temporary[static_cast<size_t>(operand)]) return false;
    for (size_t i = 0; i < steps_.size(); ++i)
      if (i != writer && i != reader && touches(steps_[i], operand)) return false;
    return true;
  }

  bool extend(MatmulChain& chain, OpKind kind, size_t input) const {
    const auto found = next(chain, kind, input);
    if (!found) return false;
    const int32_t result = steps_[chain.steps.back()].op->outputs[0];
    // Written over, it is as good as gone.
    if (steps_[*found].op->outputs[0] != result &&
        !isOnlyBetween(result, chain.steps.back(), *found))
      return false;
    chain.steps.push_back(*found);
    return true;
  }

  const Segment& segment_;
  const std::vector<SegmentStep>& steps_;
};

}  // namespace

std::optional<MatmulChain> chainFrom(const Segment& segment, const std::vector<SegmentStep>& steps,
                                     size_t first) {
  return Finder(segment, steps).find(first);
}

MergedSteps mergedSteps(const MatmulChain& chain, const std::vector<SegmentStep>& steps) {
  const MatmulEpilogue& epilogue = chain.epilogue;
  MergedSteps merged{chain.steps, steps[chain.steps.front()].op->inputs, {epilogue.output}};
  if (epilogue.bias >= 0) merged.read.push_back(epilogue.bias);
  if (epilogue.aux >= 0)
    (epilogue.kind == EpilogueKind::kGelu ? merged.written : merged.read).push_back(epilogue.aux);
  return merged;
}

}  // namespace trireme::runtime::cuda
