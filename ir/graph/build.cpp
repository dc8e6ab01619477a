#include <cmath>

#include "ir/graph/block_builder.h"
#include "ir/graph/graph.h"

namespace trireme::graph {
namespace {

using program::InitKind;
using spec::ActivationKind;
using spec::NormKind;
using spec::PositionKind;

// The dims that the blocks are written in, and the few composite steps that they share.
class TransformerBuilder {
 public:
  TransformerBuilder(const spec::ModelSpec& model, const spec::TrainingSpec& training,
                     int64_t microbatchSize, int64_t paddedVocab, Block& block)
      : model_(model),
        training_(training),
        block_(block),
        builder_(block),
        s_{Label::kSequence, training.sequenceLength},
        b_{Label::kBatch, microbatchSize},
        h_{Label::kHidden, model.hiddenSize},
        v_{Label::kVocab, paddedVocab},
        g_{Label::kGroup, model.numKvHeads} {}

  void buildEmbedding();
  void buildLayer();
  void buildHead();

 private:
  int64_t headsPerGroup() const { return model_.numHeads / model_.numKvHeads; }

  TensorId parameter(std::string name, Parameter parameter);
  TensorId weight(std::string name, std::vector<Dim> dims, double std);
  TensorId vector(std::string name, std::vector<Dim> dims, InitKind init);
  TensorId table(const std::string& name, bool tied);
  // An op of this model is well formed, or the builder is wrong. Returns the first output.
  OpAttributes product() const;
  TensorId op(OpKind kind, const OpAttributes& attributes, std::vector<TensorId> inputs,
              std::vector<std::string> names);
  TensorId norm(const std::string& name, TensorId x);
  TensorId linear(const std::string& name, TensorId x, std::vector<Dim> weightDims, size_t outDims,
                  double std, bool bias);
  TensorId dropout(const std::string& name, TensorId x, double probability, RngStream stream);
  TensorId attention(TensorId x);
  TensorId mlp(TensorId x);
  double residualStd() const { return model_.initStd / std::sqrt(2.0 * model_.numLayers); }

  const spec::ModelSpec& model_;
  const spec::TrainingSpec& training_;
  Block& block_;
  BlockBuilder builder_;
  std::string prefix_;  // of the block's parameters in checkpoints
  Dim s_, b_, h_, v_, g_;
};

TensorId TransformerBuilder::parameter(std::string name, Parameter parameter) {
  parameter.name = prefix_ + name;
  if (parameter.logicalDims.empty())
    for (const Dim& d : parameter.dims) parameter.logicalDims.push_back(d.size);
  return builder_.parameter(std::move(name), std::move(parameter));
}

TensorId TransformerBuilder::weight(std::string name, std::vector<Dim> dims, double std) {
  Parameter p;
  p.dims = std::move(dims);
  p.decay = true;
  p.init = InitKind::kNormal;
  p.initStd = std;
  return parameter(std::move(name), std::move(p));
}

TensorId TransformerBuilder::vector(std::string name, std::vector<Dim> dims, InitKind init) {
  Parameter p;
  p.dims = std::move(dims);
  p.init = init;
  return parameter(std::move(name), std::move(p));
}

TensorId TransformerBuilder::table(const std::string& name, bool tied) {
  const TensorId id = weight(name, {v_, h_}, model_.initStd);
  Parameter& p = block_.parameters.back();
  p.logicalDims[0] = model_.vocabSize;
  p.tied = tied;
  return id;
}

TensorId TransformerBuilder::op(OpKind kind, const OpAttributes& attributes,
                                std::vector<TensorId> inputs, std::vector<std::string> names) {
  const auto outputs = builder_.op(kind, attributes, std::move(inputs), std::move(names));
  TRIREME_CHECK(outputs.has_value());
  return outputs->front();
}

TensorId TransformerBuilder::norm(const std::string& name, TensorId x) {
  OpAttributes attributes;
  attributes.epsilon = model_.normEpsilon;
  const TensorId gamma = vector(name + ".weight", {h_}, InitKind::kOnes);
  if (model_.norm == NormKind::kRmsNorm)
    return op(OpKind::kRmsNorm, attributes, {x, gamma}, {name + ".out", name + ".rstd"});
  const TensorId beta = vector(name + ".bias", {h_}, InitKind::kZeros);
  return op(OpKind::kLayerNorm, attributes, {x, gamma, beta},
            {name + ".out", name + ".mean", name + ".rstd"});
}

OpAttributes TransformerBuilder::product() const {
  OpAttributes attributes;
  attributes.tf32 = training_.tf32;
  return attributes;
}

// y = x W^T + bias; the first `outDims` of the weight's dims are the output's.
TensorId TransformerBuilder::linear(const std::string& name, TensorId x,
                                    std::vector<Dim> weightDims, size_t outDims, double std,
                                    bool bias) {
  const std::vector<Dim> out(weightDims.begin(), weightDims.begin() + static_cast<long>(outDims));
  const TensorId w = weight(name + ".weight", std::move(weightDims), std);
  const TensorId y = op(OpKind::kMatmul, product(), {x, w}, {name + ".product"});
  if (!bias) return y;
  const TensorId biasId = vector(name + ".bias", out, InitKind::kZeros);
  return op(OpKind::kBiasAdd, {}, {y, biasId}, {name + ".out"});
}

TensorId TransformerBuilder::dropout(const std::string& name, TensorId x, double probability,
                                     RngStream stream) {
  if (probability == 0) return x;
  OpAttributes attributes;
  attributes.probability = probability;
  attributes.stream = stream;
  return op(OpKind::kDropout, attributes, {x}, {name});
}

void TransformerBuilder::buildEmbedding() {
  const TensorId tokens = builder_.tokens({s_, b_});
  const TensorId words = table("embedding.word.weight", model_.tiedEmbeddings);
  TensorId x = op(OpKind::kEmbedding, {}, {tokens, words}, {"embedding.word"});
  if (model_.position == PositionKind::kLearned) {
    const Dim n{Label::kPosition, model_.maxSequence};
    const TensorId positions = weight("embedding.position.weight", {n, h_}, model_.initStd);
    x = op(OpKind::kAddPosition, {}, {x, positions}, {"embedding.sum"});
  }
  block_.output =
      dropout("embedding.dropout", x, training_.embeddingDropout, RngStream::kEmbeddingDropout);
}

TensorId TransformerBuilder::attention(TensorId x) {
  const Dim e{Label::kHeadWidth, (headsPerGroup() + 2) * model_.headSize};
  const Dim c{Label::kContextWidth, headsPerGroup() * model_.headSize};
  OpAttributes attributes;
  attributes.headSize = model_.headSize;
  attributes.headsPerGroup = headsPerGroup();
  TensorId qkv = linear("attn.qkv", x, {g_, e, h_}, 2, model_.initStd, model_.qkvBias);
  if (model_.position == PositionKind::kRotary) {
    OpAttributes rotary = attributes;
    rotary.ropeTheta = model_.ropeTheta;
    rotary.ropeScaling = model_.ropeScaling;
    qkv = op(OpKind::kRotary, rotary, {qkv}, {"attn.rotated"});
  }
  attributes.probability = training_.attentionDropout;
  if (attributes.probability > 0) attributes.stream = RngStream::kAttentionDropout;
  const TensorId ctx = op(OpKind::kAttention, attributes, {qkv}, {"attn.context", "attn.lse"});
  return linear("attn.out", ctx, {h_, g_, c}, 1, residualStd(), model_.linearBias);
}

TensorId TransformerBuilder::mlp(TensorId x) {
  const Dim f{Label::kFfn, model_.ffnSize};
  const Dim two{Label::kGateUp, 2};
  TensorId z = -1;
  if (model_.activation == ActivationKind::kSwiGlu) {
    const TensorId u = linear("mlp.gate_up", x, {two, f, h_}, 2, model_.initStd, model_.linearBias);
    z = op(OpKind::kSwiGlu, {}, {u}, {"mlp.hidden"});
  } else {
    const TensorId u = linear("mlp.up", x, {f, h_}, 1, model_.initStd, model_.linearBias);
    z = op(OpKind::kGelu, {}, {u}, {"mlp.hidden"});
  }
  return linear("mlp.down", z, {h_, f}, 1, residualStd(), model_.linearBias);
}

void TransformerBuilder::buildLayer() {
  prefix_ = "layers.{}.";
  const TensorId input = builder_.input({s_, b_, h_});
  TensorId y = attention(norm("attn_norm", input));
  y = dropout("attn.dropout", y, training_.residualDropout, RngStream::kAttentionOutDropout);
  const TensorId middle = op(OpKind::kAdd, {}, {input, y}, {"middle"});
  TensorId z = mlp(norm("mlp_norm", middle));
  z = dropout("mlp.dropout", z, training_.residualDropout, RngStream::kMlpOutDropout);
  block_.output = op(OpKind::kAdd, {}, {middle, z}, {"output"});
}

void TransformerBuilder::buildHead() {
  const TensorId input = builder_.input({s_, b_, h_});
  const TensorId labels = builder_.labels({s_, b_});
  const TensorId x = norm("final_norm", input);
  const TensorId words =
      model_.tiedEmbeddings ? table("embedding.word.weight", true) : table("head.weight", false);
  const TensorId logits = op(OpKind::kMatmul, product(), {x, words}, {"logits"});
  OpAttributes vocab;
  vocab.logicalVocab = model_.vocabSize;
  const TensorId max = op(OpKind::kLossMax, vocab, {logits}, {"loss.max"});
  const TensorId target = op(OpKind::kLossTarget, vocab, {logits, max, labels}, {"loss.target"});
  const TensorId sum = op(OpKind::kLossSumExp, vocab, {logits, max}, {"loss.sum_exp"});
  op(OpKind::kTokenLoss, {}, {target, sum}, {"loss"});
}

}  // namespace

ModelGraph buildGraph(const spec::ModelSpec& model, const spec::TrainingSpec& training,
                      int64_t microbatchSize, int64_t paddedVocab) {
  ModelGraph graph;
  graph.name = model.name;
  graph.precision = training.precision;
  graph.numLayers = model.numLayers;
  graph.globalBatchSize = training.globalBatchSize;
  graph.embedding.name = "embedding";
  graph.layer.name = "layer";
  graph.head.name = "head";
  const auto builder = [&](Block& block) {
    return TransformerBuilder(model, training, microbatchSize, paddedVocab, block);
  };
  builder(graph.embedding).buildEmbedding();
  builder(graph.layer).buildLayer();
  builder(graph.head).buildHead();
  deriveBackward(graph);
  return graph;
}

const ModelGraph& Graphs::of(const spec::ModelSpec& model, const spec::TrainingSpec& training,
                             int64_t microbatchSize, int64_t paddedVocab) {
  const auto [place, isNew] = built_.try_emplace({microbatchSize, paddedVocab});
  if (isNew) place->second = buildGraph(model, training, microbatchSize, paddedVocab);
  return place->second;
}

}  // namespace trireme::graph
