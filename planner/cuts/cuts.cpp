#include "planner/cuts/cuts.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <utility>

#include "cost_models/in_flight.h"
#include "planner/cuts/best_cut.h"
#include "planner/cuts/played_cut.h"
#include "planner/space/own_memory.h"

namespace trireme::planner {
namespace {

// Layers that the stage can hold, if its chunks have equally many.
int64_t layersThatFit(const Query& query, const plan::Plan& plan, const BlockCosts& blocks,
                      int64_t rank, Bytes reserve) {
  const bool first = rank == 0, last = rank == plan.pp - 1;
  const std::vector<int64_t> slots =
      cost::peakSlots(plan.schedule, plan.pp, plan.virtualStages, plan.numMicrobatches(), rank);
  double allSlots = 0;
  for (int64_t n : slots) allSlots += static_cast<double>(n);
  const double others = (first ? blocks.embeddingElements : 0) + (last ? blocks.headElements : 0);
  Bytes fixed = stateBytes(query, others, plan) + blocks.chunkActivations * allSlots + reserve +
                (first  ? blocks.firstScratch
                 : last ? blocks.lastScratch
                        : blocks.innerScratch);
  if (last) fixed += blocks.headActivations * static_cast<double>(slots.back());
  const Bytes perLayer =
      stateBytes(query, blocks.layerElements, plan) +
      blocks.layerActivations * (allSlots / static_cast<double>(plan.virtualStages));
  const Bytes free = query.cluster.device.memory - fixed;
  return free < perLayer ? 0 : static_cast<int64_t>(std::floor(free / perLayer));
}

// The first chunks get one more where it does not divide.
std::vector<int64_t> spread(int64_t layers, int64_t chunks) {
  std::vector<int64_t> counts;
  for (int64_t c = 0; c < chunks; ++c) counts.push_back(layers / chunks + (c < layers % chunks));
  return counts;
}

// Layers that every stage certainly gets: for some time T, at most as many as fit into T less two
// layers, where those that fit into T less one layer are no more than there are. What is left is of
// the order of the number of stages.
std::vector<int64_t> roughBalance(int64_t numLayers, Seconds perLayer, int64_t least,
                                  const std::vector<StageBudget>& stages) {
  const auto within = [&](const StageBudget& stage, Seconds time) {
    const double fit = std::floor((time - stage.fixed) / perLayer);
    const auto layers = static_cast<int64_t>(std::clamp(fit, 0.0, static_cast<double>(numLayers)));
    return std::clamp(layers, least, stage.mostLayers);
  };
  const auto total = [&](Seconds time) {
    int64_t sum = 0;
    for (const StageBudget& stage : stages) sum += within(stage, time - perLayer);
    return sum;
  };
  Seconds low, high = perLayer * static_cast<double>(numLayers);
  while (high - low > perLayer && std::isfinite(high.count())) {  // closer tells no more
    const Seconds middle = (low + high) / 2;
    (total(middle) <= numLayers ? low : high) = middle;
  }
  std::vector<int64_t> layers;
  for (const StageBudget& stage : stages)
    layers.push_back(perLayer.count() > 0 ? within(stage, low - perLayer * 2) : least);
  return layers;
}

Seconds perMicrobatch(const PassTimes& pass) { return pass.total(); }

// Every virtual stage as long as the others, whatever memory its rank needs.
Ranges balancedChunks(const Query& query, const plan::Plan& plan, const BlockCosts& blocks) {
  std::vector<StageBudget> chunks(static_cast<size_t>(plan.pp * plan.virtualStages),
                                  {Seconds(0), query.model.numLayers});
  chunks.front().fixed = perMicrobatch(blocks.embedding);
  chunks.back().fixed = perMicrobatch(blocks.head);
  return pinnedCut(balanceLayers(query.model.numLayers, perMicrobatch(blocks.layer), 1, chunks),
                   plan);
}

}  // namespace

std::vector<int64_t> balanceLayers(int64_t numLayers, Seconds perLayer, int64_t least,
                                   const std::vector<StageBudget>& stages) {
  for (const StageBudget& stage : stages)
    if (stage.mostLayers < least) return {};
  std::vector<int64_t> layers = roughBalance(numLayers, perLayer, least, stages);
  int64_t left = numLayers;
  for (int64_t n : layers) left -= n;
  if (left < 0) return {};

  // The stage that one more layer leaves shortest; of equal ones the last.
  using Next = std::pair<double, size_t>;
  const auto later = [](const Next& a, const Next& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  };
  std::priority_queue<Next, std::vector<Next>, decltype(later)> next(later);
  const auto offer = [&](size_t i) {
    if (layers[i] < stages[i].mostLayers)
      next.emplace((stages[i].fixed + perLayer * static_cast<double>(layers[i] + 1)).count(), i);
  };
  for (size_t i = 0; i < stages.size(); ++i) offer(i);
  for (; left > 0 && !next.empty(); --left) {
    const size_t best = next.top().second;
    next.pop();
    ++layers[best];
    offer(best);
  }
  return left == 0 ? layers : std::vector<int64_t>();
}

Ranges rangesFrom(const std::vector<std::vector<int64_t>>& counts) {
  Ranges ranges(counts.size(), std::vector<plan::LayerRange>(counts.front().size()));
  int64_t next = 0;
  for (size_t c = 0; c < counts.front().size(); ++c)
    for (size_t r = 0; r < counts.size(); ++r) {
      ranges[r][c] = {next, counts[r][c]};
      next += counts[r][c];
    }
  return ranges;
}

Ranges pinnedCut(const std::vector<int64_t>& layers, const plan::Plan& plan) {
  const auto stages = static_cast<size_t>(plan.pp),
             chunks = static_cast<size_t>(plan.virtualStages);
  std::vector<std::vector<int64_t>> counts(stages, std::vector<int64_t>(chunks));
  for (size_t i = 0; i < layers.size(); ++i) counts[i % stages][i / stages] = layers[i];
  return rangesFrom(counts);
}

std::vector<Ranges> cutsFor(const Query& query, const plan::Plan& plan, const BlockCosts& blocks) {
  const int64_t numLayers = query.model.numLayers;
  if (!query.pins.layers.empty()) return {pinnedCut(query.pins.layers, plan)};
  std::vector<Ranges> cuts = {plan::evenLayers(numLayers, plan.pp, plan.virtualStages)};
  if (plan.pp == 1) return cuts;
  if (blocks.described) {
    SlotTable slots;
    cost::FlushPlayer flush;
    CutSearch search(query, plan, blocks, slots);
    auto best = CutSearch::isPlayed(plan)
                    ? fastestPlayed(query, plan, blocks, search, flush, std::nullopt).cut
                    : search.best(std::nullopt);
    if (best && best->layers != cuts.front()) cuts.push_back(std::move(best->layers));
    return cuts;
  }
  const Bytes reserve = leastReserve(query, plan);
  std::vector<StageBudget> stages;
  for (int64_t rank = 0; rank < plan.pp; ++rank) {
    Seconds fixed;
    if (rank == 0) fixed += perMicrobatch(blocks.embedding);
    if (rank == plan.pp - 1) fixed += perMicrobatch(blocks.head);
    stages.push_back({fixed, layersThatFit(query, plan, blocks, rank, reserve)});
  }
  std::vector<std::vector<int64_t>> counts;
  for (const int64_t layers :
       balanceLayers(numLayers, perMicrobatch(blocks.layer), plan.virtualStages, stages))
    counts.push_back(spread(layers, plan.virtualStages));
  if (counts.empty()) counts = leanestCounts(query, plan, blocks);
  const auto add = [&](Ranges ranges) {
    if (std::find(cuts.begin(), cuts.end(), ranges) == cuts.end())
      cuts.push_back(std::move(ranges));
  };
  add(rangesFrom(counts));
  if (plan.virtualStages > 1) add(balancedChunks(query, plan, blocks));
  return cuts;
}

bool hasEvenChunks(const plan::Plan& plan) {
  return std::all_of(plan.layers.begin(), plan.layers.end(), [](const auto& stage) {
    const auto [least, most] = std::minmax_element(
        stage.begin(), stage.end(), [](const auto& a, const auto& b) { return a.count < b.count; });
    return most->count - least->count <= 1;
  });
}

}  // namespace trireme::planner
