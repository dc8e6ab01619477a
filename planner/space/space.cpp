#include "planner/space/space.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

#include "ir/plan/choices.h"
#include "planner/space/hosts.h"
#include "planner/space/rank_orders.h"

namespace trireme::planner {
namespace {

using plan::Recompute;
using plan::ScheduleKind;
using plan::StateSharding;
using spec::StackChoice;

template <typename T>
bool allows(const std::optional<T>& pin, T value) {
  return !pin || *pin == value;
}

bool allows(const std::optional<int64_t>& pin, const std::optional<int64_t>& most, int64_t value) {
  return allows(pin, value) && value <= most.value_or(value);
}
bool allowsTp(const Query& query, int64_t tp) {
  return allows(query.pins.tp, query.pins.mostTp, tp);
}
bool allowsPp(const Query& query, int64_t pp) {
  return allows(query.pins.pp, query.pins.mostPp, pp);
}
bool allowsDp(const Query& query, int64_t dp) {
  return allows(query.pins.dp, query.pins.mostDp, dp);
}

std::vector<int64_t> divisorsOf(int64_t n) {
  std::vector<int64_t> small, large;
  for (int64_t i = 1; i * i <= n; ++i) {
    if (n % i != 0) continue;
    small.push_back(i);
    if (i * i != n) large.push_back(n / i);
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

// The rule that forbids the degrees, if any.
std::optional<Rejection> refuseDegrees(const Query& query, int64_t tp, int64_t pp, int64_t dp) {
  const spec::ModelSpec& model = query.model;
  if (model.numKvHeads % tp != 0)
    return Rejection{"P4", fmt::format("tp {}", tp), "a divisor of the key/value heads",
                     fmt::format("{} heads", model.numKvHeads)};
  if (model.ffnSize % tp != 0)
    return Rejection{"P5", fmt::format("tp {}", tp), "a divisor of the ffn size",
                     fmt::format("ffn size {}", model.ffnSize)};
  if (const auto misfit =
          plan::fp8Misfit(model, query.training.precision, tp, query.stack.settings))
    return Rejection{"stack", fmt::format("tp {}", tp),
                     fmt::format("a multiple of {} as {} in fp8", misfit->multiple, misfit->what),
                     fmt::format("{}", misfit->size)};
  if (pp > model.numLayers)
    return Rejection{"P8", fmt::format("pp {}", pp), "at least one layer per stage",
                     fmt::format("{} layers", model.numLayers)};
  const int64_t part = dp * query.pins.microbatchSize.value_or(1);
  if (query.training.globalBatchSize % part != 0)
    return Rejection{"P3", fmt::format("dp {}", dp),
                     fmt::format("a global batch that is a multiple of {}", part),
                     fmt::format("batch {}", query.training.globalBatchSize)};
  return std::nullopt;
}

void addRejection(Rejection rejection, std::vector<Rejection>& rejections) {
  if (std::find(rejections.begin(), rejections.end(), rejection) == rejections.end())
    rejections.push_back(std::move(rejection));
}

bool supports(const spec::StackProfile& stack, Recompute recompute) {
  return recompute == Recompute::kNone ||
         stack.supports(recompute == Recompute::kFull ? StackChoice::kRecomputeFull
                                                      : StackChoice::kRecomputeSelective);
}

// Flash attention keeps no scores: to compute it again saves nothing and takes time.
bool isPointless(const Query& query, Recompute recompute) {
  const spec::StackDescription& stack = query.stack.description;
  return recompute == Recompute::kSelective && !query.pins.recompute && !query.stack.ownPrograms &&
         stack.selective == spec::SelectiveRecompute::kAttention && spec::isFlash(stack.attention);
}

// `hasReductions`: over dp or tp.
std::vector<bool> overlapsOf(const Query& query, bool hasReductions) {
  std::vector<bool> overlaps;
  if (allows(query.pins.overlapReductions, false)) overlaps.push_back(false);
  if (hasReductions && mayOverlap(query)) overlaps.push_back(true);
  return overlaps;
}

// Gradients of weights apart, where a pipeline of several stages has gaps for them.
std::vector<bool> splitsOf(const Query& query, int64_t mostStages) {
  const std::optional<ScheduleKind>& pin = query.pins.schedule;
  if (pin && plan::splitsBackward(*pin)) return {true};
  const bool maySplit = !pin && query.stack.supports(StackChoice::kZeroBubble) && mostStages > 1 &&
                        query.pins.virtualStages.value_or(1) == 1;
  return maySplit ? std::vector<bool>{false, true} : std::vector<bool>{false};
}

bool obeys(const spec::StackProfile& stack, spec::StackRule rule) {
  return std::find(stack.rules.begin(), stack.rules.end(), rule) != stack.rules.end();
}

}  // namespace

cost::Ranks ranksOf(const Query& query, const Group& group) {
  return cost::ranksOn(hostOf(query, group), group.tp * group.pp * group.cp * group.dp, group.tp,
                       query.cluster);
}

namespace {

// `degrees` has tp, pp, cp and dp; the rest is what the groups differ in.
void addGroups(const Query& query, const Group& degrees, const std::vector<int64_t>& microbatches,
               const std::vector<bool>& overlaps, const std::vector<bool>& splits,
               std::vector<Group>& groups) {
  const int64_t part = query.training.sequenceLength / degrees.cp;
  const spec::Precision precision = query.training.precision;
  const spec::StackSettings& settings = query.stack.settings;
  if (plan::fp8Misfit(query.model, precision, degrees.tp, settings)) return;
  for (int64_t microbatch : microbatches) {
    if (!allows(query.pins.microbatchSize, query.pins.mostMicrobatchSize, microbatch) ||
        !plan::hasFp8Tokens(microbatch * part, precision, settings))
      continue;
    for (Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      if (!allows(query.pins.recompute, recompute) || !supports(query.stack, recompute) ||
          isPointless(query, recompute))
        continue;
      for (bool sequenceParallel : {false, true}) {
        if (!allows(query.pins.sequenceParallel, sequenceParallel)) continue;
        const bool mayBe = degrees.tp > 1 && part % degrees.tp == 0 &&
                           query.stack.supports(StackChoice::kSequenceParallel);
        if (sequenceParallel && !mayBe) continue;
        if (sequenceParallel &&
            !plan::hasFp8Tokens(microbatch * part / degrees.tp, precision, settings))
          continue;
        // What only pins could ask for, and no pin does.
        if (!sequenceParallel && mayBe && query.pins.sequenceParallel.value_or(true) &&
            obeys(query.stack, spec::StackRule::kSequenceWithTensor))
          continue;
        Group group = degrees;
        group.microbatchSize = microbatch;
        group.recompute = recompute;
        group.sequenceParallel = sequenceParallel;
        for (bool overlap : overlaps)
          for (bool split : splits) {
            group.overlapReductions = overlap;
            group.splitsBackward = split;
            groups.push_back(group);
          }
      }
    }
  }
}

}  // namespace

int64_t mostChunks(const Query& query) {
  return query.model.numLayers + (query.stack.ownPrograms ? 0 : 2);
}

namespace {

struct Order {
  ScheduleKind schedule;
  int64_t virtualStages;
};

std::vector<Order> ordersOf(const Query& query, const Group& group) {
  std::vector<Order> orders;
  const auto add = [&](ScheduleKind schedule, int64_t virtualStages) {
    if (allows(query.pins.schedule, schedule) &&
        allows(query.pins.virtualStages, query.pins.mostVirtualStages, virtualStages))
      orders.push_back({schedule, virtualStages});
  };
  if (group.splitsBackward) {
    add(ScheduleKind::kZeroBubbleH1, 1);
    add(ScheduleKind::kZeroBubbleH2, 1);
    return orders;
  }
  // A pinned GPipe is obeyed even where it is pointless.
  if (query.stack.supports(StackChoice::kGpipe) &&
      (group.pp > 1 || query.pins.schedule == ScheduleKind::kGpipe))
    add(ScheduleKind::kGpipe, 1);
  add(ScheduleKind::k1F1B, 1);
  const int64_t microbatches = query.training.globalBatchSize / (group.dp * group.microbatchSize);
  if (group.pp > 1 && microbatches % group.pp == 0 &&
      query.stack.supports(StackChoice::kInterleaved)) {
    const int64_t most = mostChunks(query) / group.pp;
    const int64_t pinned = query.pins.virtualStages.value_or(2);
    for (int64_t v = 2; v <= std::min(most, kMostVirtualStages); ++v)
      add(ScheduleKind::kInterleaved, v);
    if (pinned > kMostVirtualStages && pinned <= most) add(ScheduleKind::kInterleaved, pinned);
  }
  return orders;
}

bool mayScatter(const Query& query, const Group& g) {
  const int64_t elements =
      g.microbatchSize * query.training.sequenceLength / g.cp * query.model.hiddenSize;
  return query.stack.supports(StackChoice::kScatterGather) && g.tp > 1 && g.pp > 1 &&
         !g.sequenceParallel && elements % g.tp == 0;
}

// What is shared out, over how many data-parallel ranks.
struct Sharing {
  StateSharding kind = StateSharding::kNone;
  int64_t dpShard = 1;
};

bool supports(const spec::StackProfile& stack, StateSharding kind) {
  switch (kind) {
    case StateSharding::kNone:
      return true;
    case StateSharding::kOptimizer:
      return stack.supports(StackChoice::kShardOptimizer);
    case StateSharding::kGradients:
      return stack.supports(StackChoice::kShardGradients);
    case StateSharding::kParameters:
      return stack.supports(StackChoice::kShardParameters);
  }
  return false;
}

// The first rule of the stack that every plan of the group with that sharing breaks.
std::optional<plan::RuleBreach> sharingBreach(const Query& query, const Group& group,
                                              const Sharing& sharing) {
  if (query.stack.rules.empty()) return std::nullopt;
  plan::Plan plan;
  plan.training = query.training;
  plan.devicesPerHost = hostOf(query, group);
  plan.tp = group.tp;
  plan.pp = group.pp;
  plan.cp = group.cp;
  plan.microbatchSize = group.microbatchSize;
  plan.sequenceParallel = group.sequenceParallel;
  plan.stateSharding = sharing.kind;
  plan.dpShard = sharing.dpShard;
  plan.dpReplicate = group.dp / sharing.dpShard;
  for (const spec::StackRule rule : query.stack.rules)
    if (auto breach = plan::breachOf(plan, rule)) return breach;
  return std::nullopt;
}

// By choices and pins, whatever the stack's rules.
std::vector<Sharing> possibleSharings(const Query& query, const Group& group) {
  std::vector<Sharing> sharings;
  for (StateSharding kind : {StateSharding::kNone, StateSharding::kOptimizer,
                             StateSharding::kGradients, StateSharding::kParameters}) {
    if (!allows(query.pins.stateSharding, kind) || !supports(query.stack, kind)) continue;
    if (kind == StateSharding::kNone) {
      if (allows<int64_t>(query.pins.dpShard, 1)) sharings.push_back({kind, 1});
      continue;
    }
    for (int64_t dpShard : divisorsOf(group.dp))
      if (dpShard * group.cp > 1 && allows(query.pins.dpShard, dpShard) &&
          (dpShard == group.dp || query.stack.supports(StackChoice::kReplicatedShards)))
        sharings.push_back({kind, dpShard});
  }
  return sharings;
}

std::vector<Sharing> sharingsOf(const Query& query, const Group& group) {
  std::vector<Sharing> sharings = possibleSharings(query, group);
  std::erase_if(sharings, [&](const Sharing& sharing) {
    return sharingBreach(query, group, sharing).has_value();
  });
  return sharings;
}

// The choices within a group. They do not depend on each other, but for rank orders, of which the
// default goes with every sharding and the other one not with all of them.
struct Choices {
  std::vector<Order> orders;
  std::vector<Sharing> shardings;
  std::vector<bool> scatters;
  std::vector<plan::RankOrder> rankOrders;
  bool empty() const {
    return orders.empty() || shardings.empty() || scatters.empty() || rankOrders.empty();
  }
};

Choices choicesOf(const Query& query, const Group& group) {
  Choices choices;
  choices.orders = ordersOf(query, group);
  choices.shardings = sharingsOf(query, group);
  for (bool scatter : {false, true})
    if (allows(query.pins.scatterGather, scatter) && (!scatter || mayScatter(query, group)))
      choices.scatters.push_back(scatter);
  choices.rankOrders = rankOrdersOf(query, group);
  if (query.pins.rankOrder == plan::RankOrder::kTpCpPpDp)
    std::erase_if(choices.shardings,
                  [](const Sharing& s) { return s.kind >= StateSharding::kGradients; });
  return choices;
}

// Why a group has no order: whatever it is, interleaving was pinned.
Rejection refuseOrder(const Query& query, const Group& g) {
  const std::string subject = query.pins.virtualStages
                                  ? fmt::format("{} virtual stages", *query.pins.virtualStages)
                                  : "interleaved";
  if (g.pp == 1) return {"P6", subject, "pp > 1", "pp 1"};
  const int64_t microbatches = query.training.globalBatchSize / (g.dp * g.microbatchSize);
  if (microbatches % g.pp != 0)
    return {"P7", subject, fmt::format("microbatches that are a multiple of pp {}", g.pp),
            fmt::format("{} microbatches", microbatches)};
  return {"P8", subject,
          fmt::format("at least one layer in each chunk of pp {}{}", g.pp,
                      query.stack.ownPrograms ? "" : ", but the first and the last"),
          fmt::format("{} layers", query.model.numLayers)};
}

// Of so many ranks each, pinned.
Rejection refuseShards(const Query& query, const Group& g, int64_t dpShard) {
  const std::string subject = fmt::format("dp shard {}", dpShard);
  const bool shares = supports(query.stack, StateSharding::kOptimizer) ||
                      supports(query.stack, StateSharding::kGradients) ||
                      supports(query.stack, StateSharding::kParameters);
  if (!shares) return {"stack", subject, "a stack that shares state", query.stack.name};
  if (dpShard * g.cp == 1)
    return {"P11", subject, "more ranks that share, or cp > 1", fmt::format("cp {}", g.cp)};
  if (g.dp % dpShard != 0) return {"P11", subject, "a multiple as dp", fmt::format("dp {}", g.dp)};
  if (dpShard < g.dp && !query.stack.supports(StackChoice::kReplicatedShards))
    return {"stack", subject, "a stack that shares among some replicas", query.stack.name};
  return {"stack", subject, "rank order tp-cp-dp-pp", "tp-cp-pp-dp"};
}

// What the most sharing breaks is in the way of less as well.
Rejection refuseSharing(const Query& query, const Group& g) {
  const std::vector<Sharing> possible = possibleSharings(query, g);
  for (auto sharing = possible.rbegin(); sharing != possible.rend(); ++sharing)
    if (const auto breach = sharingBreach(query, g, *sharing))
      return {"stack", breach->value, breach->nearest + ", or another stack",
              "stack " + query.stack.name};
  const StateSharding kind = query.pins.stateSharding.value_or(StateSharding::kNone);
  const std::string subject = fmt::format("sharded {}", plan::stateShardingName(kind));
  if (!supports(query.stack, kind)) return {"stack", subject, "a stack that can", query.stack.name};
  if (query.pins.dpShard) return refuseShards(query, g, *query.pins.dpShard);
  if (query.stack.supports(StackChoice::kContextParallel))
    return {"P11", subject, "dp > 1 or cp > 1", fmt::format("dp {}, cp {}", g.dp, g.cp)};
  return {"P11", subject, "dp > 1", fmt::format("dp {}", g.dp)};
}

Rejection refuseScatter(const Query& query, const Group& g) {
  return {"P10", "scatter-gather",
          "tp > 1, pp > 1, no sequence parallel, and tp a divisor of the border",
          fmt::format("tp {}, pp {}, sequence parallel {}, a border of {} x {} x {}", g.tp, g.pp,
                      g.sequenceParallel ? "on" : "off", g.microbatchSize,
                      query.training.sequenceLength, query.model.hiddenSize)};
}

Rejection refuseRankOrder(const Query& query, const Group& g) {
  const auto order = query.pins.rankOrder.value_or(plan::RankOrder::kTpCpPpDp);
  const std::string subject = fmt::format("rank order {}", plan::rankOrderName(order));
  return {"P18", subject, "pp > 1 and dp > 1", fmt::format("pp {}, dp {}", g.pp, g.dp)};
}

}  // namespace

plan::Plan planOf(const Query& query, const Group& group) {
  plan::Plan plan;
  plan.model = query.model.name;
  plan.fingerprint = query.fingerprint != 0 ? query.fingerprint : plan::fingerprintOf(query.model);
  plan.training = query.training;
  plan.stack = query.stack.name;
  plan.devicesPerHost = hostOf(query, group);
  plan.vocabMultiple = query.vocabMultiple;
  plan.tp = group.tp;
  plan.pp = group.pp;
  plan.cp = group.cp;
  plan.dpReplicate = group.dp;
  plan.microbatchSize = group.microbatchSize;
  plan.recompute = group.recompute;
  plan.recomputeLayers = query.pins.recomputeLayers.value_or(0);
  plan.sequenceParallel = group.sequenceParallel;
  plan.overlapReductions = group.overlapReductions;
  if (group.splitsBackward) plan.schedule = ScheduleKind::kZeroBubbleH1;
  return plan;
}

namespace {

void choose(const Order& order, const Sharing& sharing, int64_t dp, plan::Plan& plan) {
  plan.schedule = order.schedule;
  plan.virtualStages = order.virtualStages;
  plan.stateSharding = sharing.kind;
  plan.dpShard = sharing.dpShard;
  plan.dpReplicate = dp / sharing.dpShard;
}

bool mayHave(const Query& query, int64_t cp) {
  return allows(query.pins.cp, query.pins.mostCp, cp) &&
         (cp == 1 || (query.stack.supports(StackChoice::kContextParallel) &&
                      query.training.sequenceLength % (2 * cp) == 0));
}

std::optional<Rejection> refuseHosts(const Query& query, const Group& degrees) {
  if (!obeys(query.stack, spec::StackRule::kAlikeHosts)) return std::nullopt;
  plan::Plan plan = planOf(query, degrees);
  if (plan::ranksPerHost(plan)) return std::nullopt;
  const int64_t devices = query.pins.gpus.value_or(query.cluster.numDevices);
  const int64_t host = plan.devicesPerHost;
  return Rejection{"stack", fmt::format("{} ranks with tp {}", plan.numRanks(), plan.tp),
                   "as many on every host",
                   fmt::format("{} hosts of {}", (devices + host - 1) / host, host)};
}

// Degrees of which there is no group. Degrees and microbatch divide, so that it is fp8 or the
// pinned sequence parallelism.
Rejection refuseTokens(const Query& query, const Group& g) {
  const bool isSequenceParallel = query.pins.sequenceParallel.value_or(false);
  const int64_t part = query.training.sequenceLength / g.cp / (isSequenceParallel ? g.tp : 1);
  const spec::StackSettings& settings = query.stack.settings;
  bool mayMultiply = false;
  for (const int64_t microbatch : divisorsOf(query.training.globalBatchSize / g.dp))
    mayMultiply |= allows(query.pins.microbatchSize, query.pins.mostMicrobatchSize, microbatch) &&
                   plan::hasFp8Tokens(microbatch * part, query.training.precision, settings);
  if (!mayMultiply)
    return {"stack", fmt::format("cp {}", g.cp),
            fmt::format("a multiple of {} as tokens of a pass in fp8", settings.fp8Rows),
            fmt::format("{} of a sequence", part)};
  return {"P9", "sequence parallel", "tp > 1 and a divisor of the sequence length",
          fmt::format("tp {} and length {}", g.tp, query.training.sequenceLength)};
}

// Degrees of `gpus` devices with tp and pp given: cp and dp share the rest.
void addContexts(const Query& query, int64_t gpus, int64_t tp, int64_t pp,
                 std::vector<Group>& groups, std::vector<Rejection>& rejections) {
  const int64_t rest = gpus / tp / pp;
  for (int64_t cp : divisorsOf(rest)) {
    if (!mayHave(query, cp)) continue;
    const int64_t dp = rest / cp;
    if (!allowsDp(query, dp)) continue;
    if (auto refused = refuseDegrees(query, tp, pp, dp)) {
      addRejection(std::move(*refused), rejections);
      continue;
    }
    const std::vector<bool> overlaps = overlapsOf(query, tp > 1 || dp > 1);
    if (overlaps.empty()) {
      addRejection({"P17", "overlapped reductions", "dp > 1 or tp > 1", "1 of both"}, rejections);
      continue;
    }
    Group degrees;
    degrees.tp = tp;
    degrees.pp = pp;
    degrees.cp = cp;
    degrees.dp = dp;
    if (auto refused = refuseHosts(query, degrees)) {
      addRejection(std::move(*refused), rejections);
      continue;
    }
    const size_t before = groups.size();
    for (const bool fillsAlike : placementsOf(query, degrees)) {
      degrees.fillsAlike = fillsAlike;
      addGroups(query, degrees, divisorsOf(query.training.globalBatchSize / dp), overlaps,
                splitsOf(query, pp), groups);
    }
    if (groups.size() == before) addRejection(refuseTokens(query, degrees), rejections);
  }
}

}  // namespace

std::vector<Group> groupsFor(const Query& query, int64_t gpus, std::vector<Rejection>& rejections) {
  std::vector<Group> groups;
  for (int64_t tp : divisorsOf(gpus)) {
    if (!allowsTp(query, tp)) continue;
    if (tp > 1 && !query.stack.supports(StackChoice::kTensorParallel)) continue;
    for (int64_t pp : divisorsOf(gpus / tp)) {
      if (!allowsPp(query, pp)) continue;
      if (pp > 1 && !query.stack.supports(StackChoice::kPipeline)) continue;
      addContexts(query, gpus, tp, pp, groups, rejections);
    }
  }
  return groups;
}

std::vector<Group> shapesFor(const Query& query, int64_t gpus) {
  std::vector<Group> shapes;
  const std::vector<int64_t> microbatches = divisorsOf(query.training.globalBatchSize);
  for (int64_t tp : divisorsOf(std::gcd(query.model.numKvHeads, query.model.ffnSize))) {
    if (tp > gpus || !allowsTp(query, tp)) continue;
    if (tp > 1 && !query.stack.supports(StackChoice::kTensorParallel)) continue;
    for (int64_t cp : divisorsOf(query.training.sequenceLength)) {
      if (cp > gpus / tp || !mayHave(query, cp)) continue;
      Group degrees;
      degrees.tp = tp;
      degrees.cp = cp;
      addGroups(query, degrees, microbatches, overlapsOf(query, true),
                splitsOf(query, query.model.numLayers), shapes);
    }
  }
  return shapes;
}

std::vector<int64_t> replicasOf(const Query& query, const Group& shape, int64_t most) {
  std::vector<int64_t> replicas;
  for (int64_t dp : divisorsOf(query.training.globalBatchSize / shape.microbatchSize))
    if (dp <= most && allowsDp(query, dp)) replicas.push_back(dp);
  return replicas;
}

std::vector<int64_t> stagesOf(const Query& query, int64_t most) {
  if (!query.stack.supports(StackChoice::kPipeline)) most = std::min<int64_t>(most, 1);
  std::vector<int64_t> stages;
  for (int64_t pp = 1; pp <= std::min(most, query.model.numLayers); ++pp)
    if (allowsPp(query, pp)) stages.push_back(pp);
  return stages;
}

void forEachPlan(const Query& query, const Group& group,
                 const std::function<void(const plan::Plan&)>& visit) {
  const Choices choices = choicesOf(query, group);
  plan::Plan plan = planOf(query, group);
  for (const Order& order : choices.orders)
    for (const Sharing& sharing : choices.shardings)
      for (bool scatter : choices.scatters)
        for (plan::RankOrder rankOrder : choices.rankOrders) {
          choose(order, sharing, group.dp, plan);
          plan.scatterGather = scatter;
          plan.rankOrder = rankOrder;
          if (plan::rankOrderGoesWithSharding(plan)) visit(plan);
        }
}

std::optional<plan::Plan> firstPlan(const Query& query, const Group& group,
                                    std::vector<Rejection>& rejections) {
  const Choices choices = choicesOf(query, group);
  if (choices.orders.empty()) addRejection(refuseOrder(query, group), rejections);
  if (choices.shardings.empty()) addRejection(refuseSharing(query, group), rejections);
  if (choices.scatters.empty()) addRejection(refuseScatter(query, group), rejections);
  if (choices.rankOrders.empty()) addRejection(refuseRankOrder(query, group), rejections);
  if (choices.empty()) return std::nullopt;
  plan::Plan plan = planOf(query, group);
  choose(choices.orders.front(), choices.shardings.front(), group.dp, plan);
  plan.scatterGather = choices.scatters.front();
  plan.rankOrder = choices.rankOrders.front();
  return plan;
}

std::optional<Group> plainerThan(const Query& query, const Group& group) {
  const Pins& pins = query.pins;
  Group plain = group;
  if (!pins.schedule) plain.splitsBackward = false;
  if (!pins.recompute && !pins.recomputeLayers) plain.recompute = Recompute::kNone;
  if (group.tp > 1 && mayOverlap(query)) plain.overlapReductions = true;
  if (plain.splitsBackward == group.splitsBackward && plain.recompute == group.recompute &&
      plain.overlapReductions == group.overlapReductions)
    return std::nullopt;
  return plain;
}

Group sampleOf(const Query& query, const Group& group) {
  Group sample = group;
  sample.microbatchSize = 1;
  if (!query.pins.schedule) sample.splitsBackward = false;
  if (group.tp > 1 && mayOverlap(query)) sample.overlapReductions = true;
  return sample;
}

bool hasPlan(const Query& query, const Group& group) {
  if (group.overlapReductions && group.tp == 1 && group.dp == 1) return false;  // (P17)
  if (group.splitsBackward && group.pp == 1 && !query.pins.schedule) return false;
  // 1F1B, nothing sharded and nothing scattered is always a plan.
  const Pins& pins = query.pins;
  if (!pins.schedule && !pins.virtualStages && !pins.stateSharding && !pins.dpShard &&
      !pins.scatterGather && !pins.rankOrder && query.stack.rules.empty())
    return true;
  return !choicesOf(query, group).empty();
}

bool mayOverlap(const Query& query) {
  const std::optional<bool>& pin = query.pins.overlapReductions;
  return query.stack.ownPrograms && query.stack.supports(StackChoice::kOverlapReductions) &&
         pin.value_or(true) && (pin || query.cluster.device.kind != spec::DeviceKind::kHost);
}

bool mayRecomputeSome(const Query& query) {
  return query.pins.recomputeLayers || choosesRecomputed(query);
}

bool choosesRecomputed(const Query& query) {
  return !query.pins.recomputeLayers && !query.stack.ownPrograms && !query.pins.recompute &&
         query.stack.supports(StackChoice::kRecomputeFull) &&
         query.stack.supports(StackChoice::kRecomputeLayers);
}

void simplifyRecomputed(plan::Plan& plan) {
  int64_t longest = 0;
  for (const auto& stage : plan.layers)
    for (const plan::LayerRange& range : stage) longest = std::max(longest, range.count);
  if (plan.recomputeLayers >= longest) plan.recomputeLayers = 0;
}

int64_t largestCount(const Query& query, int64_t limit) {
  const auto& pins = query.pins;
  const auto allowed = [&](StackChoice choice) { return query.stack.supports(choice); };
  const int64_t layers = allowed(StackChoice::kPipeline) ? query.model.numLayers : 1;
  const int64_t heads = allowed(StackChoice::kTensorParallel)
                            ? std::gcd(query.model.numKvHeads, query.model.ffnSize)
                            : 1;
  const int64_t contexts =
      allowed(StackChoice::kContextParallel) ? query.training.sequenceLength / 2 : 1;
  int64_t largest = 0;
  for (int64_t tp : divisorsOf(heads))
    for (int64_t cp : divisorsOf(std::max<int64_t>(contexts, 1)))
      for (int64_t dp :
           divisorsOf(query.training.globalBatchSize / pins.microbatchSize.value_or(1))) {
        if (!allowsTp(query, tp) || !allows(pins.cp, pins.mostCp, cp) || !allowsDp(query, dp))
          continue;
        if (tp > limit || cp > limit / tp || dp > limit / tp / cp) continue;
        const int64_t most =
            std::min({layers, limit / (tp * cp * dp), pins.mostPp.value_or(layers)});
        if (pins.pp.value_or(1) <= most)
          largest = std::max(largest, tp * cp * dp * pins.pp.value_or(most));
      }
  return largest;
}

namespace {

int placeOf(ScheduleKind schedule) {
  switch (schedule) {
    case ScheduleKind::k1F1B:
    case ScheduleKind::kInterleaved:
      return 0;
    case ScheduleKind::kGpipe:
      return 1;
    case ScheduleKind::kZeroBubbleH1:
      return 2;
    case ScheduleKind::kZeroBubbleH2:
      return 3;
  }
  return 0;
}

}  // namespace

bool simplerThan(const plan::Plan& a, const plan::Plan& b) {
  const auto key = [](const plan::Plan& p) {
    const int64_t recomputed =
        p.recomputeLayers > 0 ? p.recomputeLayers : std::numeric_limits<int64_t>::max();
    return std::make_tuple(p.tp, p.cp, p.pp, p.virtualStages, p.recompute, recomputed,
                           p.sequenceParallel, p.scatterGather, p.overlapReductions, p.rankOrder,
                           p.stateSharding, p.dpReplicate, placeOf(p.schedule), p.microbatchSize,
                           -p.devicesPerHost);  // on fewer hosts
  };
  if (key(a) != key(b)) return key(a) < key(b);
  for (size_t r = 0; r < a.layers.size(); ++r)
    for (size_t c = 0; c < a.layers[r].size(); ++c)
      if (a.layers[r][c].count != b.layers[r][c].count)
        return a.layers[r][c].count < b.layers[r][c].count;
  return false;
}

}  // namespace trireme::planner
