#include "planner/cuts/best_cut.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "cost_models/formulas.h"
#include "ir/schedule/schedule.h"
#include "planner/rounding.h"

namespace trireme::planner {

using cost::asDouble;

CutSearch::CutSearch(const Query& query, const plan::Plan& plan, const BlockCosts& blocks,
                     SlotTable& slots)
    : stages_(query, plan, blocks), memory_(stages_, blocks, slots), bound_(stages_, memory_) {}

void CutSearch::recomputeLayers(int64_t layers) {
  stages_.plan.recomputeLayers = layers;
  for (auto& options : options_) options.clear();
  memory_.limit();
}

// Where a plan has one stage, that has all layers.
Seconds CutSearch::bound() {
  if (!mayFit()) return Seconds(std::numeric_limits<double>::infinity());
  if (stages_.count > 1) return bound_.of(false);
  const Option& o = option(0, stages_.numLayers);
  return (Seconds(o.all * stages_.microbatches) + o.once.total()) * (stages_.factor * kRounding);
}

// The best that the stages so far can do in one respect or another.
struct CutSearch::Label {
  double through = 0;   // passes of the first chunks; under GPipe of all
  double forwards = 0;  // split backward
  double longest = 0;   // path so far; under GPipe the longest forward
  double fixed = 0;     // split backward: the longest path that no stage behind lengthens
  double backward = 0;  // GPipe: the longest
  double reducing = 0, updating = 0;  // OnceTimes
  int32_t layers = 0;                 // of the last stage
  int32_t before = 0;  // label of the stages before it, among those with as many layers less

  bool beats(const Label& o) const {
    const auto le = [](double a, double b) { return a <= b * (1 + kTie); };
    return le(through, o.through) && le(forwards, o.forwards) && le(longest, o.longest) &&
           le(fixed, o.fixed) && le(backward, o.backward) && le(reducing, o.reducing) &&
           le(updating, o.updating);
  }
  static constexpr double Label::* kRespects[] = {
      &Label::through,  &Label::forwards, &Label::longest, &Label::fixed,
      &Label::backward, &Label::reducing, &Label::updating};
  double once() const { return reducing + updating; }
  // `isBound`: by the longest sum, which is no more and of which there are fewer.
  void lengthen(const cost::OnceTimes& stage, bool isBound) {
    reducing = std::max(reducing, (isBound ? stage.total() : stage.reducing).count());
    updating = isBound ? 0 : std::max(updating, stage.updating.count());
  }
  // The largest relative difference.
  double distance(const Label& o) const {
    double largest = 0;
    for (const auto respect : kRespects) {
      const double a = this->*respect, b = o.*respect;
      if (a != b) largest = std::max(largest, std::abs(a - b) / std::max(a, b));
    }
    return largest;
  }
  // As good as both in every respect.
  void takeBest(const Label& o) {
    for (const auto respect : kRespects) this->*respect = std::min(this->*respect, o.*respect);
  }
};

// Labels of the first stages by how many layers these have in all: at most `slack` fewer than the
// most that they may have.
struct CutSearch::LabelTable {
  std::vector<std::vector<std::vector<Label>>> labels = {{{Label{}}}};  // [stages][layers - fewest]
  std::vector<int64_t> fewest = {0};
  // Of so many layers. Those that are merged are as good as both, so that what is found is a bound.
  size_t mostLabels = std::numeric_limits<size_t>::max();

  void open(int64_t few, int64_t most) {
    fewest.push_back(few);
    labels.emplace_back(static_cast<size_t>(most - few) + 1);
  }
  std::vector<Label>& at(size_t stages, int64_t layers) {
    return labels[stages][static_cast<size_t>(layers - fewest[stages])];
  }
  void add(size_t stages, int64_t layers, const Label& label);
};

const CutSearch::Option& CutSearch::option(int64_t rank, int64_t layers) {
  std::vector<std::optional<Option>>& options = options_[stages_.kindOf(rank)];
  if (options.empty()) options.resize(static_cast<size_t>(stages_.numLayers) + 1);
  std::optional<Option>& known = options[static_cast<size_t>(layers)];
  if (known) return *known;
  std::vector<int64_t> counts = spreadOver(layers, stages_.chunks);
  const bool isUneven = layers % stages_.chunks > 0;
  if (isUneven && isInFront_ && rank > 0) std::reverse(counts.begin(), counts.end());
  stages_.setLayers(rank, counts);
  Option o = optionOf(rank);
  if (isUneven &&
      !isInFront_) {  // the first chunk has the fewest, and with the others the last one
    std::reverse(counts.begin(), counts.end());
    stages_.setLayers(rank, counts);
    const Option other = optionOf(rank);
    o.all = std::min(o.all, other.all);
    o.last = other.last;
    o.once = shortest(o.once, other.once);
  }
  return known.emplace(o);
}

CutSearch::Option CutSearch::optionOf(int64_t rank) {
  const cost::StageEstimate stage = cost::estimateStage(stages_.setting, static_cast<size_t>(rank));
  Option o{};
  for (size_t c = 0; c < stage.times.forward.size(); ++c) {
    o.forward += stage.times.forward[c].count() + stages_.transfer;
    o.backward += stage.times.backward[c].count() + stages_.transfer;
  }
  for (const Seconds time : stage.times.weights) o.weights += time.count();
  o.all = o.forward + o.backward + o.weights;
  o.first =
      (stage.times.forward.front() + stage.times.backward.front()).count() + 2 * stages_.transfer;
  o.last =
      (stage.times.forward.back() + stage.times.backward.back()).count() + 2 * stages_.transfer;
  o.once = stage.once.times();
  return o;
}

// The four paths of cost::pipelineTime; the first stage's own W is a part of `through` from then
// on, and of the fourth path of that stage alone.
CutSearch::Label CutSearch::afterSplit(const Label& before, const Option& o, int64_t rank) const {
  const double m = stages_.microbatches, pass = o.forward + o.backward;
  const schedule::Lead lead = schedule::leadOf(stages_.plan.schedule, stages_.count, rank);
  Label label = before;
  label.lengthen(o.once, isPlayed(stages_.plan));
  if (rank == 0) label.through = o.weights;
  const double waiting = o.weights * std::max(m - 1 - asDouble(lead.backwards), 0.0);
  const double later = o.forward * std::max(m - asDouble(lead.forwards), 0.0);
  const double own = rank == 0 ? o.weights : 0;
  label.fixed =
      std::max({before.fixed, before.forwards + o.all * m, label.through + pass * m + waiting,
                trip_ + o.backward * (m - 1) + waiting + later + own});
  label.longest = std::max(before.longest + pass,
                           before.forwards + o.forward + (o.backward + o.weights) * m + later);
  label.through += pass;
  if (!stages_.isAhead) label.forwards += o.forward;
  return label;
}

CutSearch::Label CutSearch::after(const Label& before, const Option& o, int64_t rank) const {
  if (stages_.isSplit) return afterSplit(before, o, rank);
  Label label = before;
  label.lengthen(o.once, isPlayed(stages_.plan));
  if (stages_.plan.schedule == plan::ScheduleKind::kGpipe) {
    label.through += o.all;
    label.longest = std::max(label.longest, o.forward);
    label.backward = std::max(label.backward, o.backward);
  } else {
    label.longest = std::max(label.longest + o.last, o.all * stages_.microbatches + label.through);
    label.through += o.first;
  }
  return label;
}

// With stages behind that add `rest` at least to every path that they lengthen.
double CutSearch::valueOf(const Label& label, double rest) const {
  if (stages_.plan.schedule == plan::ScheduleKind::kGpipe)
    return label.through + (label.longest + label.backward) * (stages_.microbatches - 1) + rest +
           label.once();
  return std::max(label.longest + rest, label.fixed) + label.once();
}

// Of every stage, by memory and because a path through it takes no more than `limit`. Empty: too
// few in all.
std::vector<int64_t> CutSearch::mostWithin(double limit, const RelaxedTimes& r) {
  const auto isWithin = [&](int64_t rank, int64_t layers) {
    const double all = option(rank, layers).all;
    const double path =
        stages_.isSplit ? all * stages_.microbatches
        : stages_.chunks == 1
            ? r.sum * kRounding + all * (stages_.microbatches - 1)
            : all * stages_.microbatches + (asDouble(stages_.count) - 1) * 2 * stages_.transfer;
    return path <= limit;
  };
  // By time, of all stages of a kind: as a rule about as many as by an even cut, or as fit.
  const auto mostOf = [&](int64_t rank, int64_t fitting) {
    int64_t enough = -1, tooMany = fitting + 1,
            next = (stages_.numLayers + stages_.count - 1) / stages_.count;
    for (next = std::min(next, fitting); tooMany - enough > 1;) {
      const bool fits = isWithin(rank, next);
      (fits ? enough : tooMany) = next;
      next =
          fits && tooMany == fitting + 1 ? std::min(fitting, 2 * next + 1) : (enough + tooMany) / 2;
    }
    return enough;
  };
  int64_t fitting[kNumStageKinds] = {-1, -1, -1};
  for (int64_t rank = 0; rank < stages_.count; ++rank)
    fitting[stages_.kindOf(rank)] = std::max(fitting[stages_.kindOf(rank)], memory_.fitting(rank));
  const int64_t most[kNumStageKinds] = {mostOf(0, fitting[kFirst]),
                                        stages_.count > 2 ? mostOf(1, fitting[kInner]) : -1,
                                        mostOf(stages_.count - 1, fitting[kLast])};
  std::vector<int64_t> result;
  int64_t all = 0;
  for (int64_t rank = 0; rank < stages_.count; ++rank) {
    result.push_back(std::min(most[stages_.kindOf(rank)], memory_.fitting(rank)));
    all += std::max<int64_t>(result.back(), 0);
  }
  return all < stages_.numLayers ? std::vector<int64_t>() : result;
}

// What the stages behind `rank`, with so many layers, add to every path that they lengthen.
double CutSearch::restOf(int64_t rank, int64_t layers, const RelaxedTimes& r) const {
  const int64_t stagesLeft = stages_.count - 1 - rank;
  if (stagesLeft == 0) return 0;
  const auto both = [](const SplitPasses& passes) { return passes.forward + passes.backward; };
  double rest = asDouble(stagesLeft) * 2 * stages_.transfer;
  if (stages_.isSplit)
    rest += asDouble(layers) * both(r.ofLayer) + both(r.ofLast);
  else if (stages_.chunks == 1)
    rest += asDouble(layers) * r.layer + r.last;
  return rest * kRounding;
}

void CutSearch::LabelTable::add(size_t stages, int64_t layers, const Label& label) {
  std::vector<Label>& known = at(stages, layers);
  if (std::any_of(known.begin(), known.end(), [&](auto& k) { return k.beats(label); })) return;
  std::erase_if(known, [&](const Label& k) { return label.beats(k); });
  if (known.size() < mostLabels) {
    known.push_back(label);
    return;
  }
  std::ranges::min_element(known, {}, [&](const Label& k) {
    return k.distance(label);
  })->takeBest(label);
}

// False: some stage cannot have as few layers as it has to.
bool CutSearch::label(const std::vector<int64_t>& most, int64_t slack, double limit,
                      const RelaxedTimes& r, LabelTable& table) {
  int64_t mostSoFar = 0;
  for (int64_t rank = 0; rank < stages_.count; ++rank) {
    const auto stage = static_cast<size_t>(rank);
    if (most[stage] < stages_.least(rank)) return false;
    const int64_t before = table.fewest.back(), mostBefore = mostSoFar;
    mostSoFar += most[stage];
    table.open(std::max<int64_t>(mostSoFar - slack, 0), mostSoFar);
    for (int64_t layers = before; layers <= mostBefore; ++layers) {
      const std::vector<Label>& labels = table.at(stage, layers);
      if (labels.empty()) continue;
      const int64_t fewest = std::max(stages_.least(rank), most[stage] - slack);
      for (int64_t n = std::max(fewest, table.fewest.back() - layers); n <= most[stage]; ++n) {
        const double rest = restOf(rank, stages_.numLayers - layers - n, r);
        for (size_t from = 0; from < labels.size(); ++from) {
          Label label = after(labels[from], option(rank, n), rank);
          if (valueOf(label, rest) > limit) continue;
          label.layers = static_cast<int32_t>(n);
          label.before = static_cast<int32_t>(from);
          table.add(stage + 1, layers + n, label);
        }
      }
    }
  }
  return true;
}

// The fastest whose pipeline and `once` take no more than `limit`.
std::optional<CutSearch::Lowest> CutSearch::withLimit(double limit, const RelaxedTimes& r) {
  const std::vector<int64_t> most = mostWithin(limit, r);
  if (most.empty()) return std::nullopt;
  const int64_t slack = std::accumulate(most.begin(), most.end(), int64_t{0}) - stages_.numLayers;
  LabelTable table;
  if (isPlayed(stages_.plan)) table.mostLabels = mostLabels_;
  if (slack < 0 || !label(most, slack, limit, r, table)) return std::nullopt;
  const std::vector<Label>& last = table.at(table.fewest.size() - 1, stages_.numLayers);
  const auto best = std::min_element(last.begin(), last.end(),
                                     [&](auto& a, auto& b) { return valueOf(a) < valueOf(b); });
  if (best == last.end()) return std::nullopt;
  Lowest lowest{std::vector<int64_t>(static_cast<size_t>(stages_.count)),
                Seconds(valueOf(*best) * stages_.factor)};
  int64_t left = stages_.numLayers;
  Label label = *best;
  for (size_t rank = lowest.layers.size(); rank-- > 0;) {
    lowest.layers[rank] = label.layers;
    left -= label.layers;
    label = table.at(rank, left)[static_cast<size_t>(label.before)];
  }
  return lowest;
}

std::optional<CutSearch::Cut> CutSearch::evenCut(std::optional<Seconds> limit) const {
  plan::Plan even = stages_.plan;
  even.layers = plan::evenLayers(stages_.numLayers, stages_.count, stages_.chunks);
  const cost::Estimate estimate =
      cost::estimateFromBlocks(stages_.blocks, stages_.query.model, even, stages_.query.cluster,
                               stages_.query.stack.description, cost::pipelineTime);
  if (!estimate.fits() || (limit && estimate.step > *limit)) return std::nullopt;
  return Cut{std::move(even.layers), estimate.step};
}

// With tight limits first, under which few states are looked at.
std::optional<CutSearch::Lowest> CutSearch::within(double most) {
  const double bound = this->bound().count();
  if (stages_.isSplit && knowsTrip_) trip_ = bound_.trip();
  const RelaxedTimes relaxed = bound_.relaxed(false);
  for (const double more : {1.02, 1.3, 2.0, std::numeric_limits<double>::infinity()}) {
    const double limit = std::min(bound * more, most);
    if (auto lowest = withLimit(limit / kRounding / stages_.factor, relaxed)) return lowest;
    if (limit == most) break;
  }
  return std::nullopt;
}

std::optional<CutSearch::Cut> CutSearch::best(std::optional<Seconds> limit) {
  TRIREME_CHECK(!isPlayed(stages_.plan));
  const std::optional<Cut> even = evenCut(limit);
  if (stages_.count == 1) return even;
  const double most = even    ? even->step.count()
                      : limit ? limit->count()
                              : std::numeric_limits<double>::max();
  const std::optional<Lowest> cut = within(most);
  if (!cut || (even && even->step <= cut->step * (1 + kTie))) return even;
  return Cut{rangesOf(cut->layers, stages_.chunks), cut->step};
}

std::optional<CutSearch::Lowest> CutSearch::lowest(std::optional<Seconds> limit,
                                                   size_t mostLabels) {
  TRIREME_CHECK(isPlayed(stages_.plan));
  mostLabels_ = mostLabels;
  return within(limit ? limit->count() : std::numeric_limits<double>::max());
}

std::optional<CutSearch::Lowest> CutSearch::lowestByStages(std::optional<Seconds> limit) {
  knowsTrip_ = false;
  trip_ = 0;
  auto found = lowest(limit);
  knowsTrip_ = true;
  return found;
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
  for (int64_t rank = 0; rank < stages_.count; ++rank) most.push_back(memory_.fitting(rank));
  return most;
}

}  // namespace trireme::planner
