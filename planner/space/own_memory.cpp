#include "planner/space/own_memory.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "cost_models/in_flight.h"
#include "cost_models/memory.h"
#include "planner/rounding.h"

namespace trireme::planner {
namespace {

Bytes scratchAt(const BlockCosts& blocks, size_t rank, size_t p) {
  if (rank == 0) return blocks.firstScratch;
  return rank == p - 1 ? blocks.lastScratch : blocks.innerScratch;
}

// Of a microbatch in flight.
Bytes keptByLayer(const Query& query, const plan::Plan& plan, const BlockCosts& blocks) {
  const bool keepsScores = !query.stack.flashAttention && plan.recompute == plan::Recompute::kNone;
  return blocks.layerActivations +
         (keepsScores ? cost::unfusedScoresBytes(plan, query.model) : Bytes(0));
}

// Of the embedding and the head.
double endElements(const BlockCosts& blocks, size_t rank, const plan::Plan& plan) {
  const bool isFirst = rank == 0, isLast = rank + 1 == static_cast<size_t>(plan.pp);
  return (isFirst ? blocks.embeddingElements : 0) + (isLast ? blocks.headElements : 0);
}

std::vector<int64_t> slotsAt(const plan::Plan& plan, size_t rank) {
  return cost::peakSlots(plan.schedule, plan.pp, plan.virtualStages, plan.numMicrobatches(),
                         static_cast<int64_t>(rank));
}

}  // namespace

double elementsOf(const plan::Plan& plan, const BlockCosts& blocks, size_t rank) {
  double elements = endElements(blocks, rank, plan);
  for (const plan::LayerRange& range : plan.layers[rank])
    elements += blocks.layerElements * static_cast<double>(range.count);
  return elements;
}

Bytes ChunkMemory::of(const std::vector<int64_t>& layers) const {
  Bytes need = fixed;
  for (size_t c = 0; c < layers.size(); ++c) need += perLayer[c] * static_cast<double>(layers[c]);
  return need;
}

ChunkMemory chunkMemoryOf(const Query& query, const plan::Plan& plan, const BlockCosts& blocks,
                          size_t rank, Bytes reserve) {
  const auto stages = static_cast<size_t>(plan.pp);
  const std::vector<int64_t> slots = slotsAt(plan, rank);
  const Bytes state = stateBytes(query, blocks.layerElements, plan);
  const Bytes ofLayer = keptByLayer(query, plan, blocks);
  ChunkMemory memory;
  memory.fixed = stateBytes(query, endElements(blocks, rank, plan), plan) +
                 scratchAt(blocks, rank, stages) + reserve;
  if (rank + 1 == stages)
    memory.fixed += blocks.headActivations * static_cast<double>(slots.back());
  memory.perLayer.reserve(slots.size());
  for (const int64_t alive : slots) {
    memory.fixed += blocks.chunkActivations * static_cast<double>(alive);
    memory.perLayer.push_back(state + ofLayer * static_cast<double>(alive));
  }
  return memory;
}

Bytes rankMemory(const Query& query, const plan::Plan& plan, const BlockCosts& blocks, size_t rank,
                 Bytes reserve) {
  std::vector<int64_t> layers;
  layers.reserve(plan.layers[rank].size());
  for (const plan::LayerRange& range : plan.layers[rank]) layers.push_back(range.count);
  return chunkMemoryOf(query, plan, blocks, rank, reserve).of(layers);
}

Bytes fullestMemory(const Query& query, const plan::Plan& plan, const BlockCosts& blocks) {
  const Bytes reserve = leastReserve(query, plan);
  Bytes fullest;
  for (size_t rank = 0; rank < plan.layers.size(); ++rank)
    fullest = std::max(fullest, rankMemory(query, plan, blocks, rank, reserve));
  return fullest;
}

std::vector<std::vector<int64_t>> leanestCounts(const Query& query, const plan::Plan& plan,
                                                const BlockCosts& blocks,
                                                const std::vector<Bytes>& beyond) {
  struct Rank {
    Bytes held;  // with a layer on every chunk
    Bytes more;  // of each further one
    size_t chunk = 0;
  };
  const auto stages = static_cast<size_t>(plan.pp),
             chunks = static_cast<size_t>(plan.virtualStages);
  const Bytes reserve = leastReserve(query, plan);
  std::vector<Rank> ranks;
  using Next = std::pair<double, size_t>;  // memory with one layer more
  std::priority_queue<Next, std::vector<Next>, std::greater<>> next;
  for (size_t r = 0; r < stages; ++r) {
    const ChunkMemory memory = chunkMemoryOf(query, plan, blocks, r, reserve);
    Rank rank{beyond.empty() ? memory.fixed : memory.fixed + beyond[r], memory.perLayer.back(),
              chunks - 1};
    for (size_t c = chunks; c-- > 0;) {
      rank.held += memory.perLayer[c];
      if (memory.perLayer[c] < rank.more) rank = {rank.held, memory.perLayer[c], c};
    }
    ranks.push_back(rank);
    next.emplace((rank.held + rank.more).count(), r);
  }
  std::vector<std::vector<int64_t>> counts(stages, std::vector<int64_t>(chunks, 1));
  for (int64_t left = query.model.numLayers - plan.pp * plan.virtualStages; left > 0; --left) {
    const size_t r = next.top().second;
    next.pop();
    ++counts[r][ranks[r].chunk];
    ranks[r].held += ranks[r].more;
    next.emplace((ranks[r].held + ranks[r].more).count(), r);
  }
  return counts;
}

Bytes unprobedMemory(const Query& query, const Group& group, Bytes reserve) {
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
  return leastMemory(query, group, blocks, reserve);
}

void CutFloor::count(const plan::Plan& plan) {
  const auto stages = static_cast<size_t>(plan.pp);
  const Bytes ofLayer = keptByLayer(query_, plan, blocks_);
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

Bytes CutFloor::reserveOf(const plan::Plan& plan) {
  const ReserveKey key{plan.stateSharding, plan.rankOrder, plan.virtualStages > 1,
                       plan::splitsBackward(plan.schedule)};
  const auto [place, isNew] = reserves_.try_emplace(key);
  if (isNew) place->second = leastReserve(query_, plan);
  return place->second;
}

void CutFloor::lookAt(const plan::Plan& plan) {
  reserve_ = reserveOf(plan);
  if (virtualStages_ == plan.virtualStages && schedule_ == plan.schedule) return;
  count(plan);
  virtualStages_ = plan.virtualStages;
  schedule_ = plan.schedule;
}

CutFloor::Need CutFloor::needOf(const Rank& rank, Bytes perElement) const {
  return {perElement * rank.elements + rank.fixed + reserve_,
          perElement * blocks_.layerElements + rank.perLayer};
}

Bytes CutFloor::of(const plan::Plan& plan) {
  lookAt(plan);
  const Bytes perElement = stateBytes(query_, 1, plan);
  auto layers = static_cast<double>(query_.model.numLayers);
  double perByte = 0;
  Bytes fullest;
  for (const Rank& rank : ranks_) {
    const Need need = needOf(rank, perElement);
    layers += need.fixed / need.perLayer;
    perByte += 1 / need.perLayer.count();
    fullest = std::max(fullest, need.fixed);
  }
  return std::max(fullest, Bytes(layers / perByte)) * kRounding *
         kRounding;  // once more than boundOf(), which adds in another order
}

std::vector<double> CutFloor::mostLayers(const plan::Plan& plan) {
  lookAt(plan);
  const Bytes perElement = stateBytes(query_, 1, plan);
  std::vector<double> most;
  for (const Rank& rank : ranks_) {
    const Need need = needOf(rank, perElement);
    most.push_back((query_.cluster.device.memory - need.fixed * kRounding) / need.perLayer /
                   kRounding);
  }
  return most;
}

}  // namespace trireme::planner
