#include "planner/space/rank_orders.h"

#include <optional>

#include "cost_models/described_memory.h"
#include "cost_models/memory.h"
#include "cost_models/topology.h"

namespace trireme::planner {

namespace {

Bytes reserveWith(const Query& query, plan::Plan plan, plan::RankOrder order) {
  plan.rankOrder = order;
  return query.stack.ownPrograms
             ? cost::leastReserve(plan, query.stack, query.cluster)
             : cost::describedReserve(plan, query.cluster, query.stack.description);
}

}  // namespace

bool mayBeBetterInside(const Query& query, const plan::Plan& degrees) {
  return cost::hasSlowInside(query.cluster) ||
         cost::stagesAreNearerInside(degrees, query.cluster) ||
         reserveWith(query, degrees, plan::RankOrder::kTpCpPpDp) <
             reserveWith(query, degrees, plan::RankOrder::kTpCpDpPp);
}

std::vector<plan::RankOrder> allowedOrders(const Query& query, const Group& group) {
  const std::optional<plan::RankOrder>& pin = query.pins.rankOrder;
  std::vector<plan::RankOrder> orders;
  const auto allows = [&](plan::RankOrder order) { return pin.value_or(order) == order; };
  if (allows(plan::RankOrder::kTpCpDpPp)) orders.push_back(plan::RankOrder::kTpCpDpPp);
  if (allows(plan::RankOrder::kTpCpPpDp) && group.pp > 1 && group.dp > 1 &&
      query.stack.supports(spec::StackChoice::kRankOrder))
    orders.push_back(plan::RankOrder::kTpCpPpDp);
  return orders;
}

std::vector<plan::RankOrder> rankOrdersOf(const Query& query, const Group& group) {
  std::vector<plan::RankOrder> orders = allowedOrders(query, group);
  if (orders.empty() || orders.back() != plan::RankOrder::kTpCpPpDp || query.pins.rankOrder)
    return orders;
  plan::Plan degrees;
  degrees.tp = group.tp;
  degrees.pp = group.pp;
  degrees.cp = group.cp;
  degrees.dpReplicate = group.dp;
  if (!mayBeBetterInside(query, degrees)) orders.pop_back();
  return orders;
}

}  // namespace trireme::planner
