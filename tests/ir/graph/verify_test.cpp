#include "ir/graph/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/support/small_model.h"

namespace trireme::graph {
namespace {

using ::testing::StartsWith;

ModelGraph gptGraph(bool tied, double dropout) {
  spec::ModelSpec model = small::gpt(2, 8, 2);
  model.ffnSize = 16;
  model.vocabSize = 10;
  model.maxSequence = 6;
  model.tiedEmbeddings = tied;
  spec::TrainingSpec training;
  training.sequenceLength = 4;
  training.globalBatchSize = 6;
  training.embeddingDropout = training.attentionDropout = training.residualDropout = dropout;
  return buildGraph(model, training, 2, 16);
}

TEST(VerifyForward, BuiltGraphsObeyTheRules) {
  for (const bool tied : {false, true})
    for (const double dropout : {0.0, 0.1}) {
      const Status status = verifyForward(gptGraph(tied, dropout));
      EXPECT_TRUE(status.ok()) << status.message();
    }
}

Op& opOf(Block& block, OpKind kind) {
  for (Op& op : block.forward)
    if (op.kind == kind) return op;
  return block.forward.front();
}

struct Change {
  const char* message;
  std::function<void(ModelGraph&)> apply;
};

TEST(VerifyForward, BrokenRulesAreNamed) {
  const Change changes[] = {
      {"layer: (G1) layer_norm: epsilon -1",
       [](ModelGraph& g) { opOf(g.layer, OpKind::kLayerNorm).attributes.epsilon = -1; }},
      {"layer: (G1) attention is sharded or scaled",
       [](ModelGraph& g) { opOf(g.layer, OpKind::kAttention).attributes.widthSharded = true; }},
      {"layer: (G1) attention has rope_scaling",
       [](ModelGraph& g) {
         opOf(g.layer, OpKind::kAttention).attributes.ropeScaling = {RopeScalingKind::kLinear, 2};
       }},
      {"layer: (G1) layer_norm: rope_scaling: factor must be at least 1, got 0.5",
       [](ModelGraph& g) {
         opOf(g.layer, OpKind::kLayerNorm).attributes.ropeScaling = {RopeScalingKind::kLinear, 0.5};
       }},
      {"layer: (G2) two parameters are called 'layers.{}.attn_norm.weight'",
       [](ModelGraph& g) { g.layer.parameters[1].name = g.layer.parameters[0].name; }},
      {"layer: (G2) parameter '{}.{}' is in a layer",
       [](ModelGraph& g) { g.layer.parameters[1].name = "{}.{}"; }},
      {"head: (G2) parameter 'a{}' is in no layer",
       [](ModelGraph& g) { g.head.parameters[0].name = "a{}"; }},
      {"embedding: (G3) parameter 'embedding.word.weight' has the logical size 0",
       [](ModelGraph& g) { g.embedding.parameters[0].logicalDims[0] = 0; }},
      {"embedding: (G3) parameter 'embedding.word.weight' has the standard deviation -1",
       [](ModelGraph& g) { g.embedding.parameters[0].initStd = -1; }},
      {"layer: (G4) parameter 'attn_norm.weight' is read 2 times",
       [](ModelGraph& g) { g.layer.forward[0].inputs[2] = g.layer.forward[0].inputs[1]; }},
      {"layer: (G4) nothing reads 'output'",
       [](ModelGraph& g) { g.layer.output = opOf(g.layer, OpKind::kAdd).outputs[0]; }},
      {"head: (G5) the block ends in 'loss.max', which is no activation",
       [](ModelGraph& g) {
         g.head.output = opOf(g.head, OpKind::kLossMax).outputs[0];
         for (Parameter& p : g.head.parameters) p.name += "{}";
       }},
      {"head: (G5) a block without output has one each",
       [](ModelGraph& g) { g.head.forward.push_back(Op(g.head.forward.back())); }},
      {"head: (G5) loss_max in a block that has another output",
       [](ModelGraph& g) {
         g.head.output = opOf(g.head, OpKind::kLossMax).inputs[0];
         for (Parameter& p : g.head.parameters) p.name += "{}";
       }},
      {"head: (G5) token_loss must read loss_target and loss_sum_exp",
       [](ModelGraph& g) {
         std::swap(g.head.forward.back().inputs[0], g.head.forward.back().inputs[1]);
       }},
      {"head: (G5) loss_max: logical vocabulary 17",
       [](ModelGraph& g) {
         for (const OpKind kind : {OpKind::kLossMax, OpKind::kLossTarget, OpKind::kLossSumExp})
           opOf(g.head, kind).attributes.logicalVocab = 17;
       }},
      {"(G6) 0 layers", [](ModelGraph& g) { g.numLayers = 0; }},
      {"(G6) the head takes [sequence 4, batch 2, hidden 9], expected [sequence 4, batch 2, hidden "
       "8]",
       [](ModelGraph& g) { g.head.tensors[static_cast<size_t>(g.head.input)].dims[2].size = 9; }},
      {"(G6) the head takes labels [sequence 4, batch 3], expected [sequence 4, batch 2]",
       [](ModelGraph& g) { g.head.tensors[1].dims[1].size = 3; }},
      {"(G7) parameter 'layers.{}.attn_norm.weight' of a layer is tied",
       [](ModelGraph& g) { g.layer.parameters[0].tied = true; }},
      {"(G7) parameter 'embedding.word.weight' is in embedding and head, but not tied, or not",
       [](ModelGraph& g) { g.head.parameters.back().decay = false; }},
      {"(G7) a tied parameter of the embedding is not in the head",
       [](ModelGraph& g) { g.embedding.parameters[1].tied = true; }},
  };
  for (const Change& change : changes) {
    ModelGraph graph = gptGraph(true, 0.1);
    change.apply(graph);
    EXPECT_THAT(verifyForward(graph).message(), StartsWith(change.message));
  }
}

}  // namespace
}  // namespace trireme::graph
