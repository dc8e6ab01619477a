#include "planner/relax.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ir/base/format.h"
#include "planner/report.h"

namespace trireme::planner {
namespace {

std::optional<plan::Plan> anyPlan(Query query, const SearchProgress& progress) {
  query.topK = 1;
  query.maxCosted = 1;
  auto result = searchPlan(query, modelCosts(query), progress);
  if (!result.has_value()) return std::nullopt;
  return std::move(result->plan);
}

// Gives up one pin and says what the plan has instead.
template <typename T, typename Describe>
void giveUp(const Query& query, std::optional<T> Pins::* pin, const char* name, Describe describe,
            std::vector<Relaxation>& found, const SearchProgress& progress) {
  if (!(query.pins.*pin)) return;
  Query relaxed = query;
  (relaxed.pins.*pin).reset();
  if (auto plan = anyPlan(relaxed, progress))
    found.push_back({fmt::format("{} {} (pinned: {})", name, describe(*plan).first,
                                 describe(*plan).second(*(query.pins.*pin))),
                     std::move(*plan)});
}

// As a pin has it: of one virtual stage after the other.
std::string layersPin(const plan::Plan& plan) {
  std::vector<int64_t> counts;
  for (int64_t chunk = 0; chunk < plan.virtualStages; ++chunk)
    for (const auto& stage : plan.layers) counts.push_back(stage[static_cast<size_t>(chunk)].count);
  return fmt::format("{}", fmt::join(counts, ","));
}

void giveUpLayers(const Query& query, std::vector<Relaxation>& found,
                  const SearchProgress& progress) {
  if (query.pins.layers.empty()) return;
  Query relaxed = query;
  relaxed.pins.layers.clear();
  if (auto plan = anyPlan(relaxed, progress))
    found.push_back(
        {fmt::format("layers {} (pinned: {})", layersPin(*plan), fmt::join(query.pins.layers, ",")),
         std::move(*plan)});
}

void addMoreDevices(const Query& query, std::vector<Relaxation>& found,
                    const SearchProgress& progress) {
  constexpr int64_t kMostTimes = 64;
  const int64_t base = query.pins.gpus.value_or(query.cluster.numDevices);
  for (int64_t times = 2; times <= kMostTimes; times *= 2) {
    Query larger = query;
    larger.pins.gpus = base * times;
    if (base * times > query.cluster.numDevices) {
      auto cluster = spec::withNumDevices(query.cluster, base * times);
      if (!cluster.has_value()) continue;
      larger.cluster = std::move(*cluster);
    }
    if (auto plan = anyPlan(larger, progress)) {
      found.push_back(
          {fmt::format("{} devices (there are {})", plan->numRanks(), base), std::move(*plan)});
      return;
    }
  }
}

}  // namespace

std::vector<Relaxation> relaxations(const Query& query, const SearchProgress& progress) {
  std::vector<Relaxation> found;
  const auto number = [](auto get) {
    return [get](const plan::Plan& plan) {
      return std::pair(get(plan), [](int64_t v) { return fmt::format("{}", v); });
    };
  };
  const auto flag = [](auto get) {
    return [get](const plan::Plan& plan) {
      return std::pair(get(plan) ? "on" : "off", [](bool v) { return v ? "on" : "off"; });
    };
  };
  const auto named = [](auto get, auto name) {
    return [get, name](const plan::Plan& plan) { return std::pair(name(get(plan)), name); };
  };
  using plan::Plan;
  giveUp(query, &Pins::tp, "tp", number([](const Plan& p) { return p.tp; }), found, progress);
  giveUp(query, &Pins::pp, "pp", number([](const Plan& p) { return p.pp; }), found, progress);
  giveUp(query, &Pins::cp, "cp", number([](const Plan& p) { return p.cp; }), found, progress);
  giveUp(query, &Pins::dp, "dp", number([](const Plan& p) { return p.dp(); }), found, progress);
  giveUp(query, &Pins::microbatchSize, "microbatch",
         number([](const Plan& p) { return p.microbatchSize; }), found, progress);
  giveUp(query, &Pins::virtualStages, "virtual stages",
         number([](const Plan& p) { return p.virtualStages; }), found, progress);
  giveUp(query, &Pins::schedule, "schedule",
         named([](const Plan& p) { return p.schedule; }, plan::scheduleName), found, progress);
  giveUp(query, &Pins::recompute, "recompute",
         named([](const Plan& p) { return p.recompute; }, plan::recomputeName), found, progress);
  giveUp(query, &Pins::stateSharding, "state sharding",
         named([](const Plan& p) { return p.stateSharding; }, plan::stateShardingName), found,
         progress);
  giveUp(query, &Pins::sequenceParallel, "sequence parallel",
         flag([](const Plan& p) { return p.sequenceParallel; }), found, progress);
  giveUp(query, &Pins::scatterGather, "scatter-gather",
         flag([](const Plan& p) { return p.scatterGather; }), found, progress);
  giveUpLayers(query, found, progress);
  addMoreDevices(query, found, progress);
  return found;
}

Status missesMemory(const Query& query, const plan::Plan& leanest, const CostFunctions& costs) {
  const Result<cost::Estimate> estimate = costs.estimate(leanest);
  if (!estimate.has_value()) return estimate.error();
  return infeasible(
      fmt::format("no plan fits in memory: the leanest needs {} of {} per device, {} too much ({})",
                  formatBytes(estimate->memory.total()), formatBytes(query.cluster.device.memory),
                  formatBytes(estimate->missing()), summary(leanest)));
}

Status withRelaxations(const Query& query, const Status& status, const SearchProgress& progress) {
  std::vector<std::string> changes;
  for (const Relaxation& relaxation : relaxations(query, progress))
    changes.push_back(relaxation.change);
  if (changes.empty())
    return {status.code(), status.message() + "; no single change of the query gives a plan"};
  return {status.code(),
          fmt::format("{}; would work: {}", status.message(), fmt::join(changes, ", or "))};
}

}  // namespace trireme::planner
