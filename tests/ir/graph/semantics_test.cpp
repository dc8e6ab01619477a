#include "ir/graph/semantics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/small_model.h"

namespace trireme::graph {
namespace {

using program::OperandType;
using program::SegmentOp;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

OperandType f32(std::vector<int64_t> dims) { return {DType::kF32, std::move(dims)}; }
OperandType bf16(std::vector<int64_t> dims) { return {DType::kBf16, std::move(dims)}; }
OperandType f64(std::vector<int64_t> dims) { return {DType::kF64, std::move(dims)}; }
OperandType i32(std::vector<int64_t> dims) { return {DType::kI32, std::move(dims)}; }

// Two query heads of 8 per key/value head: e = (2 + 2) 8 = 32, c = 2 * 8 = 16.
OpAttributes twoHeadsOfEight() {
  OpAttributes attributes;
  attributes.headSize = 8;
  attributes.headsPerGroup = 2;
  return attributes;
}

struct ShapeCase {
  OpKind kind;
  std::vector<OperandType> inputs;
  std::vector<OperandType> outputs;
  int64_t rows = 0;
};

// s = 6, b = 2, h = 4, f = 10, v = 7, g = 3 in bf16 with f32 state, all worked out by hand.
std::vector<ShapeCase> shapeCases() {
  const OperandType x = bf16({6, 2, 4}), token = f32({6, 2}), ids = i32({6, 2});
  const OperandType h = bf16({4}), hGrad = f32({4});
  const OperandType qkv = bf16({6, 2, 3, 32}), ctx = bf16({6, 2, 3, 16}), lse = f32({2, 6, 6});
  const OperandType gateUp = bf16({6, 2, 2, 10}), f = bf16({6, 2, 10});
  const OperandType logits = bf16({6, 2, 7});
  return {
      {OpKind::kEmbedding, {ids, bf16({7, 4})}, {x}},
      {OpKind::kAddPosition, {x, bf16({9, 4})}, {x}},
      {OpKind::kDropout, {x}, {x}},
      {OpKind::kLayerNorm, {x, h, h}, {x, token, token}},
      {OpKind::kRmsNorm, {x, h}, {x, token}},
      {OpKind::kMatmul, {x, bf16({10, 4})}, {f}},
      {OpKind::kMatmul, {x, bf16({3, 32, 4})}, {qkv}},
      {OpKind::kMatmul, {ctx, bf16({4, 3, 16})}, {x}},
      {OpKind::kBiasAdd, {qkv, bf16({3, 32})}, {qkv}},
      {OpKind::kGelu, {f}, {f}},
      {OpKind::kSwiGlu, {gateUp}, {f}},
      {OpKind::kRotary, {qkv}, {qkv}},
      {OpKind::kAttention, {qkv}, {ctx, lse}},
      {OpKind::kAdd, {x, x}, {x}},
      {OpKind::kLossMax, {logits}, {token}},
      {OpKind::kLossTarget, {logits, token, ids}, {token}},
      {OpKind::kLossSumExp, {logits, token}, {token}},
      {OpKind::kTokenLoss, {token, token}, {f64({1})}},
      {OpKind::kEmbeddingGrad, {ids, x}, {f32({7, 4})}, 7},
      {OpKind::kPositionGrad, {x}, {f32({9, 4})}, 9},
      {OpKind::kLayerNormGrad, {x, h, token, token, x}, {x, hGrad, hGrad}},
      {OpKind::kRmsNormGrad, {x, h, token, x}, {x, hGrad}},
      {OpKind::kMatmulGradInput, {qkv, bf16({3, 32, 4})}, {x}},
      {OpKind::kMatmulGradInput, {x, bf16({4, 3, 16})}, {ctx}},
      {OpKind::kMatmulGradWeight, {qkv, x}, {f32({3, 32, 4})}},
      {OpKind::kMatmulGradWeight, {x, ctx}, {f32({4, 3, 16})}},
      {OpKind::kBiasGrad, {qkv}, {f32({3, 32})}},
      {OpKind::kGeluGrad, {f, f}, {f}},
      {OpKind::kSwiGluGrad, {gateUp, f}, {gateUp}},
      {OpKind::kRotaryGrad, {qkv}, {qkv}},
      {OpKind::kAttentionGrad, {qkv, ctx, lse, ctx}, {qkv}},
      {OpKind::kLossGrad, {logits, token, token, ids}, {logits}},
  };
}

TEST(InferOutputs, KnowsEveryOp) {
  std::vector<int> seen(program::kNumOpKinds, 0);
  for (const ShapeCase& c : shapeCases()) {
    seen[static_cast<size_t>(c.kind)] = 1;
    const auto outputs = inferOutputs(c.kind, twoHeadsOfEight(), c.inputs, DType::kF32, c.rows);
    ASSERT_TRUE(outputs.has_value()) << outputs.error().message();
    EXPECT_EQ(*outputs, c.outputs) << program::opName(c.kind);
  }
  EXPECT_THAT(seen, ::testing::Each(1));
}

// One wrong input at a time: one more dim, one dim larger, another type, one input more or less.
TEST(InferOutputs, RefusesEveryWrongInput) {
  for (const ShapeCase& c : shapeCases()) {
    const auto refuses = [&](const std::vector<OperandType>& inputs) {
      return !inferOutputs(c.kind, twoHeadsOfEight(), inputs, DType::kF32, c.rows).has_value();
    };
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      SCOPED_TRACE(::testing::Message() << program::opName(c.kind) << " input " << i);
      auto wrong = c.inputs;
      wrong[i].dtype = wrong[i].dtype == DType::kI32 ? DType::kF32 : DType::kI32;
      EXPECT_TRUE(refuses(wrong));
      wrong = c.inputs;
      wrong[i].dims[0] = 0;
      EXPECT_TRUE(refuses(wrong));
      wrong = c.inputs;
      wrong[i].dims.clear();
      EXPECT_TRUE(refuses(wrong));
      wrong = c.inputs;
      wrong.erase(wrong.begin() + static_cast<long>(i));
      EXPECT_TRUE(refuses(wrong));
    }
    auto wrong = c.inputs;
    wrong.push_back(c.inputs[0]);
    EXPECT_TRUE(refuses(wrong)) << program::opName(c.kind);
  }
}

// Whether nothing else says how large the inner dim of an input is.
bool innerDimIsFree(OpKind kind, size_t input) {
  switch (kind) {
    case OpKind::kDropout:
    case OpKind::kGelu:
    case OpKind::kSwiGlu:
    case OpKind::kLossMax:
    case OpKind::kPositionGrad:
    case OpKind::kBiasGrad:
    case OpKind::kEmbedding:
    case OpKind::kMatmulGradWeight:
      return true;
    case OpKind::kLossTarget:
    case OpKind::kLossSumExp:
    case OpKind::kLossGrad:
      return input == 0;  // the vocabulary
    case OpKind::kEmbeddingGrad:
    case OpKind::kMatmulGradInput:
      return input == 1;
    default:
      return false;
  }
}

TEST(InferOutputs, RefusesAnInnerDimThatDiffersBetweenInputs) {
  for (const ShapeCase& c : shapeCases())
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      auto wrong = c.inputs;
      wrong[i].dims.back() += 1;
      const auto outputs = inferOutputs(c.kind, twoHeadsOfEight(), wrong, DType::kF32, c.rows);
      EXPECT_EQ(outputs.has_value(), innerDimIsFree(c.kind, i))
          << program::opName(c.kind) << " input " << i;
    }
}

TEST(InferOutputs, SaysWhichInputIsWrongAndWhatWasExpected) {
  const auto outputs =
      inferOutputs(OpKind::kMatmul, {}, {f32({6, 2, 4}), f32({10, 5})}, DType::kF32);
  EXPECT_EQ(outputs.error().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(outputs.error().message(),
            "matmul: input 1 is f32[10,5], expected p[o...,k...] with compute type f32, k... = 4");
}

TEST(InferOutputs, AMatmulHasAtLeastOneOutputDim) {
  EXPECT_FALSE(inferOutputs(OpKind::kMatmul, {}, {f32({6, 2, 4}), f32({4})}, DType::kF32));
}

TEST(InferOutputs, HeadsFollowFromTheAttributes) {
  const auto attention = [](const OpAttributes& attributes) {
    return inferOutputs(OpKind::kAttention, attributes, {f32({6, 2, 3, 32})}, DType::kF32);
  };
  EXPECT_TRUE(attention(twoHeadsOfEight()).has_value());
  EXPECT_THAT(attention({}).error().message(), HasSubstr("headSize 0 and headsPerGroup 0"));
  OpAttributes other = twoHeadsOfEight();
  other.headSize = 4;
  EXPECT_THAT(attention(other).error().message(), HasSubstr("e = 16"));
}

TEST(InferOutputs, StatisticsAreInTheStateType) {
  const auto outputs = inferOutputs(OpKind::kRmsNorm, {}, {f64({6, 2, 4}), f64({4})}, DType::kF64);
  EXPECT_THAT(*outputs, ElementsAre(f64({6, 2, 4}), f64({6, 2})));
  EXPECT_FALSE(inferOutputs(OpKind::kTokenLoss, {}, {f32({6, 2}), f32({6, 2})}, DType::kF64));
}

TEST(InferOutputs, TheTypesOfTheTableMustAgree) {
  EXPECT_FALSE(inferOutputs(OpKind::kAdd, {}, {f32({4}), bf16({4})}, DType::kF32));
}

TEST(InferOutputs, EveryTokenHasItsPosition) {
  EXPECT_THAT(inferOutputs(OpKind::kAddPosition, {}, {f32({6, 2, 4}), f32({5, 4})}, DType::kF32)
                  .error()
                  .message(),
              HasSubstr("5 rows of positions for a sequence of 6 tokens"));
  EXPECT_FALSE(inferOutputs(OpKind::kPositionGrad, {}, {f32({6, 2, 4})}, DType::kF32, 5));
}

TEST(InferOutputs, RowsOfATableMustBeGiven) {
  EXPECT_THAT(inferOutputs(OpKind::kEmbeddingGrad, {}, {i32({6, 2}), f32({6, 2, 4})}, DType::kF32)
                  .error()
                  .message(),
              HasSubstr("rows is 0"));
}

// An op over its own operands: inputs first.
double flops(OpKind kind, std::vector<OperandType> inputs, std::vector<OperandType> outputs) {
  SegmentOp op{.kind = kind};
  std::vector<OperandType> operands;
  for (const OperandType& type : inputs) {
    op.inputs.push_back(static_cast<int32_t>(operands.size()));
    operands.push_back(type);
  }
  for (const OperandType& type : outputs) {
    op.outputs.push_back(static_cast<int32_t>(operands.size()));
    operands.push_back(type);
  }
  return opFlops(op, operands).count();
}

// 12 tokens, 3 * 32 outputs of 4 inputs: 2 * 12 * 96 * 4 = 9216, and each gradient the same.
TEST(OpFlops, OfAMatmulAreTwoPerWeightAndToken) {
  const OperandType x = f32({6, 2, 4}), w = f32({3, 32, 4}), y = f32({6, 2, 3, 32});
  EXPECT_EQ(flops(OpKind::kMatmul, {x, w}, {y}), 9216);
  EXPECT_EQ(flops(OpKind::kMatmulGradInput, {y, w}, {x}), 9216);
  EXPECT_EQ(flops(OpKind::kMatmulGradWeight, {y, x}, {w}), 9216);
}

// b = 2, 6 heads of 8, s = 6: each product is 2 * 2 * 6 * 6 * 6 * 8 = 6912. Two forward, four back.
TEST(OpFlops, OfAttentionCountTheFullSquare) {
  const OperandType qkv = f32({6, 2, 3, 32}), ctx = f32({6, 2, 3, 16}), lse = f32({2, 6, 6});
  EXPECT_EQ(flops(OpKind::kAttention, {qkv}, {ctx, lse}), 2 * 6912);
  EXPECT_EQ(flops(OpKind::kAttentionGrad, {qkv, ctx, lse, ctx}, {qkv}), 4 * 6912);
}

TEST(OpFlops, OfElementwiseOpsAreNone) {
  EXPECT_EQ(flops(OpKind::kGelu, {f32({6, 2, 10})}, {f32({6, 2, 10})}), 0);
}

double bytes(const SegmentOp& op, const std::vector<OperandType>& operands) {
  return opBytes(op, operands).count();
}

TEST(OpBytes, CountEachOperandOnceAndAccumulatedOnesTwice) {
  const OperandType x = bf16({6, 2, 4});  // 96 B
  EXPECT_EQ(bytes({OpKind::kAdd, {}, {0, 1}, {2}}, {x, x, x}), 3 * 96);
  EXPECT_EQ(bytes({OpKind::kAdd, {}, {0, 0}, {1}}, {x, x}), 2 * 96);  // x + x
  // dw += dy^T x: 96 + 96 read, 4 * 4 * 4 B = 64 read and written.
  EXPECT_EQ(bytes({OpKind::kMatmulGradWeight, {}, {0, 1}, {2}}, {x, x, f32({4, 4})}),
            96 + 96 + 2 * 64);
}

// 12 tokens of 4 elements out of 100 rows: 48 B of ids, 12 * 8 B of rows, 96 B of output.
TEST(OpBytes, OfALookUpCountTheRowsThatAreRead) {
  EXPECT_EQ(
      bytes({OpKind::kEmbedding, {}, {0, 1}, {2}}, {i32({6, 2}), bf16({100, 4}), bf16({6, 2, 4})}),
      48 + 96 + 96);
  // 6 positions of 8 B: the two sequences of the batch share them.
  EXPECT_EQ(bytes({OpKind::kAddPosition, {}, {0, 1}, {2}},
                  {bf16({6, 2, 4}), bf16({100, 4}), bf16({6, 2, 4})}),
            96 + 48 + 96);
}

TEST(Accumulates, AreTheGradientsOfParametersAndTheLoss) {
  EXPECT_TRUE(accumulates(OpKind::kTokenLoss, 0));
  EXPECT_TRUE(accumulates(OpKind::kMatmulGradWeight, 0));
  EXPECT_FALSE(accumulates(OpKind::kLayerNormGrad, 0));
  EXPECT_TRUE(accumulates(OpKind::kLayerNormGrad, 1));
  EXPECT_TRUE(accumulates(OpKind::kLayerNormGrad, 2));
  EXPECT_FALSE(accumulates(OpKind::kMatmulGradInput, 0));
  EXPECT_FALSE(accumulates(OpKind::kAdd, 1));
}

TEST(MustBeWhole, IsWhatAnOpReadsAcross) {
  EXPECT_TRUE(mustBeWhole(OpKind::kLayerNorm, Label::kHidden));
  EXPECT_TRUE(mustBeWhole(OpKind::kRmsNormGrad, Label::kHidden));
  EXPECT_FALSE(mustBeWhole(OpKind::kLayerNorm, Label::kSequence));
  EXPECT_TRUE(mustBeWhole(OpKind::kAttention, Label::kSequence));
  EXPECT_TRUE(mustBeWhole(OpKind::kAttentionGrad, Label::kHeadWidth));
  EXPECT_FALSE(mustBeWhole(OpKind::kAttention, Label::kGroup));
  EXPECT_TRUE(mustBeWhole(OpKind::kSwiGlu, Label::kGateUp));
  EXPECT_FALSE(mustBeWhole(OpKind::kSwiGlu, Label::kFfn));
  EXPECT_TRUE(mustBeWhole(OpKind::kRotary, Label::kHeadWidth));
  EXPECT_FALSE(mustBeWhole(OpKind::kMatmul, Label::kHidden));
  EXPECT_FALSE(mustBeWhole(OpKind::kTokenLoss, Label::kSequence));
}

spec::ModelSpec gpt() { return small::gpt(2, 32, 4); }

spec::ModelSpec llama() {
  spec::ModelSpec model = small::asLlama(gpt());
  model.numKvHeads = 2;
  return model;
}

ModelGraph graphOfModel(const spec::ModelSpec& model) {
  spec::TrainingSpec training;
  training.precision = spec::Precision::kBf16;
  training.sequenceLength = 16;
  training.globalBatchSize = 6;
  training.embeddingDropout = training.attentionDropout = training.residualDropout = 0.1;
  return buildGraph(model, training, 3, 128);
}

std::vector<OperandType> typesOf(const Block& block) {
  std::vector<OperandType> types;
  for (const Tensor& tensor : block.tensors)
    types.push_back(typeOf(tensor, spec::Precision::kBf16));
  return types;
}

// The backward and the semantics are written apart: every tensor has the type and the labels that
// its op infers.
TEST(Graph, EveryOpInfersTheTensorsThatItWrites) {
  for (const spec::ModelSpec& model : {gpt(), llama()}) {
    const ModelGraph graph = graphOfModel(model);
    for (const Block* block : {&graph.embedding, &graph.layer, &graph.head}) {
      const std::vector<OperandType> types = typesOf(*block);
      for (const std::vector<Op>* ops : {&block->forward, &block->backward})
        for (const Op& op : *ops) {
          std::vector<OperandType> inputs, outputs;
          for (const TensorId id : op.inputs) inputs.push_back(types[static_cast<size_t>(id)]);
          for (const TensorId id : op.outputs) outputs.push_back(types[static_cast<size_t>(id)]);
          const auto inferred =
              inferOutputs(op.kind, op.attributes, inputs, DType::kF32, outputs[0].dims[0]);
          ASSERT_TRUE(inferred.has_value()) << block->name << ": " << inferred.error().message();
          EXPECT_EQ(*inferred, outputs) << block->name << ": " << program::opName(op.kind);
          std::vector<Labels> labels, outLabels;
          for (const TensorId id : op.inputs)
            labels.push_back(labelsOf(block->tensors[static_cast<size_t>(id)]));
          for (const TensorId id : op.outputs)
            outLabels.push_back(labelsOf(block->tensors[static_cast<size_t>(id)]));
          const auto inferredLabels = inferLabels(op.kind, labels);
          ASSERT_TRUE(inferredLabels.has_value()) << inferredLabels.error().message();
          EXPECT_EQ(*inferredLabels, outLabels) << block->name << ": " << program::opName(op.kind);
        }
    }
  }
}

TEST(InferLabels, SaysWhichDimIsAnother) {
  const Labels x = {Label::kSequence, Label::kBatch, Label::kHidden};
  const auto wrong = inferLabels(OpKind::kMatmul, {x, {Label::kVocab, Label::kFfn}});
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().message(),
            "matmul: input 1 has the dims [vocab, ffn], expected [..., hidden]");
  EXPECT_FALSE(inferLabels(OpKind::kGelu, {x, x}).has_value());
}

// A weight must be a parameter and a statistic no activation, or the backward would be wrong.
TEST(InferTensors, TellsParametersStatisticsAndActivationsApart) {
  const ModelGraph graph = graphOfModel(gpt());
  const auto tensor = [&](const char* name) {
    for (const Tensor& t : graph.layer.tensors)
      if (t.name == name) return &t;
    return static_cast<const Tensor*>(nullptr);
  };
  const Tensor *x = tensor("input"), *bias = tensor("attn.out.bias"),
               *mean = tensor("attn_norm.mean");
  const auto messageOf = [](OpKind kind, const std::vector<const Tensor*>& inputs) {
    const auto made = inferTensors(kind, {}, inputs);
    return made.has_value() ? "no error" : made.error().message();
  };
  EXPECT_EQ(messageOf(OpKind::kBiasAdd, {x, bias}), "no error");
  EXPECT_EQ(messageOf(OpKind::kMatmul, {x, x}),
            "matmul: input 1 ('input') is an activation, expected a parameter");
  EXPECT_EQ(messageOf(OpKind::kAdd, {mean, mean}),
            "add: input 0 ('attn_norm.mean') is a statistic, expected an activation");
  EXPECT_EQ(messageOf(OpKind::kAdd, {x, bias}),
            "add: input 1 ('attn.out.bias') is a parameter, expected an activation");
  EXPECT_THAT(messageOf(OpKind::kBiasGrad, {x}), HasSubstr("op of the backward"));
}

// What carries the hidden size, and statistics over it; not what only contracts it.
TEST(InferTensors, TheSequenceRegionIsWhereHiddenIsWhole) {
  for (const spec::ModelSpec& model : {gpt(), llama()}) {
    const ModelGraph graph = graphOfModel(model);
    std::vector<std::string> outside;
    for (const Block* block : {&graph.embedding, &graph.layer, &graph.head})
      for (const Op& op : block->forward)
        for (const TensorId id : op.outputs) {
          const Tensor& t = block->tensors[static_cast<size_t>(id)];
          if (!t.sequenceRegion && t.dims[0].label == Label::kSequence) outside.push_back(t.name);
        }
    if (model.norm == spec::NormKind::kLayerNorm)
      EXPECT_THAT(outside, ElementsAre("attn.qkv.product", "attn.qkv.out", "attn.context",
                                       "mlp.up.product", "mlp.up.out", "mlp.hidden", "logits",
                                       "loss.max", "loss.target", "loss.sum_exp"));
    else
      EXPECT_THAT(outside, ElementsAre("attn.qkv.product", "attn.rotated", "attn.context",
                                       "mlp.gate_up.product", "mlp.hidden", "logits", "loss.max",
                                       "loss.target", "loss.sum_exp"));
  }
}

// 6 samples of 16 tokens in a step, whatever the microbatch.
TEST(Graph, TheLossIsTheMeanOverTheTokensOfAStep) {
  const ModelGraph graph = graphOfModel(gpt());
  ASSERT_EQ(graph.head.backward.front().kind, OpKind::kLossGrad);
  EXPECT_EQ(graph.head.backward.front().attributes.scale, 1.0 / (6 * 16));
}

double flopsOf(const Block& block, const std::vector<Op>& ops) {
  const std::vector<OperandType> types = typesOf(block);
  double total = 0;
  for (const Op& op : ops)
    total += opFlops({op.kind, op.attributes, op.inputs, op.outputs}, types).count();
  return total;
}

// Narayanan et al. 2021: a layer's forward is 24 B s h^2 + 4 B s^2 h, the logits are 2 B s h V, and
// the backward is twice the forward. B = 3, s = 16, h = 32, V = 128.
TEST(Graph, FlopsOfGptAreThePublishedFormula) {
  const ModelGraph graph = graphOfModel(gpt());
  constexpr double kLayer = 24.0 * 3 * 16 * 32 * 32 + 4.0 * 3 * 16 * 16 * 32;
  constexpr double kLogits = 2.0 * 3 * 16 * 32 * 128;
  EXPECT_EQ(flopsOf(graph.layer, graph.layer.forward), kLayer);
  EXPECT_EQ(flopsOf(graph.layer, graph.layer.backward), 2 * kLayer);
  EXPECT_EQ(flopsOf(graph.head, graph.head.forward), kLogits);
  EXPECT_EQ(flopsOf(graph.head, graph.head.backward), 2 * kLogits);
  EXPECT_EQ(flopsOf(graph.embedding, graph.embedding.forward), 0);
}

}  // namespace
}  // namespace trireme::graph
