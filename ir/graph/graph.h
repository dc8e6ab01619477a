// The model as a graph of ops on global tensors: three blocks (embedding, layer, head), the layer
// repeated. Work on the graph grows with distinct blocks, not with layers. Its rules: verify.h.
//
// Tensors have the global sizes of one microbatch; dims carry labels, and a label means the same
// index wherever it appears in an op. That alone says how an op can be sharded (semantics.h).
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/base/status.h"
#include "ir/program/program.h"
#include "ir/spec/model_spec.h"
#include "ir/spec/training_spec.h"

namespace trireme::graph {

using program::OpAttributes;
using program::OpKind;

enum class Label : uint8_t {
  kSequence,
  kBatch,
  kHidden,
  kGroup,
  kHeadWidth,
  kContextWidth,
  kFfn,
  kGateUp,
  kVocab,
  kPosition,
  kOne,   // a dim of a scalar: never sharded
  kHead,  // group * headsPerGroup fused (log-sum-exp of attention)
};
inline constexpr int kNumLabels = static_cast<int>(Label::kHead) + 1;
using Labels = std::vector<Label>;  // of a tensor's dims

std::string_view labelName(Label label);
std::optional<Label> parseLabel(std::string_view name);
std::string printLabels(const Labels& labels);  // "[sequence, batch]"

struct Dim {
  Label label = Label::kOne;
  int64_t size = 0;  // global; vocabulary padded
  bool operator==(const Dim&) const = default;
};

enum class TensorKind : uint8_t {
  kActivation,
  kTokens,  // ids[s,b], read from the data
  kLabels,  // labels[s,b]
  kParameter,
  kParameterGradient,  // accumulates over microbatches
  kLoss,               // accumulates over microbatches
};

// Which of the precision's types a tensor has.
enum class Element : uint8_t { kCompute, kState, kIndex, kDouble };

using TensorId = int32_t;

struct Tensor {
  std::string name;
  TensorKind kind = TensorKind::kActivation;
  Element element = Element::kCompute;
  std::vector<Dim> dims;
  int32_t parameter = -1;  // kParameter, kParameterGradient: index into Block::parameters
  // Under sequence parallelism, split along the sequence unless another dim is split over tp.
  bool sequenceRegion = false;
  bool operator==(const Tensor&) const = default;
};
Labels labelsOf(const Tensor& tensor);
program::OperandType typeOf(const Tensor& tensor, spec::Precision precision);

struct Op {
  OpKind kind = OpKind::kAdd;
  OpAttributes attributes;
  std::vector<TensorId> inputs;
  std::vector<TensorId> outputs;
  bool operator==(const Op&) const = default;
};

struct Parameter {
  std::string name;  // in checkpoints: "layers.{}.attn.qkv.weight", {} being the logical layer
  std::vector<Dim> dims;
  std::vector<int64_t> logicalDims;  // without padding
  bool decay = false;                // weight decay: matrices and embeddings
  program::InitKind init = program::InitKind::kZeros;
  double initStd = 0;
  bool tied = false;  // the embedding table, shared by the embedding and the head block
  bool operator==(const Parameter&) const = default;
};

// Forward and derived backward of one block. `forward` and `backward` are topologically ordered
// lists over the same tensors; the backward reads forward tensors (these are what must be saved or
// recomputed) and the gradient of `output`, and writes the gradient of `input`.
struct Block {
  std::string name;  // "embedding", "layer", "head"
  std::vector<Tensor> tensors;
  std::vector<Parameter> parameters;
  std::vector<Op> forward;
  std::vector<Op> backward;
  TensorId input = -1;       // residual stream; -1: the embedding has none
  TensorId output = -1;      // residual stream; -1: the head has none
  TensorId outputGrad = -1;  // given to the backward
  TensorId inputGrad = -1;   // made by the backward
  bool operator==(const Block&) const = default;
};

// Embedding, `numLayers` times the layer, head.
struct ModelGraph {
  std::string name;
  spec::Precision precision = spec::Precision::kFp32;
  int64_t numLayers = 0;
  int64_t globalBatchSize = 0;  // samples per step: the loss is the mean over their tokens
  Block embedding, layer, head;

  // The residual stream of one microbatch, [s,b,h].
  const std::vector<Dim>& residual() const {
    return layer.tensors[static_cast<size_t>(layer.input)].dims;
  }
  int64_t numTokens() const { return residual()[0].size * residual()[1].size; }
  bool operator==(const ModelGraph&) const = default;
};

// Builds the graph of one microbatch of `microbatchSize` sequences. Requires verified specs.
ModelGraph buildGraph(const spec::ModelSpec& model, const spec::TrainingSpec& training,
                      int64_t microbatchSize, int64_t paddedVocab);

// Graphs of one model and training, each built when it is first asked for.
class Graphs {
 public:
  const ModelGraph& of(const spec::ModelSpec& model, const spec::TrainingSpec& training,
                       int64_t microbatchSize, int64_t paddedVocab);

 private:
  std::map<std::pair<int64_t, int64_t>, ModelGraph> built_;
};

// Appends the backward of every block's forward by the chain rule: gradients of a tensor with
// several readers are summed in reverse reading order. Requires a graph without backward for which
// verifyForward() holds.
void deriveBackward(ModelGraph& graph);

}  // namespace trireme::graph
