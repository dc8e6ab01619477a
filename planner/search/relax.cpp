#include "planner/search/relax.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ir/base/format.h"
#include "ir/plan/choices.h"
#include "ir/spec/load.h"
#include "planner/plan_text.h"
#include "planner/search/pins.h"
#include "planner/search/relaxed_search.h"

namespace trireme::planner {
namespace {

// As a pin has it: of one virtual stage after the other.
std::string layersPin(const plan::Plan& plan) {
  std::vector<int64_t> counts;
  for (int64_t chunk = 0; chunk < plan.virtualStages; ++chunk)
    for (const auto& stage : plan.layers) counts.push_back(stage[static_cast<size_t>(chunk)].count);
  return fmt::format("{}", fmt::join(counts, ","));
}

std::string numberText(int64_t value) { return fmt::format("{}", value); }
std::string recomputedText(int64_t layers) { return layers > 0 ? numberText(layers) : "left open"; }
std::string flagText(bool value) { return value ? "on" : "off"; }

class Relaxer {
 public:
  Relaxer(const Query& query, const SearchProgress& progress)
      : query_(query), progress_(progress) {}

  void giveUpPins();
  void giveUpOverlap();
  void giveUpRecompute();
  void giveUpLayers();
  void giveUpAllPins();
  void giveUpHeadroom();
  void tryStacks(const std::vector<spec::StackProfile>& stacks);
  void addDevices();
  void tryBatches();
  void tryBatchesOf(const std::vector<int64_t>& batches);
  std::vector<Relaxation> take();
  std::vector<std::string> takeTried() { return std::move(tried_); }
  // The first search that ended for another reason than that there is no plan.
  const Status& failure() const { return failure_; }

 private:
  // None if no plan fits, or the query asks what cannot be, as a precision that a stack has not.
  std::optional<CostedPlan> best(Query query, const SearchScope& scope = {.isAnswer = false}) {
    query.topK = 1;
    Result<PlanResult> result = searchWithin(query, scope, modelCosts(query), progress_);
    if (!result.has_value()) {
      const StatusCode code = result.error().code();
      if (code != StatusCode::kInfeasible && code != StatusCode::kInvalidArgument && failure_.ok())
        failure_ = result.error();
      return std::nullopt;
    }
    return CostedPlan{std::move(result->plan), std::move(result->estimate)};
  }
  std::optional<CostedPlan> bestOn(int64_t devices, const SearchScope& scope) {
    Query larger = query_;
    larger.pins.gpus = devices;
    if (devices > query_.cluster.numDevices) {
      Result<spec::ClusterSpec> cluster = spec::withNumDevices(query_.cluster, clusterFor(devices));
      if (!cluster.has_value()) return std::nullopt;
      larger.cluster = *std::move(cluster);
    }
    return best(std::move(larger), scope);
  }
  // A cluster has whole groups of its inner tiers, of which a plan may use a part.
  int64_t clusterFor(int64_t devices) const {
    const auto& tiers = query_.cluster.tiers;
    const int64_t group = tiers.size() > 1 ? tiers[tiers.size() - 2].devices : 1;
    return (devices + group - 1) / group * group;
  }
  void add(ChangeKind kind, std::string change, CostedPlan found) {
    int64_t devices = devicesFor(found.plan);
    if (kind != ChangeKind::kDevices) devices = std::min(devices, numDevices());  // no more needed
    changes_.push_back(
        {kind, std::move(change), std::move(found.plan), std::move(found.estimate), devices});
  }
  int64_t numDevices() const { return query_.pins.gpus.value_or(query_.cluster.numDevices); }
  // Ranks, or all of the hosts that have some where a program, or the plan, has as many on each of
  // several.
  int64_t devicesFor(const plan::Plan& plan) const {
    const int64_t host = query_.cluster.devicesPerHost(), ranks = plan.numRanks();
    const bool isAlike = spreadsAlike() || (plan.devicesPerHost > 0 && plan.devicesPerHost < host);
    if (!isAlike || host == 0 || ranks <= plan.devicesPerHost) return ranks;
    const int64_t each = plan::ranksPerHost(plan).value_or(host);
    return each < host ? ranks / each * host : ranks;
  }
  bool spreadsAlike() const {
    return std::count(query_.stack.rules.begin(), query_.stack.rules.end(),
                      spec::StackRule::kAlikeHosts) > 0;
  }
  std::optional<CostedPlan> bestOf(int64_t batch, const SearchScope& scope) {
    Query other = query_;
    other.training.globalBatchSize = batch;
    return best(std::move(other), scope);
  }
  // With what is usual there where nobody asked for anything else.
  Query under(const spec::StackProfile& stack) const {
    Query changed = query_;
    changed.stack = stack;
    if (query_.usualPrecision)
      changed.training.precision = spec::usualPrecision(stack, query_.cluster.device);
    if (query_.usualVocabMultiple) changed.vocabMultiple = stack.vocabMultiple;
    return changed;
  }
  // The precision stands beside the stacks where it changes with them.
  std::string stackChange(const std::string& name, const plan::Plan& plan) const {
    const spec::Precision now = query_.training.precision, then = plan.training.precision;
    if (now == then) return fmt::format("stack {} (now: {})", name, query_.stack.name);
    return fmt::format("stack {} in {} (now: {} in {})", name, spec::precisionName(then),
                       query_.stack.name, spec::precisionName(now));
  }
  // Besides the devices.
  bool hasPins() const {
    Pins none;
    none.gpus = query_.pins.gpus;
    return query_.pins != none;
  }
  // Gives up one pin and says what the plan has instead.
  template <typename T, typename Get, typename Text>
  void giveUp(std::optional<T> Pins::* pin, const char* name, Get get, Text text,
              const char* kind = "pinned") {
    if (!(query_.pins.*pin)) return;
    Query relaxed = query_;
    (relaxed.pins.*pin).reset();
    const auto& pinned = *(query_.pins.*pin);
    if (std::optional<CostedPlan> found = best(std::move(relaxed));
        found && get(found->plan) != pinned) {
      std::string change =
          fmt::format("{} {} ({}: {})", name, text(get(found->plan)), kind, text(pinned));
      add(ChangeKind::kPin, std::move(change), *std::move(found));
    }
  }

  const Query& query_;
  const SearchProgress& progress_;
  std::vector<Relaxation> changes_;
  std::vector<std::string> tried_;
  Status failure_;
};

// No choice of described stacks, whatever the value.
void Relaxer::giveUpOverlap() {
  if (query_.stack.ownPrograms)
    return giveUp(
        &Pins::overlapReductions, "overlap reductions",
        [](const plan::Plan& p) { return p.overlapReductions; }, flagText);
  if (!query_.pins.overlapReductions) return;
  Query relaxed = query_;
  relaxed.pins.overlapReductions.reset();
  if (std::optional<CostedPlan> found = best(std::move(relaxed)))
    add(ChangeKind::kPin, "overlap reductions not pinned", *std::move(found));
}

void Relaxer::giveUpPins() {
  using plan::Plan;
  if (hasPins()) tried_.emplace_back("each pinned choice and limit given up");
  for (const Degree& degree : kDegrees) {
    giveUp(degree.pin, degree.name, degree.of, numberText);
    giveUp(degree.most, degree.name, degree.of, numberText, "limit");
  }
  giveUp(&Pins::dpShard, "dp shard", [](const Plan& p) { return p.dpShard; }, numberText);
  giveUp(&Pins::schedule, "schedule", [](const Plan& p) { return p.schedule; }, plan::scheduleName);
  giveUpRecompute();
  giveUp(
      &Pins::recomputeLayers, "recompute layers",
      [](const Plan& p) { return p.recompute == plan::Recompute::kFull ? p.recomputeLayers : -1; },
      recomputedText);
  giveUp(
      &Pins::stateSharding, "state sharding", [](const Plan& p) { return p.stateSharding; },
      plan::stateShardingName);
  giveUp(
      &Pins::sequenceParallel, "sequence parallel",
      [](const Plan& p) { return p.sequenceParallel; }, flagText);
  giveUp(
      &Pins::scatterGather, "scatter-gather", [](const Plan& p) { return p.scatterGather; },
      flagText);
  giveUpOverlap();
  giveUp(
      &Pins::rankOrder, "rank order", [](const Plan& p) { return p.rankOrder; },
      plan::rankOrderName);
  giveUpLayers();
}

// Full recomputation may be of some layers, which has a pin of its own.
void Relaxer::giveUpRecompute() {
  const std::optional<plan::Recompute> pinned = query_.pins.recompute;
  if (!pinned) return;
  Query relaxed = query_;
  relaxed.pins.recompute.reset();
  std::optional<CostedPlan> found = best(std::move(relaxed));
  if (!found || found->plan.recompute == *pinned) return;
  const int64_t layers = found->plan.recomputeLayers;
  std::string change = fmt::format(
      "recompute {}{} (pinned: {})", plan::recomputeName(found->plan.recompute),
      layers > 0 ? fmt::format(", recompute layers {}", layers) : "", plan::recomputeName(*pinned));
  add(ChangeKind::kPin, std::move(change), *std::move(found));
}

// Of as many virtual stages, if there is such a plan; otherwise of any.
void Relaxer::giveUpLayers() {
  if (query_.pins.layers.empty()) return;
  const std::string pinned = fmt::format("(pinned: {})", fmt::join(query_.pins.layers, ","));
  Query relaxed = query_;
  relaxed.pins.layers.clear();
  if (const Result<Pins> resolved = resolvePins(query_.pins); resolved.has_value()) {
    Query same = relaxed;
    same.pins.pp = resolved->pp;
    same.pins.virtualStages = resolved->virtualStages;
    if (std::optional<CostedPlan> found = best(std::move(same))) {
      std::string change = fmt::format("layers {} {}", layersPin(found->plan), pinned);
      add(ChangeKind::kPin, std::move(change), *std::move(found));
      return;
    }
  }
  if (std::optional<CostedPlan> found = best(std::move(relaxed))) {
    std::string change = fmt::format("no pinned layers, {} {}", summary(found->plan), pinned);
    add(ChangeKind::kPin, std::move(change), *std::move(found));
  }
}

// Where each of several pins is in the way.
void Relaxer::giveUpAllPins() {
  Query relaxed = query_;
  relaxed.pins = Pins{};
  relaxed.pins.gpus = query_.pins.gpus;
  if (!changes_.empty()) return;
  if (std::optional<CostedPlan> found = best(std::move(relaxed))) {
    std::string change = fmt::format("no pinned choice and no limit ({})", summary(found->plan));
    add(ChangeKind::kAllPins, std::move(change), *std::move(found));
  }
}

void Relaxer::giveUpHeadroom() {
  Query relaxed = query_;
  spec::DeviceSpec& device = relaxed.cluster.device;
  if (device.headroom <= Bytes(0)) return;
  tried_.emplace_back("no --headroom");
  device.memory += std::exchange(device.headroom, Bytes(0));
  if (std::optional<CostedPlan> found = best(std::move(relaxed)))
    add(ChangeKind::kHeadroom,
        fmt::format("no --headroom (now: {})", formatBytes(query_.cluster.device.headroom)),
        *std::move(found));
}

void Relaxer::tryStacks(const std::vector<spec::StackProfile>& stacks) {
  std::optional<CostedPlan> fastest;
  std::string name;
  size_t numTried = 0;
  for (const spec::StackProfile& stack : stacks) {
    if (stack.name == query_.stack.name) continue;
    ++numTried;
    Query changed = under(stack);
    if (fastest && (!query_.slowest || fastest->estimate.step < *query_.slowest))
      changed.slowest = fastest->estimate.step;
    std::optional<CostedPlan> found = best(std::move(changed));
    if (!found || (fastest && fastest->estimate.step <= found->estimate.step)) continue;
    fastest = std::move(found);
    name = stack.name;
  }
  if (numTried > 0)
    tried_.push_back(fmt::format("{} other stack{}", numTried, numTried == 1 ? "" : "s"));
  if (fastest) {
    std::string change = stackChange(name, fastest->plan);
    add(ChangeKind::kStack, std::move(change), *std::move(fastest));
  }
}

// The fewest nodes, or devices where there is not one whole node, by doubling and bisection: as
// plans may use fewer devices than there are, what fits on some fits on more. Which plan it is
// counts on the fewest alone: up to there any that fits will do. None is on as few as `searched`,
// unless more hosts let as many ranks be spread alike.
void Relaxer::addDevices() {
  constexpr int64_t kMostTimes = 64;  // as many as there are, or hosts
  const int64_t base = numDevices();
  const int64_t host = query_.cluster.devicesPerHost();
  const int64_t whole = host > 0 ? host : query_.cluster.tiers.front().devices;
  const int64_t node = base < whole ? 1 : whole;
  const int64_t most = std::min(kMostTimes * std::max(base, whole), spec::kMaxDevices) / node;
  const bool spreads = spreadsAlike();
  int64_t tooFew = base / node, enough = most;  // in nodes
  int64_t searched = spreads ? 0 : base;
  tried_.push_back(fmt::format("up to {} devices", most * node));
  // On up to so many nodes. Narrows down what is too few and what is enough.
  const auto search = [&](int64_t nodes) {
    const std::optional<CostedPlan> found = bestOn(nodes * node, {false, true, searched});
    if (found) {
      enough = std::min(nodes, (devicesFor(found->plan) + node - 1) / node);
    } else {
      tooFew = nodes;
      if (!spreads) searched = std::max(searched, nodes * node);
    }
    return found.has_value();
  };
  do {
    if (tooFew >= most) return;
  } while (!search(std::min(2 * tooFew, most)));
  while (enough - tooFew > 1) search((tooFew + enough) / 2);
  int64_t devices = enough * node;
  std::optional<CostedPlan> found = bestOn(devices, {false, false, searched});
  // Ranks that are spread alike may need more hosts, which other plans can fill.
  while (found && devicesFor(found->plan) > devices) {
    devices = devicesFor(found->plan);
    found = bestOn(devices, {false, false, searched});
  }
  if (!found) return;
  devices = devicesFor(found->plan);
  const bool isMore = devices > query_.cluster.numDevices;
  std::string change =
      fmt::format("{} devices (there are {}{})", devices, base,
                  isMore && !query_.cluster.scalable
                      ? fmt::format("; num_devices: {} in the cluster file", clusterFor(devices))
                      : "");
  add(ChangeKind::kDevices, std::move(change), *std::move(found));
}

// The nearest that has a plan and, as more replicas can share it, the farthest if it is faster per
// token. `batches`: all above the query's, or all below, nearest first.
void Relaxer::tryBatchesOf(const std::vector<int64_t>& batches) {
  const auto found = std::find_if(batches.begin(), batches.end(), [&](int64_t batch) {
    return bestOf(batch, {false, true}).has_value();
  });
  double fastest = 0;  // tokens/s
  for (const auto at : {found, found == batches.end() ? found : batches.end() - 1}) {
    if (at == batches.end()) return;
    std::optional<CostedPlan> plan = bestOf(*at, {false});
    if (!plan || plan->estimate.tokensPerSecond <= fastest) continue;
    fastest = plan->estimate.tokensPerSecond;
    add(ChangeKind::kBatch, fmt::format("batch {} (now: {})", *at, query_.training.globalBatchSize),
        *std::move(plan));
  }
}

void Relaxer::tryBatches() {
  const std::vector<int64_t> batches = nearBatches(query_);
  if (batches.empty()) return;
  tried_.push_back(fmt::format("batch {}", fmt::join(batches, ", ")));
  std::vector<int64_t> above, below;
  for (const int64_t batch : batches)
    (batch > query_.training.globalBatchSize ? above : below).push_back(batch);
  tryBatchesOf(above);
  tryBatchesOf(below);
}

std::vector<Relaxation> Relaxer::take() {
  std::stable_sort(changes_.begin(), changes_.end(), [](const Relaxation& a, const Relaxation& b) {
    return std::pair(a.devices, a.estimate.step.count()) <
           std::pair(b.devices, b.estimate.step.count());
  });
  return std::move(changes_);
}

// The search again, listening to what it costs in full.
std::optional<NearestMiss> nearestMiss(const Query& query, const SearchProgress& progress) {
  std::optional<NearestMiss> nearest;
  CostFunctions costs = modelCosts(query);
  costs.estimate = [&, inner = costs.estimate](const plan::Plan& plan) {
    Result<cost::Estimate> estimate = inner(plan);
    if (estimate.has_value() && !estimate->fits() &&
        (!nearest || estimate->missing() < nearest->estimate.missing()))
      nearest = NearestMiss{plan, *estimate};
    return estimate;
  };
  const Result<PlanResult> result = searchPlan(query, costs, progress);
  return result.has_value() ? std::nullopt : nearest;
}

}  // namespace

Result<Shortfall> shortfallOf(const Query& query, const Status& reason,
                              const std::vector<spec::StackProfile>& stacks,
                              const SearchProgress& progress) {
  Relaxer relaxer(query, progress);
  relaxer.giveUpHeadroom();
  relaxer.giveUpPins();
  relaxer.giveUpAllPins();
  relaxer.tryStacks(stacks);
  relaxer.addDevices();
  relaxer.tryBatches();
  if (!relaxer.failure().ok()) return Error(relaxer.failure());
  return Shortfall{reason, nearestMiss(query, progress), relaxer.take(), relaxer.takeTried()};
}

std::vector<int64_t> nearBatches(const Query& query) {
  const Pins& pins = query.pins;
  const int64_t batch = query.training.globalBatchSize;
  int64_t most = pins.gpus.value_or(query.cluster.numDevices);
  for (const std::optional<int64_t>& pinned : {pins.tp, pins.pp, pins.cp})
    most /= std::max<int64_t>(pinned.value_or(1), 1);
  most = std::max<int64_t>(std::min(most, pins.mostDp.value_or(most)), 1);
  std::vector<int64_t> batches;
  for (int64_t dp = pins.dp.value_or(most); dp >= 1; dp /= 2) {
    const int64_t microbatch = pins.microbatchSize.value_or(1);
    const int64_t unit = microbatch > cost::kMostSamples / dp ? 0 : dp * microbatch;  // 0: too many
    if (unit > 0 && batch % unit != 0)
      for (const int64_t near : {(batch / unit + 1) * unit, batch / unit * unit})
        if (near > 0 && near <= cost::kMostSamples) batches.push_back(near);
    if (pins.dp) break;
  }
  std::sort(batches.begin(), batches.end(), [&](int64_t a, int64_t b) {
    return std::pair(std::abs(a - batch), a) < std::pair(std::abs(b - batch), b);
  });
  batches.erase(std::unique(batches.begin(), batches.end()), batches.end());
  return batches;
}

Status toStatus(const Shortfall& shortfall) {
  // The cheapest needs the fewest devices, so they are said where they differ.
  const bool differ = std::any_of(shortfall.changes.begin(), shortfall.changes.end(),
                                  [&](const Relaxation& change) {
                                    return change.devices != shortfall.changes.front().devices;
                                  });
  std::vector<std::string> changes;
  for (const Relaxation& change : shortfall.changes) {
    const bool isSaid = differ && change.kind != ChangeKind::kDevices;
    changes.push_back(fmt::format("{}: {} a step{}", change.change,
                                  formatSeconds(change.estimate.step),
                                  isSaid ? fmt::format(" on {} devices", change.devices) : ""));
  }
  const std::string after =
      changes.empty()
          ? fmt::format("no single change of the query that was tried ({}) gives a plan",
                        fmt::join(shortfall.tried, "; "))
          : fmt::format("would work{}: {}", changes.size() > 1 ? ", fewest devices first" : "",
                        fmt::join(changes, ", or "));
  return {shortfall.reason.code(), fmt::format("{}; {}", shortfall.reason.message(), after)};
}

Status missesMemory(const Query& query, const plan::Plan& leanest, bool ofEvenChunks,
                    const CostFunctions& costs) {
  const Result<cost::Estimate> estimate = costs.estimate(leanest);
  if (!estimate.has_value()) return estimate.error();
  if (estimate->fits())
    return internalError(fmt::format("no plan was found, but {} fits", summary(leanest)));
  return infeasible(fmt::format(
      "no plan{} fits in memory: the leanest needs {} of {} per device{}, {} too much ({})",
      ofEvenChunks ? " whose chunks of a stage differ by one layer at most (others: --layers)" : "",
      formatBytes(estimate->memory.total()), formatBytes(query.cluster.device.memory),
      estimate->headroom > Bytes(0)
          ? fmt::format(", beside {} that --headroom keeps free", formatBytes(estimate->headroom))
          : "",
      formatBytesExactly(estimate->missing()), summary(leanest)));
}

Status withRelaxations(const Query& query, const Status& status, const SearchProgress& progress) {
  const Result<Shortfall> shortfall = shortfallOf(query, status, {}, progress);
  return shortfall.has_value() ? toStatus(*shortfall) : shortfall.error();
}

}  // namespace trireme::planner
