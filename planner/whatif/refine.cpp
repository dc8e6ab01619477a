#include "planner/whatif/refine.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace trireme::planner {
namespace {

// Swept points that differ in devices alone, by their number, under one of the scenarios.
struct Curve {
  std::vector<size_t> places;
  size_t scenario = 0;
  Condition condition;
};

using Goal = Refinement::Goal;

struct RefineLimit {
  Goal goal;
  double value;  // s, or of kFastest USD
  Condition condition;
};

// Less is better; what comes first decides.
using Worth = std::tuple<double, double, double>;

// A place among the points under one of the scenarios.
struct At {
  size_t place;
  size_t scenario;
  bool operator==(const At&) const = default;
};

// Two numbers of devices, of which `missing` are not there. None: not one device.
struct Gap {
  int64_t unit, missing, few, many;
  std::optional<At> atFew, atMany;

  // Whole numbers of units between the two, of which there may be none.
  int64_t next() const { return (few / unit + 1) * unit; }
  int64_t last() const { return (many - 1) / unit * unit; }
  bool isEmpty() const { return next() > last(); }
  int64_t middle() const { return (next() / unit + last() / unit) / 2 * unit; }
};

Worth worthOf(Goal goal, const LeastEconomics& e, int64_t present) {
  const auto devices = static_cast<double>(present);
  switch (goal) {
    case Goal::kFewest:
      return {devices, e.cost, e.wall.count()};
    case Goal::kCheapest:
      return {e.cost, e.wall.count(), devices};
    case Goal::kFastest:
      return {e.wall.count(), e.cost, devices};
  }
  return {};
}

class Refiner {
 public:
  Refiner(Answers& answers, const std::function<bool()>& onPlanned);
  void run() {
    const std::vector<Condition> conditions = conditionsOf(answers_, rowsOf(answers_));
    for (const double deadline : answers_.scenarios.deadlines)
      for (const Condition& condition : conditions) {
        refine({Goal::kFewest, deadline, condition});
        if (!answers_.scenarios.price.empty()) refine({Goal::kCheapest, deadline, condition});
      }
    for (const double budget : answers_.scenarios.budgets)
      for (const Condition& condition : conditions) refine({Goal::kFastest, budget, condition});
  }

 private:
  int64_t gpus(size_t place) const { return answers_.points[place].gpus; }
  // Of a point that is answered.
  const AnswerRow& rowOf(At at) const {
    const auto [rows, isNew] = rows_.try_emplace(at.place);
    if (isNew) rows->second = rowsOf(answers_, at.place);
    return rows->second[at.scenario];
  }
  int64_t present(size_t place) const {
    return presentDevices(answers_.sweep, answers_.points[place]);
  }
  bool hasPlan(std::optional<At> at) const { return at && answers_.answers[at->place]->ok(); }
  bool keeps(const RefineLimit& limit, At at) const;
  Worth worth(const RefineLimit& limit, At at) const;

  void refine(const RefineLimit& limit);
  void offer(const RefineLimit& limit, const Curve& curve, At at);
  Gap gapBefore(const Curve& curve, size_t i) const;
  Scenario scenarioOf(const Gap& gap) const;
  bool couldBeat(const RefineLimit& limit, const LeastEconomics& least, int64_t devices) const;
  bool couldBeBest(const RefineLimit& limit, const Gap& gap) const;
  int64_t probeOf(const RefineLimit& limit, const Gap& gap) const;
  void search(const RefineLimit& limit, const Curve& curve);
  void searchGap(const RefineLimit& limit, const Curve& curve, const Gap& gap);
  void findBeyond(const RefineLimit& limit);
  size_t placeOf(const Curve& curve, int64_t gpus) const;
  std::optional<At> plan(const RefineLimit& limit, const Curve& curve, int64_t gpus);

  Answers& answers_;
  const std::function<bool()>& onPlanned_;
  PointPlanner planner_;
  std::vector<Curve> curves_;
  mutable std::map<size_t, std::vector<AnswerRow>> rows_;  // by place, as they are needed
  bool isStopped_ = false;
  // Of the limit at hand.
  std::optional<At> best_, beyond_;
  const Curve* bestCurve_ = nullptr;
  size_t numPlanned_ = 0;
};

Refiner::Refiner(Answers& answers, const std::function<bool()>& onPlanned)
    : answers_(answers), onPlanned_(onPlanned), planner_(answers.sweep) {
  std::map<std::tuple<size_t, double, int64_t, int64_t, int64_t>, std::vector<size_t>> groups;
  for (size_t i = 0; i < answers.numSwept(); ++i) {
    const SweepPoint& p = answers.points[i];
    if (answers.answers[i])
      groups[{p.hardware, p.interNode.count(), p.batch, p.sequence, p.minusNodes}].push_back(i);
  }
  for (auto& [key, places] : groups) {
    std::sort(places.begin(), places.end(), [&](size_t a, size_t b) { return gpus(a) < gpus(b); });
    const std::vector<AnswerRow> rows = rowsOf(answers, places[0]);
    for (size_t s = 0; s < rows.size(); ++s)
      curves_.push_back({places, s, conditionOf(answers, rows[s])});
  }
}

bool Refiner::keeps(const RefineLimit& limit, At at) const {
  const std::optional<Economics>& e = rowOf(at).economics;
  if (!e || (limit.goal != Goal::kFewest && !e->cost)) return false;
  return limit.value >= (limit.goal == Goal::kFastest ? *e->cost : e->wall.count());
}

Worth Refiner::worth(const RefineLimit& limit, At at) const {
  const Economics& e = *rowOf(at).economics;
  return worthOf(limit.goal, {e.wall, e.cost.value_or(0)}, present(at.place));
}

void Refiner::offer(const RefineLimit& limit, const Curve& curve, At at) {
  if (!keeps(limit, at) || (best_ && worth(limit, at) >= worth(limit, *best_))) return;
  best_ = at;
  bestCurve_ = &curve;
}

void Refiner::refine(const RefineLimit& limit) {
  best_.reset();
  beyond_.reset();
  numPlanned_ = 0;
  for (const Curve& curve : curves_)
    if (curve.condition == limit.condition)
      for (const size_t place : curve.places) offer(limit, curve, {place, curve.scenario});
  for (const Curve& curve : curves_)
    if (curve.condition == limit.condition) search(limit, curve);
  if (!isStopped_ && best_ && limit.goal == Goal::kFewest) findBeyond(limit);
  if (isStopped_ || !best_) return;
  Refinement refinement{limit.goal,    limit.value,  limit.condition,
                        rowOf(*best_), std::nullopt, numPlanned_};
  if (beyond_) refinement.beyond = rowOf(*beyond_);
  answers_.refinements.push_back(std::move(refinement));
}

// Between the i-th number of devices and the one before; before the first there is none.
Gap Refiner::gapBefore(const Curve& curve, size_t i) const {
  const SweepPoint& point = answers_.points[curve.places[0]];
  const spec::ClusterSpec& cluster = answers_.sweep.hardware[point.hardware].cluster;
  const int64_t missing = point.minusNodes * devicesPerNode(cluster);
  Gap gap{devicesAtOnce(cluster), missing,      missing,
          gpus(curve.places[i]),  std::nullopt, At{curve.places[i], curve.scenario}};
  if (i == 0 || gpus(curve.places[i - 1]) <= missing) return gap;
  gap.few = gpus(curve.places[i - 1]);
  gap.atFew = At{curve.places[i - 1], curve.scenario};
  return gap;
}

// The one at hand; without repair where what is between is no whole node, so that bounds know no
// spares.
Scenario Refiner::scenarioOf(const Gap& gap) const {
  Scenario scenario = rowOf(*gap.atMany).scenario;
  const size_t hardware = answers_.points[gap.atMany->place].hardware;
  if (scenario.failures && gap.unit != devicesPerNode(answers_.sweep.hardware[hardware].cluster))
    scenario.failures->repair.reset();
  return scenario;
}

bool Refiner::couldBeat(const RefineLimit& limit, const LeastEconomics& least,
                        int64_t devices) const {
  if ((limit.goal == Goal::kFastest ? least.cost : least.wall.count()) > limit.value) return false;
  return !best_ || worthOf(limit.goal, least, devices) < worth(limit, *best_);
}

// Within the gap a step takes at least as long as with `many` devices. If its plan is not that of
// `few`, it uses more devices than those or, where hosts can be alike, more nodes.
bool Refiner::couldBeBest(const RefineLimit& limit, const Gap& gap) const {
  if (!hasPlan(gap.atMany)) return false;  // what has no plan has too few devices
  const Scenario scenario = scenarioOf(gap);
  const int64_t few = gap.few - gap.missing, first = gap.next() - gap.missing,
                last = gap.last() - gap.missing;
  const Query& base = answers_.sweep.base;
  const std::vector<spec::StackRule>& rules = base.stack.rules;
  const bool mayBeAlike = base.cluster.devicesPerHost() > 0 ||
                          std::count(rules.begin(), rules.end(), spec::StackRule::kAlikeHosts) > 0;
  Training other = trainingOf(answers_, gap.atMany->place);
  other.gpus = first;
  other.perNode = gap.unit;
  other.nodesUsed = few / gap.unit + 1;
  other.used = mayBeAlike ? other.nodesUsed : few + 1;
  if (couldBeat(limit, leastEconomics(other, last, last / gap.unit, scenario), first)) return true;
  if (!hasPlan(gap.atFew)) return false;
  Training same = trainingOf(answers_, gap.atFew->place);
  same.gpus = first;
  same.perNode = gap.unit;
  return couldBeat(limit, leastEconomics(same, last, same.nodesUsed, scenario), first);
}

// In the middle; but as many as another curve is known to need say of most whether they matter.
int64_t Refiner::probeOf(const RefineLimit& limit, const Gap& gap) const {
  if (limit.goal != Goal::kFewest || !best_) return gap.middle();
  const int64_t known = (present(best_->place) + gap.missing) / gap.unit * gap.unit;
  return known >= gap.next() && known <= gap.last() ? known : gap.middle();
}

// Time and cost go up and down with the number of devices: every gap is searched, first where the
// answer is the likeliest.
void Refiner::search(const RefineLimit& limit, const Curve& curve) {
  const size_t count = curve.places.size(), first = count == 1 ? 0 : 1;
  for (size_t k = first; k < count; ++k)
    searchGap(limit, curve,
              gapBefore(curve, limit.goal == Goal::kFewest ? k : count - 1 - (k - first)));
}

void Refiner::searchGap(const RefineLimit& limit, const Curve& curve, const Gap& gap) {
  if (isStopped_ || gap.isEmpty() || !couldBeBest(limit, gap)) return;
  const int64_t probe = probeOf(limit, gap);
  const std::optional<At> at = plan(limit, curve, probe);
  if (!at) return;
  const Gap below{gap.unit, gap.missing, gap.few, probe, gap.atFew, at},
      above{gap.unit, gap.missing, probe, gap.many, at, gap.atMany};
  const bool isFewest = limit.goal == Goal::kFewest;
  searchGap(limit, curve, isFewest ? below : above);
  searchGap(limit, curve, isFewest ? above : below);
}

// The next number of devices below the best. Fewer than the first of several were not asked about.
void Refiner::findBeyond(const RefineLimit& limit) {
  const Curve& curve = *bestCurve_;
  size_t i = 0;
  while (gpus(curve.places[i]) < gpus(best_->place)) ++i;
  if (i == 0 && curve.places.size() > 1) return;
  Gap gap = gapBefore(curve, i);
  gap.many = gpus(best_->place);
  const int64_t before = std::max(gap.few, gap.last());
  if (before <= gap.missing) return;
  std::optional<At> at = At{placeOf(curve, before), curve.scenario};
  if (at->place == answers_.points.size()) at = plan(limit, curve, before);
  if (at && !keeps(limit, *at)) beyond_ = at;
}

// Of the curve's point with so many devices; the end if there is none.
size_t Refiner::placeOf(const Curve& curve, int64_t gpus) const {
  SweepPoint point = answers_.points[curve.places[0]];
  point.gpus = gpus;
  const auto found = std::find(answers_.points.begin(), answers_.points.end(), point);
  return static_cast<size_t>(found - answers_.points.begin());
}

// Plans the point of the curve with so many devices, unless it was. None: it was told to stop.
std::optional<At> Refiner::plan(const RefineLimit& limit, const Curve& curve, int64_t gpus) {
  ++numPlanned_;
  const At at{placeOf(curve, gpus), curve.scenario};
  if (at.place == answers_.points.size()) {
    SweepPoint point = answers_.points[curve.places[0]];
    point.gpus = gpus;
    answers_.points.push_back(point);
    ++answers_.numBetween;
    answers_.answers.emplace_back(planner_.answer(point));
    if (isStopped_ = !onPlanned_(); isStopped_) return std::nullopt;
  }
  offer(limit, curve, at);
  return at;
}

}  // namespace

int64_t devicesAtOnce(const spec::ClusterSpec& cluster) {
  return cluster.tiers.size() < 2 && cluster.hostDevices == 0 ? 1 : devicesPerNode(cluster);
}

void refineAnswers(Answers& answers, const std::function<bool()>& onPlanned) {
  Refiner(answers, onPlanned).run();
}

}  // namespace trireme::planner
