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
  TransformerBuilder(const ModelGraph& graph, Block& block)
      : model_(graph.model), training_(graph.training), block_(block), builder_(block),
        s_{Label::kSequence, graph.training.sequenceLength},
        b_{Label::kBatch, graph.microbatchSize},
        h_{Label::kHidden, graph.model.hiddenSize},
        v_{Label::kVocab, graph.paddedVocab},
        g_{Label::kGroup, graph.model.numKvHeads} {}

  void buildEmbedding();
  void buildLayer();
  void buildHead();

 private:
  int64_t headsPerGroup() const { return model_.numHeads / model_.numKvHeads; }

  Tensor activation(std::string name, std::vector<Dim> dims) const;
  Tensor residual(std::string name) const;
  Tensor statistic(std::string name, std::vector<Dim> dims, bool sequenceRegion) const;
  TensorId weight(std::string name, std::vector<Dim> dims, double std);
  TensorId vector(std::string name, std::vector<Dim> dims, InitKind init);
  TensorId table(const std::string& name, bool tied);
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
  Dim s_, b_, h_, v_, g_;
};

Tensor TransformerBuilder::activation(std::string name, std::vector<Dim> dims) const {
  Tensor t;
  t.name = std::move(name);
  t.dims = std::move(dims);
  return t;
}

Tensor TransformerBuilder::residual(std::string name) const {
  Tensor t = activation(std::move(name), {s_, b_, h_});
  t.sequenceRegion = true;
  return t;
}

Tensor TransformerBuilder::statistic(std::string name, std::vector<Dim> dims,
                                     bool sequenceRegion) const {
  Tensor t = activation(std::move(name), std::move(dims));
  t.element = Element::kState;
  t.sequenceRegion = sequenceRegion;
  return t;
}

TensorId TransformerBuilder::weight(std::string name, std::vector<Dim> dims, double std) {
  Parameter p;
  p.name = std::move(name);
  for (const Dim& d : dims) p.logicalDims.push_back(d.size);
  p.dims = std::move(dims);
  p.decay = true;
  p.init = InitKind::kNormal;
  p.initStd = std;
  return builder_.parameter(std::move(p));
}

TensorId TransformerBuilder::vector(std::string name, std::vector<Dim> dims, InitKind init) {
  Parameter p;
  p.name = std::move(name);
  for (const Dim& d : dims) p.logicalDims.push_back(d.size);
  p.dims = std::move(dims);
  p.init = init;
  return builder_.parameter(std::move(p));
}

TensorId TransformerBuilder::table(const std::string& name, bool tied) {
  const TensorId id = weight(name, {v_, h_}, model_.initStd);
  Parameter& p = block_.parameters.back();
  p.logicalDims[0] = model_.vocabSize;
  p.tied = tied;
  return id;
}

TensorId TransformerBuilder::norm(const std::string& name, TensorId x) {
  OpAttributes attributes;
  attributes.epsilon = model_.normEpsilon;
  const TensorId gamma = vector(name + ".weight", {h_}, InitKind::kOnes);
  if (model_.norm == NormKind::kRmsNorm) {
    const TensorId y = builder_.tensor(residual(name + ".out"));
    const TensorId rstd = builder_.tensor(statistic(name + ".rstd", {s_, b_}, true));
    builder_.op(OpKind::kRmsNorm, attributes, {x, gamma}, {y, rstd});
    return y;
  }
  const TensorId beta = vector(name + ".bias", {h_}, InitKind::kZeros);
  const TensorId y = builder_.tensor(residual(name + ".out"));
  const TensorId mean = builder_.tensor(statistic(name + ".mean", {s_, b_}, true));
  const TensorId rstd = builder_.tensor(statistic(name + ".rstd", {s_, b_}, true));
  builder_.op(OpKind::kLayerNorm, attributes, {x, gamma, beta}, {y, mean, rstd});
  return y;
}

// y = x W^T + bias; the first `outDims` of the weight's dims are the output's.
TensorId TransformerBuilder::linear(const std::string& name, TensorId x, std::vector<Dim> weightDims,
                                    size_t outDims, double std, bool bias) {
  const std::vector<Dim> out(weightDims.begin(), weightDims.begin() + static_cast<long>(outDims));
  std::vector<Dim> outputDims = {s_, b_};
  outputDims.insert(outputDims.end(), out.begin(), out.end());
  const bool toResidual = out.size() == 1 && out[0].label == Label::kHidden;
  const auto output = [&](const std::string& suffix) {
    return toResidual ? residual(name + suffix) : activation(name + suffix, outputDims);
  };
  const TensorId w = weight(name + ".weight", std::move(weightDims), std);
  const TensorId y = builder_.op(OpKind::kMatmul, {}, {x, w}, output(".product"));
  if (!bias) return y;
  const TensorId biasId = vector(name + ".bias", out, InitKind::kZeros);
  return builder_.op(OpKind::kBiasAdd, {}, {y, biasId}, output(".out"));
}

TensorId TransformerBuilder::dropout(const std::string& name, TensorId x, double probability,
                                     RngStream stream) {
  if (probability == 0) return x;
  OpAttributes attributes;
  attributes.probability = probability;
  attributes.stream = stream;
  return builder_.op(OpKind::kDropout, attributes, {x}, residual(name));
}

void TransformerBuilder::buildEmbedding() {
  Tensor ids = activation("tokens", {s_, b_});
  ids.kind = TensorKind::kTokens;
  ids.element = Element::kIndex;
  const TensorId tokens = builder_.tensor(ids);
  const TensorId words = table("embedding.word.weight", model_.tiedEmbeddings);
  TensorId x = builder_.op(OpKind::kEmbedding, {}, {tokens, words}, residual("embedding.word"));
  if (model_.position == PositionKind::kLearned) {
    const Dim n{Label::kPosition, model_.maxSequence};
    const TensorId positions = weight("embedding.position.weight", {n, h_}, model_.initStd);
    x = builder_.op(OpKind::kAddPosition, {}, {x, positions}, residual("embedding.sum"));
  }
  block_.output = dropout("embedding.dropout", x, training_.embeddingDropout,
                          RngStream::kEmbeddingDropout);
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
    qkv = builder_.op(OpKind::kRotary, rotary, {qkv}, activation("attn.rotated", {s_, b_, g_, e}));
  }
  attributes.probability = training_.attentionDropout;
  if (attributes.probability > 0) attributes.stream = RngStream::kAttentionDropout;
  const TensorId ctx = builder_.tensor(activation("attn.context", {s_, b_, g_, c}));
  const TensorId lse = builder_.tensor(
      statistic("attn.lse", {b_, {Label::kHead, model_.numHeads}, s_}, false));
  builder_.op(OpKind::kAttention, attributes, {qkv}, {ctx, lse});
  return linear("attn.out", ctx, {h_, g_, c}, 1, residualStd(), model_.linearBias);
}

TensorId TransformerBuilder::mlp(TensorId x) {
  const Dim f{Label::kFfn, model_.ffnSize};
  const Dim two{Label::kGateUp, 2};
  const Tensor hidden = activation("mlp.hidden", {s_, b_, f});
  TensorId z = -1;
  if (model_.activation == ActivationKind::kSwiGlu) {
    const TensorId u =
        linear("mlp.gate_up", x, {two, f, h_}, 2, model_.initStd, model_.linearBias);
    z = builder_.op(OpKind::kSwiGlu, {}, {u}, hidden);
  } else {
    const TensorId u = linear("mlp.up", x, {f, h_}, 1, model_.initStd, model_.linearBias);
    z = builder_.op(OpKind::kGelu, {}, {u}, hidden);
  }
  return linear("mlp.down", z, {h_, f}, 1, residualStd(), model_.linearBias);
}

void TransformerBuilder::buildLayer() {
  block_.input = builder_.tensor(residual("input"));
  TensorId y = attention(norm("attn_norm", block_.input));
  y = dropout("attn.dropout", y, training_.residualDropout, RngStream::kAttentionOutDropout);
  const TensorId middle = builder_.op(OpKind::kAdd, {}, {block_.input, y}, residual("middle"));
  TensorId z = mlp(norm("mlp_norm", middle));
  z = dropout("mlp.dropout", z, training_.residualDropout, RngStream::kMlpOutDropout);
  block_.output = builder_.op(OpKind::kAdd, {}, {middle, z}, residual("output"));
}

void TransformerBuilder::buildHead() {
  block_.input = builder_.tensor(residual("input"));
  const TensorId x = norm("final_norm", block_.input);
  const TensorId words = model_.tiedEmbeddings ? table("embedding.word.weight", true)
                                               : table("head.weight", false);
  const TensorId logits =
      builder_.op(OpKind::kMatmul, {}, {x, words}, activation("logits", {s_, b_, v_}));
  Tensor labelTensor = activation("labels", {s_, b_});
  labelTensor.kind = TensorKind::kLabels;
  labelTensor.element = Element::kIndex;
  const TensorId labels = builder_.tensor(labelTensor);
  OpAttributes vocab;
  vocab.logicalVocab = model_.vocabSize;
  const auto perToken = [&](const char* name) { return statistic(name, {s_, b_}, false); };
  const TensorId max = builder_.op(OpKind::kLossMax, vocab, {logits}, perToken("loss.max"));
  const TensorId target =
      builder_.op(OpKind::kLossTarget, vocab, {logits, max, labels}, perToken("loss.target"));
  const TensorId sum =
      builder_.op(OpKind::kLossSumExp, vocab, {logits, max}, perToken("loss.sum_exp"));
  Tensor loss = activation("loss", {{Label::kOne, 1}});
  loss.kind = TensorKind::kLoss;
  loss.element = Element::kDouble;
  builder_.op(OpKind::kTokenLoss, {}, {target, sum}, loss);
}

}  // namespace

ModelGraph buildGraph(const spec::ModelSpec& model, const spec::TrainingSpec& training,
                      int64_t microbatchSize, int64_t paddedVocab) {
  ModelGraph graph;
  graph.model = model;
  graph.training = training;
  graph.microbatchSize = microbatchSize;
  graph.paddedVocab = paddedVocab;
  graph.embedding.name = "embedding";
  graph.layer.name = "layer";
  graph.head.name = "head";
  TransformerBuilder(graph, graph.embedding).buildEmbedding();
  TransformerBuilder(graph, graph.layer).buildLayer();
  TransformerBuilder(graph, graph.head).buildHead();
  const double tokens =
      static_cast<double>(training.globalBatchSize) * static_cast<double>(training.sequenceLength);
  for (Block* block : {&graph.embedding, &graph.layer, &graph.head}) deriveBackward(*block);
  for (Op& op : graph.head.backward)
    if (op.kind == OpKind::kLossGrad) op.attributes.scale = 1.0 / tokens;
  return graph;
}

}  // namespace trireme::graph
