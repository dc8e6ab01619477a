#include "planner/answer/outlook.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cost_models/formulas.h"
#include "planner/rounding.h"
#include "planner/search/pins.h"
#include "planner/search/relaxed_search.h"

namespace trireme::planner {
namespace {

constexpr double kMore = 1.1;
// One EiB: no plan needs as much, and its sums are still exact.
constexpr double kUnlimitedMemory = 1152921504606846976.0;
// Of the work of the answer's own search for cuts that few plans have, in each of a dozen searches.
constexpr double kEffort = 0.1;
// Of the device's memory, how much more is tried first, and how many times as much then.
constexpr double kFirstReach = 0.01;
constexpr double kLongerReach = 4;

bool isFaster(const CostedPlan& found, const PlanResult& winner) {
  return found.estimate.step < winner.estimate.step * kRounding;
}

struct Variant {
  std::string name;
  Query query;
  double amount = 0;  // of what there is more, in `unit`
  std::string unit;
  LimitKind kind = LimitKind::kPin;  // of what is given up
};

std::vector<Variant> changedQueries(const Query& query) {
  std::vector<Variant> variants;
  const auto add = [&](const std::string& what, double now, const std::string& unit,
                       const std::function<void(Query&)>& change) {
    Query changed = query;
    change(changed);
    variants.push_back({"10 % more " + what, std::move(changed), (kMore - 1) * now, unit});
  };
  const spec::DeviceSpec& device = query.cluster.device;
  const spec::PeakRate* peak = device.peak(spec::linearFormat(query.training));
  add("matmul rate", peak ? peak->rate.count() / 1e12 : 0, "TFLOP/s", [](Query& q) {
    for (spec::PeakRate& rate : q.cluster.device.matmul) rate.rate = rate.rate * kMore;
  });
  add("memory bandwidth", device.memoryBandwidth.count() / 1e9, "GB/s", [](Query& q) {
    q.cluster.device.memoryBandwidth = q.cluster.device.memoryBandwidth * kMore;
  });
  for (size_t i = 0; i < query.cluster.tiers.size(); ++i)
    add(query.cluster.tiers[i].name + " link bandwidth",
        query.cluster.tiers[i].bandwidth.count() / 1e9, "GB/s",
        [&](Query& q) { scaleBandwidth(q.cluster.tiers[i], kMore); });
  add("memory", device.memory.count() / 1073741824.0, "GiB",
      [](Query& q) { q.cluster.device.memory = q.cluster.device.memory * kMore; });
  if (query.training.globalBatchSize > cost::kMostSamples / 2) return variants;
  Query twice = query;
  twice.training.globalBatchSize *= 2;
  variants.push_back({"twice the batch", std::move(twice),
                      static_cast<double>(query.training.globalBatchSize), "sequences"});
  if (const int64_t near = evenBatch(query)) {
    Query even = query;
    even.training.globalBatchSize = near;
    variants.push_back({fmt::format("a batch of {}", near), std::move(even),
                        cost::asDouble(near - query.training.globalBatchSize), "sequences",
                        LimitKind::kBatch});
  }
  return variants;
}

std::vector<Variant> withoutPins(const Query& query) {
  std::vector<Variant> variants;
  const auto drop = [&](const char* name, auto Pins::* pin, LimitKind kind = LimitKind::kPin) {
    if (!(query.pins.*pin)) return;
    variants.push_back({name, query, 0, "", kind});
    (variants.back().query.pins.*pin).reset();
  };
  for (const Degree& degree : kDegrees) {
    drop(degree.name, degree.pin);
    drop(degree.name, degree.most, LimitKind::kMost);
  }
  drop("dp shard", &Pins::dpShard);
  drop("schedule", &Pins::schedule);
  drop("recompute", &Pins::recompute);
  drop("recompute layers", &Pins::recomputeLayers);
  drop("state sharding", &Pins::stateSharding);
  drop("sequence parallel", &Pins::sequenceParallel);
  drop("scatter-gather", &Pins::scatterGather);
  drop("overlap reductions", &Pins::overlapReductions);
  drop("rank order", &Pins::rankOrder);
  if (!query.pins.layers.empty()) {
    variants.push_back({"layers", query, 0, "", LimitKind::kPin});
    variants.back().query.pins.layers.clear();
  }
  return variants;
}

class Around {
 public:
  Around(const Query& query, const PlanResult& winner, const OutlookProgress& progress)
      : query_(query), winner_(winner), progress_(progress), costs_(modelCosts(query)) {}

  Result<Outlook> look() {
    const std::vector<Variant> free = withoutPins(query_), changed = changedQueries(query_);
    numParts_ = static_cast<double>(free.size() + changed.size() + 1);
    TRIREME_RETURN_IF_ERROR(addMemory());
    for (const Variant& variant : free)
      if (!outlook_.better) TRIREME_RETURN_IF_ERROR(addPin(variant));
    if (outlook_.better) return Outlook{std::move(outlook_.better), {}, {}};
    addRules();
    for (const Variant& variant : changed) {
      TRIREME_RETURN_IF_ERROR(addSensitivity(variant));
      if (variant.kind == LimitKind::kBatch) addBatch(variant);
      TRIREME_RETURN_IF_ERROR(compareLatest());
      if (outlook_.better) return Outlook{std::move(outlook_.better), {}, {}};
    }
    return std::move(outlook_);
  }

  Result<std::vector<Sensitivity>> changes() {
    const std::vector<Variant> changed = changedQueries(query_);
    numParts_ = static_cast<double>(changed.size());
    for (const Variant& variant : changed)  // a unit more of another batch is worth nothing
      if (variant.kind != LimitKind::kBatch) TRIREME_RETURN_IF_ERROR(addSensitivity(variant));
    return std::move(outlook_.sensitivities);
  }

 private:
  // Of queries that differ in memory alone.
  CostFunctions costsWithin(Bytes memory) const {
    CostFunctions costs = costs_;
    costs.estimate = [estimate = costs_.estimate, memory](const plan::Plan& plan) {
      Result<cost::Estimate> result = estimate(plan);
      if (result.has_value()) result->memoryAvailable = memory;
      return result;
    };
    return costs;
  }

  // The best plan of the query; none if nothing fits.
  Result<std::optional<CostedPlan>> best(Query query, const CostFunctions& costs,
                                         const std::string& what) {
    query.topK = 1;
    const SearchScope scope{.isAnswer = false, .effort = kEffort};
    const auto show = [&](const SearchState& state) {
      const double part =
          static_cast<double>(state.numGroupsOpened) / static_cast<double>(state.numGroups);
      if (progress_) progress_((static_cast<double>(numDone_) + part) / numParts_, what);
    };
    Result<PlanResult> result = searchWithin(query, scope, costs, show);
    if (result.has_value()) return CostedPlan{std::move(result->plan), std::move(result->estimate)};
    if (result.error().code() == StatusCode::kInfeasible) return std::nullopt;
    return Error(result.error());
  }

  Result<std::optional<CostedPlan>> bestWithin(Bytes memory) {
    Query query = query_;
    query.cluster.device.memory = memory;
    return best(std::move(query), costsWithin(memory), "without the limit of memory");
  }

  // What comes out with more of something may be faster without it as well.
  Status compareLatest() {
    if (outlook_.sensitivities.empty()) return {};
    const Sensitivity& sensitivity = outlook_.sensitivities.back();
    if (sensitivity.samePlan || !(sensitivity.plan.training == winner_.plan.training)) return {};
    CostedPlan today{sensitivity.plan, {}};
    TRIREME_ASSIGN_OR_RETURN(today.estimate, costs_.estimate(today.plan));
    if (isFaster(today, winner_)) noteBetter(today);
    return {};
  }

  // Whether a faster plan needs no more than there is.
  bool noteBetter(const CostedPlan& faster) {
    const Bytes available = query_.cluster.device.memory;
    if (faster.estimate.memory.total() > available || !obeys(query_.pins, faster.plan))
      return false;
    outlook_.better = faster;
    outlook_.better->estimate.memoryAvailable = available;
    return true;
  }

  Status addMemory() {
    TRIREME_ASSIGN_OR_RETURN(std::optional<CostedPlan> found, bestWithin(Bytes(kUnlimitedMemory)));
    const Bytes available = query_.cluster.device.memory;
    if (found && isFaster(*found, winner_) && !noteBetter(*found)) {
      Limit limit;
      limit.plan = found->plan;
      limit.step = found->estimate.step;
      limit.missing = found->estimate.memory.total() - available;
      // No faster plan is known to fit into `low`; *found does into what it needs.
      Bytes low = available, high = found->estimate.memory.total();
      // The nearest is near as a rule, and with little memory a search is short.
      Bytes reach = available * kFirstReach;
      while (high - low > limitTolerance(available, low - available)) {
        const Bytes between = std::min(available + reach, low + (high - low) / 2);
        TRIREME_ASSIGN_OR_RETURN(std::optional<CostedPlan> nearer, bestWithin(between));
        if (nearer && isFaster(*nearer, winner_)) {
          found = std::move(nearer);
          high = found->estimate.memory.total();
        } else {
          low = between;
          reach = reach * kLongerReach;
        }
      }
      if (noteBetter(*found)) return {};
      limit.nearest = found->plan;
      limit.nearestStep = found->estimate.step;
      limit.nearestMissing = found->estimate.memory.total() - available;
      outlook_.limits.push_back(std::move(limit));
    }
    ++numDone_;
    return {};
  }

  Status addPin(const Variant& variant) {
    Limit limit;
    limit.kind = variant.kind;
    limit.what = variant.name;
    TRIREME_ASSIGN_OR_RETURN(
        std::optional<CostedPlan> found,
        best(variant.query, modelCosts(variant.query), "without " + nameOf(limit)));
    ++numDone_;
    if (!found || !isFaster(*found, winner_) || noteBetter(*found)) return {};
    limit.plan = found->plan;
    limit.step = found->estimate.step;
    outlook_.limits.push_back(std::move(limit));
    return {};
  }

  // Devices are idle because no layout has more: the rules that refused those are first in the
  // list.
  void addRules() {
    if (winner_.gpusWithLayout == winner_.gpusAvailable || winner_.rejections.empty()) return;
    const Rejection& r = winner_.rejections.front();
    Limit limit;
    limit.kind = LimitKind::kRule;
    limit.what =
        fmt::format("({}) {} needs {}, there is {}", r.rule, r.subject, r.needed, r.available);
    limit.plan = winner_.plan;
    limit.step = winner_.estimate.step;
    outlook_.limits.push_back(std::move(limit));
  }

  // The latest sensitivity is of that batch, if it has a plan.
  void addBatch(const Variant& variant) {
    constexpr double kTold = 0.02;
    if (outlook_.sensitivities.empty()) return;
    const Sensitivity& other = outlook_.sensitivities.back();
    if (other.change != variant.name || other.gain < kTold) return;
    Limit limit;
    limit.kind = LimitKind::kBatch;
    limit.what = fmt::format("batch {}", query_.training.globalBatchSize);
    limit.plan = other.plan;
    limit.step = other.step;
    outlook_.limits.push_back(std::move(limit));
  }

  Status addSensitivity(const Variant& variant) {
    const Query& query = variant.query;
    CostedPlan same{winner_.plan, {}};
    same.plan.training = query.training;
    const bool isLegal = plan::verifyPlan(same.plan, query.model).ok();  // with that batch
    const CostFunctions costs = modelCosts(query);
    if (isLegal) {
      TRIREME_ASSIGN_OR_RETURN(same.estimate, costs.estimate(same.plan));
    }
    TRIREME_ASSIGN_OR_RETURN(std::optional<CostedPlan> found, best(query, costs, variant.name));
    ++numDone_;
    if (isLegal && same.estimate.fits() && (!found || same.estimate.step <= found->estimate.step))
      found = same;
    if (!found) return {};  // Only another batch can be too much, or not be shared.
    Sensitivity sensitivity;
    sensitivity.change = variant.name;
    sensitivity.amount = variant.amount;
    sensitivity.unit = variant.unit;
    sensitivity.step = found->estimate.step;
    sensitivity.tokensPerSecond = found->estimate.tokensPerSecond;
    if (isLegal) sensitivity.missing = same.estimate.missing();
    sensitivity.gain = found->estimate.tokensPerSecond / winner_.estimate.tokensPerSecond - 1;
    found->plan.training = winner_.plan.training;
    sensitivity.samePlan = found->plan == winner_.plan;
    found->plan.training = query.training;
    sensitivity.plan = std::move(found->plan);
    outlook_.sensitivities.push_back(std::move(sensitivity));
    return {};
  }

  const Query& query_;
  const PlanResult& winner_;
  const OutlookProgress& progress_;
  const CostFunctions costs_;  // the query's
  Outlook outlook_;
  int64_t numDone_ = 0;
  double numParts_ = 1;
};

}  // namespace

int64_t evenBatch(const Query& query) {
  constexpr double kNear = 0.05;
  const int64_t batch = query.training.globalBatchSize;
  const int64_t devices = query.pins.gpus.value_or(query.cluster.numDevices);
  for (int64_t share = 1; share <= devices; ++share) {
    if (devices % share != 0) continue;
    const int64_t replicas = devices / share, near = (batch + replicas / 2) / replicas * replicas;
    if (near > 0 && cost::asDouble(std::abs(near - batch)) <= kNear * cost::asDouble(batch))
      return near == batch ? 0 : near;
  }
  return 0;
}

Bytes limitTolerance(Bytes memory, Bytes missing) {
  constexpr double kOfMemory = 1e-3, kOfMissing = 0.05;
  return std::max(memory * kOfMemory, missing * kOfMissing);
}

std::string nameOf(const Limit& limit) {
  return (limit.kind == LimitKind::kMost ? "the limit of " : "the pinned ") + limit.what;
}

void scaleBandwidth(spec::LinkTier& tier, double factor) {
  tier.bandwidth = tier.bandwidth * factor;
  tier.pairBandwidth = tier.pairBandwidth * factor;
  for (spec::CollectiveCurve& curve : tier.curves)
    for (spec::CollectivePoint& point : curve.points)
      point.busBandwidth = point.busBandwidth * factor;
}

Result<Outlook> lookAround(const Query& query, const PlanResult& result,
                           const OutlookProgress& progress) {
  return Around(query, result, progress).look();
}

Result<std::vector<Sensitivity>> sensitivitiesOf(const Query& query, const PlanResult& result,
                                                 const OutlookProgress& progress) {
  return Around(query, result, progress).changes();
}

}  // namespace trireme::planner
