// How the ranks of a group's plans may be numbered.
#pragma once
#include <vector>

#include "ir/plan/plan.h"
#include "planner/query.h"
#include "planner/space/space.h"

namespace trireme::planner {

// Rank orders of the group's plans, the default first if it is one. The other one where the stack
// can, there are stages and replicas, and it may be better (mayBeBetterInside); wherever it is
// legal, if pinned. It goes with unsharded and sharded optimizers alone
// (plan::rankOrderGoesWithSharding).
std::vector<plan::RankOrder> rankOrdersOf(const Query& query, const Group& group);
// Whether the stages of a replica next to each other may be faster than the replicas of a stage, by
// what the stack's estimate says: where messages between stages take a faster link for it, or where
// links inside are the slow ones, which replicas then leave. Or whether they may fit where the
// others do not: NCCL keeps less for connections that leave hosts.
bool mayBeBetterInside(const Query& query, const plan::Plan& degrees);
// Those that pins and the stack leave, worthwhile or not.
std::vector<plan::RankOrder> allowedOrders(const Query& query, const Group& group);

}  // namespace trireme::planner
