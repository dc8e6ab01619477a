#include "planner/best_cut.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>
#include <utility>

#include "cost_models/described_memory.h"
#include "cost_models/in_flight.h"
#include "planner/cuts.h"

namespace trireme::planner {
namespace {

// Arithmetic in another order than the estimate's.
constexpr double kRounding = 1e-9;
constexpr double kTie = 1e-12;
constexpr Bytes kRoundedBytes(8);  // of each of four parts to whole bytes, and fragmentation of it

double asDouble(int64_t n) { return static_cast<double>(n); }

// setLayers() gives a stage its chunks when it is looked at.
plan::Plan withoutLayers(const plan::Plan& plan) {
  plan::Plan bare = plan;
  bare.layers.assign(static_cast<size_t>(plan.pp), {});
  return bare;
}

// Layers of one chunk of a stage.
int64_t countOf(int64_t chunk, int64_t layers, int64_t chunks, bool firstStage) {
  const int64_t place = firstStage ? chunks - 1 - chunk : chunk;
  return layers / chunks + (place < layers % chunks ? 1 : 0);
}

}  // namespace

std::vector<int64_t> spreadOver(int64_t layers, int64_t chunks, bool firstStage) {
  std::vector<int64_t> counts;
  for (int64_t c = 0; c < chunks; ++c) counts.push_back(countOf(c, layers, chunks, firstStage));
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
  const double path = plan.virtualStages == 1
                          ? all + p * transfer + (m - 1) * (busiest + transfer)
                          : m * (busiest + transfer * asDouble(plan.virtualStages)) +
                                std::max(p - 3, 0.0) * layer + (p - 1) * transfer;
  const Seconds once =
      cost::leastOnce(*blocks.described, query.model, plan, query.cluster, stack, most);
  return (Seconds(path) + once) * (cost::stepFactor(plan, query.cluster, stack) * (1 - kRounding));
}

// The best that the stages so far can do in one respect or another.
struct CutSearch::Label {
  double through = 0;   // passes of the first chunks; under GPipe of all
  double longest = 0;   // path so far; under GPipe the longest forward
  double backward = 0;  // GPipe: the longest
  double once = 0;
  int32_t layers = 0;  // of the last stage
  int32_t before = 0;  // label of the stages before it, among those with as many layers less

  bool beats(const Label& o) const {
    const auto le = [](double a, double b) { return a <= b * (1 + kTie); };
    return le(through, o.through) && le(longest, o.longest) && le(backward, o.backward) &&
           le(once, o.once);
  }
};

// Times of blocks that add up to no more than those of stages.
struct CutSearch::Relaxed {
  double layer = 0, recomputed = 0;  // the latter of so many layers of a stage:
  double most = std::numeric_limits<double>::infinity();
  double first = 0, last = 0;
  double sum = 0;      // over the stages, with transfers
  double slowest = 0;  // no cut has a shorter longest stage, without transfers
  double chunks = 0;   // first and last chunks that the longest path passes beside its stage's

  double layersWithin(double time, double fixed) const {
    const double free = std::max(time - fixed, 0.0);
    const double few = free / (layer + recomputed);
    return std::floor(few <= most ? few : (free - most * recomputed) / layer);
  }
};

const std::vector<double>& SlotTable::of(const plan::Plan& plan) {
  const auto [place, isNew] =
      known_.try_emplace({plan.schedule, plan.pp, plan.virtualStages, plan.numMicrobatches()});
  if (isNew)
    for (int64_t rank = 0; rank < plan.pp; ++rank)
      for (const int64_t slots : cost::peakSlots(plan.schedule, plan.pp, plan.virtualStages,
                                                 plan.numMicrobatches(), rank))
        place->second.push_back(asDouble(slots));
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
      slots_(slots.of(plan)) {
  const spec::StackDescription& stack = query.stack.description;
  transfer_ = cost::transferTime(query.model, plan_, query.cluster, stack).count();
  factor_ = cost::stepFactor(plan_, query.cluster, stack);
  const int64_t ranks[] = {0, std::min<int64_t>(1, stages_ - 1), stages_ - 1};
  plan_.schedule = plan::ScheduleKind::kGpipe;  // there are no layers to be in flight
  for (const int64_t rank : ranks)
    plan_.layers[static_cast<size_t>(rank)].resize(static_cast<size_t>(chunks_));
  for (const Kind kind : {kFirst, kInner, kLast})
    fixed_[kind] = cost::describedMemoryOf(*blocks.described, query.model, plan_, stack,
                                           static_cast<size_t>(ranks[kind]))
                       .total();
  plan_.schedule = plan.schedule;
  const double padding = 1 + stack.fragmentation;
  perLayer_ = stateBytes(query, blocks.layerElements, plan_) * padding;
  const Bytes recomputed = cost::keptByLayer(query.model, plan_, stack);
  if (plan.recompute == plan::Recompute::kFull) plan_.recompute = plan::Recompute::kNone;
  kept_ = cost::keptByLayer(query.model, plan_, stack) * padding;
  saved_ = kept_ - recomputed * padding;
  plan_.recompute = plan.recompute;
}

void CutSearch::recomputeLayers(int64_t layers) {
  plan_.recomputeLayers = layers;
  for (auto& options : options_) options.clear();
}

CutSearch::Kind CutSearch::kindOf(int64_t rank) const {
  if (rank == 0) return kFirst;
  return rank + 1 == stages_ ? kLast : kInner;
}

int64_t CutSearch::least(int64_t rank) const {
  return kindOf(rank) == kInner ? chunks_ : chunks_ - 1;
}

Bytes CutSearch::memoryOf(int64_t rank, int64_t layers) const {
  const int64_t recomputed =
      plan_.recomputeLayers > 0 ? plan_.recomputeLayers : numLayers_;  // of a chunk
  const double* slots = slots_.data() + rank * chunks_;
  double kept = 0, saved = 0;
  for (int64_t c = 0; c < chunks_; ++c) {
    const int64_t count = countOf(c, layers, chunks_, rank == 0);
    kept += slots[c] * asDouble(count);
    saved += slots[c] * asDouble(std::min(count, recomputed));
  }
  return fixed_[kindOf(rank)] + perLayer_ * asDouble(layers) + kept_ * kept - saved_ * saved;
}

bool CutSearch::fits(int64_t rank, int64_t layers) {
  setLayers(rank, layers);
  const cost::MemoryUse use = cost::describedMemoryOf(
      *blocks_.described, query_.model, plan_, query_.stack.description, static_cast<size_t>(rank));
  return use.total() <= query_.cluster.device.memory;
}

void CutSearch::setLayers(int64_t rank, int64_t layers) {
  std::vector<plan::LayerRange>& ranges = plan_.layers[static_cast<size_t>(rank)];
  ranges.resize(static_cast<size_t>(chunks_));
  for (int64_t c = 0; c < chunks_; ++c)
    ranges[static_cast<size_t>(c)].count = countOf(c, layers, chunks_, rank == 0);
}

// -1: not even none. Guessed as if all chunks had equally many layers.
int64_t CutSearch::mostThatFit(int64_t rank, int64_t limit) const {
  const Bytes available = query_.cluster.device.memory + kRoundedBytes;
  double slots = 0;  // of a layer
  for (int64_t c = 0; c < chunks_; ++c)
    slots += slots_[static_cast<size_t>(rank * chunks_ + c)] / asDouble(chunks_);
  const Bytes free = available - fixed_[kindOf(rank)];
  const double most =
      plan_.recomputeLayers > 0 ? asDouble(plan_.recomputeLayers * chunks_) : asDouble(numLayers_);
  double guess = free / (perLayer_ + (kept_ - saved_) * slots);
  if (guess > most) guess = (free + saved_ * (slots * most)) / (perLayer_ + kept_ * slots);
  auto layers = static_cast<int64_t>(std::clamp(guess, -1.0, asDouble(limit)));
  while (layers >= 0 && memoryOf(rank, layers) > available) --layers;
  while (layers < limit && memoryOf(rank, layers + 1) <= available) ++layers;
  return layers;
}

// From the last stage on, which holds fewest microbatches.
bool CutSearch::mayFit() const {
  int64_t left = numLayers_;
  for (int64_t rank = 0; rank < stages_; ++rank) left -= least(rank);
  for (int64_t rank = stages_ - 1; rank >= 0; --rank) {
    const int64_t most = mostThatFit(rank, least(rank) + left);
    if (most < least(rank)) return false;
    left -= most - least(rank);
  }
  return left <= 0;
}

CutSearch::Relaxed CutSearch::relaxed() const {
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
  const double layers = asDouble(numLayers_), p = asDouble(stages_);
  if (alone * layers > r.layer * layers + r.first + r.last + r.recomputed * layers) {
    r.layer = alone;
    r.first = r.last = r.recomputed = 0;
  }
  const auto within = [&](double time) {
    if (stages_ == 1) return r.layersWithin(time, r.first + r.last);
    return r.layersWithin(time, r.first) + r.layersWithin(time, r.last) +
           r.layersWithin(time, 0) * (p - 2);
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
  const double inner = r.layersWithin(high, 0) + 1;
  if ((microbatches_ - 1) * r.layer >= p * r.recomputed)
    r.sum += r.recomputed * layers * std::min(1.0, r.most / inner);
  // Of n layers a chunk has floor(n / v) at least; with fewer than `high` allows, one less for
  // every layer less.
  const auto chunk = [&](double fixed) {
    return std::floor(r.layersWithin(high, fixed) / asDouble(chunks_));
  };
  double chunks = -(within(high) - layers);
  if (stages_ > 1)
    chunks += chunk(0) * (p - 2) + chunk(r.first) + chunk(r.last) -
              std::max({chunk(0), chunk(r.first), chunk(r.last)});
  r.chunks = std::max({chunks, p - 3, 0.0}) * r.layer + (p - 1) * 2 * transfer_;
  return r;
}

Seconds CutSearch::bound() const {
  const Relaxed r = relaxed();
  const double perStage = 2 * transfer_ * asDouble(chunks_);
  const double path = chunks_ == 1 ? r.sum + (microbatches_ - 1) * (r.slowest + perStage)
                                   : microbatches_ * (r.slowest + perStage) + r.chunks;
  const Seconds once =
      cost::leastOnce(*blocks_.described, query_.model, plan_, query_.cluster,
                      query_.stack.description, (numLayers_ + stages_ - 1) / stages_);
  return (Seconds(path) + once) * (factor_ * (1 - kRounding));
}

const CutSearch::Option& CutSearch::option(int64_t rank, int64_t layers) {
  std::vector<std::optional<Option>>& options = options_[kindOf(rank)];
  if (options.empty()) options.resize(static_cast<size_t>(numLayers_) + 1);
  std::optional<Option>& known = options[static_cast<size_t>(layers)];
  if (known) return *known;
  setLayers(rank, layers);
  const cost::StageEstimate stage =
      cost::estimateStage(*blocks_.described, query_.model, plan_, query_.cluster,
                          query_.stack.description, static_cast<size_t>(rank));
  Option o{};
  for (size_t c = 0; c < stage.times.forward.size(); ++c) {
    o.forward += stage.times.forward[c].count() + transfer_;
    o.backward += stage.times.backward[c].count() + transfer_;
  }
  o.all = o.forward + o.backward;
  o.first = (stage.times.forward.front() + stage.times.backward.front()).count() + 2 * transfer_;
  o.last = (stage.times.forward.back() + stage.times.backward.back()).count() + 2 * transfer_;
  o.once = stage.once.total().count();
  return known.emplace(o);
}

CutSearch::Label CutSearch::after(const Label& before, const Option& o) const {
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
  return label.longest + label.once;
}

// Of every stage, by memory and because a path through it takes no more than `limit`.
std::vector<int64_t> CutSearch::mostWithin(double limit) {
  const Relaxed r = relaxed();
  const auto isWithin = [&](int64_t rank, int64_t layers) {
    const double all = option(rank, layers).all;
    const double path = chunks_ == 1
                            ? r.sum * (1 - kRounding) + all * (microbatches_ - 1)
                            : all * microbatches_ + (asDouble(stages_) - 1) * 2 * transfer_;
    return path <= limit;
  };
  const int64_t even = (numLayers_ + stages_ - 1) / stages_;
  std::optional<int64_t> most[3];  // by time
  std::vector<int64_t> result;
  for (int64_t rank = 0; rank < stages_; ++rank) {
    std::optional<int64_t>& n = most[kindOf(rank)];
    if (!n) {
      n = std::max(even, least(rank));
      while (*n > 0 && !isWithin(rank, *n)) --*n;
      while (*n > 0 && *n < numLayers_ && isWithin(rank, *n + 1)) ++*n;
    }
    int64_t fitting = mostThatFit(rank, *n);
    while (fitting >= 0 && !fits(rank, fitting)) --fitting;
    result.push_back(fitting);
  }
  return result;
}

Ranges CutSearch::rangesOf(const std::vector<int64_t>& layers) const {
  std::vector<std::vector<int64_t>> counts;
  for (size_t rank = 0; rank < layers.size(); ++rank)
    counts.push_back(spreadOver(layers[rank], chunks_, rank == 0));
  return rangesFrom(counts);
}

// The fastest whose pipeline and `once` take no more than `limit`.
std::optional<CutSearch::Cut> CutSearch::withLimit(double limit) {
  const std::vector<int64_t> most = mostWithin(limit);
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
        for (size_t from = 0; from < labels[at][i].size(); ++from) {
          Label label = after(labels[at][i][from], option(rank, n));
          if (valueOf(label) > limit) continue;
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
  return Cut{rangesOf(layers), step};
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
std::optional<CutSearch::Cut> CutSearch::best(std::optional<Seconds> limit) {
  const std::optional<Cut> even = evenCut(limit);
  if (stages_ == 1) return even;
  const double bound = this->bound().count();
  const double most = even    ? even->step.count()
                      : limit ? limit->count()
                              : std::numeric_limits<double>::max();
  for (const double more : {1.001, 1.01, 1.1, 2.0, std::numeric_limits<double>::infinity()}) {
    const double within = std::min(bound * more, most);
    if (const std::optional<Cut> cut = withLimit(within * (1 + kRounding) / factor_))
      return even && even->step <= cut->step * (1 + kTie) ? even : cut;
    if (within == most) break;
  }
  return even;
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
