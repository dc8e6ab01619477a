#include "cost_models/described_blocks.h"

#include <algorithm>
#include <cmath>

#include "cost_models/attention.h"
#include "cost_models/collectives.h"
#include "cost_models/compute.h"
#include "cost_models/formulas.h"
#include "cost_models/gemm.h"
#include "ir/plan/sharding.h"

namespace trireme::cost {
namespace {

using spec::CollectiveKind;
using spec::GradientAccumulation;

// What all kernels of a program have in common.
struct Setting {
  const spec::ModelSpec& model;
  const plan::Plan& plan;
  const spec::ClusterSpec& cluster;
  const spec::StackDescription& stack;
  Levels tensor, context;
  double element = 2;         // bytes of an activation
  MathFormat linear, others;  // of the products of linear layers, and of all others
  int64_t tokens = 0;         // of a microbatch on one rank
  int64_t normTokens = 0;     // of them in norms and residual sums
  bool dropout = false;
  double tensorExposed = 1;  // of tensor parallel collectives beside products

  int64_t shared(int64_t width) const { return width / plan.tp; }
};

Setting settingOf(const spec::ModelSpec& model, const plan::Plan& plan,
                  const spec::ClusterSpec& cluster, const spec::StackDescription& stack) {
  const spec::Precision precision = plan.training.precision;
  Setting s{model,
            plan,
            cluster,
            stack,
            levelsOf(tensorGroup(plan), ranksOf(plan, cluster), cluster),
            levelsOf(contextGroup(plan), ranksOf(plan, cluster), cluster)};
  s.element = asDouble(byteSize(spec::computeDType(precision)));
  s.linear = spec::linearFormat(plan.training);
  s.others = *mathFormatOf(spec::computeDType(precision));
  s.tokens = plan.microbatchSize * plan.training.sequenceLength / plan.cp;
  s.normTokens = plan.sequenceParallel ? s.tokens / plan.tp : s.tokens;
  s.dropout = plan.training.residualDropout > 0;
  if (hidesTensors(plan, cluster)) s.tensorExposed = stack.tensorParallelExposed;
  return s;
}

// What is felt of keys and values that come beside attention. A ring is as fast as its slowest hop:
// at the border of a node one rank sends all that passes.
Seconds contextParallelTime(const Setting& s, double bytes, Seconds attention) {
  if (s.plan.cp == 1) return {};
  const double ranks = asDouble(s.plan.cp);
  Seconds time = collectiveTime(CollectiveKind::kAllGather, Bytes(bytes), s.context);
  Seconds beside = attention;
  if (s.stack.contextExchange == spec::ContextExchange::kAllGather)
    beside = attention / ranks;  // to its own keys
  else
    time =
        std::max(time, sendTime(Bytes(bytes) / ranks, ringLink(s.context, s.plan.tp, s.cluster)) *
                           (ranks - 1));
  return std::max(time - beside, Seconds(0));
}

// Adds up the kernels of a pass as they are named.
class Pass {
 public:
  Pass(const Setting& setting, Direction direction)
      : s_(setting),
        launch_(setting.stack.hostLaunch *
                (direction == Direction::kForward ? 1 : setting.stack.hostBackward) *
                (1 + setting.stack.hostGrowth * std::log2(asDouble(setting.plan.tp)))) {}

  // At `share` of the rate of others. Hides what was gathered for it.
  void product(ProductShape shape, MathFormat format, double share = 1) {
    const bool narrow = format == MathFormat::kF8;
    shape.factorBytes = narrow ? 1 : s_.element;
    shape.ramp = narrow ? 2 : 1;
    const spec::DeviceSpec& device = s_.cluster.device;
    share *= device.matmulShare(format) / device.matmulEfficiency * s_.stack.matmulFactor;
    if (narrow) share *= s_.stack.f8MatmulFactor;
    lastProduct_ = productTime(shape, device.peak(format)->rate, device, share);
    cost_.products += lastProduct_;
    cost_.tensorParallel += exposedTime(gathering_, lastProduct_, s_.tensorExposed);
    gathering_ = Seconds(0);
    launch(1);
  }
  void stream(double bytes) {
    cost_.streams += streamTime(Bytes(bytes), s_.cluster.device);
    launch(1);
  }
  // Of a layer's elementwise ops and norms.
  void elementwise(double bytes) { stream(bytes * s_.stack.elementwiseFactor); }
  void attention(const AttentionTime& time) {
    cost_.attention += time.device;
    attention_ = time.device;
    launch(time.numKernels);
  }
  // Of an operand of the next product.
  void gather(CollectiveKind kind, double bytes) {
    if (s_.plan.tp == 1) return;
    gathering_ += collectiveTime(kind, Bytes(bytes), s_.tensor);
    launch(1);
  }
  // Of the last product's result.
  void reduce(CollectiveKind kind, double bytes) {
    if (s_.plan.tp == 1) return;
    cost_.tensorParallel +=
        exposedTime(collectiveTime(kind, Bytes(bytes), s_.tensor), lastProduct_, s_.tensorExposed);
    launch(1);
  }
  // Keys and values that go round, beside the attention before.
  void contextParallel(double bytes) {
    if (s_.plan.cp == 1) return;
    cost_.contextParallel += contextParallelTime(s_, bytes, attention_);
    launch(s_.plan.cp - 1);
  }
  const PassCost& cost() const { return cost_; }

 private:
  void launch(int64_t kernels) { cost_.host += launch_ * asDouble(kernels); }

  const Setting& s_;
  const Seconds launch_;  // of one kernel
  PassCost cost_;
  Seconds lastProduct_;  // what a collective beside it may hide behind
  Seconds gathering_;    // what the next product needs
  Seconds attention_;
};

// A linear layer out <- in, widths on this rank.
struct Linear {
  int64_t in, out;
  MathFormat format;
  double share = 1;  // of the rate that other layers reach
};

void linearForward(Pass& pass, const Setting& s, const Linear& layer) {
  pass.product({s.tokens, layer.out, layer.in, 1, 0, s.element}, layer.format, layer.share);
}

void linearWeights(Pass& pass, const Setting& s, const Linear& layer) {
  ProductShape weights{layer.in, layer.out, s.tokens, 1, 0, s.element};
  const double elements = asDouble(layer.in) * asDouble(layer.out);
  switch (s.stack.gradientAccumulation) {
    case GradientAccumulation::kFusedF32:
      weights.resultBytes = 4;
      weights.accumulates = true;
      return pass.product(weights, layer.format, layer.share);
    case GradientAccumulation::kSeparateF32:  // reads the product and the sum, writes the sum
      pass.product(weights, layer.format, layer.share);
      return pass.stream(elements * (s.element + 4 + 4));
    case GradientAccumulation::kSeparateLow:
      pass.product(weights, layer.format, layer.share);
      return pass.stream(elements * 3 * s.element);
  }
}

void linearBackward(Pass& pass, const Setting& s, const Linear& layer) {
  pass.product({s.tokens, layer.in, layer.out, 1, 0, s.element}, layer.format, layer.share);
  linearWeights(pass, s, layer);
}

// The sum of a row-parallel layer's outputs over tp ranks; its mirror image is the sum of the input
// gradients of a column-parallel one.
void reduceOutput(Pass& pass, const Setting& s, double bytes) {
  pass.reduce(s.plan.sequenceParallel ? CollectiveKind::kReduceScatter : CollectiveKind::kAllReduce,
              bytes);
}
// What a column-parallel layer reads, and the gradient of what a row-parallel one writes, if every
// rank has a part of the sequence.
void gatherInput(Pass& pass, const Setting& s, double bytes) {
  if (s.plan.sequenceParallel) pass.gather(CollectiveKind::kAllGather, bytes);
}

// What ranks of tensor parallelism gather of a border that has so many bytes.
double gatheredOf(const Setting& s, double whole) {
  return s.linear == MathFormat::kF8 && s.stack.gathersF8Activations ? whole / s.element : whole;
}

// Operands that are brought into fp8, elements.
void castOperands(Pass& pass, const Setting& s, double elements) {
  if (s.linear == MathFormat::kF8) pass.stream(s.stack.castBytes / 2 * elements);
}

// Linear layers of a transformer layer, in order.
struct LayerShape {
  Linear queryKeyValue, output, up, down;
  int64_t activationWidth;  // in and out of the activation: up.out and down.in
};

LayerShape layerShape(const Setting& s) {
  const spec::ModelSpec& m = s.model;
  const bool gated = m.activation == spec::ActivationKind::kSwiGlu;
  const int64_t heads = s.shared(m.numHeads * m.headSize);
  const int64_t ffn = s.shared(m.ffnSize);
  const int64_t qkv = heads + 2 * s.shared(m.numKvHeads * m.headSize);
  return {{m.hiddenSize, qkv, s.linear},
          {heads, m.hiddenSize, s.linear},
          {m.hiddenSize, gated ? 2 * ffn : ffn, s.linear},
          {ffn, m.hiddenSize, s.linear},
          (gated ? 2 * ffn : ffn) + ffn};
}

// Bytes per element of a pass over the residual stream: what is read and written.
double normForward(const Setting& s) { return 2 * s.element; }
double sumForward(const Setting& s) { return 3 * s.element + (s.dropout ? 1 : 0); }
double normBackward(const Setting& s) { return 5 * s.element; }
double sumBackward(const Setting& s) { return 3 * s.element; }
double dropoutBackward(const Setting& s) { return 2 * s.element + 1; }

// Everything of a layer's forward but its products and collectives.
void elementwiseForward(Pass& pass, const Setting& s, const LayerShape& layer) {
  const double residual = asDouble(s.normTokens) * asDouble(s.model.hiddenSize);
  const double tokens = asDouble(s.tokens);
  for (int half = 0; half < 2; ++half) {
    pass.elementwise(normForward(s) * residual);
    pass.elementwise(sumForward(s) * residual);
  }
  if (s.model.position == spec::PositionKind::kRotary)
    pass.elementwise(2 * s.element * tokens * asDouble(layer.queryKeyValue.out));
  pass.elementwise(s.element * tokens * asDouble(layer.activationWidth));
}

PassCost layerForward(const Setting& s) {
  Pass pass(s, Direction::kForward);
  const LayerShape layer = layerShape(s);
  const double whole = asDouble(s.tokens) * asDouble(s.model.hiddenSize) * s.element;
  const double gathered = gatheredOf(s, whole);
  elementwiseForward(pass, s, layer);
  castOperands(
      pass, s,
      asDouble(s.tokens) * asDouble(2 * s.model.hiddenSize + layer.output.in + layer.down.in));
  gatherInput(pass, s, gathered);
  linearForward(pass, s, layer.queryKeyValue);
  pass.attention(attentionTime(s.model, s.plan, s.cluster.device, s.stack, Direction::kForward));
  pass.contextParallel(keyValueBytes(s.model, s.plan));
  linearForward(pass, s, layer.output);
  reduceOutput(pass, s, whole);
  gatherInput(pass, s, gathered);
  linearForward(pass, s, layer.up);
  linearForward(pass, s, layer.down);
  reduceOutput(pass, s, whole);
  return pass.cost();
}

void elementwiseBackward(Pass& pass, const Setting& s, const LayerShape& layer) {
  const double residual = asDouble(s.normTokens) * asDouble(s.model.hiddenSize);
  const double tokens = asDouble(s.tokens);
  pass.elementwise(s.element * tokens * asDouble(layer.activationWidth + layer.up.out));
  for (int half = 0; half < 2; ++half) {
    pass.elementwise(normBackward(s) * residual);
    pass.elementwise(sumBackward(s) * residual);
    if (s.dropout) pass.elementwise(dropoutBackward(s) * residual);
  }
  if (s.model.position == spec::PositionKind::kRotary)
    pass.elementwise(2 * s.element * tokens * asDouble(layer.queryKeyValue.out));
}

PassCost layerBackward(const Setting& s) {
  Pass pass(s, Direction::kBackward);
  const LayerShape layer = layerShape(s);
  const double whole = asDouble(s.tokens) * asDouble(s.model.hiddenSize) * s.element;
  const double gathered = gatheredOf(s, whole);
  elementwiseBackward(pass, s, layer);
  castOperands(pass, s,
               asDouble(s.tokens) *
                   asDouble(2 * s.model.hiddenSize + layer.queryKeyValue.out + layer.up.out));
  pass.attention(attentionTime(s.model, s.plan, s.cluster.device, s.stack, Direction::kBackward));
  pass.contextParallel(2 * keyValueBytes(s.model, s.plan));
  const auto back = [&](const Linear& linear, bool columnParallel) {
    gatherInput(pass, s, gathered);  // the gradient of its output, or its input again
    linearBackward(pass, s, linear);
    if (columnParallel) reduceOutput(pass, s, whole);
    if (s.model.linearBias) pass.stream(s.element * asDouble(s.tokens) * asDouble(linear.out));
  };
  back(layer.down, false);
  back(layer.up, true);
  back(layer.output, false);
  back(layer.queryKeyValue, true);
  return pass.cost();
}

// The part of it that no other rank waits for.
PassCost layerWeights(const Setting& s) {
  Pass pass(s, Direction::kBackward);
  const LayerShape layer = layerShape(s);
  for (const Linear& linear : {layer.down, layer.up, layer.output, layer.queryKeyValue})
    linearWeights(pass, s, linear);
  return pass.cost();
}

// What selective recomputation adds to the backward.
PassCost selectivelyRecomputed(const Setting& s) {
  switch (s.stack.selective) {
    case spec::SelectiveRecompute::kEveryOther:
      return layerForward(s) * 0.5;
    case spec::SelectiveRecompute::kAttention: {
      Pass pass(s, Direction::kForward);
      pass.attention(
          attentionTime(s.model, s.plan, s.cluster.device, s.stack, Direction::kForward));
      pass.contextParallel(keyValueBytes(s.model, s.plan));
      return pass.cost();
    }
    case spec::SelectiveRecompute::kPerOperator: {
      // Of q, k, v, output, gate, up, down every second is kept: k, output and up come again.
      Pass pass(s, Direction::kForward);
      const LayerShape layer = layerShape(s);
      const double whole = asDouble(s.tokens) * asDouble(s.model.hiddenSize) * s.element;
      elementwiseForward(pass, s, layer);
      gatherInput(pass, s, whole);
      linearForward(
          pass, s, {s.model.hiddenSize, s.shared(s.model.numKvHeads * s.model.headSize), s.linear});
      linearForward(pass, s, layer.output);
      gatherInput(pass, s, whole);
      linearForward(pass, s, {s.model.hiddenSize, layer.down.in, s.linear});
      return pass.cost();
    }
  }
  return {};
}

void setRecomputed(const Setting& s, BlockCost& layer) {
  layer.recomputed = {};
  if (s.plan.recompute == plan::Recompute::kFull) layer.recomputed = layer.forward;
  if (s.plan.recompute == plan::Recompute::kSelective) layer.recomputed = selectivelyRecomputed(s);
}

PassCost embeddingForward(const Setting& s) {
  Pass pass(s, Direction::kForward);
  const double whole = asDouble(s.tokens) * asDouble(s.model.hiddenSize) * s.element;
  pass.stream(2 * whole);  // rows of the table
  if (s.model.position == spec::PositionKind::kLearned) pass.stream(3 * whole);
  reduceOutput(pass, s, whole);
  if (s.dropout)
    pass.stream(dropoutBackward(s) * asDouble(s.normTokens) * asDouble(s.model.hiddenSize));
  return pass.cost();
}

// The table's gradient: cleared and added up, as large as the table.
PassCost embeddingBackward(const Setting& s) {
  Pass pass(s, Direction::kBackward);
  const double whole = asDouble(s.tokens) * asDouble(s.model.hiddenSize) * s.element;
  if (s.dropout)
    pass.stream(dropoutBackward(s) * asDouble(s.normTokens) * asDouble(s.model.hiddenSize));
  gatherInput(pass, s, whole);
  pass.stream(4 * whole);
  const double table =
      asDouble(plan::paddedVocab(s.plan, s.model) / s.plan.tp) * asDouble(s.model.hiddenSize);
  const double state =
      s.stack.gradientAccumulation == GradientAccumulation::kSeparateLow ? s.element : 4;
  pass.stream(table * (s.element + 2 * state));
  return pass.cost();
}

// The loss reads and writes logits several times, in six kernels forward and four backward.
constexpr int kLossForwardKernels = 6, kLossBackwardKernels = 4;
constexpr double kLossForwardShare = 0.6;

Linear logits(const Setting& s) {
  return {s.model.hiddenSize, plan::paddedVocab(s.plan, s.model) / s.plan.tp, s.others,
          s.plan.tp == 1 ? s.stack.wholeHeadEfficiency : 1};
}

PassCost headForward(const Setting& s) {
  Pass pass(s, Direction::kForward);
  const double residual = asDouble(s.normTokens) * asDouble(s.model.hiddenSize);
  const int64_t vocab = plan::paddedVocab(s.plan, s.model) / s.plan.tp;
  pass.stream(normForward(s) * residual);
  gatherInput(pass, s, asDouble(s.tokens) * asDouble(s.model.hiddenSize) * s.element);
  linearForward(pass, s, logits(s));
  const double lossBytes = s.stack.lossBytes * asDouble(s.tokens) * asDouble(vocab);
  for (int i = 0; i < kLossForwardKernels; ++i)
    pass.stream(lossBytes * kLossForwardShare / kLossForwardKernels);
  for (int i = 0; i < 3; ++i)  // maximum, target, sum of exponentials
    pass.reduce(CollectiveKind::kAllReduce, 4 * asDouble(s.tokens));
  return pass.cost();
}

PassCost headBackward(const Setting& s) {
  Pass pass(s, Direction::kBackward);
  const double residual = asDouble(s.normTokens) * asDouble(s.model.hiddenSize);
  const double whole = asDouble(s.tokens) * asDouble(s.model.hiddenSize) * s.element;
  const int64_t vocab = plan::paddedVocab(s.plan, s.model) / s.plan.tp;
  const double lossBytes = s.stack.lossBytes * asDouble(s.tokens) * asDouble(vocab);
  for (int i = 0; i < kLossBackwardKernels; ++i)
    pass.stream(lossBytes * (1 - kLossForwardShare) / kLossBackwardKernels);
  linearBackward(pass, s, logits(s));
  gatherInput(pass, s, whole);
  reduceOutput(pass, s, whole);
  pass.stream(normBackward(s) * residual);
  return pass.cost();
}

// Of a layer on one rank: matrices divided by tp, biases and norms as Megatron does.
double layerParameters(const spec::ModelSpec& m, int64_t tp) {
  const double h = asDouble(m.hiddenSize), t = asDouble(tp);
  const double heads = asDouble(m.numHeads * m.headSize), kv = asDouble(m.numKvHeads * m.headSize);
  const double ups = m.activation == spec::ActivationKind::kSwiGlu ? 2 : 1;
  const double ffn = asDouble(m.ffnSize);
  double parameters = (h * (heads + 2 * kv) + heads * h + (ups + 1) * h * ffn) / t;
  if (m.qkvBias) parameters += (heads + 2 * kv) / t;
  if (m.linearBias) parameters += ups * ffn / t + 2 * h;
  return parameters + 2 * h * (m.norm == spec::NormKind::kLayerNorm ? 2 : 1);
}

}  // namespace

PassCost& PassCost::operator+=(const PassCost& other) {
  products += other.products;
  attention += other.attention;
  streams += other.streams;
  tensorParallel += other.tensorParallel;
  contextParallel += other.contextParallel;
  host += other.host;
  return *this;
}

PassCost& PassCost::operator-=(const PassCost& part) { return *this += part * -1; }

PassCost PassCost::operator*(double factor) const {
  return {products * factor,       attention * factor,       streams * factor,
          tensorParallel * factor, contextParallel * factor, host * factor};
}

Seconds passTime(const PassCost& cost, const spec::StackDescription& stack) {
  const Seconds device = cost.device() + cost.host * stack.hostExposed;
  if (stack.hostExponent == 0) return std::max(device, cost.host);
  const double x = stack.hostExponent;
  if (x == 2) return Seconds(std::hypot(device.count(), cost.host.count()));
  // (d^x + h^x)^(1/x), with the longer taken out: powers of times would underflow.
  const Seconds longer = std::max(device, cost.host), shorter = std::min(device, cost.host);
  if (longer.count() == 0) return longer;
  return longer * std::pow(1 + std::pow(shorter.count() / longer.count(), x), 1 / x);
}

GroupShape tensorGroup(const plan::Plan& plan) { return {{plan.tp, 1}}; }
GroupShape contextGroup(const plan::Plan& plan) { return {{plan.cp, plan.tp}}; }

namespace {

// The cp ranks of so many replicas.
GroupShape contextsOf(const plan::Plan& plan, int64_t replicas) {
  const int64_t stride = plan::replicaStride(plan);
  if (stride == plan.tp * plan.cp) return {{plan.cp * replicas, plan.tp}};
  return {{plan.cp, plan.tp}, {replicas, stride}};
}

}  // namespace

GroupShape dataGroup(const plan::Plan& plan) { return contextsOf(plan, plan.dp()); }
GroupShape shardGroup(const plan::Plan& plan) { return contextsOf(plan, plan.dpShard); }
GroupShape replicaGroup(const plan::Plan& plan) {
  return {{plan.dpReplicate, plan::replicaStride(plan) * plan.dpShard}};
}
GroupShape embeddingGroup(const plan::Plan& plan) {
  if (plan.pp == 1) return {{1, 1}};
  return {{2, plan::stageStride(plan) * (plan.pp - 1)}};
}

bool hidesTensors(const plan::Plan& plan, const spec::ClusterSpec& cluster) {
  if (plan.tp == 1 || !plan.sequenceParallel) return false;
  constexpr BytesPerSecond kNetworks(125e9);  // of one device, no network is as fast
  const Levels levels = levelsOf(tensorGroup(plan), ranksOf(plan, cluster), cluster);
  if (levels.size() > 1) return false;
  const spec::LinkTier& tier = *levels.front().tier;
  const bool isIsland =
      tier.topology == spec::TierTopology::kSwitch || tier.topology == spec::TierTopology::kMesh;
  return isIsland && (plan.tp <= cluster.devicesPerHost() || tier.bandwidth > kNetworks);
}

// Those of layerForward and layerBackward, of which as much is felt as cannot be hidden.
Seconds leastTensorParallel(const spec::ModelSpec& model, const plan::Plan& plan,
                            const spec::ClusterSpec& cluster, const spec::StackDescription& stack) {
  if (plan.tp == 1) return {};
  const Setting s = settingOf(model, plan, cluster, stack);
  const double whole = asDouble(s.tokens) * asDouble(model.hiddenSize) * s.element;
  const double gathered = gatheredOf(s, whole);
  const auto time = [&](CollectiveKind kind, double bytes) {
    return leastTensorTime(kind, Bytes(bytes), plan.tp, cluster) * s.tensorExposed;
  };
  if (!plan.sequenceParallel) return time(CollectiveKind::kAllReduce, whole) * 4;
  return time(CollectiveKind::kAllGather, gathered) * 6 +
         time(CollectiveKind::kReduceScatter, whole) * 4;
}

DescribedBlocks withRecomputation(DescribedBlocks blocks, const spec::ModelSpec& model,
                                  const plan::Plan& plan, const spec::ClusterSpec& cluster,
                                  const spec::StackDescription& stack) {
  setRecomputed(settingOf(model, plan, cluster, stack), blocks.layer);
  return blocks;
}

DescribedBlocks withContextLinks(DescribedBlocks blocks, const spec::ModelSpec& model,
                                 const plan::Plan& plan, const spec::ClusterSpec& cluster,
                                 const spec::StackDescription& stack) {
  const Setting s = settingOf(model, plan, cluster, stack);
  const double bytes = keyValueBytes(model, plan);
  const auto set = [&](PassCost& pass, double times) {
    pass.contextParallel = contextParallelTime(s, bytes * times, pass.attention);
  };
  set(blocks.layer.forward, 1);
  set(blocks.layer.backward, 2);
  setRecomputed(s, blocks.layer);
  return blocks;
}

DescribedBlocks describeBlocks(const spec::ModelSpec& model, const plan::Plan& plan,
                               const spec::ClusterSpec& cluster,
                               const spec::StackDescription& stack) {
  const Setting s = settingOf(model, plan, cluster, stack);
  DescribedBlocks blocks;
  blocks.layer = {
      layerForward(s), layerBackward(s), {}, layerWeights(s), layerParameters(model, plan.tp)};
  setRecomputed(s, blocks.layer);
  const double table = asDouble(plan::paddedVocab(plan, model) / plan.tp * model.hiddenSize);
  const double positions = model.position == spec::PositionKind::kLearned
                               ? asDouble(model.maxSequence * model.hiddenSize)
                               : 0;
  const double norm =
      asDouble(model.hiddenSize) * (model.norm == spec::NormKind::kLayerNorm ? 2 : 1);
  blocks.embedding = {embeddingForward(s), embeddingBackward(s), {}, {}, table + positions};
  blocks.head = {headForward(s), headBackward(s), {}, {}, table + norm};
  return blocks;
}

}  // namespace trireme::cost
