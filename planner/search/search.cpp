#include "planner/search/search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ir/base/format.h"
#include "ir/spec/load.h"
#include "ir/spec/stack_on_device.h"
#include "planner/search/branch_and_bound.h"
#include "planner/search/pins.h"
#include "planner/search/relax.h"
#include "planner/search/relaxed_search.h"
#include "planner/space/space.h"

namespace trireme::planner {

namespace {

Status checkQuery(const Query& query) {
  TRIREME_RETURN_IF_ERROR(spec::verifyModel(query.model));
  if (query.model.numLayers > kMostLayers)
    return invalidArgument(
        fmt::format("model '{}' has {} layers, the planner takes up to {}; a plan for more has to "
                    "be written by hand",
                    query.model.name, query.model.numLayers, kMostLayers));
  TRIREME_RETURN_IF_ERROR(spec::verifyTraining(query.training, query.model));
  TRIREME_RETURN_IF_ERROR(cost::checkBatch(query.training));
  TRIREME_RETURN_IF_ERROR(spec::checkPrecision(query.stack, query.training));
  TRIREME_RETURN_IF_ERROR(spec::checkDevice(query.stack, query.cluster.device));
  TRIREME_RETURN_IF_ERROR(cost::checkCluster(query.cluster, query.training));
  const int64_t gpus = query.pins.gpus.value_or(query.cluster.numDevices);
  if (gpus < 1 || gpus > query.cluster.numDevices)
    return invalidArgument(fmt::format("{} devices are asked for, cluster {} has {}", gpus,
                                       query.cluster.name, query.cluster.numDevices));
  return {};
}

// The pins may be obeyed one by one, but not together with as many devices.
Status noLayout(int64_t devices, std::vector<Rejection> rejections) {
  // What the program has not bars most layouts, and is seen last.
  std::stable_partition(rejections.begin(), rejections.end(),
                        [](const Rejection& r) { return r.rule == "stack"; });
  std::vector<std::string> lines;
  std::set<std::pair<std::string, std::string>> said;  // The same for many layouts says no more.
  for (const Rejection& r : rejections)
    if (said.emplace(r.rule, r.subject).second)
      lines.push_back(
          fmt::format("({}) {} needs {}, there is {}", r.rule, r.subject, r.needed, r.available));
  constexpr size_t kMostLines = 6;
  if (lines.size() > kMostLines) lines.resize(kMostLines);
  if (lines.empty()) lines.emplace_back("tp x pp x dp is no such number");
  return infeasible(fmt::format("no layout of {} device{} obeys the pinned choices: {}", devices,
                                devices == 1 ? "" : "s or fewer", fmt::join(lines, "; ")));
}

// How ranks lie over the tiers, as far as block costs depend on it: of Trireme's own programs over
// which links tp ranks talk.
std::vector<int64_t> linksOf(const Query& query, const plan::Plan& plan) {
  const cost::Ranks ranks = cost::ranksOf(plan, query.cluster);
  if (!query.stack.ownPrograms) return innerBlocks(query, ranks);
  std::vector<int64_t> place;
  for (const cost::Level& level : cost::levelsOf(cost::tensorGroup(plan), ranks, query.cluster))
    for (const int64_t part :
         {level.size, static_cast<int64_t>(level.tier - query.cluster.tiers.data()),
          std::bit_cast<int64_t>(level.link.bandwidth.count()),
          std::bit_cast<int64_t>(level.link.latency.count())})
      place.push_back(part);
  return place;
}

// All that BlockCosts depend on, besides the query.
using ProbeKey = std::tuple<int64_t, int64_t, int64_t, plan::Recompute, bool, bool, bool, bool,
                            std::vector<int64_t>>;

// What probes of one query share.
struct Probes {
  std::map<ProbeKey, SharedBlocks> known;
  graph::Graphs graphs;
};

}  // namespace

Query withStackOnDevice(const Query& asked) {
  Query query = asked;
  query.stack =
      spec::stackOn(std::move(query.stack), query.training.precision, query.cluster.device);
  return query;
}

CostFunctions modelCosts(const Query& asked) {
  const auto used = std::make_shared<const Query>(withStackOnDevice(asked));
  const auto player = std::make_shared<cost::FlushPlayer>();
  const auto probes = std::make_shared<Probes>();
  return {[used, player](const plan::Plan& plan) {
            const auto estimate =
                cost::estimate(used->model, plan, used->cluster, used->stack, *player);
            player->trim();
            return estimate;
          },
          [used, probes](const plan::Plan& plan) -> Result<SharedBlocks> {
            const Query& query = *used;
            std::map<ProbeKey, SharedBlocks>& known = probes->known;
            const auto keyOf = [&](plan::Recompute recompute) {
              return ProbeKey{plan.tp,
                              plan.cp,
                              plan.microbatchSize,
                              recompute,
                              plan.sequenceParallel,
                              plan.overlapReductions && plan.tp > 1,
                              query.stack.ownPrograms && plan.pp == 1,
                              query.stack.ownPrograms && plan::splitsBackward(plan.schedule),
                              linksOf(query, plan)};
            };
            const ProbeKey key = keyOf(plan.recompute);
            if (const auto found = known.find(key); found != known.end()) return found->second;
            const BlockCosts* similar = nullptr;  // but for what is recomputed
            for (const plan::Recompute other :
                 {plan::Recompute::kNone, plan::Recompute::kSelective, plan::Recompute::kFull})
              if (const auto found = known.find(keyOf(other)); found != known.end())
                similar = found->second.get();
            TRIREME_ASSIGN_OR_RETURN(BlockCosts blocks,
                                     probeBlocks(query, plan, similar, &probes->graphs));
            return known.emplace(key, std::make_shared<const BlockCosts>(std::move(blocks)))
                .first->second;
          },
          player};
}

Result<PlanResult> searchPlan(const Query& query, const CostFunctions& costs,
                              const SearchProgress& progress) {
  return searchWithin(query, {}, costs, progress);
}

Result<PlanResult> searchWithin(const Query& asked, const SearchScope& scope,
                                const CostFunctions& costs, const SearchProgress& progress) {
  const auto start = std::chrono::steady_clock::now();
  TRIREME_RETURN_IF_ERROR(checkQuery(asked));
  const int64_t available = asked.pins.gpus.value_or(asked.cluster.numDevices);
  Query query = withStackOnDevice(asked);
  query.fingerprint = plan::fingerprintOf(asked.model);
  TRIREME_ASSIGN_OR_RETURN(query.pins, resolvePins(asked.pins));
  TRIREME_RETURN_IF_ERROR(checkPins(query, available));
  std::vector<Rejection> refused;
  for (int64_t gpus = available; gpus > scope.moreThan; gpus = largestCount(query, gpus - 1)) {
    BranchAndBound search(query, scope, costs, progress);
    search.openSpace(gpus);
    if (!search.hasSpace()) {
      if (refused.empty()) refused = std::move(search.rejections());
      continue;
    }
    TRIREME_RETURN_IF_ERROR(search.run());
    TRIREME_RETURN_IF_ERROR(search.openFewer(gpus));
    TRIREME_RETURN_IF_ERROR(search.run());
    TRIREME_RETURN_IF_ERROR(search.tryAllCuts());
    TRIREME_RETURN_IF_ERROR(search.noteLarge());
    if (!search.found() && query.slowest)
      return Error(infeasible("no plan is as fast as asked for"));
    if (!search.found() && !scope.isAnswer) return Error(infeasible("no plan fits in memory"));
    if (!search.found()) {
      TRIREME_ASSIGN_OR_RETURN(const plan::Plan leanest, search.findLeanest());
      return Error(missesMemory(query, leanest, search.ofEvenChunks(), costs));
    }
    const std::optional<Seconds> stepOfMost = search.bestStep(gpus);
    TRIREME_ASSIGN_OR_RETURN(PlanResult result, search.takeResult());
    result.gpusUsed = result.plan.numRanks();
    result.partlyFilled = cost::partlyFilled(result.plan, query.cluster);
    result.gpusAvailable = available;
    result.gpusWithLayout = gpus;
    Pins pins = query.pins;
    pins.gpus.reset();
    result.isPinned = pins != Pins{};
    result.stepOfMost = stepOfMost;
    if (!refused.empty())
      result.rejections.insert(result.rejections.begin(), refused.begin(), refused.end());
    result.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return result;
  }
  return Error(noLayout(available, refused));
}

Result<PlanResult> searchPlan(const Query& query, const SearchProgress& progress) {
  Result<PlanResult> result = searchPlan(query, modelCosts(query), progress);
  if (result.has_value() || result.error().code() != StatusCode::kInfeasible) return result;
  return Error(withRelaxations(query, result.error(), progress));
}

}  // namespace trireme::planner
