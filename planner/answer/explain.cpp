#include "planner/answer/explain.h"

#include <fmt/format.h>

#include <algorithm>

#include "cost_models/topology.h"
#include "ir/base/format.h"
#include "ir/plan/choices.h"
#include "planner/answer/recut.h"
#include "planner/answer/report.h"
#include "planner/cuts/best_cut.h"
#include "planner/cuts/cuts.h"
#include "planner/cuts/played_cut.h"
#include "planner/parts.h"
#include "planner/search/pins.h"
#include "planner/space/rank_orders.h"
#include "planner/supported.h"

namespace trireme::planner {
namespace {

using plan::Plan;
using plan::RankOrder;
using plan::Recompute;
using plan::ScheduleKind;
using plan::StateSharding;

using Ranges = std::vector<std::vector<plan::LayerRange>>;

struct Change {
  std::string choice, chosen, other, also;
  Plan plan;
  bool isUncut = false;  // other virtual stages want another cut than the plan has
};

const char* onOff(bool value) { return value ? "on" : "off"; }

class Changes {
 public:
  // `cuts`: those that the search tries for a plan like this. `mostChunks`: of the query.
  Changes(const Plan& plan, const std::vector<Ranges>& cuts, int64_t mostChunks, Reach reach)
      : plan_(plan), mostChunks_(mostChunks), reach_(reach) {
    addRecompute();
    addSchedules();
    addMicrobatches();
    addShardings();
    addSwitches();
    addRankOrders();
    addCuts(cuts);
    addDegrees();
  }
  std::vector<Change> take() { return std::move(changes_); }

 private:
  void add(std::string choice, std::string chosen, std::string other, Plan plan,
           std::string also = "") {
    const bool isUncut = plan.pp != plan_.pp || plan.virtualStages != plan_.virtualStages;
    if (isUncut) plan.layers = plan::evenLayers(numLayers(), plan.pp, plan.virtualStages);
    changes_.push_back({std::move(choice), std::move(chosen), std::move(other), std::move(also),
                        std::move(plan), isUncut});
  }
  void addRecompute() {
    for (Recompute other : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      if (other == plan_.recompute) continue;
      Plan changed = plan_;
      changed.recompute = other;
      changed.recomputeLayers = 0;
      add("recompute", std::string(plan::recomputeName(plan_.recompute)),
          std::string(plan::recomputeName(other)), changed);
    }
    if (plan_.recompute == Recompute::kFull) addRecomputedLayers();
  }
  // Of each chunk; 0: all of them.
  void addRecomputedLayers() {
    int64_t most = 0;
    for (const auto& stage : plan_.layers)
      for (const plan::LayerRange& range : stage) most = std::max(most, range.count);
    const auto text = [](int64_t layers) {
      return layers == 0 ? std::string("of all layers") : fmt::format("of {} layers", layers);
    };
    for (int64_t layers = 0; layers < (reach_ == Reach::kAny ? most : 1); ++layers) {
      if (layers == plan_.recomputeLayers) continue;
      Plan changed = plan_;
      changed.recomputeLayers = layers;
      add("recompute", text(plan_.recomputeLayers), text(layers), changed);
    }
  }
  static std::string scheduleText(const Plan& plan) {
    std::string text(plan::scheduleName(plan.schedule));
    return plan.virtualStages > 1 ? fmt::format("{} x {}", text, plan.virtualStages) : text;
  }
  void addSchedule(ScheduleKind schedule, int64_t virtualStages) {
    if (schedule == plan_.schedule && virtualStages == plan_.virtualStages) return;
    if (!hasLayersFor(plan_.pp, virtualStages)) return;
    Plan changed = plan_;
    changed.schedule = schedule;
    changed.virtualStages = virtualStages;
    const std::string other = scheduleText(changed);
    add("schedule", scheduleText(plan_), other, std::move(changed));
  }
  void addSchedules() {
    if (plan_.pp == 1 && !plan::splitsBackward(plan_.schedule)) return;
    if (plan_.pp == 1) return addSchedule(ScheduleKind::k1F1B, 1);
    addSchedule(ScheduleKind::kGpipe, 1);
    addSchedule(ScheduleKind::k1F1B, 1);
    addSchedule(ScheduleKind::kZeroBubbleH1, 1);
    addSchedule(ScheduleKind::kZeroBubbleH2, 1);
    const int64_t stages = plan_.virtualStages, most = mostChunks_ / plan_.pp;
    const bool isAny = reach_ == Reach::kAny;
    const int64_t first = isAny ? 2 : std::max<int64_t>(2, stages - 1);
    const int64_t last = isAny ? most : stages > 1 ? stages + 1 : first;
    for (int64_t v = first; v <= last; ++v) addSchedule(ScheduleKind::kInterleaved, v);
  }
  void addMicrobatch(int64_t size) {
    Plan changed = plan_;
    changed.microbatchSize = size;
    add("microbatch", fmt::format("{}", plan_.microbatchSize), fmt::format("{}", size), changed);
  }
  void addMicrobatches() {
    const int64_t batch = plan_.training.globalBatchSize / plan_.dp();
    for (int64_t size : reached(batch, plan_.microbatchSize)) addMicrobatch(size);
  }
  // Divisors of `whole` but for `value`: the next on either side of it, smaller first, or all.
  std::vector<int64_t> reached(int64_t whole, int64_t value) const {
    std::vector<int64_t> below, above;
    for (int64_t i = 1; i * i <= whole; ++i)
      if (whole % i == 0)
        for (const int64_t divisor : {i, whole / i})
          if (divisor != value) (divisor < value ? below : above).push_back(divisor);
    std::sort(below.begin(), below.end());
    std::sort(above.begin(), above.end());
    if (reach_ == Reach::kNext) {
      if (below.size() > 1) below.erase(below.begin(), below.end() - 1);
      if (above.size() > 1) above.resize(1);
    }
    below.insert(below.end(), above.begin(), above.end());
    below.erase(std::unique(below.begin(), below.end()), below.end());
    return below;
  }
  void addShardings() {
    if (plan_.dp() * plan_.cp == 1) return;
    for (StateSharding other : {StateSharding::kNone, StateSharding::kOptimizer,
                                StateSharding::kGradients, StateSharding::kParameters}) {
      if (other == plan_.stateSharding) continue;
      Plan changed = plan_;
      changed.stateSharding = other;
      setReplicas(plan_.dp(), changed);
      std::string also;
      if (!plan::rankOrderGoesWithSharding(changed)) {
        changed.rankOrder = RankOrder::kTpCpDpPp;
        also = fmt::format("rank order {}", plan::rankOrderName(changed.rankOrder));
      }
      add("state sharding", std::string(plan::stateShardingName(plan_.stateSharding)),
          std::string(plan::stateShardingName(other)), changed, std::move(also));
    }
  }
  // Shares what the plan shares, in as many replicas if they divide.
  void setReplicas(int64_t dp, Plan& changed) {
    if (dp * changed.cp == 1) changed.stateSharding = StateSharding::kNone;
    const bool shared = changed.stateSharding != StateSharding::kNone;
    const bool wasShared = plan_.stateSharding != StateSharding::kNone;
    const int64_t replicas = wasShared && dp % plan_.dpReplicate == 0 ? plan_.dpReplicate : 1;
    changed.dpReplicate = shared ? replicas : dp;
    changed.dpShard = dp / changed.dpReplicate;
  }
  void addRankOrders() {
    if (plan_.pp == 1 || plan_.dp() == 1) return;
    Plan changed = plan_;
    changed.rankOrder =
        plan_.rankOrder == RankOrder::kTpCpDpPp ? RankOrder::kTpCpPpDp : RankOrder::kTpCpDpPp;
    const std::string text(plan::rankOrderName(changed.rankOrder));
    std::string also;
    if (!plan::rankOrderGoesWithSharding(changed)) {
      changed.stateSharding = StateSharding::kOptimizer;
      also = fmt::format("state sharding {}", plan::stateShardingName(changed.stateSharding));
    }
    add("rank order", std::string(plan::rankOrderName(plan_.rankOrder)), text, changed,
        std::move(also));
  }
  void addSwitches() {
    Plan changed = plan_;
    changed.overlapReductions = !plan_.overlapReductions;
    if (plan_.tp > 1 || plan_.dp() > 1)
      add("overlap reductions", onOff(plan_.overlapReductions), onOff(changed.overlapReductions),
          changed);
    if (plan_.tp == 1) return;
    changed = plan_;
    changed.sequenceParallel = !plan_.sequenceParallel;
    changed.scatterGather = false;
    add("sequence parallel", onOff(plan_.sequenceParallel), onOff(changed.sequenceParallel),
        changed);
    if (plan_.pp == 1 || plan_.sequenceParallel) return;
    changed = plan_;
    changed.scatterGather = !plan_.scatterGather;
    add("scatter-gather", onOff(plan_.scatterGather), onOff(changed.scatterGather), changed);
  }
  void addCuts(const std::vector<Ranges>& cuts) {
    const Ranges even = plan::evenLayers(numLayers(), plan_.pp, plan_.virtualStages);
    const auto nameOf = [&](const Ranges& ranges) {
      if (ranges == even) return "even";
      const auto known = std::find(cuts.begin(), cuts.end(), ranges);
      if (known == cuts.end()) return "uneven";
      return known - cuts.begin() > 1 ? "balanced by chunks" : "balanced";
    };
    Plan changed = plan_;
    for (const Ranges& other : cuts) {
      changed.layers = other;
      if (other != plan_.layers) add("layers", nameOf(plan_.layers), nameOf(other), changed);
    }
  }
  static std::vector<int64_t> halfAndTwice(int64_t value) {
    if (value % 2 == 0) return {value / 2, value * 2};
    return {value * 2};
  }
  // One degree less or more, on as many devices: half and twice, which heads and layers divide by
  // most often, or any.
  void addDegrees() {
    const std::pair<const char*, int64_t Plan::*> kDegrees[] = {
        {"tp", &Plan::tp}, {"pp", &Plan::pp}, {"cp", &Plan::cp}};
    for (const auto& [name, degree] : kDegrees) {
      const int64_t now = plan_.*degree, whole = now * plan_.dp();
      for (const int64_t value : reach_ == Reach::kAny ? reached(whole, now) : halfAndTwice(now))
        if (whole % value == 0) addDegree(name, degree, value, whole / value);
    }
  }
  void addDegree(const char* name, int64_t Plan::* degree, int64_t value, int64_t dp) {
    Plan changed = plan_;
    changed.*degree = value;
    setReplicas(dp, changed);
    if (changed.tp == 1) changed.sequenceParallel = changed.scatterGather = false;
    if (changed.tp == 1 && dp == 1) changed.overlapReductions = false;
    if (changed.pp == 1 || dp == 1) changed.rankOrder = RankOrder::kTpCpDpPp;
    if (changed.pp == 1 && plan_.pp > 1) {
      changed.schedule = ScheduleKind::k1F1B;
      changed.virtualStages = 1;
      changed.scatterGather = false;
    }
    if (!hasLayersFor(changed.pp, changed.virtualStages)) return;
    const std::string chosen = fmt::format("{}", plan_.*degree);
    const std::string other = fmt::format("{}", value);
    std::string also = fmt::format("dp {}", dp);
    if (plan::splitsBackward(plan_.schedule) && changed.schedule != plan_.schedule)
      also += fmt::format(" and schedule {}", plan::scheduleName(changed.schedule));
    if (reach_ == Reach::kAny && followMicrobatch(dp, changed))
      also += fmt::format(" and microbatch {}", changed.microbatchSize);
    add(name, chosen, other, changed, also);
    if (plan_.tp > 1 || changed.tp == 1) return;
    // What one rank per layer has no use for.
    if (changed.pp > 1) {
      changed.scatterGather = true;
      add(name, chosen, other, changed, also + " and scatter-gather");
      changed.scatterGather = false;
    }
    changed.sequenceParallel = true;
    add(name, chosen, other, changed, also + " and sequence parallel");
  }
  // A replica with too few sequences for its microbatch takes the next smaller one that divides
  // them. Whether it had to.
  static bool followMicrobatch(int64_t dp, Plan& changed) {
    const int64_t batch = changed.training.globalBatchSize;
    const int64_t now = changed.microbatchSize;
    if (batch % dp != 0 || batch / dp % now == 0) return false;
    while (batch / dp % changed.microbatchSize != 0) --changed.microbatchSize;
    return true;
  }
  // As plans of the space have them (forEachPlan).
  bool hasLayersFor(int64_t pp, int64_t virtualStages) const {
    const int64_t layers = numLayers();
    return pp <= layers && pp * virtualStages <= (virtualStages > 1 ? mostChunks_ : layers);
  }
  int64_t numLayers() const {
    int64_t count = 0;
    for (const auto& stage : plan_.layers)
      for (const plan::LayerRange& range : stage) count += range.count;
    return count;
  }

  const Plan& plan_;
  const int64_t mostChunks_;
  Reach reach_;
  std::vector<Change> changes_;
};

void comparePlans(const cost::Estimate& chosen, const cost::Estimate& other, Alternative& result) {
  if (!other.fits()) {
    result.outcome = Outcome::kDoesNotFit;
    result.missing = other.missing();
    return;
  }
  result.difference = other.step - chosen.step;
  result.outcome = other.step > chosen.step   ? Outcome::kSlower
                   : other.step < chosen.step ? Outcome::kFaster
                                              : Outcome::kEqual;
  const double sign = result.outcome == Outcome::kFaster ? -1 : 1;
  const auto before = breakdownParts(chosen.breakdown), after = breakdownParts(other.breakdown);
  for (size_t i = 0; i < before.size(); ++i) {
    const Seconds change = after[i].time - before[i].time;
    if (change * sign <= result.partDifference * sign) continue;
    result.part = before[i].name;
    result.partDifference = change;
  }
}

// Of two ways to make the same change, whether the first is better.
bool isBetter(const Alternative& a, const Alternative& b) {
  const auto failure = [](const Alternative& x) {
    return x.outcome == Outcome::kForbidden ? 2 : x.outcome == Outcome::kDoesNotFit ? 1 : 0;
  };
  if (failure(a) != failure(b)) return failure(a) < failure(b);
  return failure(a) == 0 && a.difference < b.difference;
}

// The best way to make every change, where the first one stood.
std::vector<Alternative> bestWays(std::vector<Alternative> all) {
  std::vector<Alternative> best;
  for (Alternative& a : all) {
    const auto same = std::find_if(best.begin(), best.end(), [&](const Alternative& b) {
      return b.choice == a.choice && b.other == a.other;
    });
    if (same == best.end())
      best.push_back(std::move(a));
    else if (isBetter(a, *same))
      *same = std::move(a);
  }
  return best;
}

// Of the ways to change one choice those that the stack and the search know, legal or not.
std::vector<Change> changesOf(const Query& query, const Plan& plan, const BlockCosts& blocks,
                              Reach reach) {
  std::vector<Change> changes =
      Changes(plan, cutsFor(query, plan, blocks), mostChunks(query), reach).take();
  const auto isLeftOut = [&](const Change& change) {
    if (!checkSupported(change.plan, query.model, query.stack).ok()) return true;
    // On a host nothing overlaps.
    if (query.cluster.device.kind == spec::DeviceKind::kHost && change.plan.overlapReductions &&
        !plan.overlapReductions)
      return true;
    // Nor does the search look at stages inside where nothing is better for it.
    return change.choice == "rank order" && change.plan.rankOrder == RankOrder::kTpCpPpDp &&
           !mayBeBetterInside(query, plan);
  };
  changes.erase(std::remove_if(changes.begin(), changes.end(), isLeftOut), changes.end());
  return changes;
}

Status legalityOf(const Query& query, const Change& change) {
  Plan even = change.plan;
  if (change.isUncut) simplifyRecomputed(even);
  return plan::verifyPlan(even, query.model);
}

bool isEven(const Plan& plan, const Query& query) {
  return plan.layers == plan::evenLayers(query.model.numLayers, plan.pp, plan.virtualStages);
}

Result<Alternative> compare(const Query& query, const Plan& plan, const cost::Estimate& chosen,
                            const CostFunctions& costs, Change change) {
  Alternative alternative;
  alternative.isExcluded = !obeys(query.pins, change.plan);
  Recut other{std::move(change.plan), {}};
  change.plan = other.plan;
  if (const Status legal = legalityOf(query, change); !legal.ok()) {
    alternative.outcome = Outcome::kForbidden;
    alternative.rule = legal.message();
  } else {
    if (change.isUncut) {
      TRIREME_ASSIGN_OR_RETURN(other, fastestCut(query, other.plan, costs));
    } else {
      TRIREME_ASSIGN_OR_RETURN(other.estimate, costs.estimate(other.plan));
    }
    comparePlans(chosen, other.estimate, alternative);
  }
  alternative.choice = std::move(change.choice);
  alternative.chosen = std::move(change.chosen);
  alternative.other = std::move(change.other);
  alternative.also = std::move(change.also);
  if (change.isUncut && isEven(plan, query) && !isEven(other.plan, query))
    alternative.also += alternative.also.empty() ? "uneven layers" : ", uneven layers";
  alternative.plan = std::move(other.plan);
  return alternative;
}

// Whether no cut of a legal change fits and takes less than `step`.
Result<bool> isInVain(const Query& query, const Change& change, Seconds step,
                      const CostFunctions& costs) {
  TRIREME_ASSIGN_OR_RETURN(const SharedBlocks blocks, costs.blocks(change.plan));
  if (!change.isUncut) return boundOf(query, change.plan, *blocks).time >= step;
  if (!blocks->described) return false;
  Query uncut = query;
  uncut.pins.layers.clear();
  SlotTable slots;
  const Seconds bound = CutSearch(uncut, change.plan, *blocks, slots).bound();
  return reachOf(change.plan, bound) >= step;
}

}  // namespace

Result<std::vector<Alternative>> singleChanges(const Query& query, const plan::Plan& plan,
                                               const cost::Estimate& chosen,
                                               const CostFunctions& costs, Reach reach) {
  TRIREME_ASSIGN_OR_RETURN(const SharedBlocks blocks, costs.blocks(plan));
  std::vector<Alternative> alternatives;
  for (Change& change : changesOf(query, plan, *blocks, reach)) {
    TRIREME_ASSIGN_OR_RETURN(Alternative alternative,
                             compare(query, plan, chosen, costs, std::move(change)));
    alternatives.push_back(std::move(alternative));
  }
  return reach == Reach::kNext ? bestWays(std::move(alternatives)) : alternatives;
}

Result<std::vector<Alternative>> fasterChanges(const Query& query, const plan::Plan& plan,
                                               const cost::Estimate& chosen,
                                               const CostFunctions& costs) {
  TRIREME_ASSIGN_OR_RETURN(const SharedBlocks blocks, costs.blocks(plan));
  std::vector<Alternative> faster;
  for (Change& change : changesOf(query, plan, *blocks, Reach::kAny)) {
    if (!legalityOf(query, change).ok()) continue;
    TRIREME_ASSIGN_OR_RETURN(const bool inVain, isInVain(query, change, chosen.step, costs));
    if (inVain) continue;
    TRIREME_ASSIGN_OR_RETURN(Alternative alternative,
                             compare(query, plan, chosen, costs, std::move(change)));
    if (alternative.outcome == Outcome::kFaster) faster.push_back(std::move(alternative));
  }
  return faster;
}

Result<Explanation> explain(const Query& query, const plan::Plan& plan,
                            const cost::Estimate& chosen, const CostFunctions& costs) {
  Explanation explanation;
  Seconds largest;
  for (const BreakdownPart& part : breakdownParts(chosen.breakdown)) {
    if (part.time <= largest) continue;
    largest = part.time;
    explanation.bottleneck = part.name;
  }
  explanation.slack = chosen.memoryAvailable - chosen.memory.total();
  TRIREME_ASSIGN_OR_RETURN(explanation.stages,
                           cost::memoryByStage(query.model, plan, query.cluster, query.stack));
  TRIREME_ASSIGN_OR_RETURN(explanation.alternatives,
                           singleChanges(query, plan, chosen, costs, Reach::kNext));
  return explanation;
}

Result<Explanation> explain(const Query& query, const PlanResult& result) {
  return explain(withStackOnDevice(query), result.plan, result.estimate, modelCosts(query));
}

std::string toLine(const Alternative& a) {
  const std::string head = fmt::format("{} {} instead of {}{}: ", a.choice, a.other, a.chosen,
                                       a.also.empty() ? "" : ", with " + a.also);
  switch (a.outcome) {
    case Outcome::kDoesNotFit:
      return head + formatBytes(a.missing) + " too much memory";
    case Outcome::kForbidden:
      return head + a.rule;
    case Outcome::kEqual:
      return head + "as fast";
    case Outcome::kSlower:
      return head + fmt::format("{} slower ({} +{})", formatSeconds(a.difference), a.part,
                                formatSeconds(a.partDifference));
    case Outcome::kFaster:
      return head + fmt::format("{} faster{} ({} -{})", formatSeconds(a.difference * -1),
                                a.isExcluded ? ", which a pin or limit excludes" : "", a.part,
                                formatSeconds(a.partDifference * -1));
  }
  return head;
}

}  // namespace trireme::planner
