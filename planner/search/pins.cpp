#include "planner/search/pins.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "ir/expand/buildable.h"
#include "ir/plan/nearest.h"
#include "planner/cuts/cuts.h"
#include "planner/supported.h"

namespace trireme::planner {
namespace {

using plan::ScheduleKind;
using plan::StateSharding;

bool isInterleaved(const Pins& pins) {
  return pins.schedule == ScheduleKind::kInterleaved ||
         (pins.virtualStages.value_or(1) > 1 && !pins.schedule);
}

// The least number of virtual stages that the pins allow.
int64_t leastVirtualStages(const Pins& pins) {
  return pins.virtualStages.value_or(isInterleaved(pins) ? 2 : 1);
}

int64_t leastReplicas(const Pins& pins) { return pins.dp.value_or(pins.dpShard.value_or(1)); }

const char* replicasName(const Pins& pins) { return pins.dpShard && !pins.dp ? "dp shard" : "dp"; }

int64_t leastStages(const Pins& pins) { return pins.pp.value_or(isInterleaved(pins) ? 2 : 1); }

struct PinnedDegree {
  const char* name;
  int64_t value;
  int64_t whole;  // what it divides by (P3) to (P5); 0: anything
  bool divides(int64_t degree) const { return whole % degree == 0; }
};

// Those with the most of one of them that devices have and the rules take. None where the rules
// refuse another one.
std::vector<std::string> nearestDegrees(const std::vector<PinnedDegree>& degrees, __int128 product,
                                        int64_t devices) {
  std::vector<std::string> nearest;
  for (const PinnedDegree& degree : degrees) {
    const bool othersDivide = std::all_of(
        degrees.begin(), degrees.end(),
        [&](const PinnedDegree& other) { return &other == &degree || other.divides(other.value); });
    auto most = static_cast<int64_t>(devices / (product / degree.value));
    while (most > 1 && !degree.divides(most)) --most;
    if (degree.value > 1 && most >= 1 && othersDivide)
      nearest.push_back(fmt::format("{} {}", degree.name, most));
  }
  return nearest;
}

Status enoughDevices(const Query& query, int64_t devices) {
  const Pins& pins = query.pins;
  const std::vector<PinnedDegree> degrees = {
      {"tp", pins.tp.value_or(1), std::gcd(query.model.numKvHeads, query.model.ffnSize)},
      {"pp", pins.pp.value_or(1), 0},
      {"cp", pins.cp.value_or(1), 0},
      {replicasName(pins), leastReplicas(pins),
       query.training.globalBatchSize / std::max<int64_t>(pins.microbatchSize.value_or(1), 1)}};
  __int128 product = 1;
  std::vector<std::string> pinned;
  for (const PinnedDegree& degree : degrees) {
    product = std::min(product, __int128{1} << 64) * degree.value;  // far too many is enough
    if (degree.value > 1) pinned.push_back(fmt::format("{} {}", degree.name, degree.value));
  }
  if (product <= devices) return {};
  const std::vector<std::string> nearest = nearestDegrees(degrees, product, devices);
  return infeasible(fmt::format("{} need{} {} devices, there {} {}{}{}", fmt::join(pinned, " x "),
                                pinned.size() == 1 ? "s" : "", static_cast<double>(product),
                                devices == 1 ? "is" : "are", devices,
                                nearest.empty() ? "" : "; nearest: ", fmt::join(nearest, " or ")));
}

Status batchDivides(const Query& query) {  // (P3)
  const int64_t batch = query.training.globalBatchSize;
  const int64_t dp = leastReplicas(query.pins);
  const int64_t microbatch = query.pins.microbatchSize.value_or(1);
  if (batch % dp != 0)
    return infeasible(fmt::format("(P3) {} {} does not divide the global batch {}{}",
                                  replicasName(query.pins), dp, batch,
                                  plan::nearestDivisor(dp, batch)));
  if (batch / dp % microbatch != 0)
    return infeasible(fmt::format(
        "(P3) microbatch size {} does not divide the {} sequences of a replica (batch {}, dp {}){}",
        microbatch, batch / dp, batch, dp, plan::nearestDivisor(microbatch, batch / dp)));
  return {};
}

Status layersAreEnough(const Query& query) {  // (P8)
  const int64_t layers = query.model.numLayers;
  const int64_t pp = leastStages(query.pins), chunks = leastVirtualStages(query.pins);
  const int64_t most = chunks > 1 && pp > 1 ? mostChunks(query) : layers;
  if (pp <= layers && chunks <= most / pp) return {};
  const int64_t leastPp = chunks > 1 ? 2 : 1;  // (P6)
  const std::string hint =
      most / chunks >= leastPp
          ? fmt::format("pp {}", std::min(most / chunks, layers))
          : fmt::format("{} virtual stage{}", most / leastPp, most / leastPp == 1 ? "" : "s");
  return infeasible(fmt::format(
      "(P8) pp {} x {} virtual stage{} need a layer each{}, the model has {}; nearest: {}", pp,
      chunks, chunks == 1 ? "" : "s", most > layers ? " but the first and the last" : "", layers,
      hint));
}

// As many numbers as `pinned` that add up to `wanted`: every one as much more or less, the first
// ones one more; even ones if that leaves none to one of them. Empty: too few layers for that.
std::vector<int64_t> nearestLayers(const std::vector<int64_t>& pinned, int64_t wanted) {
  const auto count = static_cast<int64_t>(pinned.size());
  if (wanted < count) return {};
  const __int128 missing = wanted - std::accumulate(pinned.begin(), pinned.end(), __int128{0});
  const auto more = [&](int64_t i) {  // rounded down, the rest to the first ones
    const __int128 each = missing / count - (missing % count < 0 ? 1 : 0);
    return each + (i < missing - each * count ? 1 : 0);
  };
  std::vector<int64_t> nearest;
  for (int64_t i = 0; i < count; ++i) {
    const __int128 layers = pinned[static_cast<size_t>(i)] + more(i);
    if (layers < 1) break;
    nearest.push_back(static_cast<int64_t>(layers));
  }
  if (nearest.size() == pinned.size()) return nearest;
  nearest.clear();
  for (int64_t i = 0; i < count; ++i) nearest.push_back(wanted / count + (i < wanted % count));
  return nearest;
}

Status layersCoverTheModel(const Query& query) {  // (P8)
  const std::vector<int64_t>& pinned = query.pins.layers;
  if (pinned.empty()) return {};
  const int64_t wanted = query.model.numLayers;
  const __int128 sum = std::accumulate(pinned.begin(), pinned.end(), __int128{0});
  if (sum == wanted) return {};
  const std::vector<int64_t> nearest = nearestLayers(pinned, wanted);
  return infeasible(fmt::format(
      "(P8) layers {} cover {} layers, the model has {}{}", fmt::join(pinned, ","), sum, wanted,
      nearest.empty() ? "" : fmt::format("; nearest: {}", fmt::join(nearest, ","))));
}

Status borderIsShardedOnce(const Pins& pins) {  // (P10)
  if (!pins.scatterGather.value_or(false) || !pins.sequenceParallel.value_or(false)) return {};
  return infeasible(
      "(P10) scatter-gather excludes sequence parallel, under which stage borders are already "
      "sharded; nearest: scatter-gather off, or sequence parallel off");
}

Status overlapIsAChoice(const Query& query) {
  if (!query.pins.overlapReductions || query.stack.ownPrograms) return {};
  return infeasible(
      fmt::format("overlapped reductions are a choice of Trireme's own programs: stack '{}' runs "
                  "beside computation what its profile says; nearest: none pinned",
                  query.stack.name));
}

Status ordersDiffer(const Pins& pins) {  // (P18)
  if (pins.rankOrder.value_or(plan::RankOrder::kTpCpDpPp) == plan::RankOrder::kTpCpDpPp ||
      (pins.pp != 1 && pins.dp != 1))
    return {};
  const char* one = pins.pp == 1 ? "pp" : "dp";
  return infeasible(
      fmt::format("(P18) rank order {} needs pp > 1 and dp > 1, pinned is {} 1; nearest: rank "
                  "order {}, or {} 2",
                  plan::rankOrderName(*pins.rankOrder), one,
                  plan::rankOrderName(plan::RankOrder::kTpCpDpPp), one));
}

Status recomputesInFull(const Pins& pins) {  // (P14)
  if (!pins.recomputeLayers ||
      pins.recompute.value_or(plan::Recompute::kFull) == plan::Recompute::kFull)
    return {};
  return infeasible(fmt::format(
      "(P14) recompute of {} layers per virtual stage needs recompute full, pinned is {}; nearest: "
      "recompute full, or no number of layers",
      *pins.recomputeLayers, plan::recomputeName(*pins.recompute)));
}

Status recomputedLayersExist(const Query& query) {  // (P14)
  const int64_t pinned = query.pins.recomputeLayers.value_or(1), most = query.model.numLayers;
  if (pinned >= 1 && pinned <= most) return {};
  return infeasible(
      fmt::format("(P14) recompute of {} layers per virtual stage: the model has {}; nearest: {}",
                  pinned, most, std::clamp<int64_t>(pinned, 1, most)));
}

// What the pins, implied ones as well, leave as the least of a degree.
int64_t leastOf(const Degree& degree, const Pins& pins) {
  if (degree.pin == &Pins::pp) return leastStages(pins);
  if (degree.pin == &Pins::dp) return leastReplicas(pins);
  if (degree.pin == &Pins::virtualStages) return leastVirtualStages(pins);
  return (pins.*degree.pin).value_or(1);
}

Status limitsAllow(const Pins& pins) {
  for (const Degree& degree : kDegrees) {
    const int64_t least = leastOf(degree, pins);
    const std::optional<int64_t>& most = pins.*degree.most;
    if (most && least > *most)
      return infeasible(
          fmt::format("the pins need {0} {1}, the limit is {2}; nearest: a limit of {1}",
                      degree.pin == &Pins::dp ? replicasName(pins) : degree.name, least, *most));
  }
  return {};
}

Status shardsDivideReplicas(const Pins& pins) {  // (P11)
  if (!pins.dpShard) return {};
  if (*pins.dpShard > 1 && pins.stateSharding == StateSharding::kNone)
    return infeasible(
        fmt::format("(P11) dp shard {} needs state sharding, pinned is none; nearest: dp shard 1",
                    *pins.dpShard));
  if (!pins.dp || *pins.dp % *pins.dpShard == 0) return {};
  return infeasible(fmt::format("(P11) dp shard {} does not divide dp {}{}", *pins.dpShard,
                                *pins.dp, plan::nearestDivisor(*pins.dpShard, *pins.dp)));
}

int64_t leastDivisorAboveOne(int64_t n) {
  for (int64_t i = 2; i * i <= n; ++i)
    if (n % i == 0) return i;
  return std::max<int64_t>(n, 2);
}

// Of the choices that want to be made together (tp for sequence parallelism, dp for sharding...)
// one that depends on a free one is left at what no rule minds.
void choose(const Query& query, plan::Plan& plan) {
  const Pins& pins = query.pins;
  plan.stateSharding = pins.stateSharding.value_or(StateSharding::kNone);
  const bool canBuild = !query.stack.ownPrograms || plan.stateSharding == StateSharding::kOptimizer;
  if (plan.stateSharding != StateSharding::kNone && canBuild) {
    const bool cpMayShare = !pins.cp && query.stack.supports(spec::StackChoice::kContextParallel);
    if (pins.dp && (*pins.dp > 1 || !cpMayShare))
      std::swap(plan.dpShard, plan.dpReplicate);
    else
      plan.stateSharding = StateSharding::kNone;
  }
  plan.sequenceParallel = pins.tp && pins.sequenceParallel.value_or(false);
  const bool neverApplies = pins.tp == 1 || pins.pp == 1;
  plan.scatterGather =
      pins.scatterGather.value_or(false) && (neverApplies || (pins.tp && pins.microbatchSize));
  plan.overlapReductions = pins.overlapReductions.value_or(false) && pins.tp && pins.dp;
}

// A plan with every pin, in which the free choices are those that the rules mind least: a rule that
// it breaks is broken by all.
plan::Plan leastPlan(const Query& query) {
  const Pins& pins = query.pins;
  plan::Plan plan;
  plan.model = query.model.name;
  plan.fingerprint = plan::fingerprintOf(query.model);
  plan.training = query.training;
  plan.stack = query.stack.name;
  plan.vocabMultiple = query.vocabMultiple;
  plan.tp = pins.tp.value_or(1);
  plan.cp = pins.cp.value_or(1);
  plan.dpReplicate = pins.dp.value_or(1);
  plan.microbatchSize = pins.microbatchSize.value_or(1);
  plan.recompute = pins.recompute.value_or(plan::Recompute::kNone);
  plan.virtualStages = leastVirtualStages(pins);
  plan.schedule = isInterleaved(pins) ? ScheduleKind::kInterleaved
                                      : pins.schedule.value_or(ScheduleKind::k1F1B);
  choose(query, plan);
  const int64_t mostStages =
      plan.virtualStages > 1 ? mostChunks(query) / plan.virtualStages : query.model.numLayers;
  plan.pp = leastStages(pins);
  if (!pins.pp && isInterleaved(pins)) {  // (P7) wants a divisor of the microbatches.
    const int64_t divisor = leastDivisorAboveOne(plan.numMicrobatches());
    plan.pp = divisor <= mostStages ? divisor : 2;
  }
  if (!pins.pp && plan.scatterGather)
    plan.pp = std::min<int64_t>(std::max<int64_t>(plan.pp, 2), mostStages);
  plan.layers = pins.layers.empty()
                    ? plan::evenLayers(query.model.numLayers, plan.pp, plan.virtualStages)
                    : pinnedCut(pins.layers, plan);
  return plan;
}

// The fewest virtual stages that leave at least two stages for so many chunks; 1 if there are none.
int64_t leastInterleaving(int64_t chunks) {
  for (int64_t v = 2; v <= chunks / 2; ++v)
    if (chunks % v == 0) return v;
  return 1;
}

// Of so many chunks of layers, with neither stages nor virtual stages pinned: the fewest virtual
// stages that leave no more stages than the limit; one, or the fewest of an interleaved schedule,
// if none do.
int64_t fewestVirtualStages(const Pins& pins, int64_t chunks) {
  const int64_t least = isInterleaved(pins) ? leastInterleaving(chunks) : 1;
  if (!pins.mostPp || (pins.schedule && !isInterleaved(pins))) return least;
  for (int64_t v = least; v <= chunks / 2; ++v)
    if (chunks % v == 0 && chunks / v <= *pins.mostPp) return v;
  return least;
}

}  // namespace

Result<Pins> resolvePins(const Pins& given) {
  Pins pins = given;
  TRIREME_RETURN_IF_ERROR(recomputesInFull(pins));
  if (pins.recomputeLayers) pins.recompute = plan::Recompute::kFull;
  if (pins.layers.empty()) return pins;
  const auto count = static_cast<int64_t>(pins.layers.size());
  if (pins.pp && !pins.virtualStages && count % *pins.pp == 0)
    pins.virtualStages = count / *pins.pp;
  if (!pins.virtualStages)
    pins.virtualStages = pins.pp ? (isInterleaved(pins) ? leastInterleaving(count) : 1)
                                 : fewestVirtualStages(pins, count);
  if (!pins.pp && count % *pins.virtualStages == 0) pins.pp = count / *pins.virtualStages;
  if (!pins.pp)
    return Error(infeasible(fmt::format(
        "(P8) layers for {} virtual stages are no whole number of stages of {}{}", count,
        *pins.virtualStages, plan::nearestMultiple(count, *pins.virtualStages))));
  const __int128 asked = static_cast<__int128>(*pins.pp) * *pins.virtualStages;
  if (asked != count)
    return Error(infeasible(
        fmt::format("(P8) layers for {} virtual stage{}, but pp {} x {} virtual stage{} have {}",
                    count, count == 1 ? "" : "s", *pins.pp, *pins.virtualStages,
                    *pins.virtualStages == 1 ? "" : "s", asked)));
  return pins;
}

namespace {

// All, which is 0, where no chunk has more.
bool recomputesAsMany(const plan::Plan& plan, int64_t layers) {
  if (plan.recompute != plan::Recompute::kFull || plan.recomputeLayers != 0)
    return plan.recomputeLayers == layers;
  for (const auto& stage : plan.layers)
    for (const plan::LayerRange& range : stage)
      if (range.count > layers && layers > 0) return false;
  return true;
}

// Full recomputation without a number is of all layers.
bool recomputesAsAsked(const Pins& pins, const plan::Plan& plan) {
  if (!pins.recomputeLayers && pins.recompute != plan::Recompute::kFull) return true;
  return recomputesAsMany(plan, pins.recomputeLayers.value_or(0));
}

}  // namespace

bool obeys(const Pins& pins, const plan::Plan& plan) {
  const auto allows = [](const auto& pin, auto value) { return !pin || *pin == value; };
  for (const Degree& degree : kDegrees) {
    const std::optional<int64_t>& most = pins.*degree.most;
    if (!allows(pins.*degree.pin, degree.of(plan)) || (most && degree.of(plan) > *most))
      return false;
  }
  if (!pins.layers.empty()) {
    std::vector<int64_t> layers(static_cast<size_t>(plan.pp * plan.virtualStages));
    if (layers.size() != pins.layers.size()) return false;
    for (size_t stage = 0; stage < plan.layers.size(); ++stage)
      for (size_t chunk = 0; chunk < plan.layers[stage].size(); ++chunk)
        layers[chunk * plan.layers.size() + stage] = plan.layers[stage][chunk].count;
    if (layers != pins.layers) return false;
  }
  return (!pins.gpus || plan.numRanks() <= *pins.gpus) && allows(pins.dpShard, plan.dpShard) &&
         allows(pins.schedule, plan.schedule) && allows(pins.recompute, plan.recompute) &&
         recomputesAsAsked(pins, plan) && allows(pins.stateSharding, plan.stateSharding) &&
         allows(pins.sequenceParallel, plan.sequenceParallel) &&
         allows(pins.scatterGather, plan.scatterGather) &&
         allows(pins.overlapReductions, plan.overlapReductions) &&
         allows(pins.rankOrder, plan.rankOrder);
}

plan::Plan pinnedChoices(const Pins& pins) {
  plan::Plan plan;
  plan.tp = pins.tp.value_or(1);
  plan.pp = pins.pp.value_or(1);
  plan.cp = pins.cp.value_or(1);
  plan.recompute = pins.recompute.value_or(pins.recomputeLayers ? plan::Recompute::kFull
                                                                : plan::Recompute::kNone);
  plan.recomputeLayers = pins.recomputeLayers.value_or(0);
  plan.schedule = isInterleaved(pins) ? ScheduleKind::kInterleaved
                                      : pins.schedule.value_or(ScheduleKind::k1F1B);
  plan.stateSharding = pins.stateSharding.value_or(StateSharding::kNone);
  plan.sequenceParallel = pins.sequenceParallel.value_or(false);
  plan.scatterGather = pins.scatterGather.value_or(false);
  plan.overlapReductions = pins.overlapReductions.value_or(false);
  plan.rankOrder = pins.rankOrder.value_or(plan.rankOrder);
  return plan;
}

Status checkPins(const Query& query, int64_t devices) {
  TRIREME_RETURN_IF_ERROR(limitsAllow(query.pins));
  TRIREME_RETURN_IF_ERROR(shardsDivideReplicas(query.pins));
  TRIREME_RETURN_IF_ERROR(enoughDevices(query, devices));
  TRIREME_RETURN_IF_ERROR(batchDivides(query));
  TRIREME_RETURN_IF_ERROR(layersAreEnough(query));
  TRIREME_RETURN_IF_ERROR(layersCoverTheModel(query));
  TRIREME_RETURN_IF_ERROR(borderIsShardedOnce(query.pins));
  TRIREME_RETURN_IF_ERROR(ordersDiffer(query.pins));
  TRIREME_RETURN_IF_ERROR(overlapIsAChoice(query));
  TRIREME_RETURN_IF_ERROR(recomputedLayersExist(query));
  const plan::Plan least = leastPlan(query);
  Status status = query.stack.ownPrograms ? expand::checkBuildable(least) : Status();
  if (status.ok()) status = checkChoices(pinnedChoices(query.pins), query.stack);
  if (status.ok()) status = plan::verifyPlan(least, query.model);
  return status.ok() ? status : infeasible(status.message());
}

}  // namespace trireme::planner
