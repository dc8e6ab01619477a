#include "planner/space.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>

namespace trireme::planner {
namespace {

using plan::Recompute;
using plan::ScheduleKind;
using plan::StateSharding;

template <typename T>
bool allows(const std::optional<T>& pin, T value) {
  return !pin || *pin == value;
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

void addGroups(const Query& query, int64_t tp, int64_t pp, int64_t dp, std::vector<Group>& groups) {
  for (int64_t microbatch : divisorsOf(query.training.globalBatchSize / dp)) {
    if (!allows(query.pins.microbatchSize, microbatch)) continue;
    for (Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      if (!allows(query.pins.recompute, recompute)) continue;
      for (bool sequenceParallel : {false, true}) {
        if (!allows(query.pins.sequenceParallel, sequenceParallel)) continue;
        if (sequenceParallel && (tp == 1 || query.training.sequenceLength % tp != 0)) continue;
        groups.push_back({tp, pp, dp, microbatch, recompute, sequenceParallel});
      }
    }
  }
}

struct Order {
  ScheduleKind schedule;
  int64_t virtualStages;
};

std::vector<Order> ordersOf(const Query& query, const Group& group) {
  std::vector<Order> orders;
  const auto add = [&](ScheduleKind schedule, int64_t virtualStages) {
    if (allows(query.pins.schedule, schedule) && allows(query.pins.virtualStages, virtualStages))
      orders.push_back({schedule, virtualStages});
  };
  // A pinned GPipe is obeyed even where it is pointless.
  if (group.pp > 1 || query.pins.schedule == ScheduleKind::kGpipe) add(ScheduleKind::kGpipe, 1);
  add(ScheduleKind::k1F1B, 1);
  const int64_t microbatches = query.training.globalBatchSize / (group.dp * group.microbatchSize);
  if (group.pp > 1 && microbatches % group.pp == 0) {
    const int64_t most = query.model.numLayers / group.pp;
    const int64_t pinned = query.pins.virtualStages.value_or(2);
    for (int64_t v = 2; v <= std::min(most, kMostVirtualStages); ++v)
      add(ScheduleKind::kInterleaved, v);
    if (pinned > kMostVirtualStages && pinned <= most) add(ScheduleKind::kInterleaved, pinned);
  }
  return orders;
}

bool mayScatter(const Query& query, const Group& g) {
  const int64_t elements =
      g.microbatchSize * query.training.sequenceLength * query.model.hiddenSize;
  return g.tp > 1 && g.pp > 1 && !g.sequenceParallel && elements % g.tp == 0;
}

// The choices within a group; they do not depend on each other.
struct Choices {
  std::vector<Order> orders;
  std::vector<StateSharding> shardings;
  std::vector<bool> scatters;
};

Choices choicesOf(const Query& query, const Group& group) {
  Choices choices;
  choices.orders = ordersOf(query, group);
  for (StateSharding sharding : {StateSharding::kNone, StateSharding::kOptimizer})
    if (allows(query.pins.stateSharding, sharding) &&
        (sharding == StateSharding::kNone || group.dp > 1))
      choices.shardings.push_back(sharding);
  for (bool scatter : {false, true})
    if (allows(query.pins.scatterGather, scatter) && (!scatter || mayScatter(query, group)))
      choices.scatters.push_back(scatter);
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
  return {"P8", subject, fmt::format("at least one layer in each chunk of pp {}", g.pp),
          fmt::format("{} layers", query.model.numLayers)};
}

Rejection refuseScatter(const Query& query, const Group& g) {
  return {"P10", "scatter-gather",
          "tp > 1, pp > 1, no sequence parallel, and tp a divisor of the border",
          fmt::format("tp {}, pp {}, sequence parallel {}, a border of {} x {} x {}", g.tp, g.pp,
                      g.sequenceParallel ? "on" : "off", g.microbatchSize,
                      query.training.sequenceLength, query.model.hiddenSize)};
}

plan::Plan planOf(const Query& query, const Group& group) {
  plan::Plan plan;
  plan.model = query.model.name;
  plan.fingerprint = plan::fingerprintOf(query.model);
  plan.training = query.training;
  plan.stack = query.stack.name;
  plan.vocabMultiple = query.vocabMultiple;
  plan.tp = group.tp;
  plan.pp = group.pp;
  plan.microbatchSize = group.microbatchSize;
  plan.recompute = group.recompute;
  plan.sequenceParallel = group.sequenceParallel;
  return plan;
}

void choose(const Order& order, StateSharding sharding, int64_t dp, plan::Plan& plan) {
  const bool sharded = sharding == StateSharding::kOptimizer;
  plan.schedule = order.schedule;
  plan.virtualStages = order.virtualStages;
  plan.stateSharding = sharding;
  plan.dpReplicate = sharded ? 1 : dp;
  plan.dpShard = sharded ? dp : 1;
}

}  // namespace

std::vector<Group> groupsFor(const Query& query, int64_t gpus, std::vector<Rejection>& rejections) {
  std::vector<Group> groups;
  for (int64_t tp : divisorsOf(gpus)) {
    if (!allows(query.pins.tp, tp)) continue;
    for (int64_t pp : divisorsOf(gpus / tp)) {
      const int64_t dp = gpus / tp / pp;
      if (!allows(query.pins.pp, pp) || !allows(query.pins.dp, dp)) continue;
      if (auto refused = refuseDegrees(query, tp, pp, dp)) {
        addRejection(std::move(*refused), rejections);
        continue;
      }
      const size_t before = groups.size();
      addGroups(query, tp, pp, dp, groups);
      if (groups.size() == before)  // Degrees and microbatch divide, so it is the other pin.
        addRejection({"P9", "sequence parallel", "tp > 1 and a divisor of the sequence length",
                      fmt::format("tp {} and length {}", tp, query.training.sequenceLength)},
                     rejections);
    }
  }
  return groups;
}

void forEachPlan(const Query& query, const Group& group,
                 const std::function<void(const plan::Plan&)>& visit) {
  const Choices choices = choicesOf(query, group);
  plan::Plan plan = planOf(query, group);
  for (const Order& order : choices.orders)
    for (StateSharding sharding : choices.shardings)
      for (bool scatter : choices.scatters) {
        choose(order, sharding, group.dp, plan);
        plan.scatterGather = scatter;
        visit(plan);
      }
}

std::optional<plan::Plan> firstPlan(const Query& query, const Group& group,
                                    std::vector<Rejection>& rejections) {
  const Choices choices = choicesOf(query, group);
  if (choices.orders.empty()) addRejection(refuseOrder(query, group), rejections);
  if (choices.shardings.empty())
    addRejection({"P11", "sharded optimizer", "dp > 1", fmt::format("dp {}", group.dp)},
                 rejections);
  if (choices.scatters.empty()) addRejection(refuseScatter(query, group), rejections);
  if (choices.orders.empty() || choices.shardings.empty() || choices.scatters.empty())
    return std::nullopt;
  plan::Plan plan = planOf(query, group);
  choose(choices.orders.front(), choices.shardings.front(), group.dp, plan);
  plan.scatterGather = choices.scatters.front();
  return plan;
}

int64_t largestCount(const Query& query, int64_t limit) {
  const auto& pins = query.pins;
  const int64_t layers = query.model.numLayers;
  int64_t largest = 0;
  for (int64_t tp : divisorsOf(std::gcd(query.model.numKvHeads, query.model.ffnSize))) {
    if (!allows(pins.tp, tp) || tp > limit) continue;
    for (int64_t dp :
         divisorsOf(query.training.globalBatchSize / pins.microbatchSize.value_or(1))) {
      if (!allows(pins.dp, dp) || dp > limit / tp) continue;
      const int64_t most = std::min(layers, limit / (tp * dp));
      if (pins.pp.value_or(1) <= most)
        largest = std::max(largest, tp * dp * pins.pp.value_or(most));
    }
  }
  return largest;
}

bool simplerThan(const plan::Plan& a, const plan::Plan& b) {
  const auto key = [](const plan::Plan& p) {
    return std::make_tuple(p.tp, p.pp, p.virtualStages, p.recompute, p.sequenceParallel,
                           p.scatterGather, p.stateSharding, p.schedule == ScheduleKind::kGpipe,
                           p.microbatchSize);
  };
  if (key(a) != key(b)) return key(a) < key(b);
  for (size_t r = 0; r < a.layers.size(); ++r)
    for (size_t c = 0; c < a.layers[r].size(); ++c)
      if (a.layers[r][c].count != b.layers[r][c].count)
        return a.layers[r][c].count < b.layers[r][c].count;
  return false;
}

}  // namespace trireme::planner
