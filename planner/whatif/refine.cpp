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

// Two numbers of devices; for a deadline `few` are too slow and `many` are not. None: not one
// device. `missing` of them are not there.
struct Gap {
  int64_t unit, missing, few, many;
  std::optional<At> atFew, atMany;

  int64_t next() const { return (few / unit + 1) * unit; }
  // A whole number of units between the two; 0: there is none.
  int64_t middle() const {
    const int64_t first = few / unit + 1, last = (many - 1) / unit;
    return first > last ? 0 : (first + last) / 2 * unit;
  }
};

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
  bool keeps(const RefineLimit& limit, At at) const;
  Worth worth(const RefineLimit& limit, At at) const;

  void refine(const RefineLimit& limit);
  void offer(const RefineLimit& limit, At at);
  Gap gapBefore(const Curve& curve, size_t i) const;
  std::optional<Gap> gapOf(const RefineLimit& limit, const Curve& curve) const;
  bool isOfInterest(const RefineLimit& limit, const Curve& curve, Gap& gap);
  void bisect(const RefineLimit& limit, const Curve& curve);
  bool couldBeBest(const RefineLimit& limit, const Gap& gap) const;
  void spend(const RefineLimit& limit, const Curve& curve);
  void searchGap(const RefineLimit& limit, const Curve& curve, const Gap& gap);
  std::optional<At> plan(const RefineLimit& limit, const Curve& curve, int64_t gpus);
  bool narrow(const RefineLimit& limit, const Curve& curve, int64_t gpus, Gap& gap);

  Answers& answers_;
  const std::function<bool()>& onPlanned_;
  PointPlanner planner_;
  std::vector<Curve> curves_;
  mutable std::map<size_t, std::vector<AnswerRow>> rows_;  // by place, as they are needed
  bool isStopped_ = false;
  // Of the limit at hand.
  std::optional<At> best_, beyond_;
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
  const Economics e = *rowOf(at).economics;
  const double wall = e.wall.count(), cost = e.cost.value_or(0);
  const auto devices =
      static_cast<double>(presentDevices(answers_.sweep, answers_.points[at.place]));
  switch (limit.goal) {
    case Goal::kFewest:
      return {devices, cost, wall};
    case Goal::kCheapest:
      return {cost, wall, devices};
    case Goal::kFastest:
      return {wall, cost, devices};
  }
  return {};
}

void Refiner::offer(const RefineLimit& limit, At at) {
  if (!keeps(limit, at) || (best_ && worth(limit, at) >= worth(limit, *best_))) return;
  best_ = at;
  beyond_.reset();
}

void Refiner::refine(const RefineLimit& limit) {
  best_.reset();
  beyond_.reset();
  numPlanned_ = 0;
  for (const Curve& curve : curves_)
    if (curve.condition == limit.condition)
      for (const size_t place : curve.places) offer(limit, {place, curve.scenario});
  for (const Curve& curve : curves_) {
    if (!(curve.condition == limit.condition)) continue;
    limit.goal == Goal::kFewest ? bisect(limit, curve) : spend(limit, curve);
  }
  if (isStopped_ || !best_) return;
  Refinement refinement{limit.goal,    limit.value,  limit.condition,
                        rowOf(*best_), std::nullopt, numPlanned_};
  if (beyond_) refinement.beyond = rowOf(*beyond_);
  answers_.refinements.push_back(std::move(refinement));
}

// Between the i-th number of devices and the one before; before the first there is none.
Gap Refiner::gapBefore(const Curve& curve, size_t i) const {
  const SweepPoint& point = answers_.points[curve.places[0]];
  const int64_t unit = devicesAtOnce(answers_.sweep.hardware[point.hardware].cluster);
  const int64_t missing = point.gpus - presentDevices(answers_.sweep, point);
  Gap gap{unit,         missing,
          missing,      gpus(curve.places[i]),
          std::nullopt, At{curve.places[i], curve.scenario}};
  if (i == 0) return gap;
  gap.few = gpus(curve.places[i - 1]);
  gap.atFew = At{curve.places[i - 1], curve.scenario};
  return gap;
}

// The first two numbers of devices between which the deadline comes to be met.
std::optional<Gap> Refiner::gapOf(const RefineLimit& limit, const Curve& curve) const {
  size_t i = 0;
  while (i < curve.places.size() && !keeps(limit, {curve.places[i], curve.scenario})) ++i;
  if (i == curve.places.size() || (i == 0 && curve.places.size() > 1)) return std::nullopt;
  return gapBefore(curve, i);
}

// Whether as many as another curve is known to need are enough here; they may be better ones.
bool Refiner::isOfInterest(const RefineLimit& limit, const Curve& curve, Gap& gap) {
  if (!best_ || best_ == gap.atMany) return true;
  const int64_t known = presentDevices(answers_.sweep, answers_.points[best_->place]) + gap.missing;
  const int64_t count = known / gap.unit * gap.unit;
  if (count <= gap.few) return false;
  return count >= gap.many || (narrow(limit, curve, count, gap) && gap.many == count);
}

// Plans the point of the curve with so many devices, unless it was. None: it was told to stop.
std::optional<At> Refiner::plan(const RefineLimit& limit, const Curve& curve, int64_t gpus) {
  SweepPoint point = answers_.points[curve.places[0]];
  point.gpus = gpus;
  ++numPlanned_;
  const auto found = std::find(answers_.points.begin(), answers_.points.end(), point);
  const At at{static_cast<size_t>(found - answers_.points.begin()), curve.scenario};
  if (found == answers_.points.end()) {
    answers_.points.push_back(point);
    ++answers_.numBetween;
    answers_.answers.emplace_back(planner_.answer(point));
    if (isStopped_ = !onPlanned_(); isStopped_) return std::nullopt;
  }
  offer(limit, at);
  return at;
}

bool Refiner::narrow(const RefineLimit& limit, const Curve& curve, int64_t gpus, Gap& gap) {
  const std::optional<At> at = plan(limit, curve, gpus);
  if (!at) return false;
  if (keeps(limit, *at)) {
    gap.many = gpus;
    gap.atMany = at;
  } else {
    gap.few = gpus;
    gap.atFew = at;
  }
  return true;
}

void Refiner::bisect(const RefineLimit& limit, const Curve& curve) {
  if (isStopped_) return;
  std::optional<Gap> gap = gapOf(limit, curve);
  if (!gap || !isOfInterest(limit, curve, *gap)) return;
  while (const int64_t middle = gap->middle())
    if (!narrow(limit, curve, middle, *gap)) return;
  if (best_ == gap->atMany) beyond_ = gap->atFew;
}

// Within the gap nothing is faster than `many`, so that a device is paid for at least as long.
bool Refiner::couldBeBest(const RefineLimit& limit, const Gap& gap) const {
  const std::optional<Economics> e = rowOf(*gap.atMany).economics;
  if (!e || !e->cost) return false;  // what has no plan has too few devices
  const auto next = static_cast<double>(gap.next() - gap.missing);
  const double wall = e->wall.count(),
               cost = *e->cost * next / static_cast<double>(gap.many - gap.missing);
  const bool isForMoney = limit.goal == Goal::kFastest;
  if ((isForMoney ? cost : wall) > limit.value) return false;
  if (!best_) return true;
  return (isForMoney ? Worth(wall, cost, next) : Worth(cost, wall, next)) < worth(limit, *best_);
}

// All devices are paid for, used or not, so that cost goes up and down with their number: every
// gap is searched, the fastest end first.
void Refiner::spend(const RefineLimit& limit, const Curve& curve) {
  for (size_t i = curve.places.size(); i-- > 0;)
    if (i > 0 || curve.places.size() == 1) searchGap(limit, curve, gapBefore(curve, i));
}

void Refiner::searchGap(const RefineLimit& limit, const Curve& curve, const Gap& gap) {
  const int64_t middle = gap.middle();
  if (isStopped_ || middle == 0 || !couldBeBest(limit, gap)) return;
  const std::optional<At> at = plan(limit, curve, middle);
  if (!at) return;
  searchGap(limit, curve, {gap.unit, gap.missing, middle, gap.many, at, gap.atMany});
  searchGap(limit, curve, {gap.unit, gap.missing, gap.few, middle, gap.atFew, at});
}

}  // namespace

int64_t devicesAtOnce(const spec::ClusterSpec& cluster) {
  return cluster.tiers.size() < 2 && cluster.hostDevices == 0 ? 1 : devicesPerNode(cluster);
}

void refineAnswers(Answers& answers, const std::function<bool()>& onPlanned) {
  Refiner(answers, onPlanned).run();
}

}  // namespace trireme::planner
