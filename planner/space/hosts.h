// How many devices of a host the ranks of a group go to. Internal to planner/.
#pragma once
#include <cstdint>
#include <vector>

#include "planner/query.h"
#include "planner/space/space.h"

namespace trireme::planner {

// Of a host that the group's ranks go to: all, or as many as make hosts alike, if the group or a
// rule of the program has it so and anything does. 0: the cluster does not say how large hosts are.
int64_t hostOf(const Query& query, const Group& group);

// How the ranks of groups with those degrees may lie on the hosts that there are
// (Group::fillsAlike): on full ones, or as many on each where that is another placement. A program
// whose rule demands it has no other.
std::vector<bool> placementsOf(const Query& query, const Group& degrees);

}  // namespace trireme::planner
