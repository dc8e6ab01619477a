#include "planner/cuts/cut_bound.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "cost_models/described_memory.h"
#include "cost_models/formulas.h"
#include "ir/schedule/schedule.h"
#include "planner/rounding.h"

namespace trireme::planner {

using cost::asDouble;

namespace {

// With everything hidden that can be.
Seconds leastOf(const cost::OnceParts& once) {
  Seconds least = once.copies + once.optimizer;
  for (const auto& part : {once.reduced, once.gathered})
    least += part.time * std::min(part.share, 1.0);
  return least;
}

}  // namespace

// The least over stages; with each the others' are as long in all.
double leastBetween(plan::ScheduleKind kind, int64_t stages, double microbatches,
                    const PassTimes& layer) {
  // Of the stages' Ws, which become fewer from rank to rank, and forwards, which become more.
  const auto othersOf = [&](int64_t rank) {
    const schedule::Lead lead = schedule::leadOf(kind, stages, rank);
    return layer.weights.count() * std::max(microbatches - 1 - asDouble(lead.backwards), 0.0) +
           layer.forward.count() * std::max(microbatches - asDouble(lead.forwards), 0.0);
  };
  int64_t least = 0;  // convex in the rank
  for (int64_t last = stages - 1; least < last;) {
    const int64_t middle = (least + last) / 2;
    if (othersOf(middle + 1) < othersOf(middle))
      least = middle + 1;
    else
      last = middle;
  }
  return othersOf(least) + layer.backward.count() * (microbatches - 1);
}

namespace {

// Without transfers, of a split backward: to the end and back, and what the stage with most layers
// does in between.
double quickTrip(const Query& query, const plan::Plan& plan, const BlockCosts& blocks) {
  const PassTimes& layer = blocks.splitLayer;
  const auto both = [](const PassTimes& passes) {
    return (passes.forward + passes.backward).count();
  };
  const int64_t most = (query.model.numLayers + plan.pp - 1) / plan.pp;
  return both(layer) * asDouble(query.model.numLayers) + both(blocks.embedding) +
         both(blocks.head) +
         leastBetween(plan.schedule, plan.pp, asDouble(plan.numMicrobatches()), layer) *
             asDouble(most);
}

}  // namespace

// With the busiest stage as in groupBound():
//   split backward      m times the busiest, or that way of one microbatch and its last backwards
//   no virtual stages   all blocks and transfers once, and (m - 1) times the busiest
//   otherwise           m times the busiest; in between a layer of each of all but three stages
Seconds QuickBound::of(const plan::Plan& plan) {
  const double layer = (blocks_.layer.forward + blocks_.layer.backward).count();
  const double all = layer * asDouble(query_.model.numLayers) +
                     (blocks_.embedding.forward + blocks_.embedding.backward +
                      blocks_.head.forward + blocks_.head.backward)
                         .count();
  const double p = asDouble(plan.pp), m = asDouble(plan.numMicrobatches());
  const int64_t most = (query_.model.numLayers + plan.pp - 1) / plan.pp;
  const double busiest = std::max(all / p, layer * asDouble(most));
  const Key key{plan.stateSharding, plan.dpShard, plan.scatterGather, plan.rankOrder,
                plan.virtualStages > 1};
  const auto [place, isNew] = known_.try_emplace(key);
  if (isNew) place->second = sharedOf(plan);
  const auto& [transfer, once, factor] = place->second;
  const double path =
      plan::splitsBackward(plan.schedule)
          ? std::max(m * (busiest + transfer), quickTrip(query_, plan, blocks_) + p * transfer)
      : plan.virtualStages == 1 ? all + p * transfer + (m - 1) * (busiest + transfer)
                                : m * (busiest + transfer * asDouble(plan.virtualStages)) +
                                      std::max(p - 3, 0.0) * layer + (p - 1) * transfer;
  return (Seconds(path) + once) * factor;
}

QuickBound::Shared QuickBound::sharedOf(const plan::Plan& plan) const {
  const spec::StackDescription& stack = query_.stack.description;
  const int64_t most = (query_.model.numLayers + plan.pp - 1) / plan.pp;
  const cost::StageSetting setting(*blocks_.described, query_.model, plan, query_.cluster, stack);
  return {2 * cost::transferTime(query_.model, plan, query_.cluster, stack).count(),
          leastOf(cost::oncePartsOf(setting, blocks_.layerElements * asDouble(most))),
          cost::stepFactor(plan, query_.cluster, stack) * kRounding};
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
  if (stages_.isSplit) setSplit(r);
  addTraffic(r);
  return r;
}

// Of recomputed layers less is felt, as a rule by no more than they take longer: where the CPU sets
// the pace it may be more.
void CutBound::addTraffic(RelaxedTimes& r) const {
  const cost::ShardedTraffic& traffic = stages_.setting.traffic;
  const double less = traffic.recomputedLess.count();
  r.layer += (traffic.layerForward + traffic.layerBackward).count();
  r.first += traffic.embedding.count();
  r.last += traffic.head.count();
  const bool isPart = stages_.plan.recomputeLayers > 0;
  r.layer -= isPart ? std::max(less - r.recomputed, 0.0) : less;
  r.recomputed = std::max(r.recomputed - less, 0.0);
}

// Each pass of layers alone takes what they take with the CPU, other blocks then nothing more.
void CutBound::setSplit(RelaxedTimes& r) const {
  const spec::StackDescription& stack = stages_.query.stack.description;
  const bool isAlone = r.first == 0 && r.last == 0;
  const auto passesOf = [&](const cost::BlockCost& block) {
    cost::PassCost backward = block.backward;
    backward -= block.weights;
    if (stages_.plan.recomputeLayers == 0) backward += block.recomputed;
    const auto time = [&](const cost::PassCost& pass) {
      return (isAlone ? cost::passTime(pass, stack) : pass.device()).count();
    };
    return SplitPasses{time(block.forward), time(backward), time(block.weights)};
  };
  r.ofLayer = passesOf(stages_.blocks.layer);
  if (isAlone) return;
  r.ofFirst = passesOf(stages_.blocks.embedding);
  r.ofLast = passesOf(stages_.blocks.head);
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
  if (stages_.isSplit) r.path = splitPath(r, isRoomy);
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

double CutBound::tripOf(const RelaxedTimes& r) const {
  double trip = 2 * asDouble(stages_.count) * stages_.transfer;
  for (const auto& [passes, count] : {std::pair(r.ofLayer, asDouble(stages_.numLayers)),
                                      std::pair(r.ofFirst, 1.0), std::pair(r.ofLast, 1.0)})
    trip += (passes.forward + passes.backward) * count;
  return trip;
}

// The four paths of a stage (pipeline.h): how many layers it may have in a time, given those of the
// stages before it, N. N and they together do not shrink as N grows, so that as many as each may
// have, from the first stage on, are the most in all.
class CutBound::SplitStages {
  static constexpr double kRounded = 1 + 1e-9;  // so that rounding takes none away
  struct Path {
    double fixed, perLayerBefore, perLayer;
    double layersIn(double time, double before) const {
      const double left = time - fixed - before * perLayerBefore;
      if (perLayer > 0) return std::max(left / perLayer, 0.0);
      return left < 0 ? 0 : std::numeric_limits<double>::infinity();
    }
  };

 public:
  SplitStages(const CutBound& of, const RelaxedTimes& r) : s_(of.stages_) {
    const double m = s_.microbatches, c = s_.transfer, trip = of.tripOf(r);
    const SplitPasses& layer = r.ofLayer;
    double forwards = 0, backwards = 0;  // before the stage, without layers
    for (int64_t rank = 0; rank < s_.count; ++rank) {
      const schedule::Lead lead = schedule::leadOf(s_.plan.schedule, s_.count, rank);
      const double waiting = std::max(m - 1 - asDouble(lead.backwards), 0.0);
      const double later = std::max(m - asDouble(lead.forwards), 0.0);
      double f = c, b = c, both = 2 * c;  // of the stage's other blocks
      for (const auto& [isHere, passes, sum] :
           {std::tuple(rank == 0, r.ofFirst, r.first), {rank + 1 == s_.count, r.ofLast, r.last}}) {
        if (!isHere) continue;
        f += passes.forward;
        b += passes.backward;
        both += sum;
      }
      const double ahead = s_.isAhead ? forwards : 0;  // of what begins with the stage's own work
      stages_.push_back(
          {Path{forwards - ahead + m * both, s_.isAhead ? 0 : layer.forward, m * r.layer},
           Path{forwards + backwards + m * (f + b), layer.forward + layer.backward,
                m * (layer.forward + layer.backward) + waiting * layer.weights},
           Path{trip - backwards - b + m * b + later * f - ahead,
                -layer.backward - (s_.isAhead ? layer.forward : 0),
                (m - 1) * layer.backward + m * layer.weights + later * layer.forward},
           Path{trip + (m - 1) * b + later * f, 0,
                (m - 1) * layer.backward + waiting * layer.weights + later * layer.forward}});
      forwards += f;
      backwards += b;
    }
  }

  double heldIn(double time, const std::vector<int64_t>* most) const {
    double held = 0;
    for (size_t rank = 0; rank < stages_.size(); ++rank) {
      double layers = asDouble(s_.numLayers);
      for (const Path& path : stages_[rank]) layers = std::min(layers, path.layersIn(time, held));
      layers = std::floor(layers * kRounded);
      if (most) layers = std::min(layers, asDouble((*most)[rank]));
      held += layers;
    }
    return held;
  }

 private:
  const CutStages& s_;
  std::vector<std::array<Path, 4>> stages_;
};

// The shortest time, but for rounding, in which all stages together may have all layers.
double CutBound::splitPath(const RelaxedTimes& r, bool isRoomy) const {
  const double m = stages_.microbatches, all = asDouble(stages_.numLayers);
  const double works = m * (r.slowest + 2 * stages_.transfer);
  if (!isRoomy && !memory_.mayFit()) return works;
  const SplitStages stages(*this, r);
  const std::vector<int64_t>* most = isRoomy ? nullptr : &memory_.most();
  double low = std::max(works, tripOf(r)), high = low * 1.1;
  if (stages.heldIn(low, most) >= all) return low;
  while (stages.heldIn(high, most) < all) {
    low = high;
    high *= 1.5;
  }
  for (int i = 0; i < 20; ++i) {
    const double middle = (low + high) / 2;
    (stages.heldIn(middle, most) < all ? low : high) = middle;
  }
  return low;
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
    return (once.reduced.felt(Seconds(std::max(stage - forward, 0.0)), pieces) +
            once.gathered.felt(Seconds(std::max(stage - backward, 0.0)), pieces))
        .count();
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
  if (stages_.isSplit) return r.path;
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
