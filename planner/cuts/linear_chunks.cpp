#include "planner/cuts/linear_chunks.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "cost_models/described_estimate.h"
#include "cost_models/formulas.h"
#include "cost_models/in_flight.h"
#include "planner/cuts/cut_stages.h"
#include "planner/rounding.h"
#include "planner/space/own_memory.h"

namespace trireme::planner {
namespace {

using cost::asDouble;

plan::Plan withEmptyChunks(const plan::Plan& plan) {
  plan::Plan bare = plan;
  bare.layers.assign(static_cast<size_t>(plan.pp),
                     std::vector<plan::LayerRange>(static_cast<size_t>(plan.virtualStages)));
  return bare;
}

}  // namespace

double LinearRow::at(const std::vector<double>& layers) const {
  return std::inner_product(perLayer.begin(), perLayer.end(), layers.begin(), fixed);
}

double LinearChunks::ofLayerInAll() const {
  return std::accumulate(std::begin(ofLayer), std::end(ofLayer), 0.0);
}

std::vector<double> LinearChunks::levelled() const {
  const double each = ofLayerInAll();
  std::vector<double> without(numChunks(), 0.0), layers(numChunks());  // s of a chunk, without them
  for (const std::vector<double>& ofKind : fixed)
    for (size_t i = 0; i < numChunks(); ++i) without[i] += ofKind[i];
  const auto layersIn = [&](double time) {
    double sum = 0;
    for (size_t i = 0; i < numChunks(); ++i)
      sum += layers[i] = std::max((time - without[i]) / each, least[i]);
    return sum;
  };
  double low = 0, high = each * numLayers + *std::max_element(without.begin(), without.end());
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2;
    (layersIn(middle) < numLayers ? low : high) = middle;
  }
  layersIn(high);
  return layers;
}

bool LinearChunks::mayHold(const std::vector<double>& layers) const {
  for (size_t rank = 0; rank < numStages(); ++rank)
    if (memoryAt(rank, layers).at(layers) > 0) return false;
  return true;
}

LinearChunks ownChunks(const Query& query, const plan::Plan& plan, const BlockCosts& blocks) {
  const plan::Plan bare = withEmptyChunks(plan);
  const auto stages = static_cast<size_t>(plan.pp),
             chunks = static_cast<size_t>(plan.virtualStages);
  LinearChunks linear;
  linear.pipeline = pipelineOf(query, bare, blocks);
  linear.numLayers = asDouble(query.model.numLayers);
  linear.ofLayer[kForwardPass] = blocks.layer.forward.count();
  linear.ofLayer[kBackwardPass] = blocks.layer.backward.count();
  linear.ofLayer[kWeightsPass] = blocks.layer.weights.count();
  linear.least.assign(stages * chunks, 1);
  const double stop = linear.pipeline.stop().count();
  const Bytes available = query.cluster.device.memory / kRounding;
  const Bytes reserve = leastReserve(query, bare);
  std::vector<LinearRow> memory;
  for (size_t rank = 0; rank < stages; ++rank) {
    const cost::StageTimes times = stageTimesOf(bare, blocks, rank);
    const ChunkMemory held = chunkMemoryOf(query, bare, blocks, rank, reserve);
    LinearRow row{std::vector<double>(stages * chunks, 0.0), held.fixed / available - 1};
    for (size_t c = 0; c < chunks; ++c) {
      linear.fixed[kForwardPass].push_back(times.forward[c].count() + stop);
      linear.fixed[kBackwardPass].push_back(times.backward[c].count() + stop);
      linear.fixed[kWeightsPass].push_back(times.weights.empty() ? 0 : times.weights[c].count());
      row.perLayer[rank * chunks + c] = held.perLayer[c] / available;
    }
    linear.pipeline.stages.push_back(times);
    memory.push_back(std::move(row));
  }
  linear.memoryAt = [memory = std::move(memory)](size_t rank, const std::vector<double>&) {
    return memory[rank];
  };
  return linear;
}

namespace {

// The layers of a rank's chunks, and what they are multiplied by at the moment when most is kept.
LinearRow describedMemory(const plan::Plan& plan, const CutMemory::Parts& parts, Bytes available,
                          size_t rank, const std::vector<double>& layers) {
  const auto chunks = static_cast<size_t>(plan.virtualStages);
  // Of a microbatch in one chunk: the least line through what it keeps of so many layers.
  struct Kept {
    double fixed, perLayer;
  };
  std::vector<Kept> lines;
  std::vector<double> kept;
  for (size_t c = 0; c < chunks; ++c) {
    const double n = layers[rank * chunks + c];
    const double saved = parts.saved.count(), whole = parts.kept.count();
    lines.push_back(n < parts.recomputed ? Kept{0, whole - saved}
                                         : Kept{-saved * parts.recomputed, whole});
    kept.push_back(lines.back().fixed + lines.back().perLayer * n);
  }
  const std::vector<int64_t> alive =
      cost::aliveAtPeak(plan.schedule, plan.pp, plan.virtualStages, plan.numMicrobatches(),
                        static_cast<int64_t>(rank), kept);
  LinearRow row{std::vector<double>(layers.size(), 0.0), parts.fixed.count()};
  for (size_t c = 0; c < chunks; ++c) {
    row.fixed += asDouble(alive[c]) * lines[c].fixed;
    row.perLayer[rank * chunks + c] =
        (parts.perLayer.count() + asDouble(alive[c]) * lines[c].perLayer) / available.count();
  }
  row.fixed = row.fixed / available.count() - 1;
  return row;
}

}  // namespace

LinearChunks describedChunks(const Query& query, const plan::Plan& plan, const BlockCosts& blocks,
                             SlotTable& slots) {
  const auto stages = static_cast<size_t>(plan.pp),
             chunks = static_cast<size_t>(plan.virtualStages);
  CutStages cut(query, plan, blocks);
  const CutMemory memory(cut, blocks, slots);
  LinearChunks linear;
  linear.numLayers = asDouble(query.model.numLayers);
  linear.pipeline = cut.pipeline();
  linear.least.assign(stages * chunks, 1);
  linear.least.front() = linear.least.back() = 0;
  const int64_t few = std::max<int64_t>(query.model.numLayers / (plan.pp * plan.virtualStages), 1);
  std::vector<CutMemory::Parts> parts;
  for (size_t rank = 0; rank < stages; ++rank) {
    const auto timesOf = [&](int64_t layers) {
      cut.setLayers(static_cast<int64_t>(rank), std::vector<int64_t>(chunks, layers));
      return cost::estimateStage(cut.setting, rank).times;
    };
    const cost::StageTimes less = timesOf(few), more = timesOf(few + 1);
    const double forward = (more.forward[0] - less.forward[0]).count();
    const double backward = (more.backward[0] - less.backward[0]).count();
    linear.ofLayer[kForwardPass] = std::max(linear.ofLayer[kForwardPass], forward);
    linear.ofLayer[kBackwardPass] = std::max(linear.ofLayer[kBackwardPass], backward);
    for (size_t c = 0; c < chunks; ++c) {
      linear.fixed[kForwardPass].push_back(less.forward[c].count());
      linear.fixed[kBackwardPass].push_back(less.backward[c].count());
      linear.fixed[kWeightsPass].push_back(0);
    }
    linear.pipeline.stages.push_back(less);
    parts.push_back(memory.parts(static_cast<int64_t>(rank)));
  }
  for (const PassKind kind : {kForwardPass, kBackwardPass})
    for (double& fixed : linear.fixed[kind])
      fixed = std::max(fixed - linear.ofLayer[kind] * asDouble(few), 0.0) + cut.transfer;
  linear.memoryAt = [plan, parts = std::move(parts), available = memory.available()](
                        size_t rank, const std::vector<double>& layers) {
    return describedMemory(plan, parts[rank], available, rank, layers);
  };
  return linear;
}

}  // namespace trireme::planner
