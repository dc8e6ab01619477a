#include <algorithm>

#include "ir/graph/graph.h"

namespace trireme::graph {
namespace {

// Walks the forward ops in reverse and applies each op's rule.
class Differentiator {
 public:
  Differentiator(Block& block, double lossScale)
      : block_(block), lossScale_(lossScale), gradients_(block.tensors.size(), -1) {}

  void run();

 private:
  TensorId addTensor(Tensor tensor);
  TensorId gradientLike(TensorId forward);
  TensorId parameterGradient(TensorId parameter);
  void emit(OpKind kind, const OpAttributes& attributes, std::vector<TensorId> inputs,
            std::vector<TensorId> outputs);
  // Adds one more term to the gradient of `forward`.
  void contribute(TensorId forward, TensorId gradient);
  void differentiate(const Op& op);
  void differentiateNorm(const Op& op, TensorId dy);
  void differentiateMatmul(const Op& op, TensorId dy);
  void differentiateUnary(const Op& op, OpKind gradKind, bool readsInput, TensorId dy);
  void differentiateLoss(const Op& op);
  const Op& producer(TensorId tensor) const;

  Block& block_;
  double lossScale_;
  std::vector<TensorId> gradients_;
};

TensorId Differentiator::addTensor(Tensor tensor) {
  block_.tensors.push_back(std::move(tensor));
  gradients_.push_back(-1);
  return static_cast<TensorId>(block_.tensors.size()) - 1;
}

TensorId Differentiator::gradientLike(TensorId forward) {
  Tensor t = block_.tensors[static_cast<size_t>(forward)];
  t.name = "d." + t.name;
  return addTensor(std::move(t));
}

TensorId Differentiator::parameterGradient(TensorId parameter) {
  Tensor t = block_.tensors[static_cast<size_t>(parameter)];
  t.name = "d." + t.name;
  t.kind = TensorKind::kParameterGradient;
  t.element = Element::kState;
  return addTensor(std::move(t));
}

void Differentiator::emit(OpKind kind, const OpAttributes& attributes, std::vector<TensorId> inputs,
                          std::vector<TensorId> outputs) {
  block_.backward.push_back({kind, attributes, std::move(inputs), std::move(outputs)});
}

void Differentiator::contribute(TensorId forward, TensorId gradient) {
  TensorId& slot = gradients_[static_cast<size_t>(forward)];
  if (slot < 0) {
    slot = gradient;
    return;
  }
  const TensorId before = slot;
  const TensorId sum = gradientLike(forward);
  gradients_[static_cast<size_t>(forward)] = sum;
  emit(OpKind::kAdd, {}, {before, gradient}, {sum});
}

const Op& Differentiator::producer(TensorId tensor) const {
  for (const Op& op : block_.forward)
    if (std::find(op.outputs.begin(), op.outputs.end(), tensor) != op.outputs.end()) return op;
  checkFailed("every differentiated tensor has a producer", __FILE__, __LINE__);
}

void Differentiator::differentiateNorm(const Op& op, TensorId dy) {
  const bool layerNorm = op.kind == OpKind::kLayerNorm;
  const TensorId x = op.inputs[0];
  const TensorId dx = gradientLike(x);
  std::vector<TensorId> inputs = {x, op.inputs[1]};
  inputs.insert(inputs.end(), op.outputs.begin() + 1, op.outputs.end());  // statistics
  inputs.push_back(dy);
  std::vector<TensorId> outputs = {dx};
  for (size_t i = 1; i < op.inputs.size(); ++i) outputs.push_back(parameterGradient(op.inputs[i]));
  emit(layerNorm ? OpKind::kLayerNormGrad : OpKind::kRmsNormGrad, op.attributes, inputs, outputs);
  contribute(x, dx);
}

void Differentiator::differentiateMatmul(const Op& op, TensorId dy) {
  const TensorId x = op.inputs[0], w = op.inputs[1];
  const TensorId dx = gradientLike(x);
  emit(OpKind::kMatmulGradInput, op.attributes, {dy, w}, {dx});
  emit(OpKind::kMatmulGradWeight, op.attributes, {dy, x}, {parameterGradient(w)});
  contribute(x, dx);
}

void Differentiator::differentiateUnary(const Op& op, OpKind gradKind, bool readsInput,
                                        TensorId dy) {
  const TensorId x = op.inputs[0];
  const TensorId dx = gradientLike(x);
  emit(gradKind, op.attributes,
       readsInput ? std::vector<TensorId>{x, dy} : std::vector<TensorId>{dy}, {dx});
  contribute(x, dx);
}

// The loss is the root: its gradient with respect to the logits comes in one op.
void Differentiator::differentiateLoss(const Op& op) {
  const Op& target = producer(op.inputs[0]);
  const TensorId logits = target.inputs[0], max = target.inputs[1], labels = target.inputs[2];
  const TensorId dLogits = gradientLike(logits);
  OpAttributes attributes = target.attributes;
  attributes.scale = lossScale_;
  emit(OpKind::kLossGrad, attributes, {logits, max, op.inputs[1], labels}, {dLogits});
  contribute(logits, dLogits);
}

void Differentiator::differentiate(const Op& op) {
  if (op.kind == OpKind::kTokenLoss) return differentiateLoss(op);
  const TensorId dy = gradients_[static_cast<size_t>(op.outputs[0])];
  if (dy < 0) return;  // kLossMax, kLossTarget, kLossSumExp: covered by kLossGrad
  switch (op.kind) {
    case OpKind::kEmbedding:
      return emit(OpKind::kEmbeddingGrad, op.attributes, {op.inputs[0], dy},
                  {parameterGradient(op.inputs[1])});
    case OpKind::kAddPosition:
      emit(OpKind::kPositionGrad, op.attributes, {dy}, {parameterGradient(op.inputs[1])});
      return contribute(op.inputs[0], dy);
    case OpKind::kBiasAdd:
      emit(OpKind::kBiasGrad, op.attributes, {dy}, {parameterGradient(op.inputs[1])});
      return contribute(op.inputs[0], dy);
    case OpKind::kAdd:
      contribute(op.inputs[0], dy);
      return contribute(op.inputs[1], dy);
    case OpKind::kLayerNorm:
    case OpKind::kRmsNorm:
      return differentiateNorm(op, dy);
    case OpKind::kMatmul:
      return differentiateMatmul(op, dy);
    case OpKind::kDropout:
      return differentiateUnary(op, OpKind::kDropout, false, dy);
    case OpKind::kGelu:
      return differentiateUnary(op, OpKind::kGeluGrad, true, dy);
    case OpKind::kSwiGlu:
      return differentiateUnary(op, OpKind::kSwiGluGrad, true, dy);
    case OpKind::kRotary:
      return differentiateUnary(op, OpKind::kRotaryGrad, false, dy);
    case OpKind::kAttention: {
      const TensorId dx = gradientLike(op.inputs[0]);
      emit(OpKind::kAttentionGrad, op.attributes, {op.inputs[0], op.outputs[0], op.outputs[1], dy},
           {dx});
      return contribute(op.inputs[0], dx);
    }
    default:
      checkFailed("the op has a derivative", __FILE__, __LINE__);
  }
}

void Differentiator::run() {
  if (block_.output >= 0) {
    block_.outputGrad = gradientLike(block_.output);
    contribute(block_.output, block_.outputGrad);
  }
  const std::vector<Op> forward = block_.forward;
  for (auto op = forward.rbegin(); op != forward.rend(); ++op) differentiate(*op);
  if (block_.input >= 0) block_.inputGrad = gradients_[static_cast<size_t>(block_.input)];
}

}  // namespace

void deriveBackward(ModelGraph& graph) {
  const double tokens =
      static_cast<double>(graph.globalBatchSize) * static_cast<double>(graph.residual()[0].size);
  for (Block* block : {&graph.embedding, &graph.layer, &graph.head})
    Differentiator(*block, 1.0 / tokens).run();
}

}  // namespace trireme::graph
