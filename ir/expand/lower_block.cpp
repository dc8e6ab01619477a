#include "ir/expand/lower_block.h"

#include <algorithm>
#include <optional>

#include "ir/graph/semantics.h"

namespace trireme::expand {
namespace {

using graph::Block;
using graph::Label;
using graph::Op;
using graph::OpKind;
using graph::Tensor;
using graph::TensorId;
using graph::TensorKind;
using plan::MeshShape;
using plan::Sharding;

// What of the forward the backward needs: what is saved, and which ops run again. And what the
// weights pass needs of both.
struct SavePlan {
  std::vector<bool> saved;       // per tensor: by the forward
  std::vector<bool> kept;        // per tensor: for the weights pass
  bool keepsGradients = false;   // it reads the gradient of the block's output, too
  std::vector<bool> recomputed;  // per forward op
};

// The ops whose results nobody waits for.
bool isOfWeightsPass(const Op& op) { return op.kind == OpKind::kMatmulGradWeight; }

class SaveAnalysis {
 public:
  SaveAnalysis(const Block& block, plan::Recompute recompute)
      : block_(block), recompute_(recompute) {
    plan_.saved.resize(block.tensors.size());
    plan_.kept.resize(block.tensors.size());
    plan_.recomputed.resize(block.forward.size());
    producer_.assign(block.tensors.size(), -1);
    for (size_t i = 0; i < block.forward.size(); ++i)
      for (TensorId t : block.forward[i].outputs)
        producer_[static_cast<size_t>(t)] = static_cast<int>(i);
  }

  SavePlan run(bool splitsBackward) {
    for (const Op& op : block_.backward)
      for (TensorId t : op.inputs) {
        need(t);
        if (splitsBackward && isOfWeightsPass(op)) keep(t);
      }
    return std::move(plan_);
  }

 private:
  bool runsAgain(const Op& op) const {
    if (recompute_ == plan::Recompute::kFull) return true;
    return recompute_ == plan::Recompute::kSelective && graph::isSelectivelyRecomputed(op.kind);
  }
  void need(TensorId t) {
    const int op = producer_[static_cast<size_t>(t)];
    if (op < 0) return;  // block input, tokens, labels, parameters, gradients
    if (!runsAgain(block_.forward[static_cast<size_t>(op)])) {
      plan_.saved[static_cast<size_t>(t)] = true;
      return;
    }
    if (plan_.recomputed[static_cast<size_t>(op)]) return;
    plan_.recomputed[static_cast<size_t>(op)] = true;
    for (TensorId input : block_.forward[static_cast<size_t>(op)].inputs) need(input);
  }

  // The residual stream and its gradients have places of their own.
  void keep(TensorId t) {
    if (t == block_.outputGrad)
      plan_.keepsGradients = true;
    else if (t != block_.input)
      plan_.kept[static_cast<size_t>(t)] = true;
  }

  const Block& block_;
  plan::Recompute recompute_;
  SavePlan plan_;
  std::vector<int> producer_;
};

// Lowers a list of ops into a pass.
class PassLowering {
 public:
  PassLowering(const Block& block, const MeshShape& mesh, spec::Precision precision,
               const SavePlan& saves, std::vector<bool>& gradientPartial)
      : block_(block),
        mesh_(mesh),
        precision_(precision),
        saves_(saves),
        gradientPartial_(gradientPartial),
        home_(block.tensors.size(), -1),
        partial_(block.tensors.size(), -1),
        gathered_(block.tensors.size(), -1) {}

  void add(const Op& op, bool forward);
  // Makes sure that the tensor is complete in its home sharding.
  void finish(TensorId t) {
    if (t >= 0) homeValue(t);
  }
  void markRecomputed() {  // all so far
    for (Item& item : pass_.items) item.isRecomputed = true;
  }
  LoweredPass take() { return std::move(pass_); }

 private:
  const Tensor& tensor(TensorId t) const { return block_.tensors[static_cast<size_t>(t)]; }
  Sharding home(TensorId t) const { return plan::homeSharding(tensor(t), mesh_); }
  std::optional<Label> splitLabel(TensorId t) const;
  bool hasLabel(TensorId t, Label label) const;
  Storage storageOf(TensorId t, bool forwardDefinition) const;
  Storage activationStorage(TensorId t, bool forwardDefinition) const;
  ValueId newValue(TensorId t, const Sharding& sharding, Storage storage, const char* suffix);
  ValueId homeValue(TensorId t);
  ValueId gatheredValue(TensorId t);
  void collective(program::InstructionKind kind, program::ReduceOp reduce, ValueId in, ValueId out);
  void define(TensorId t, const Op& op, std::optional<Label> hard, bool forward, Item& item);
  std::optional<Label> hardLabel(const Op& op) const;
  void setShardFlags(const Op& op, std::optional<Label> hard, Item& item) const;

  const Block& block_;
  MeshShape mesh_;
  spec::Precision precision_;
  const SavePlan& saves_;
  std::vector<bool>& gradientPartial_;
  LoweredPass pass_;
  // Per tensor: its value in the home sharding, before its reduction, and gathered along the
  // sequence.
  std::vector<ValueId> home_, partial_, gathered_;
  std::vector<program::ReduceOp> pendingReduce_ = std::vector<program::ReduceOp>(home_.size());
};

std::optional<Label> PassLowering::splitLabel(TensorId t) const {
  const Sharding s = home(t);
  if (s.tpDim < 0) return std::nullopt;
  return tensor(t).dims[static_cast<size_t>(s.tpDim)].label;
}

bool PassLowering::hasLabel(TensorId t, Label label) const {
  const auto& dims = tensor(t).dims;
  return std::any_of(dims.begin(), dims.end(),
                     [&](const graph::Dim& d) { return d.label == label; });
}

Storage PassLowering::storageOf(TensorId t, bool forwardDefinition) const {
  switch (tensor(t).kind) {
    case TensorKind::kTokens:
      return Storage::kTokens;
    case TensorKind::kLabels:
      return Storage::kLabels;
    case TensorKind::kParameter:
      return Storage::kParameter;
    case TensorKind::kParameterGradient:
      return Storage::kParameterGradient;
    case TensorKind::kLoss:
      return Storage::kLoss;
    case TensorKind::kActivation:
      break;
  }
  return activationStorage(t, forwardDefinition);
}

Storage PassLowering::activationStorage(TensorId t, bool forwardDefinition) const {
  if (t == block_.input) return Storage::kInput;
  if (t == block_.inputGrad) return Storage::kInputGradient;
  if (t == block_.outputGrad) return Storage::kOutputGradient;
  if (t == block_.output && forwardDefinition) return Storage::kOutput;
  const bool saved = saves_.saved[static_cast<size_t>(t)];
  // What is computed again is kept when that is done.
  if (saves_.kept[static_cast<size_t>(t)] && (saved || !forwardDefinition)) return Storage::kKept;
  return saved ? Storage::kSaved : Storage::kTemporary;
}

ValueId PassLowering::newValue(TensorId t, const Sharding& sharding, Storage storage,
                               const char* suffix) {
  Value v;
  v.tensor = t;
  v.name = tensor(t).name + suffix;
  v.type.dtype = graph::typeOf(tensor(t), precision_).dtype;
  v.type.dims = plan::localShape(tensor(t).dims, sharding, mesh_);
  v.storage = storage;
  pass_.values.push_back(std::move(v));
  return static_cast<ValueId>(pass_.values.size()) - 1;
}

void PassLowering::collective(program::InstructionKind kind, program::ReduceOp reduce, ValueId in,
                              ValueId out) {
  Item item;
  item.isCollective = true;
  item.collective = kind;
  item.reduce = reduce;
  item.inputs = {in};
  item.outputs = {out};
  pass_.items.push_back(std::move(item));
}

ValueId PassLowering::homeValue(TensorId t) {
  const auto i = static_cast<size_t>(t);
  if (partial_[i] >= 0) {
    const ValueId partial = partial_[i];
    partial_[i] = -1;
    const bool scatter = home(t).tpDim >= 0;
    collective(
        scatter ? program::InstructionKind::kReduceScatter : program::InstructionKind::kAllReduce,
        pendingReduce_[i], partial, home_[i]);
  }
  // First read of something that exists before this pass.
  if (home_[i] < 0) home_[i] = newValue(t, home(t), storageOf(t, false), "");
  return home_[i];
}

ValueId PassLowering::gatheredValue(TensorId t) {
  const auto i = static_cast<size_t>(t);
  const ValueId value = homeValue(t);
  if (gathered_[i] < 0) {
    gathered_[i] = newValue(t, Sharding{}, Storage::kTemporary, ".gathered");
    collective(program::InstructionKind::kAllGather, program::ReduceOp::kSum, value, gathered_[i]);
  }
  return gathered_[i];
}

// The label, other than the sequence, along which the op is split over tp.
std::optional<Label> PassLowering::hardLabel(const Op& op) const {
  for (TensorId t : op.inputs) {
    const auto label = splitLabel(t);
    if (label && *label != Label::kSequence) return label;
  }
  // The table of an embedding gradient is an output: its ids carry no vocabulary label.
  for (TensorId t : op.outputs) {
    const auto label = splitLabel(t);
    if (label && *label != Label::kSequence) return label;
  }
  return std::nullopt;
}

void PassLowering::setShardFlags(const Op& op, std::optional<Label> hard, Item& item) const {
  switch (op.kind) {
    case OpKind::kDropout:
    case OpKind::kAddPosition:
    case OpKind::kPositionGrad:
      item.attributes.sequenceSharded = splitLabel(op.inputs[0]) == Label::kSequence;
      break;
    case OpKind::kAttention:
    case OpKind::kAttentionGrad:
    case OpKind::kEmbedding:
    case OpKind::kEmbeddingGrad:
    case OpKind::kLossMax:
    case OpKind::kLossTarget:
    case OpKind::kLossSumExp:
    case OpKind::kLossGrad:
      item.attributes.widthSharded = hard.has_value();
      break;
    default:
      break;
  }
}

// Gives output `t` of `op` its value: complete, or partial over tp if the split label was
// contracted.
void PassLowering::define(TensorId t, const Op& op, std::optional<Label> hard, bool forward,
                          Item& item) {
  const auto i = static_cast<size_t>(t);
  const bool softSplit = std::any_of(op.inputs.begin(), op.inputs.end(), [&](TensorId input) {
    return splitLabel(input) == Label::kSequence;
  });
  const bool partial =
      hard ? !hasLabel(t, *hard) && !(*hard == Label::kGroup && hasLabel(t, Label::kHead))
           : softSplit && !hasLabel(t, Label::kSequence);
  const Storage storage = storageOf(t, forward);
  if (tensor(t).kind == TensorKind::kParameterGradient) {
    gradientPartial_[static_cast<size_t>(tensor(t).parameter)] = partial;
    if (home_[i] < 0) home_[i] = newValue(t, home(t), storage, "");
    item.outputs.push_back(home_[i]);
    return;
  }
  home_[i] = newValue(t, home(t), storage, "");
  if (!partial || tensor(t).kind == TensorKind::kLoss) {
    item.outputs.push_back(home_[i]);
    return;
  }
  pendingReduce_[i] =
      op.kind == OpKind::kLossMax ? program::ReduceOp::kMax : program::ReduceOp::kSum;
  const bool scatter = home(t).tpDim >= 0;
  partial_[i] = scatter ? newValue(t, Sharding{}, Storage::kTemporary, ".partial") : home_[i];
  item.outputs.push_back(partial_[i]);
}

void PassLowering::add(const Op& op, bool forward) {
  Item item;
  item.kind = op.kind;
  item.attributes = op.attributes;
  const std::optional<Label> hard = hardLabel(op);
  for (TensorId t : op.inputs) {
    const bool sequenceSplit = splitLabel(t) == Label::kSequence;
    const bool gather = sequenceSplit && (hard || graph::mustBeWhole(op.kind, Label::kSequence));
    item.inputs.push_back(gather ? gatheredValue(t) : homeValue(t));
  }
  for (TensorId t : op.outputs) define(t, op, hard, forward, item);
  setShardFlags(op, hard, item);
  pass_.items.push_back(std::move(item));
}

}  // namespace

LoweredBlock lowerBlock(const Block& block, const MeshShape& mesh, plan::Recompute recompute,
                        spec::Precision precision, bool splitsBackward) {
  LoweredBlock lowered;
  lowered.block = &block;
  lowered.gradientPartial.resize(block.parameters.size());
  const SavePlan saves = SaveAnalysis(block, recompute).run(splitsBackward);
  lowered.keepsGradients = saves.keepsGradients;

  PassLowering forward(block, mesh, precision, saves, lowered.gradientPartial);
  for (const Op& op : block.forward) forward.add(op, true);
  forward.finish(block.output);
  for (const Op& op : block.forward)
    for (TensorId t : op.outputs)
      if (saves.saved[static_cast<size_t>(t)]) forward.finish(t);
  lowered.forward = forward.take();

  PassLowering backward(block, mesh, precision, saves, lowered.gradientPartial);
  for (size_t i = 0; i < block.forward.size(); ++i)
    if (saves.recomputed[i]) backward.add(block.forward[i], false);
  backward.markRecomputed();
  PassLowering weights(block, mesh, precision, saves, lowered.gradientPartial);
  for (const Op& op : block.backward)
    (splitsBackward && isOfWeightsPass(op) ? weights : backward).add(op, false);
  backward.finish(block.inputGrad);
  lowered.backward = backward.take();
  lowered.weights = weights.take();

  for (size_t t = 0; t < block.tensors.size(); ++t) {
    const Tensor& tensor = block.tensors[t];
    const auto local = [&] {
      return program::OperandType{
          graph::typeOf(tensor, precision).dtype,
          plan::localShape(tensor.dims, plan::homeSharding(tensor, mesh), mesh)};
    };
    if (saves.saved[t] || saves.kept[t]) {
      lowered.saved.push_back(static_cast<TensorId>(t));
      lowered.savedTypes.push_back(local());
    }
    if (tensor.kind == TensorKind::kParameter) {
      lowered.parameterTypes.resize(block.parameters.size());
      lowered.parameterTypes[static_cast<size_t>(tensor.parameter)] = local();
    }
  }
  return lowered;
}

}  // namespace trireme::expand
