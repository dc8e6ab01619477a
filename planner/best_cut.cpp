#include "planner/best_cut.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>
#include <utility>

#include "cost_models/described_memory.h"
#include "cost_models/formulas.h"
#include "cost_models/in_flight.h"
#include "ir/schedule/schedule.h"
#include "planner/cuts.h"
#include "planner/rounding.h"

namespace trireme::planner {
namespace {

using cost::asDouble;

constexpr Bytes kRoundedBytes(8);  // of each of four parts to whole bytes, and fragmentation of it

// setLayers() gives a stage its chunks when it is looked at.
plan::Plan withoutLayers(const plan::Plan& plan) {
  plan::Plan bare = plan;
  bare.layers.assign(static_cast<size_t>(plan.pp), {});
  return bare;
}

// With everything hidden that can be.
Seconds leastOf(const cost::OnceParts& once) {
  Seconds least = once.copies + once.optimizer;
  for (const auto& part : once.communication) least += part.time * std::min(part.share, 1.0);
  return least;
}

}  // namespace

std::vector<int64_t> spreadOver(int64_t layers, int64_t chunks) {
  std::vector<int64_t> counts(static_cast<size_t>(chunks), layers / chunks);
  for (int64_t c = chunks - layers % chunks; c < chunks; ++c) ++counts[static_cast<size_t>(c)];
  return counts;
}

// With the busiest stage as in groupBound():
//   no virtual stages   all blocks and transfers once, and (m - 1) times the busiest
//   otherwise           m times the busiest; in between a layer of each of all but three stages
Seconds quickBound(const Query& query, const plan::Plan& plan, const BlockCosts& blocks) {
  const spec::StackDescription& stack = query.stack.description;
  const double layer = (blocks.layer.forward + blocks.layer.backward).count();
  const double all = layer * asDouble(query.model.numLayers) +
                     (blocks.embedding.forward + blocks.embedding.backward + blocks.head.forward +
                      blocks.head.backward)
                         .count();
  const double p = asDouble(plan.pp), m = asDouble(plan.numMicrobatches());
  const int64_t most = (query.model.numLayers + plan.pp - 1) / plan.pp;
  const double busiest = std::max(all / p, layer * asDouble(most));
  const double transfer = 2 * cost::transferTime(query.model, plan, query.cluster, stack).count();
  const double path = plan::splitsBackward(plan.schedule) ? m * (busiest + transfer)
                      : plan.virtualStages == 1
                          ? all + p * transfer + (m - 1) * (busiest + transfer)
                          : m * (busiest + transfer * asDouble(plan.virtualStages)) +
                                std::max(p - 3, 0.0) * layer + (p - 1) * transfer;
  const cost::StageSetting setting(*blocks.described, query.model, plan, query.cluster, stack);
  const cost::OnceParts once = cost::oncePartsOf(setting, blocks.layerElements * asDouble(most));
  return (Seconds(path) + leastOf(once)) *
         (cost::stepFactor(plan, query.cluster, stack) * kRounding);
}

// The best that the stages so far can do in one respect or another.
struct CutSearch::Label {
  double through = 0;   // passes of the first chunks; under GPipe of all
  double forwards = 0;  // split backward
  double longest = 0;   // path so far; under GPipe the longest forward
  double fixed = 0;     // split backward: the longest path that no stage behind lengthens
  double backward = 0;  // GPipe: the longest
  double once = 0;
  int32_t layers = 0;  // of the last stage
  int32_t before = 0;  // label of the stages before it, among those with as many layers less

  bool beats(const Label& o) const {
    const auto le = [](double a, double b) { return a <= b * (1 + kTie); };
    return le(through, o.through) && le(forwards, o.forwards) && le(longest, o.longest) &&
           le(fixed, o.fixed) && le(backward, o.backward) && le(once, o.once);
  }
};

// Times of blocks that add up to no more than those of stages.
struct CutSearch::Relaxed {
  double layer = 0, recomputed = 0;  // the latter of so many layers of a stage:
  double most = std::numeric_limits<double>::infinity();
  double first = 0, last = 0;
  double sum = 0;      // over the stages, with transfers
  double slowest = 0;  // no cut has a shorter longest stage, without transfers
  double path = 0;     // the longest with virtual stages, without transfers

  double layersWithin(double time, double fixed) const {
    const double free = std::max(time - fixed, 0.0);
    const double few = free / (layer + recomputed);
    return std::floor(few <= most ? few : (free - most * recomputed) / layer);
  }
  double timeOf(double layers, double fixed) const {
    return fixed + layers * layer + std::min(layers, most) * recomputed;
  }
};

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

CutSearch::CutSearch(const Query& query, const plan::Plan& plan, const BlockCosts& blocks,
                     SlotTable& slots)
    : query_(query),
      blocks_(blocks),
      plan_(withoutLayers(plan)),
      numLayers_(query.model.numLayers),
      stages_(plan.pp),
      chunks_(plan.virtualStages),
      microbatches_(asDouble(plan.numMicrobatches())),
      setting_(*blocks.described, query.model, plan_, query.cluster, query.stack.description),
      slots_(slots.of(plan)) {
  const spec::StackDescription& stack = query.stack.description;
  transfer_ = cost::transferTime(query.model, plan_, query.cluster, stack).count();
  factor_ = cost::stepFactor(plan_, query.cluster, stack);
  isSplit_ = plan::splitsBackward(plan.schedule);
  isAhead_ = isSplit_ && stack.postValidation;
  plan_.schedule = plan::ScheduleKind::kGpipe;  // there are no layers to be in flight
  for (const Kind kind : {kFirst, kInner, kLast}) {
    const auto rank = static_cast<size_t>(rankOf(kind));
    plan_.layers[rank].resize(static_cast<size_t>(chunks_));
    fixed_[kind] = cost::describedMemoryOf(setting_, rank).total();
    parameters_[kind] = cost::parametersOfStage(*blocks.described, query.model, plan_, rank);
  }
  plan_.schedule = plan.schedule;
  const double padding = 1 + stack.fragmentation;
  perLayer_ = stateBytes(query, blocks.layerElements, plan_) * padding;
  if (cost::keepsWhole(plan_, stack))
    perLayer_ += Bytes(blocks.described->layer.parameters *
                       (stack.gatheredParameterBytes + stack.reducedGradientBytes) * padding);
  const Bytes recomputed = cost::keptByLayer(query.model, plan_, stack);
  if (plan.recompute == plan::Recompute::kFull) plan_.recompute = plan::Recompute::kNone;
  kept_ = cost::keptByLayer(query.model, plan_, stack) * padding;
  saved_ = kept_ - recomputed * padding;
  forWeights_ = cost::keptForWeights(query.model, plan_) * padding;
  plan_.recompute = plan.recompute;
  limitByMemory();
}

void CutSearch::recomputeLayers(int64_t layers) {
  plan_.recomputeLayers = layers;
  for (auto& options : options_) options.clear();
  limitByMemory();
}

void CutSearch::limitByMemory() {
  fitting_.assign(static_cast<size_t>(stages_), std::nullopt);
  most_.clear();
  inner_.clear();
  for (int64_t rank = 0; rank < stages_; ++rank) {
    most_.push_back(mostThatFit(rank));
    if (kindOf(rank) == kInner) inner_.push_back(asDouble(most_.back()));
  }
  std::sort(inner_.begin(), inner_.end());
  innerSums_.assign(1, 0);
  for (const double most : inner_) innerSums_.push_back(innerSums_.back() + most);
}

CutSearch::Kind CutSearch::kindOf(int64_t rank) const {
  if (rank == 0) return kFirst;
  return rank + 1 == stages_ ? kLast : kInner;
}

// Where a plan has fewer stages than kinds, the next best.
int64_t CutSearch::rankOf(Kind kind) const {
  return kind == kLast ? stages_ - 1 : std::min<int64_t>(kind, stages_ - 1);
}

int64_t CutSearch::least(int64_t rank) const {
  return kindOf(rank) == kInner ? chunks_ : chunks_ - 1;
}

// Chunks of a stage differ by one layer at most, so either all have no more than are recomputed, or
// none has fewer. All chunks together have as many microbatches in flight at every moment at which
// some of them have their most (in_flight.h), so the most of the sum is the sum of the two.
Bytes CutSearch::memoryOf(int64_t rank, int64_t layers) const {
  const int64_t recomputed =
      plan_.recomputeLayers > 0 ? plan_.recomputeLayers : numLayers_;  // of a chunk
  if (isSplit_) {
    const Bytes kept = kept_ * asDouble(layers) - saved_ * asDouble(std::min(layers, recomputed));
    return fixed_[kindOf(rank)] + perLayer_ * asDouble(layers) +
           Bytes(cost::peakOfSplit(plan_.schedule, stages_, plan_.numMicrobatches(), rank,
                                   kept.count(), (forWeights_ * asDouble(layers)).count()));
  }
  const double* slots = slots_.data() + rank * (chunks_ + 1);
  const int64_t fewest = layers / chunks_;
  const double kept = slots[chunks_] * asDouble(fewest) + slots[layers % chunks_];
  const double saved = recomputed > fewest ? kept : slots[chunks_] * asDouble(recomputed);
  return fixed_[kindOf(rank)] + perLayer_ * asDouble(layers) + kept_ * kept - saved_ * saved;
}

bool CutSearch::fits(int64_t rank, int64_t layers) {
  std::vector<int64_t> counts = spreadOver(layers, chunks_);
  const bool hasNone = layers < chunks_;  // which is the last stage's last
  if (hasNone && rank > 0) std::reverse(counts.begin(), counts.end());
  setLayers(rank, counts);
  return cost::describedMemoryOf(setting_, static_cast<size_t>(rank)).total() <=
         query_.cluster.device.memory;
}

void CutSearch::setLayers(int64_t rank, const std::vector<int64_t>& counts) {
  std::vector<plan::LayerRange>& ranges = plan_.layers[static_cast<size_t>(rank)];
  ranges.resize(counts.size());
  for (size_t c = 0; c < counts.size(); ++c) ranges[c].count = counts[c];
}

// -1: not even none. Guessed as if all chunks had equally many layers.
int64_t CutSearch::mostThatFit(int64_t rank) const {
  const Bytes available = query_.cluster.device.memory + kRoundedBytes;
  const double slots = slots_[static_cast<size_t>((rank + 1) * (chunks_ + 1) - 1)] /
                       asDouble(chunks_);  // of a layer
  const Bytes free = available - fixed_[kindOf(rank)];
  const double most =
      plan_.recomputeLayers > 0 ? asDouble(plan_.recomputeLayers * chunks_) : asDouble(numLayers_);
  double guess = free / (perLayer_ + (kept_ - saved_) * slots);
  if (guess > most) guess = (free + saved_ * (slots * most)) / (perLayer_ + kept_ * slots);
  auto layers = static_cast<int64_t>(std::clamp(guess, -1.0, asDouble(numLayers_)));
  while (layers >= 0 && memoryOf(rank, layers) > available) --layers;
  while (layers < numLayers_ && memoryOf(rank, layers + 1) <= available) ++layers;
  return layers;
}

int64_t CutSearch::fitting(int64_t rank) {
  std::optional<int64_t>& known = fitting_[static_cast<size_t>(rank)];
  if (known) return *known;
  int64_t layers = most_[static_cast<size_t>(rank)];
  while (layers >= 0 && !fits(rank, layers)) --layers;
  return known.emplace(layers);
}

bool CutSearch::mayFit() const {
  int64_t all = 0;
  for (int64_t rank = 0; rank < stages_; ++rank) {
    const int64_t most = most_[static_cast<size_t>(rank)];
    if (most < least(rank)) return false;
    all += most;
  }
  return all >= numLayers_;
}

int64_t CutSearch::longestChunk() const {
  const int64_t most = *std::max_element(most_.begin(), most_.end());
  return (most + chunks_ - 1) / chunks_;
}

CutSearch::Relaxed CutSearch::ofBlocks() const {
  const cost::BlockCost& layer = blocks_.described->layer;
  const spec::StackDescription& stack = query_.stack.description;
  const bool isPart = plan_.recomputeLayers > 0;
  const auto sum = [](const cost::BlockCost& block) {
    return (block.forward.device() + block.backward.device()).count();
  };
  cost::PassCost backward = layer.backward;
  if (!isPart) backward += layer.recomputed;
  Relaxed r;
  r.first = sum(blocks_.described->embedding);
  r.last = sum(blocks_.described->head);
  r.layer = (layer.forward.device() + backward.device()).count();
  if (isPart) {
    r.recomputed = layer.recomputed.device().count();
    r.most = asDouble(plan_.recomputeLayers * chunks_);
  }
  // With a CPU beside the device layers alone may take longer than kernels of all blocks.
  const double alone =
      (cost::passTime(layer.forward, stack) + cost::passTime(backward, stack)).count();
  const double layers = asDouble(numLayers_);
  if (alone * layers > r.layer * layers + r.first + r.last + r.recomputed * layers) {
    r.layer = alone;
    r.first = r.last = r.recomputed = 0;
  }
  r.layer += (setting_.traffic.layerForward + setting_.traffic.layerBackward).count();
  r.first += setting_.traffic.embedding.count();
  r.last += setting_.traffic.head.count();
  return r;
}

CutSearch::Relaxed CutSearch::relaxed(bool isRoomy) const {
  Relaxed r = ofBlocks();
  const double layers = asDouble(numLayers_), p = asDouble(stages_);
  // Of one stage, in a time and by memory; of all inner stages; of all.
  const auto ofStage = [&](double time, double fixed, int64_t most) {
    const double held = r.layersWithin(time, fixed);
    return isRoomy ? held : std::min(held, asDouble(most));
  };
  const auto ofInner = [&](double time) {
    const double held = r.layersWithin(time, 0);
    if (isRoomy) return held * (p - 2);
    const auto longer = std::lower_bound(inner_.begin(), inner_.end(), held);
    return innerSums_[static_cast<size_t>(longer - inner_.begin())] +
           held * static_cast<double>(inner_.end() - longer);
  };
  const auto within = [&](double time) {
    if (stages_ == 1) return ofStage(time, r.first + r.last, most_.front());
    return ofStage(time, r.first, most_.front()) + ofStage(time, r.last, most_.back()) +
           ofInner(time);
  };
  // To a millionth of a layer's time: more digits would not keep more cuts away.
  double low = 0, high = (r.layer + r.recomputed) * (layers + 1) + r.first + r.last;
  for (int i = 0; i < 28; ++i) {
    const double middle = (low + high) / 2;
    (within(middle) < layers ? low : high) = middle;
  }
  r.slowest = low;
  r.sum = r.layer * layers + r.first + r.last + p * 2 * transfer_;
  // Of layers of which a stage recomputes `most`, at least so many are recomputed in all. While
  // more microbatches wait for the slowest stage than a longer one could save.
  double inner = r.layersWithin(high, 0) + 1;
  if (!isRoomy) inner = std::min(inner, asDouble(*std::max_element(most_.begin(), most_.end())));
  if ((microbatches_ - 1) * r.layer >= p * r.recomputed)
    r.sum += r.recomputed * layers * std::min(1.0, r.most / inner);
  r.path = microbatches_ * low;
  if (isSplit_) r.path = splitPath(r, r.path, isRoomy);
  if (stages_ == 1 || chunks_ == 1) return r;
  // Of n layers a chunk has floor(n / v) at least; with fewer than `time` allows, one less for
  // every layer less.
  const auto chunksWithin = [&](double time) {
    double chunks = -(within(time) - layers), longest = 0;
    const auto addStages = [&](double ofEach, double count) {
      const double chunk = std::floor(ofEach / asDouble(chunks_));
      chunks += chunk * count;
      longest = std::max(longest, chunk);
    };
    const double inInner = r.layersWithin(time, 0);
    if (isRoomy && stages_ > 2) addStages(inInner, p - 2);
    if (!isRoomy)
      for (const double most : inner_) addStages(std::min(inInner, most), 1);
    addStages(ofStage(time, r.first, most_.front()), 1);
    addStages(ofStage(time, r.last, most_.back()), 1);
    return std::max({chunks - longest, p - 3, 0.0}) * r.layer;
  };
  // A slowest stage that is slower leaves other stages with fewer layers, and their chunks.
  r.path += chunksWithin(high);
  for (double time = high;;) {
    double next = std::numeric_limits<double>::infinity();
    for (const double fixed : {0.0, r.first, r.last})
      next = std::min(next, r.timeOf(r.layersWithin(time * (1 + kTie), fixed) + 1, fixed));
    time = next;
    if (microbatches_ * time >= r.path) return r;
    r.path = std::min(r.path, microbatches_ * time + chunksWithin(time * (1 + kTie)));
  }
}

// No less than `path`, and all stages together have all layers: stage r works m times on its own
// ones once the forwards before it are done, so that in a time T it may have (T - F) / m of work.
// Layers handed out from the front, each as many as it may have, are the most, for a layer costs
// the stages behind no more than it takes: (p - 1) f <= m s.
double CutSearch::splitPath(const Relaxed& r, double path, bool isRoomy) const {
  const double p = asDouble(stages_), perStage = 2 * transfer_;
  const cost::BlockCost& layer = blocks_.described->layer;
  const double forward = isAhead_ || r.layer == 0 ? 0 : layer.forward.device().count();
  if ((p - 1) * forward > microbatches_ * r.layer || (!isRoomy && !mayFit())) return path;
  const auto heldIn = [&](double time) {
    double before = 0, held = 0;
    for (int64_t rank = 0; rank < stages_; ++rank) {
      const double fixed =
          perStage + (rank == 0 ? r.first : 0) + (rank + 1 == stages_ ? r.last : 0);
      double layers = std::max(((time - before) / microbatches_ - fixed) / r.layer, 0.0);
      if (!isRoomy) layers = std::min(layers, asDouble(most_[static_cast<size_t>(rank)]));
      held += layers;
      before += layers * forward + (isAhead_ ? 0 : transfer_);
    }
    return held;
  };
  double low = path, high = path + microbatches_ * perStage + p * (r.layer + r.first + transfer_);
  while (heldIn(high) < asDouble(numLayers_)) high = low + 2 * (high - low);
  for (int i = 0; i < 24; ++i) {
    const double middle = (low + high) / 2;
    (heldIn(middle) < asDouble(numLayers_) ? low : high) = middle;
  }
  return std::max(path, low - microbatches_ * perStage);
}

// Some stage has as many layers at least.
int64_t CutSearch::fullest(bool isRoomy) const {
  int64_t tooFew = (numLayers_ + stages_ - 1) / stages_ - 1, enough = numLayers_;
  if (isRoomy) return tooFew + 1;
  while (enough - tooFew > 1) {
    const int64_t middle = (tooFew + enough) / 2;
    int64_t held = 0;
    for (const int64_t most : most_) held += std::min(most, middle);
    (held >= numLayers_ ? enough : tooFew) = middle;
  }
  return enough;
}

// The least of path and `once` together, if some stage has so many parameters and layers at least.
// It may take any time s for a microbatch: the longer, the more is hidden beside it, but no path is
// shorter than m s.
double CutSearch::withOnce(double path, double perLayer, double parameters, int64_t layers) const {
  const cost::BlockCost& layer = blocks_.described->layer;
  const double perMicrobatch = 2 * transfer_ * asDouble(chunks_);
  const cost::OnceParts once = cost::oncePartsOf(setting_, parameters);
  const double forward = layer.forward.device().count() * asDouble(layers);
  const double backward = layer.backward.device().count() * asDouble(layers);
  const auto felt = [&](double stage) {
    const double pieces =
        chunks_ > 1 ? asDouble(chunks_) : std::clamp(stage / perLayer, 1.0, asDouble(numLayers_));
    double time = 0;
    for (const auto& part : once.communication) {
      if (part.time.count() <= 0) continue;
      const Seconds beside(std::max(stage - (part.isBackward ? forward : backward), 0.0));
      time += part.felt(beside, pieces).count();
    }
    return time;
  };
  double stage = std::max(path / microbatches_ - perMicrobatch, 0.0);
  double least = path + felt(stage);
  while ((stage + perMicrobatch) * microbatches_ < least) {
    const double longer = stage * 1.05 + perLayer * 1e-3;
    least = std::min(least, std::max(path, (stage + perMicrobatch) * microbatches_) + felt(longer));
    stage = longer;
  }
  return least + (once.copies + once.optimizer).count();
}

Seconds CutSearch::bound() {
  return mayFit() ? boundOf(false) : Seconds(std::numeric_limits<double>::infinity());
}

Seconds CutSearch::roomyBound() { return boundOf(true); }

Seconds CutSearch::boundOf(bool isRoomy) {
  const double rounded = factor_ * kRounding;
  if (stages_ == 1 && !isRoomy) {  // which has all layers
    const Option& o = option(0, numLayers_);
    return Seconds((o.all * microbatches_ + o.once) * rounded);
  }
  const Relaxed r = relaxed(isRoomy);
  const double perStage = 2 * transfer_ * asDouble(chunks_);
  const double path =
      isSplit_       ? r.path + microbatches_ * perStage
      : chunks_ == 1 ? r.sum + (microbatches_ - 1) * (r.slowest + perStage)
                     : r.path + microbatches_ * perStage + (asDouble(stages_) - 1) * 2 * transfer_;
  // The fullest stage, the first and the last.
  const double perLayer = blocks_.described->layer.parameters;
  const int64_t fullest = this->fullest(isRoomy);
  double least = withOnce(path, r.layer, perLayer * asDouble(fullest), fullest);
  for (const Kind kind : {kFirst, kLast}) {
    const int64_t rank = rankOf(kind), layers = stages_ == 1 ? numLayers_ : this->least(rank);
    const double parameters = parameters_[kind] + perLayer * asDouble(layers);
    if (parameters > perLayer * asDouble(fullest))
      least = std::max(least, withOnce(path, r.layer, parameters, layers) +
                                  cost::tiedTime(setting_, static_cast<size_t>(rank)).count());
  }
  return Seconds(least * rounded);
}

const CutSearch::Option& CutSearch::option(int64_t rank, int64_t layers) {
  std::vector<std::optional<Option>>& options = options_[kindOf(rank)];
  if (options.empty()) options.resize(static_cast<size_t>(numLayers_) + 1);
  std::optional<Option>& known = options[static_cast<size_t>(layers)];
  if (known) return *known;
  std::vector<int64_t> counts = spreadOver(layers, chunks_);
  setLayers(rank, counts);
  Option o = optionOf(rank);
  if (layers % chunks_ > 0 && isInFront_) {
    if (rank > 0) {
      std::reverse(counts.begin(), counts.end());
      setLayers(rank, counts);
      o = optionOf(rank);
    }
  } else if (layers % chunks_ >
             0) {  // the first chunk has the fewest, and with the others the last one
    std::reverse(counts.begin(), counts.end());
    setLayers(rank, counts);
    const Option other = optionOf(rank);
    o.all = std::min(o.all, other.all);
    o.last = other.last;
    o.once = std::min(o.once, other.once);
  }
  return known.emplace(o);
}

CutSearch::Option CutSearch::optionOf(int64_t rank) {
  const cost::StageEstimate stage = cost::estimateStage(setting_, static_cast<size_t>(rank));
  Option o{};
  for (size_t c = 0; c < stage.times.forward.size(); ++c) {
    o.forward += stage.times.forward[c].count() + transfer_;
    o.backward += stage.times.backward[c].count() + transfer_;
  }
  for (const Seconds time : stage.times.weights) o.weights += time.count();
  o.all = o.forward + o.backward + o.weights;
  o.first = (stage.times.forward.front() + stage.times.backward.front()).count() + 2 * transfer_;
  o.last = (stage.times.forward.back() + stage.times.backward.back()).count() + 2 * transfer_;
  o.once = stage.once.total().count();
  return o;
}

// The three paths of cost::pipelineTime; the first stage's own W is a part of `through` from then
// on.
CutSearch::Label CutSearch::afterSplit(const Label& before, const Option& o, int64_t rank) const {
  const double m = microbatches_, pass = o.forward + o.backward;
  const schedule::Lead lead = schedule::leadOf(plan_.schedule, stages_, rank);
  Label label = before;
  label.once = std::max(label.once, o.once);
  if (rank == 0) label.through = o.weights;
  const double waits =
      label.through + pass * m + o.weights * std::max(m - 1 - asDouble(lead.backwards), 0.0);
  label.fixed = std::max({before.fixed, before.forwards + o.all * m, waits});
  label.longest =
      std::max(before.longest + pass, before.forwards + o.forward + (o.backward + o.weights) * m +
                                          o.forward * std::max(m - asDouble(lead.forwards), 0.0));
  label.through += pass;
  if (!isAhead_) label.forwards += o.forward;
  return label;
}

CutSearch::Label CutSearch::after(const Label& before, const Option& o, int64_t rank) const {
  if (isSplit_) return afterSplit(before, o, rank);
  Label label = before;
  label.once = std::max(label.once, o.once);
  if (plan_.schedule == plan::ScheduleKind::kGpipe) {
    label.through += o.all;
    label.longest = std::max(label.longest, o.forward);
    label.backward = std::max(label.backward, o.backward);
  } else {
    label.longest = std::max(label.longest + o.last, o.all * microbatches_ + label.through);
    label.through += o.first;
  }
  return label;
}

double CutSearch::valueOf(const Label& label) const {
  if (plan_.schedule == plan::ScheduleKind::kGpipe)
    return label.through + (label.longest + label.backward) * (microbatches_ - 1) + label.once;
  return std::max(label.longest, label.fixed) + label.once;
}

// Of every stage, by memory and because a path through it takes no more than `limit`. Empty: too
// few in all.
std::vector<int64_t> CutSearch::mostWithin(double limit, const Relaxed& r) {
  const auto isWithin = [&](int64_t rank, int64_t layers) {
    const double all = option(rank, layers).all;
    const double path = isSplit_ ? all * microbatches_
                        : chunks_ == 1
                            ? r.sum * kRounding + all * (microbatches_ - 1)
                            : all * microbatches_ + (asDouble(stages_) - 1) * 2 * transfer_;
    return path <= limit;
  };
  // By time, of all stages of a kind: as a rule about as many as by an even cut, or as fit.
  const auto mostOf = [&](int64_t rank, int64_t fitting) {
    int64_t enough = -1, tooMany = fitting + 1, next = (numLayers_ + stages_ - 1) / stages_;
    for (next = std::min(next, fitting); tooMany - enough > 1;) {
      const bool fits = isWithin(rank, next);
      (fits ? enough : tooMany) = next;
      next =
          fits && tooMany == fitting + 1 ? std::min(fitting, 2 * next + 1) : (enough + tooMany) / 2;
    }
    return enough;
  };
  int64_t fitting[3] = {-1, -1, -1};
  for (int64_t rank = 0; rank < stages_; ++rank)
    fitting[kindOf(rank)] = std::max(fitting[kindOf(rank)], this->fitting(rank));
  const int64_t most[3] = {mostOf(0, fitting[kFirst]),
                           stages_ > 2 ? mostOf(1, fitting[kInner]) : -1,
                           mostOf(stages_ - 1, fitting[kLast])};
  std::vector<int64_t> result;
  int64_t all = 0;
  for (int64_t rank = 0; rank < stages_; ++rank) {
    result.push_back(std::min(most[kindOf(rank)], this->fitting(rank)));
    all += std::max<int64_t>(result.back(), 0);
  }
  return all < numLayers_ ? std::vector<int64_t>() : result;
}

Ranges CutSearch::rangesOf(const std::vector<int64_t>& layers) const {
  std::vector<std::vector<int64_t>> counts;
  for (size_t rank = 0; rank < layers.size(); ++rank) {
    counts.push_back(spreadOver(layers[rank], chunks_));
    const bool hasNone = layers[rank] < chunks_;  // which is the last stage's last
    if (hasNone && rank > 0) std::reverse(counts.back().begin(), counts.back().end());
  }
  return rangesFrom(counts);
}

// The fastest whose pipeline and `once` take no more than `limit`.
std::optional<CutSearch::Lowest> CutSearch::withLimit(double limit, const Relaxed& r) {
  const std::vector<int64_t> most = mostWithin(limit, r);
  if (most.empty()) return std::nullopt;
  int64_t slack = -numLayers_;
  for (const int64_t n : most) slack += n;
  if (slack < 0) return std::nullopt;
  // labels[stage][layers so far - fewest so far]: at most `slack` fewer than the most.
  std::vector<std::vector<std::vector<Label>>> labels(static_cast<size_t>(stages_) + 1);
  labels[0] = {{Label{}}};
  std::vector<int64_t> fewest = {0};
  int64_t mostSoFar = 0;
  for (int64_t rank = 0; rank < stages_; ++rank) {
    const auto at = static_cast<size_t>(rank);
    if (most[at] < least(rank)) return std::nullopt;
    mostSoFar += most[at];
    fewest.push_back(std::max<int64_t>(mostSoFar - slack, 0));
    std::vector<std::vector<Label>>& next = labels[at + 1];
    next.resize(static_cast<size_t>(mostSoFar - fewest.back()) + 1);
    for (size_t i = 0; i < labels[at].size(); ++i)
      for (int64_t n = std::max(least(rank), most[at] - slack); n <= most[at]; ++n) {
        const int64_t place = fewest[at] + static_cast<int64_t>(i) + n - fewest.back();
        if (place < 0) continue;
        std::vector<Label>& known = next[static_cast<size_t>(place)];
        // What the stages behind add to every path.
        const int64_t stagesLeft = stages_ - 1 - rank;
        double rest = isSplit_ ? 0 : asDouble(stagesLeft) * 2 * transfer_;
        if (chunks_ == 1 && !isSplit_ && stagesLeft > 0)
          rest += asDouble(numLayers_ - fewest.back() - place) * r.layer + r.last;
        rest *= kRounding;
        for (size_t from = 0; from < labels[at][i].size(); ++from) {
          Label label = after(labels[at][i][from], option(rank, n), rank);
          if (valueOf(label) + rest > limit) continue;
          label.layers = static_cast<int32_t>(n);
          label.before = static_cast<int32_t>(from);
          if (std::any_of(known.begin(), known.end(), [&](auto& k) { return k.beats(label); }))
            continue;
          std::erase_if(known, [&](const Label& k) { return label.beats(k); });
          known.push_back(label);
        }
      }
  }
  const auto place = static_cast<size_t>(numLayers_ - fewest.back());
  const std::vector<Label>& last = labels.back()[place];
  const auto best = std::min_element(last.begin(), last.end(),
                                     [&](auto& a, auto& b) { return valueOf(a) < valueOf(b); });
  if (best == last.end()) return std::nullopt;
  std::vector<int64_t> layers(static_cast<size_t>(stages_));
  const Seconds step(valueOf(*best) * factor_);
  int64_t left = numLayers_;
  Label label = *best;
  for (size_t rank = layers.size(); rank-- > 0;) {
    layers[rank] = label.layers;
    left -= label.layers;
    label =
        labels[rank][static_cast<size_t>(left - fewest[rank])][static_cast<size_t>(label.before)];
  }
  return Lowest{std::move(layers), step};
}

std::optional<CutSearch::Cut> CutSearch::evenCut(std::optional<Seconds> limit) const {
  plan::Plan even = plan_;
  even.layers = plan::evenLayers(numLayers_, stages_, chunks_);
  const cost::Estimate estimate =
      cost::estimateFromBlocks(*blocks_.described, query_.model, even, query_.cluster,
                               query_.stack.description, cost::pipelineTime);
  if (!estimate.fits() || (limit && estimate.step > *limit)) return std::nullopt;
  return Cut{std::move(even.layers), estimate.step};
}

// With tight limits first, under which few states are looked at.
std::optional<CutSearch::Lowest> CutSearch::within(double most) {
  const double bound = this->bound().count();
  const Relaxed relaxed = this->relaxed(false);
  for (const double more : {1.02, 1.3, 2.0, std::numeric_limits<double>::infinity()}) {
    const double limit = std::min(bound * more, most);
    if (auto lowest = withLimit(limit / kRounding / factor_, relaxed)) return lowest;
    if (limit == most) break;
  }
  return std::nullopt;
}

std::optional<CutSearch::Cut> CutSearch::best(std::optional<Seconds> limit) {
  TRIREME_CHECK(!isPlayed(plan_));
  const std::optional<Cut> even = evenCut(limit);
  if (stages_ == 1) return even;
  const double most = even    ? even->step.count()
                      : limit ? limit->count()
                              : std::numeric_limits<double>::max();
  const std::optional<Lowest> cut = within(most);
  if (!cut || (even && even->step <= cut->step * (1 + kTie))) return even;
  return Cut{rangesOf(cut->layers), cut->step};
}

std::optional<CutSearch::Lowest> CutSearch::lowest(std::optional<Seconds> limit) {
  TRIREME_CHECK(isPlayed(plan_));
  return within(limit ? limit->count() : std::numeric_limits<double>::max());
}

std::optional<CutSearch::Lowest> CutSearch::inFront(std::optional<Seconds> limit) {
  isInFront_ = true;
  for (auto& options : options_) options.clear();
  auto found = lowest(limit);
  isInFront_ = false;
  for (auto& options : options_) options.clear();
  return found;
}

std::vector<int64_t> CutSearch::mostLayers() {
  std::vector<int64_t> most;
  for (int64_t rank = 0; rank < stages_; ++rank) most.push_back(fitting(rank));
  return most;
}

Ranges CutSearch::leanest() const {
  std::vector<int64_t> layers;
  using Next = std::pair<double, int64_t>;  // memory with one layer more
  const auto later = [](const Next& a, const Next& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  };
  std::priority_queue<Next, std::vector<Next>, decltype(later)> next(later);
  int64_t left = numLayers_;
  for (int64_t rank = 0; rank < stages_; ++rank) {
    layers.push_back(stages_ == 1 ? chunks_ : least(rank));
    left -= layers.back();
    next.emplace(memoryOf(rank, layers.back() + 1).count(), rank);
  }
  for (; left > 0; --left) {
    const int64_t rank = next.top().second;
    next.pop();
    next.emplace(memoryOf(rank, ++layers[static_cast<size_t>(rank)] + 1).count(), rank);
  }
  return rangesOf(layers);
}

}  // namespace trireme::planner
