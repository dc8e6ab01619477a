#include "planner/search/work.h"

#include <algorithm>
#include <utility>

#include "cost_models/attention.h"
#include "cost_models/collectives.h"
#include "cost_models/formulas.h"

namespace trireme::planner {

namespace {

using spec::CollectiveKind;

spec::TrainingSpec oneMicrobatch(const Query& query, const Group& group) {
  spec::TrainingSpec one = query.training;
  one.globalBatchSize = group.microbatchSize;
  return one;
}

// Of a layer forward, from the MLP's width back to the hidden size.
Flops lastProduct(const spec::ModelSpec& model, const spec::TrainingSpec& one) {
  return Flops(2 * static_cast<double>(one.globalBatchSize * one.sequenceLength) *
               static_cast<double>(model.hiddenSize * model.ffnSize));
}

Work describedWork(const Query& query, const Group& group) {
  const cost::StepFlops flops = cost::stepFlops(query.model, oneMicrobatch(query, group));
  const spec::DeviceSpec& device = query.cluster.device;
  const double efficiency = std::max(1.0, query.stack.description.matmulFactor) *
                            std::max(1.0, query.stack.description.f8MatmulFactor) *
                            std::max({device.matmulEfficiency, device.f8MatmulEfficiency,
                                      device.f32MatmulEfficiency, device.tf32MatmulEfficiency,
                                      device.f16MatmulEfficiency, device.attentionEfficiency});
  const FlopsPerSecond rate = device.peak(spec::linearFormat(query.training))->rate *
                              (efficiency * static_cast<double>(group.tp * group.cp));
  const auto count = static_cast<double>(query.model.numLayers);
  // Forward, backward twice, and forward once more if layers are recomputed.
  const bool isRecomputed = group.recompute == plan::Recompute::kFull && !mayRecomputeSome(query);
  const Seconds layers = flops.layers * (isRecomputed ? 4.0 / 3 : 1.0) / rate +
                         cost::leastTensorParallel(query.model, planOf(query, group), query.cluster,
                                                   query.stack.description) *
                             count;
  const Seconds third = flops.layers / 3 / rate / count;
  return {layers + flops.head / rate, layers / count, {third, third, third}};
}

// A layer of Trireme's own programs on one rank.
class OwnLayer {
 public:
  OwnLayer(const Query& query, const Group& group)
      : query_(query), group_(group), one_(oneMicrobatch(query, group)) {
    const auto format = spec::linearFormat(query.training);
    const spec::DeviceSpec& device = query.cluster.device;
    rate_ =
        device.peak(format)->rate * (device.matmulShare(format) * static_cast<double>(group.tp));
    const cost::StepFlops flops = cost::stepFlops(query.model, one_);
    const auto layers = static_cast<double>(query.model.numLayers);
    products_ = flops.layers / 3 / layers;
    attention_ = attentionTime(flops.attention / 3 / layers);
  }

  PassTimes passes() const {
    const Seconds products = products_ / rate_;
    // Under sequence parallelism gradients are gathered for products that read them at once.
    Seconds backward = products + attention_ * backwardOfAttention() + gathers(2);
    // The others run beside gradients of weights, if there are any in the pass.
    if (!group_.overlapReductions || group_.splitsBackward) backward += reductions(2);
    if (group_.recompute == plan::Recompute::kFull && !mayRecomputeSome(query_))
      backward += recomputed();
    return {products + attention_ + reductions(2) + gathers(2), backward, products};
  }
  Seconds head() const { return cost::stepFlops(query_.model, one_).head / rate_; }

 private:
  // The forward but for its last product and the reduction of that.
  Seconds recomputed() const {
    return (products_ - lastProduct(query_.model, one_)) / rate_ + attention_ + reductions(1) +
           gathers(2);
  }

  // Forward, of both products as a model has them. Its elements are no wider than the products'.
  Seconds attentionTime(Flops flops) const {
    const spec::DeviceSpec& device = query_.cluster.device;
    const auto format = mathFormatOf(spec::computeDType(query_.training.precision));
    const spec::PeakRate* peak = format ? device.peak(*format) : nullptr;
    if (peak == nullptr) return {};
    const bool isFused = query_.stack.flashAttention;
    const double share = isFused ? device.attentionEfficiency : device.matmulShare(*format);
    return flops * (isFused ? cost::kCausalShare : 1.0) /
           (peak->rate * (share * static_cast<double>(group_.tp)));
  }
  // Twice the products, of which a fused kernel does one more.
  double backwardOfAttention() const { return query_.stack.flashAttention ? 2.5 : 2; }

  Seconds reductions(int count) const {
    return collective(group_.sequenceParallel ? CollectiveKind::kReduceScatter
                                              : CollectiveKind::kAllReduce) *
           count;
  }
  Seconds gathers(int count) const {
    return group_.sequenceParallel ? collective(CollectiveKind::kAllGather) * count : Seconds(0);
  }

  Seconds collective(CollectiveKind kind) const {  // of the residual stream
    const Bytes bytes(
        static_cast<double>(one_.globalBatchSize * one_.sequenceLength * query_.model.hiddenSize) *
        static_cast<double>(byteSize(spec::computeDType(one_.precision))));
    return cost::leastTensorTime(kind, bytes, group_.tp, query_.cluster);
  }

  const Query& query_;
  const Group& group_;
  spec::TrainingSpec one_;
  FlopsPerSecond rate_;  // of products, on all ranks of the group
  Flops products_;       // forward, on all of them
  Seconds attention_;    // forward
};

}  // namespace

Work leastWork(const Query& query, const Group& group) {
  if (!query.stack.ownPrograms) return describedWork(query, group);
  const OwnLayer layer(query, group);
  const PassTimes passes = layer.passes();
  return {passes.total() * static_cast<double>(query.model.numLayers) + layer.head(),
          passes.total(), passes};
}

Work probedWork(const Query& query, const BlockCosts& blocks) {
  const Seconds layer = blocks.layer.total();
  PassTimes passes = blocks.layer;
  if (blocks.described) passes = blocks.splitLayer;
  // Blocks of a plan that has the backward whole.
  if (passes.weights == Seconds()) std::swap(passes.backward, passes.weights);
  return {layer * static_cast<double>(query.model.numLayers) + blocks.embedding.total() +
              blocks.head.total(),
          layer, passes};
}

}  // namespace trireme::planner
