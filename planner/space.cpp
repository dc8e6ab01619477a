#include "planner/space.h"

#include <fmt/format.h>

#include <algorithm>
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
  if (group.pp > 1 && microbatches % group.pp == 0)
    for (int64_t v = 2; v * group.pp <= query.model.numLayers; ++v)
      add(ScheduleKind::kInterleaved, v);
  return orders;
}

bool mayScatter(const Query& query, const Group& g) {
  const int64_t elements =
      g.microbatchSize * query.training.sequenceLength * query.model.hiddenSize;
  return g.tp > 1 && g.pp > 1 && !g.sequenceParallel && elements % g.tp == 0;
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
        if (std::find(rejections.begin(), rejections.end(), *refused) == rejections.end())
          rejections.push_back(std::move(*refused));
      } else {
        addGroups(query, tp, pp, dp, groups);
      }
    }
  }
  return groups;
}

void forEachPlan(const Query& query, const Group& group,
                 const std::function<void(const plan::Plan&)>& visit) {
  plan::Plan plan;
  plan.model = query.model.name;
  plan.fingerprint = plan::fingerprintOf(query.model);
  plan.training = query.training;
  plan.vocabMultiple = query.vocabMultiple;
  plan.tp = group.tp;
  plan.pp = group.pp;
  plan.microbatchSize = group.microbatchSize;
  plan.recompute = group.recompute;
  plan.sequenceParallel = group.sequenceParallel;
  for (const Order& order : ordersOf(query, group)) {
    plan.schedule = order.schedule;
    plan.virtualStages = order.virtualStages;
    for (StateSharding sharding : {StateSharding::kNone, StateSharding::kOptimizer}) {
      const bool sharded = sharding == StateSharding::kOptimizer;
      if (!allows(query.pins.stateSharding, sharding) || (sharded && group.dp == 1)) continue;
      plan.stateSharding = sharding;
      plan.dpReplicate = sharded ? 1 : group.dp;
      plan.dpShard = sharded ? group.dp : 1;
      for (bool scatter : {false, true}) {
        if (!allows(query.pins.scatterGather, scatter) || (scatter && !mayScatter(query, group)))
          continue;
        plan.scatterGather = scatter;
        visit(plan);
      }
    }
  }
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
