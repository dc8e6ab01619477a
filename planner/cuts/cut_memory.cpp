#include "planner/cuts/cut_memory.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "cost_models/described_memory.h"
#include "cost_models/formulas.h"
#include "cost_models/in_flight.h"

namespace trireme::planner {

using cost::asDouble;

const std::vector<double>& SlotTable::of(const plan::Plan& plan) {
  const auto [place, isNew] =
      known_.try_emplace({plan.schedule, plan.pp, plan.virtualStages, plan.numMicrobatches()});
  if (isNew)
    for (int64_t rank = 0; rank < plan.pp; ++rank)
      for (int64_t n = 0; n <= plan.virtualStages; ++n)
        place->second.push_back(asDouble(cost::peakOfLast(
            plan.schedule, plan.pp, plan.virtualStages, plan.numMicrobatches(), rank, n)));
  return place->second;
}

CutMemory::CutMemory(CutStages& stages, const BlockCosts& blocks, SlotTable& slots)
    : stages_(stages),
      slots_(slots.of(stages.plan)),
      hasStep_(stages.query.stack.description.stepGradientBytes > 0) {
  constexpr Bytes kRounded(8);  // of four parts to whole bytes, and fragmentation of it
  const Query& query = stages.query;
  const spec::StackDescription& stack = query.stack.description;
  plan::Plan& plan = stages.plan;
  available_ = query.cluster.device.memory + kRounded;
  const plan::ScheduleKind schedule = plan.schedule;
  // There are no layers to be in flight, and its numbers are found at once.
  if (!stack.loaderMasks) plan.schedule = plan::ScheduleKind::kGpipe;
  const double padding = 1 + stack.fragmentation;
  for (const StageKind kind : kStageKinds) {
    const auto rank = static_cast<size_t>(stages.rankOf(kind));
    const cost::MemoryUse use = cost::describedMemoryOf(stages.setting, rank);
    fixed_[kind] = use.total();
    if (!hasStep_) continue;
    fixedState_[kind] = use.total() - Bytes(static_cast<double>(use.arena.activations)) * padding;
    fixed_[kind] = fixedState_[kind] + cost::workingMemory(stages.setting, rank) * padding;
    parameters_[kind] = cost::parametersOfStage(stages.blocks, query.model, plan, rank);
  }
  plan.schedule = schedule;
  perLayer_ = (stateBytes(query, blocks.layerElements, plan) +
               Bytes(blocks.layerElements *
                     (cost::f8CopyBytes(plan, stack) + cost::bucketBytes(plan, stack) +
                      (cost::autocasts(plan, stack) ? stack.autocastBytes : 0)))) *
              padding;
  perLayerAtStep_ = perLayer_;
  parametersOfLayer_ = blocks.layerElements;
  padding_ = padding;
  if (cost::keepsWhole(plan, stack))
    perLayer_ += Bytes(stages.blocks.layer.parameters *
                       (stack.gatheredParameterBytes + stack.reducedGradientBytes) * padding);
  const Bytes recomputed = cost::keptByLayer(query.model, plan, stack);
  const plan::Recompute recompute = plan.recompute;
  if (recompute == plan::Recompute::kFull) plan.recompute = plan::Recompute::kNone;
  kept_ = cost::keptByLayer(query.model, plan, stack) * padding;
  saved_ = kept_ - recomputed * padding;
  forWeights_ = cost::keptForWeights(query.model, plan) * padding;
  plan.recompute = recompute;
  limit();
}

void CutMemory::limit() {
  fitting_.assign(static_cast<size_t>(stages_.count), std::nullopt);
  most_.clear();
  most_.reserve(static_cast<size_t>(stages_.count));
  inner_.clear();
  inner_.reserve(static_cast<size_t>(stages_.count));
  for (int64_t rank = 0; rank < stages_.count; ++rank) {
    most_.push_back(mostThatFit(rank));
    if (stages_.kindOf(rank) == kInner) inner_.push_back(asDouble(most_.back()));
  }
  std::sort(inner_.begin(), inner_.end());
  innerSums_.reserve(inner_.size() + 1);
  innerSums_.assign(1, 0);
  for (const double most : inner_) innerSums_.push_back(innerSums_.back() + most);
}

double CutMemory::ofInner(double layers) const {
  const auto longer = std::lower_bound(inner_.begin(), inner_.end(), layers);
  return innerSums_[static_cast<size_t>(longer - inner_.begin())] +
         layers * static_cast<double>(inner_.end() - longer);
}

int64_t CutMemory::recomputedOfChunk() const {
  return stages_.plan.recomputeLayers > 0 ? stages_.plan.recomputeLayers : stages_.numLayers;
}

CutMemory::Parts CutMemory::parts(int64_t rank) const {
  return {fixed_[stages_.kindOf(rank)], perLayer_, kept_, saved_, asDouble(recomputedOfChunk())};
}

// Either all chunks have no more layers than are recomputed, or none has fewer. All chunks together
// have as many microbatches in flight at every moment at which some of them have their most
// (in_flight.h), so the most of the sum is the sum of the two.
Bytes CutMemory::inPasses(int64_t rank, int64_t layers) const {
  const plan::Plan& plan = stages_.plan;
  const int64_t chunks = stages_.chunks;
  const int64_t recomputed = recomputedOfChunk();
  const Bytes state = fixed_[stages_.kindOf(rank)] + perLayer_ * asDouble(layers);
  if (stages_.isSplit) {
    const Bytes kept = kept_ * asDouble(layers) - saved_ * asDouble(std::min(layers, recomputed));
    return state +
           Bytes(cost::peakOfSplit(plan.schedule, stages_.count, plan.numMicrobatches(), rank,
                                   kept.count(), (forWeights_ * asDouble(layers)).count()));
  }
  const double* slots = slots_.data() + rank * (chunks + 1);
  const int64_t fewest = layers / chunks;
  const double kept = slots[chunks] * asDouble(fewest) + slots[layers % chunks];
  const double saved = recomputed > fewest ? kept : slots[chunks] * asDouble(recomputed);
  return state + kept_ * kept - saved_ * saved;
}

Bytes CutMemory::of(int64_t rank, int64_t layers) const {
  if (!hasStep_) return inPasses(rank, layers);
  const StageKind kind = stages_.kindOf(rank);
  const double parameters = parameters_[kind] + parametersOfLayer_ * asDouble(layers);
  const Bytes atStep = fixedState_[kind] + perLayerAtStep_ * asDouble(layers) +
                       cost::stepGradients(stages_.setting, parameters) * padding_;
  return std::max(inPasses(rank, layers), atStep);
}

bool CutMemory::fits(int64_t rank, int64_t layers) {
  stages_.setLayers(rank, spreadOver(layers, stages_.chunks, rank));
  return cost::describedMemoryOf(stages_.setting, static_cast<size_t>(rank)).total() <=
         stages_.query.cluster.device.memory;
}

// Guessed as if all chunks had equally many layers.
int64_t CutMemory::mostThatFit(int64_t rank) const {
  const int64_t chunks = stages_.chunks;
  const double slots =
      slots_[static_cast<size_t>((rank + 1) * (chunks + 1) - 1)] / asDouble(chunks);  // of a layer
  const Bytes free = available_ - fixed_[stages_.kindOf(rank)];
  const int64_t recomputed = stages_.plan.recomputeLayers * chunks;
  const double most = asDouble(recomputed > 0 ? recomputed : stages_.numLayers);
  double guess = free / (perLayer_ + (kept_ - saved_) * slots);
  if (guess > most) guess = (free + saved_ * (slots * most)) / (perLayer_ + kept_ * slots);
  auto layers = static_cast<int64_t>(std::clamp(guess, -1.0, asDouble(stages_.numLayers)));
  while (layers >= 0 && of(rank, layers) > available_) --layers;
  while (layers < stages_.numLayers && of(rank, layers + 1) <= available_) ++layers;
  return layers;
}

int64_t CutMemory::fitting(int64_t rank) {
  std::optional<int64_t>& known = fitting_[static_cast<size_t>(rank)];
  if (known) return *known;
  int64_t layers = most_[static_cast<size_t>(rank)];
  while (layers >= 0 && !fits(rank, layers)) --layers;
  return known.emplace(layers);
}

bool CutMemory::mayFit() const {
  int64_t all = 0;
  for (int64_t rank = 0; rank < stages_.count; ++rank) {
    const int64_t most = most_[static_cast<size_t>(rank)];
    if (most < stages_.least(rank)) return false;
    all += most;
  }
  return all >= stages_.numLayers;
}

bool CutMemory::isTight() const {
  return *std::min_element(most_.begin(), most_.end()) * stages_.count <= stages_.numLayers;
}

int64_t CutMemory::longestChunk() const {
  const int64_t most = *std::max_element(most_.begin(), most_.end());
  return (most + stages_.chunks - 1) / stages_.chunks;
}

std::vector<int64_t> CutMemory::leanest() const {
  std::vector<int64_t> layers;
  using Next = std::pair<double, int64_t>;  // memory with one layer more
  const auto later = [](const Next& a, const Next& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  };
  std::priority_queue<Next, std::vector<Next>, decltype(later)> next(later);
  int64_t left = stages_.numLayers;
  for (int64_t rank = 0; rank < stages_.count; ++rank) {
    layers.push_back(stages_.count == 1 ? stages_.chunks : stages_.least(rank));
    left -= layers.back();
    next.emplace(of(rank, layers.back() + 1).count(), rank);
  }
  for (; left > 0; --left) {
    const int64_t rank = next.top().second;
    next.pop();
    next.emplace(of(rank, ++layers[static_cast<size_t>(rank)] + 1).count(), rank);
  }
  return layers;
}

}  // namespace trireme::planner
