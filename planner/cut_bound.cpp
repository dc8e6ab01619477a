#include "planner/cut_bound.h"

#include <algorithm>
#include <cmath>

#include "cost_models/described_memory.h"
#include "cost_models/formulas.h"
#include "planner/rounding.h"

namespace trireme::planner {

using cost::asDouble;

namespace {

// With everything hidden that can be.
Seconds leastOf(const cost::OnceParts& once) {
  Seconds least = once.copies + once.optimizer;
  for (const auto& part : once.communication) least += part.time * std::min(part.share, 1.0);
  return least;
}

}  // namespace

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

double RelaxedTimes::layersWithin(double time, double fixed) const {
  const double free = std::max(time - fixed, 0.0);
  const double few = free / (layer + recomputed);
  return std::floor(few <= most ? few : (free - most * recomputed) / layer);
}

double RelaxedTimes::timeOf(double layers, double fixed) const {
  return fixed + layers * layer + std::min(layers, most) * recomputed;
}

CutBound::CutBound(const CutStages& stages, const CutMemory& memory)
    : stages_(stages), memory_(memory) {
  for (const StageKind kind : kStageKinds)
    parameters_[kind] = cost::parametersOfStage(stages.blocks, stages.query.model, stages.plan,
                                                static_cast<size_t>(stages.rankOf(kind)));
}

RelaxedTimes CutBound::ofBlocks() const {
  const cost::BlockCost& layer = stages_.blocks.layer;
  const spec::StackDescription& stack = stages_.query.stack.description;
  const bool isPart = stages_.plan.recomputeLayers > 0;
  const auto sum = [](const cost::BlockCost& block) {
    return (block.forward.device() + block.backward.device()).count();
  };
  cost::PassCost backward = layer.backward;
  if (!isPart) backward += layer.recomputed;
  RelaxedTimes r;
  r.first = sum(stages_.blocks.embedding);
  r.last = sum(stages_.blocks.head);
  r.layer = (layer.forward.device() + backward.device()).count();
  if (isPart) {
    r.recomputed = layer.recomputed.device().count();
    r.most = asDouble(stages_.plan.recomputeLayers * stages_.chunks);
  }
  // With a CPU beside the device layers alone may take longer than kernels of all blocks.
  const double alone =
      (cost::passTime(layer.forward, stack) + cost::passTime(backward, stack)).count();
  const double layers = asDouble(stages_.numLayers);
  if (alone * layers > r.layer * layers + r.first + r.last + r.recomputed * layers) {
    r.layer = alone;
    r.first = r.last = r.recomputed = 0;
  }
  r.layer += (stages_.setting.traffic.layerForward + stages_.setting.traffic.layerBackward).count();
  r.first += stages_.setting.traffic.embedding.count();
  r.last += stages_.setting.traffic.head.count();
  return r;
}

// Layers that stages may have in a time for a microbatch, and by memory unless isRoomy.
struct CutBound::Held {
  const CutBound& of;
  const RelaxedTimes& r;
  bool isRoomy;

  double stages() const { return asDouble(of.stages_.count); }
  double stage(double time, double fixed, int64_t most) const {
    const double held = r.layersWithin(time, fixed);
    return isRoomy ? held : std::min(held, asDouble(most));
  }
  double first(double time) const { return stage(time, r.first, of.memory_.most().front()); }
  double last(double time) const { return stage(time, r.last, of.memory_.most().back()); }
  double inner(double time) const {
    const double held = r.layersWithin(time, 0);
    return isRoomy ? held * (stages() - 2) : of.memory_.ofInner(held);
  }
  double all(double time) const {
    if (of.stages_.count == 1) return stage(time, r.first + r.last, of.memory_.most().front());
    return first(time) + last(time) + inner(time);
  }
  double inPath(double time) const;
};

// A microbatch passes a chunk of every stage but the slowest before and after it. Of n layers a
// chunk has floor(n / v) at least; with fewer than `time` allows, one less for every layer less.
double CutBound::Held::inPath(double time) const {
  const CutStages& s = of.stages_;
  double chunks = -(all(time) - asDouble(s.numLayers)), longest = 0;
  const auto addStages = [&](double ofEach, double count) {
    const double chunk = std::floor(ofEach / asDouble(s.chunks));
    chunks += chunk * count;
    longest = std::max(longest, chunk);
  };
  const double inInner = r.layersWithin(time, 0);
  if (isRoomy && s.count > 2) addStages(inInner, stages() - 2);
  if (!isRoomy)
    for (const double most : of.memory_.mostOfInner()) addStages(std::min(inInner, most), 1);
  addStages(first(time), 1);
  addStages(last(time), 1);
  return std::max({chunks - longest, stages() - 3, 0.0}) * r.layer;
}

RelaxedTimes CutBound::relaxed(bool isRoomy) const {
  const double layers = asDouble(stages_.numLayers), p = asDouble(stages_.count);
  const double m = stages_.microbatches;
  RelaxedTimes r = ofBlocks();
  const Held held{*this, r, isRoomy};
  // To a millionth of a layer's time: more digits would not keep more cuts away.
  double low = 0, high = (r.layer + r.recomputed) * (layers + 1) + r.first + r.last;
  for (int i = 0; i < 28; ++i) {
    const double middle = (low + high) / 2;
    (held.all(middle) < layers ? low : high) = middle;
  }
  r.slowest = low;
  r.sum = r.layer * layers + r.first + r.last + p * 2 * stages_.transfer;
  // Of layers of which a stage recomputes `most`, at least so many are recomputed in all. While
  // more microbatches wait for the slowest stage than a longer one could save.
  double inner = r.layersWithin(high, 0) + 1;
  const std::vector<int64_t>& most = memory_.most();
  if (!isRoomy) inner = std::min(inner, asDouble(*std::max_element(most.begin(), most.end())));
  if ((m - 1) * r.layer >= p * r.recomputed)
    r.sum += r.recomputed * layers * std::min(1.0, r.most / inner);
  r.path = m * low;
  if (stages_.isSplit) r.path = splitPath(r, r.path, isRoomy);
  if (stages_.count > 1 && stages_.chunks > 1) r.path = virtualPath(r, held, high);
  return r;
}

// The slowest stage's time m times and the chunks beside it. A slowest stage that is slower leaves
// other stages with fewer layers, and their chunks.
double CutBound::virtualPath(const RelaxedTimes& r, const Held& held, double slowest) const {
  const double m = stages_.microbatches;
  double path = r.path + held.inPath(slowest);
  for (double time = slowest;;) {
    double next = std::numeric_limits<double>::infinity();
    for (const double fixed : {0.0, r.first, r.last})
      next = std::min(next, r.timeOf(r.layersWithin(time * (1 + kTie), fixed) + 1, fixed));
    time = next;
    if (m * time >= path) return path;
    path = std::min(path, m * time + held.inPath(time * (1 + kTie)));
  }
}

// No less than `path`, and all stages together have all layers: stage r works m times on its own
// ones once the forwards before it are done, so that in a time T it may have (T - F) / m of work.
// Layers handed out from the front, each as many as it may have, are the most, for a layer costs
// the stages behind no more than it takes: (p - 1) f <= m s.
double CutBound::splitPath(const RelaxedTimes& r, double path, bool isRoomy) const {
  const double p = asDouble(stages_.count), m = stages_.microbatches, transfer = stages_.transfer;
  const double perStage = 2 * transfer, all = asDouble(stages_.numLayers);
  const cost::BlockCost& layer = stages_.blocks.layer;
  const double forward = stages_.isAhead || r.layer == 0 ? 0 : layer.forward.device().count();
  if ((p - 1) * forward > m * r.layer || (!isRoomy && !memory_.mayFit())) return path;
  const auto heldIn = [&](double time) {
    double before = 0, held = 0;
    for (int64_t rank = 0; rank < stages_.count; ++rank) {
      const double fixed =
          perStage + (rank == 0 ? r.first : 0) + (rank + 1 == stages_.count ? r.last : 0);
      double layers = std::max(((time - before) / m - fixed) / r.layer, 0.0);
      if (!isRoomy) layers = std::min(layers, asDouble(memory_.most()[static_cast<size_t>(rank)]));
      held += layers;
      before += layers * forward + (stages_.isAhead ? 0 : transfer);
    }
    return held;
  };
  double low = path, high = path + m * perStage + p * (r.layer + r.first + transfer);
  while (heldIn(high) < all) high = low + 2 * (high - low);
  for (int i = 0; i < 24; ++i) {
    const double middle = (low + high) / 2;
    (heldIn(middle) < all ? low : high) = middle;
  }
  return std::max(path, low - m * perStage);
}

// Some stage has as many layers at least.
int64_t CutBound::fullest(bool isRoomy) const {
  const int64_t layers = stages_.numLayers;
  int64_t tooFew = (layers + stages_.count - 1) / stages_.count - 1, enough = layers;
  if (isRoomy) return tooFew + 1;
  while (enough - tooFew > 1) {
    const int64_t middle = (tooFew + enough) / 2;
    int64_t held = 0;
    for (const int64_t most : memory_.most()) held += std::min(most, middle);
    (held >= layers ? enough : tooFew) = middle;
  }
  return enough;
}

// The least of path and `once` together, if some stage has so many parameters and layers at least.
// It may take any time s for a microbatch: the longer, the more is hidden beside it, but no path is
// shorter than m s.
double CutBound::withOnce(double path, double perLayer, double parameters, int64_t layers) const {
  const cost::BlockCost& layer = stages_.blocks.layer;
  const double m = stages_.microbatches, chunks = asDouble(stages_.chunks);
  const double perMicrobatch = 2 * stages_.transfer * chunks;
  const cost::OnceParts once = cost::oncePartsOf(stages_.setting, parameters);
  const double forward = layer.forward.device().count() * asDouble(layers);
  const double backward = layer.backward.device().count() * asDouble(layers);
  const auto felt = [&](double stage) {
    const double pieces =
        chunks > 1 ? chunks : std::clamp(stage / perLayer, 1.0, asDouble(stages_.numLayers));
    double time = 0;
    for (const auto& part : once.communication) {
      if (part.time.count() <= 0) continue;
      const Seconds beside(std::max(stage - (part.isBackward ? forward : backward), 0.0));
      time += part.felt(beside, pieces).count();
    }
    return time;
  };
  double stage = std::max(path / m - perMicrobatch, 0.0);
  double least = path + felt(stage);
  while ((stage + perMicrobatch) * m < least) {
    const double longer = stage * 1.05 + perLayer * 1e-3;
    least = std::min(least, std::max(path, (stage + perMicrobatch) * m) + felt(longer));
    stage = longer;
  }
  return least + (once.copies + once.optimizer).count();
}

double CutBound::pathOf(const RelaxedTimes& r) const {
  const double m = stages_.microbatches, transfers = 2 * stages_.transfer;
  const double perStage = transfers * asDouble(stages_.chunks);
  if (stages_.isSplit) return r.path + m * perStage;
  if (stages_.chunks == 1) return r.sum + (m - 1) * (r.slowest + perStage);
  return r.path + m * perStage + (asDouble(stages_.count) - 1) * transfers;
}

Seconds CutBound::of(bool isRoomy) const {
  const RelaxedTimes r = relaxed(isRoomy);
  const double path = pathOf(r);
  // The fullest stage, the first and the last.
  const double perLayer = stages_.blocks.layer.parameters;
  const int64_t fullest = this->fullest(isRoomy);
  double least = withOnce(path, r.layer, perLayer * asDouble(fullest), fullest);
  for (const StageKind kind : {kFirst, kLast}) {
    const int64_t rank = stages_.rankOf(kind);
    const int64_t layers = stages_.count == 1 ? stages_.numLayers : stages_.least(rank);
    const double parameters = parameters_[kind] + perLayer * asDouble(layers);
    if (parameters > perLayer * asDouble(fullest))
      least =
          std::max(least, withOnce(path, r.layer, parameters, layers) +
                              cost::tiedTime(stages_.setting, static_cast<size_t>(rank)).count());
  }
  return Seconds(least * (stages_.factor * kRounding));
}

}  // namespace trireme::planner
