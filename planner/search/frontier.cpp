#include "planner/search/frontier.h"

#include <algorithm>
#include <cmath>

#include "planner/cuts/cut_bound.h"
#include "planner/rounding.h"

namespace trireme::planner {

namespace {

Seconds splitBound(const Query& query, const Group& group, double microbatches, double most,
                   const Work& work) {
  if (work.layer.count() <= 0) return {};
  const auto layers = static_cast<double>(query.model.numLayers);
  const PassTimes& passes = work.passes;
  const Seconds forwards = passes.forward * layers;
  const Seconds between(
      leastBetween(plan::ScheduleKind::kZeroBubbleH2, group.pp, microbatches, passes) * most);
  const Seconds trip = forwards + passes.backward * layers + between;
  if (query.stack.description.postValidation) return trip;
  const Seconds first =
      forwards + passes.backward * (layers - 1) + (passes.backward + passes.weights) * microbatches;
  const double q = passes.forward / work.layer / microbatches;
  const double all = q > 0 && q < 1 ? 1 - std::pow(1 - q, static_cast<double>(group.pp)) : 1;
  return std::max({trip, first, forwards / all});
}

}  // namespace

Seconds groupBound(const Query& query, const Group& group, const Work& work) {
  const auto microbatches =
      static_cast<double>(query.training.globalBatchSize / (group.dp * group.microbatchSize));
  const auto stages = static_cast<double>(group.pp);
  const auto most = static_cast<double>((query.model.numLayers + group.pp - 1) / group.pp);
  const Seconds busiest = std::max(work.all / stages, work.layer * most);
  const Seconds ends = work.all - work.layer * static_cast<double>(query.model.numLayers);
  const Seconds others = work.layer * (stages - 3) + std::min(ends, work.layer);
  if (group.splitsBackward)
    return std::max(busiest * microbatches, splitBound(query, group, microbatches, most, work)) *
           kRounding;
  return (busiest * microbatches + std::max(others, Seconds(0))) * kRounding;
}

Seconds shapeBound(const Query& query, const Group& shape, const Work& work, int64_t mostRanks) {
  const auto microbatches =
      static_cast<double>(query.training.globalBatchSize / shape.microbatchSize);
  return work.all * (microbatches / static_cast<double>(mostRanks)) * kRounding;
}

}  // namespace trireme::planner
