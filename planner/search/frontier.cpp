#include "planner/search/frontier.h"

#include <algorithm>
#include <cmath>

#include "cost_models/compute.h"
#include "cost_models/formulas.h"
#include "planner/cuts/cut_bound.h"
#include "planner/rounding.h"

namespace trireme::planner {

namespace {

// Of all layers, from the MLP's width back to the hidden size.
Flops lastProducts(const spec::ModelSpec& model, const spec::TrainingSpec& training) {
  return Flops(2 * static_cast<double>(training.globalBatchSize * training.sequenceLength) *
               static_cast<double>(model.hiddenSize * model.ffnSize) *
               static_cast<double>(model.numLayers));
}

}  // namespace

Work leastWork(const Query& query, const Group& group) {
  spec::TrainingSpec one = query.training;
  one.globalBatchSize = group.microbatchSize;
  const cost::StepFlops flops = cost::stepFlops(query.model, one);
  const spec::DeviceSpec& device = query.cluster.device;
  const double library = std::max(1.0, query.stack.description.matmulFactor);
  const double efficiency =
      library * std::max({device.matmulEfficiency, device.f8MatmulEfficiency,
                          device.f32MatmulEfficiency, device.tf32MatmulEfficiency,
                          device.f16MatmulEfficiency, device.attentionEfficiency});
  const FlopsPerSecond rate = device.peak(spec::linearFormat(query.training))->rate *
                              (efficiency * static_cast<double>(group.tp * group.cp));
  // Forward, backward twice, and forward once more if layers are recomputed; own programs leave out
  // the last product, which no backward needs.
  Flops ofLayers = flops.layers;
  if (group.recompute == plan::Recompute::kFull && !mayRecomputeSome(query))
    ofLayers +=
        flops.layers / 3 - (query.stack.ownPrograms ? lastProducts(query.model, one) : Flops());
  Seconds layers = ofLayers / rate;
  if (!query.stack.ownPrograms)
    layers += cost::leastTensorParallel(query.model, planOf(query, group), query.cluster,
                                        query.stack.description) *
              static_cast<double>(query.model.numLayers);
  const auto count = static_cast<double>(query.model.numLayers);
  const Seconds third = flops.layers / 3 / rate / count;
  return {layers + flops.head / rate, layers / count, {third, third, third}};
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

namespace {

Seconds splitBound(const Query& query, const Group& group, double microbatches, double most,
                   const Work& work) {
  if (work.layer.count() <= 0) return {};
  const auto layers = static_cast<double>(query.model.numLayers);
  const PassTimes& passes = work.passes;
  const Seconds forwards = passes.forward * layers;
  const Seconds between(
      leastBetween(plan::ScheduleKind::kZeroBubbleH2, group.pp, microbatches, passes) * most);
  const Seconds trip = forwards + passes.backward * layers + between;
  if (query.stack.description.postValidation) return trip;
  const Seconds first =
      forwards + passes.backward * (layers - 1) + (passes.backward + passes.weights) * microbatches;
  const double q = passes.forward / work.layer / microbatches;
  const double all = q > 0 && q < 1 ? 1 - std::pow(1 - q, static_cast<double>(group.pp)) : 1;
  return std::max({trip, first, forwards / all});
}

}  // namespace

Seconds groupBound(const Query& query, const Group& group, const Work& work) {
  const auto microbatches =
      static_cast<double>(query.training.globalBatchSize / (group.dp * group.microbatchSize));
  const auto stages = static_cast<double>(group.pp);
  const auto most = static_cast<double>((query.model.numLayers + group.pp - 1) / group.pp);
  const Seconds busiest = std::max(work.all / stages, work.layer * most);
  const Seconds ends = work.all - work.layer * static_cast<double>(query.model.numLayers);
  const Seconds others = work.layer * (stages - 3) + std::min(ends, work.layer);
  if (group.splitsBackward)
    return std::max(busiest * microbatches, splitBound(query, group, microbatches, most, work)) *
           kRounding;
  return (busiest * microbatches + std::max(others, Seconds(0))) * kRounding;
}

Seconds shapeBound(const Query& query, const Group& shape, const Work& work, int64_t mostRanks) {
  const auto microbatches =
      static_cast<double>(query.training.globalBatchSize / shape.microbatchSize);
  return work.all * (microbatches / static_cast<double>(mostRanks)) * kRounding;
}

}  // namespace trireme::planner
