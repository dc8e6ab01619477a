#include "planner/whatif/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <tuple>

#include "planner/answer/outlook.h"
#include "planner/certainty.h"
#include "planner/plan_text.h"
#include "planner/search/search.h"

namespace trireme::planner {
namespace {

constexpr size_t kFewestRuns = 8, kLongestRun = 16;  // of points for one thread

template <typename T>
std::vector<T> orOnly(const std::vector<T>& values, T only) {
  return values.empty() ? std::vector<T>{only} : values;
}

std::string shapeOf(plan::Plan plan) {
  std::string text = summary(plan);
  const size_t begin = text.find("dp "), end = text.find(", ", begin);
  return text.erase(begin, end + 2 - begin);
}

// As --gpus of `trireme plan`: fewer devices are a part of the cluster, more are more of the same.
Status setDevices(int64_t gpus, Query& query) {
  query.pins.gpus = gpus;
  if (gpus <= query.cluster.numDevices) return {};
  if (!query.cluster.scalable)
    return invalidArgument(
        fmt::format("cluster '{}' has {} devices, and its file does not say "
                    "'scalable: true'; nearest: {}",
                    query.cluster.name, query.cluster.numDevices, query.cluster.numDevices));
  TRIREME_ASSIGN_OR_RETURN(query.cluster, spec::withRoomFor(query.cluster, gpus));
  return {};
}

// None: no links are between nodes. The blocks of the tier before are whole nodes, or have several.
std::optional<size_t> networkTier(const spec::ClusterSpec& cluster) {
  const int64_t node = devicesPerNode(cluster);
  if (cluster.tiers.size() < 2)
    return node < cluster.numDevices ? std::optional<size_t>(0) : std::nullopt;
  size_t tier = 1;
  while (tier + 1 < cluster.tiers.size() && cluster.tiers[tier - 1].devices < node) ++tier;
  return tier;
}

// Indices, so that what changes a plan least changes fastest: the network.
std::vector<size_t> neighboursFirst(const std::vector<SweepPoint>& points) {
  std::vector<size_t> order(points.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto keyOf = [&](size_t i) {
    const SweepPoint& p = points[i];
    return std::tuple(p.hardware, p.sequence, p.gpus, p.minusNodes, p.batch, p.interNode.count());
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return keyOf(a) < keyOf(b); });
  return order;
}

// The time of a plan with the choices of `near` on as many replicas as the query has devices for,
// or as divide its batch; none if there is no such plan, or it does not fit.
std::optional<Seconds> stepLike(plan::Plan near, const Query& query, const CostFunctions& costs) {
  const int64_t ranks = near.numRanks() / near.dp();
  const Pins& pins = query.pins;
  const int64_t most = std::min(*pins.gpus / ranks, pins.mostDp.value_or(*pins.gpus));
  near.training = query.training;
  int64_t dp = pins.dp.value_or(most);
  while (!pins.dp && dp > 1 && query.training.globalBatchSize % (dp * near.microbatchSize) != 0)
    --dp;
  if (dp < 1 || dp > most) return std::nullopt;
  if (near.stateSharding == plan::StateSharding::kNone) {
    near.dpReplicate = dp;
  } else {
    near.dpReplicate = dp % near.dpReplicate == 0 ? near.dpReplicate : 1;
    near.dpShard = dp / near.dpReplicate;
    if (pins.dpShard && near.dpShard != *pins.dpShard) return std::nullopt;
  }
  if (dp == 1) near.rankOrder = plan::RankOrder::kTpCpDpPp;
  if (!plan::verifyPlan(near, query.model).ok()) return std::nullopt;
  const Result<cost::Estimate> estimate = costs.estimate(near);
  if (!estimate.has_value() || !estimate->fits()) return std::nullopt;
  return estimate->step;
}

}  // namespace

int64_t devicesPerNode(const spec::ClusterSpec& cluster) {
  if (cluster.tiers.size() < 2 && cluster.hostDevices == 0) return cluster.numDevices;
  const int64_t host = cluster.devicesPerHost();
  return host > 0 ? host : cluster.tiers.front().devices;
}

int64_t nodesUsed(const plan::Plan& plan, const spec::ClusterSpec& cluster) {
  // Of hosts that the cluster does not say a node is a whole block.
  const bool isHost = cluster.devicesPerHost() > 0 && plan.devicesPerHost > 0;
  const int64_t node = devicesPerNode(cluster);
  const int64_t each = isHost ? std::min(plan.devicesPerHost, node) : node;
  return (plan.numRanks() + each - 1) / each;
}

int64_t presentDevices(const Sweep& sweep, const SweepPoint& point) {
  const int64_t node = devicesPerNode(sweep.hardware[point.hardware].cluster);
  return point.minusNodes > point.gpus / node ? 0 : point.gpus - point.minusNodes * node;
}

BytesPerSecond interNodeOf(const spec::ClusterSpec& cluster) {
  const std::optional<size_t> network = networkTier(cluster);
  return network ? cluster.tiers[*network].bandwidth : BytesPerSecond(0);
}

Result<spec::ClusterSpec> withInterNode(spec::ClusterSpec cluster, BytesPerSecond rate) {
  const std::optional<size_t> network = networkTier(cluster);
  if (!network)
    return Error(invalidArgument(
        fmt::format("cluster '{}' has one tier of links only, and its file does not say that "
                    "'devices_per_host' are fewer: nothing is between nodes",
                    cluster.name)));
  const double factor = rate.count() / cluster.tiers[*network].bandwidth.count();
  for (size_t i = *network; i < cluster.tiers.size(); ++i) scaleBandwidth(cluster.tiers[i], factor);
  cluster.tiers[*network].bandwidth = rate;  // exactly
  return cluster;
}

std::vector<SweepPoint> pointsOf(const Sweep& sweep) {
  const SweepAxes& axes = sweep.axes;
  std::vector<SweepPoint> points;
  for (size_t h = 0; h < sweep.hardware.size(); ++h) {
    const spec::ClusterSpec& cluster = sweep.hardware[h].cluster;
    const BytesPerSecond network = interNodeOf(cluster);
    for (const int64_t sequence : orOnly(axes.sequence, sweep.base.training.sequenceLength))
      for (const int64_t batch : orOnly(axes.batch, sweep.base.training.globalBatchSize))
        for (const BytesPerSecond interNode : orOnly(axes.interNode, network))
          for (const int64_t minusNodes : orOnly(axes.minusNodes, int64_t{0}))
            for (const int64_t gpus : orOnly(axes.gpus, cluster.numDevices))
              points.push_back({h, gpus, interNode, batch, sequence, minusNodes});
  }
  return points;
}

Result<Query> queryAt(const Sweep& sweep, const SweepPoint& point) {
  Query query = sweep.base;
  query.cluster = sweep.hardware[point.hardware].cluster;
  query.training.precision = sweep.hardware[point.hardware].precision;
  query.training.globalBatchSize = point.batch;
  query.training.sequenceLength = point.sequence;
  const int64_t node = devicesPerNode(query.cluster);
  const int64_t gpus = presentDevices(sweep, point);
  if (gpus < 1)
    return Error(invalidArgument(fmt::format(
        "{} of {} devices less: none of {} is left",
        point.minusNodes == 1 ? std::string("1 node") : fmt::format("{} nodes", point.minusNodes),
        node, point.gpus)));
  if (point.interNode != interNodeOf(query.cluster)) {
    TRIREME_ASSIGN_OR_RETURN(query.cluster, withInterNode(query.cluster, point.interNode));
  }
  TRIREME_RETURN_IF_ERROR(setDevices(gpus, query));
  return query;
}

// On another number of nodes and with another network between them, but for what depends on the
// links of cp ranks.
static bool mayShareBlocks(const Query& query, const plan::Plan& plan) {
  const spec::ClusterSpec& cluster = query.cluster;
  if (cluster.tiers.size() < 2 || cluster.tiers.front().devices == cluster.numDevices) return false;
  const cost::Levels tensor =
      cost::levelsOf(cost::tensorGroup(plan), cost::ranksOf(plan, cluster), cluster);
  return std::all_of(tensor.begin(), tensor.end(), [&](const cost::Level& level) {
    return level.tier == &cluster.tiers.front();
  });
}

CostFunctions PointPlanner::costsOf(const Query& query, const SweepPoint& point) {
  CostFunctions costs = modelCosts(query);
  if (query.stack.ownPrograms) return costs;
  costs.blocks = [this, &query, point, here = std::map<HereKey, SharedBlocks>(),
                  own = costs.blocks](const plan::Plan& plan) mutable -> Result<SharedBlocks> {
    const BlocksKey key{point.hardware, point.sequence,       plan.tp, plan.cp, plan.microbatchSize,
                        plan.recompute, plan.sequenceParallel};
    const HereKey hereKey{key, innerBlocks(query, cost::ranksOf(plan, query.cluster))};
    if (const auto found = here.find(hereKey); found != here.end()) return found->second;
    SharedBlocks blocks;
    const auto known = blocks_.find(key);
    const bool isShared = mayShareBlocks(query, plan);
    if (!isShared || known == blocks_.end()) {
      TRIREME_ASSIGN_OR_RETURN(blocks, own(plan));
      if (isShared) blocks_.emplace(key, blocks);
    } else if (plan.cp == 1) {
      blocks = known->second;
    } else {
      blocks = std::make_shared<const BlockCosts>(withContextLinks(query, plan, *known->second));
    }
    here.emplace(hereKey, blocks);
    return blocks;
  };
  return costs;
}

PointAnswer PointPlanner::answer(const SweepPoint& point) {
  PointAnswer answer;
  Result<Query> query = queryAt(sweep_, point);
  if (!query.has_value()) {
    answer.reason = query.error().message();
    return answer;
  }
  query->topK = 1;  // Runners-up do not change the winner.
  const CostFunctions costs = costsOf(*query, point);
  if (near_) query->slowest = stepLike(*near_, *query, costs);
  Result<PlanResult> result = searchPlan(*query, costs);
  if (!result.has_value() && query->slowest) {
    query->slowest.reset();
    result = searchPlan(*query, costs);
  }
  if (!result.has_value()) {
    answer.reason = result.error().message();
    return answer;
  }
  near_ = result->plan;
  answer.plan = summary(result->plan);
  answer.shape = shapeOf(result->plan);
  answer.gpusUsed = result->gpusUsed;
  answer.nodesUsed = nodesUsed(result->plan, sweep_.hardware[point.hardware].cluster);
  answer.step = result->estimate.step;
  answer.tokensPerSecond = result->estimate.tokensPerSecond;
  answer.modelFlopsUtilisation = result->estimate.modelFlopsUtilisation;
  answer.breakdown = result->estimate.breakdown;
  answer.memory = result->estimate.memory.total();
  answer.memoryTight = isTight(result->estimate);
  return answer;
}

void answerPoints(const Sweep& sweep, const std::vector<SweepPoint>& points, int numThreads,
                  const std::function<bool(size_t, const PointAnswer&)>& onAnswer) {
  std::atomic<size_t> next{0};
  std::atomic<bool> isStopped{false};
  std::mutex mutex;
  std::exception_ptr failure;
  const std::vector<size_t> order = neighboursFirst(points);
  // A run of neighbours is one thread's, so that each begins with the plan of the one before. How
  // long it is does not depend on the threads: answers do not, either.
  const size_t run = std::clamp<size_t>(points.size() / kFewestRuns, 1, kLongestRun);
  const size_t numRuns = (points.size() + run - 1) / run;
  const auto answerRuns = [&] {
    PointPlanner planner(sweep);
    for (size_t r = next++; r < numRuns; r = next++) {
      planner.forgetLast();  // which depends on the threads
      for (size_t i = r * run; i < std::min(points.size(), (r + 1) * run); ++i) {
        if (isStopped) return;
        const PointAnswer answer = planner.answer(points[order[i]]);
        const std::lock_guard lock(mutex);
        if (!isStopped && !onAnswer(order[i], answer)) isStopped = true;
      }
    }
  };
  const auto work = [&] {
    try {
      answerRuns();
    } catch (...) {
      isStopped = true;
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;  // joined, whatever happens
    try {
      for (size_t i = 1; i < std::min(static_cast<size_t>(numThreads), numRuns); ++i)
        threads.emplace_back(work);
    } catch (...) {
      isStopped = true;
      throw;
    }
    work();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace trireme::planner
