#include "planner/own_memory.h"

#include <algorithm>

#include "cost_models/in_flight.h"
#include "cost_models/memory.h"
#include "planner/rounding.h"

namespace trireme::planner {
namespace {

Bytes scratchAt(const BlockCosts& blocks, size_t rank, size_t p) {
  if (rank == 0) return blocks.firstScratch;
  return rank == p - 1 ? blocks.lastScratch : blocks.innerScratch;
}

bool keepsScores(const Query& query, const plan::Plan& plan) {
  return !query.stack.flashAttention && plan.recompute == plan::Recompute::kNone;
}

std::vector<int64_t> slotsAt(const plan::Plan& plan, size_t rank) {
  return cost::peakSlots(plan.schedule, plan.pp, plan.virtualStages, plan.numMicrobatches(),
                         static_cast<int64_t>(rank));
}

}  // namespace

Holdings holdingsOf(const Query& query, const plan::Plan& plan, const BlockCosts& blocks,
                    size_t rank) {
  const auto p = static_cast<size_t>(plan.pp), v = static_cast<size_t>(plan.virtualStages);
  const std::vector<int64_t> slots = slotsAt(plan, rank);
  Holdings held;
  for (size_t c = 0; c < v; ++c) {
    const auto layers = static_cast<double>(plan.layers[rank][c].count);
    const auto alive = static_cast<double>(slots[c]);
    Bytes perSlot = blocks.layerActivations * layers + blocks.chunkActivations;
    held.elements += blocks.layerElements * layers;
    if (rank == 0 && c == 0) held.elements += blocks.embeddingElements;
    if (rank == p - 1 && c == v - 1) {
      held.elements += blocks.headElements;
      perSlot += blocks.headActivations;
    }
    held.activations += perSlot * alive;
    if (keepsScores(query, plan))
      held.activations += cost::unfusedScoresBytes(plan, query.model) * (layers * alive);
  }
  return held;
}

Bytes memoryOf(const Query& query, const plan::Plan& plan, const BlockCosts& blocks,
               const Holdings& holdings, size_t rank) {
  return stateBytes(query, holdings.elements, plan) + holdings.activations +
         scratchAt(blocks, rank, plan.layers.size()) +
         leastReserve(query, plan.tp, plan.pp, plan.dp());
}

Bytes rankMemory(const Query& query, const plan::Plan& plan, const BlockCosts& blocks,
                 size_t rank) {
  return memoryOf(query, plan, blocks, holdingsOf(query, plan, blocks, rank), rank);
}

Bytes fullestMemory(const Query& query, const plan::Plan& plan, const BlockCosts& blocks) {
  Bytes fullest;
  for (size_t rank = 0; rank < plan.layers.size(); ++rank)
    fullest = std::max(fullest, rankMemory(query, plan, blocks, rank));
  return fullest;
}

Bytes unprobedMemory(const Query& query, const Group& group) {
  const spec::ModelSpec& model = query.model;
  const auto hidden = static_cast<double>(model.hiddenSize);
  const auto heads =
      static_cast<double>((2 * model.numHeads + 2 * model.numKvHeads) * model.headSize);
  const double ofMlp = model.activation == spec::ActivationKind::kSwiGlu ? 3 : 2;
  const double matrices = hidden * (heads + ofMlp * static_cast<double>(model.ffnSize));
  BlockCosts blocks;
  blocks.layerElements = matrices / static_cast<double>(group.tp);
  const int64_t parts = group.cp * (group.sequenceParallel ? group.tp : 1);
  const auto tokens =
      static_cast<double>(group.microbatchSize * query.training.sequenceLength / parts);
  const auto element = static_cast<double>(byteSize(spec::computeDType(query.training.precision)));
  blocks.layerActivations = std::max(Bytes(tokens * hidden * element) - kAlignmentSlack, Bytes(0));
  return leastMemory(query, group, blocks);
}

void CutFloor::count(const plan::Plan& plan) {
  const auto stages = static_cast<size_t>(plan.pp);
  Bytes ofLayer = blocks_.layerActivations;
  if (keepsScores(query_, plan)) ofLayer += cost::unfusedScoresBytes(plan, query_.model);
  reserve_ = leastReserve(query_, plan.tp, plan.pp, plan.dp());
  ranks_.clear();
  for (size_t rank = 0; rank < stages; ++rank) {
    const std::vector<int64_t> slots = slotsAt(plan, rank);
    const int64_t fewest = *std::min_element(slots.begin(), slots.end());
    int64_t all = 0, more = 0;  // more than the fewest, where there has to be a layer
    for (const int64_t alive : slots) {
      all += alive;
      more += alive - fewest;
    }
    Rank held;
    if (rank == 0) {
      more -= slots.front() - fewest;
      held.elements += blocks_.embeddingElements;
    }
    if (rank + 1 == stages) {
      if (rank > 0 || slots.size() > 1) more -= slots.back() - fewest;
      held.elements += blocks_.headElements;
      held.fixed += blocks_.headActivations * static_cast<double>(slots.back());
    }
    held.fixed += blocks_.chunkActivations * static_cast<double>(all) +
                  ofLayer * static_cast<double>(more) + scratchAt(blocks_, rank, stages);
    held.perLayer = ofLayer * static_cast<double>(fewest);
    ranks_.push_back(held);
  }
}

Bytes CutFloor::of(const plan::Plan& plan) {
  if (virtualStages_ != plan.virtualStages || schedule_ != plan.schedule) {
    count(plan);
    virtualStages_ = plan.virtualStages;
    schedule_ = plan.schedule;
  }
  const Bytes perElement = stateBytes(query_, 1, plan);
  const Bytes layerState = perElement * blocks_.layerElements;
  auto layers = static_cast<double>(query_.model.numLayers);
  double perByte = 0;
  Bytes fullest;
  for (const Rank& rank : ranks_) {
    const Bytes fixed = perElement * rank.elements + rank.fixed + reserve_;
    const Bytes perLayer = layerState + rank.perLayer;
    layers += fixed / perLayer;
    perByte += 1 / perLayer.count();
    fullest = std::max(fullest, fixed);
  }
  return std::max(fullest, Bytes(layers / perByte)) * kRounding *
         kRounding;  // once more than boundOf(), which adds in another order
}

}  // namespace trireme::planner
