#include "planner/space/hosts.h"

#include <algorithm>
#include <optional>

#include "ir/plan/choices.h"

namespace trireme::planner {
namespace {

bool mustBeAlike(const Query& query) {
  const std::vector<spec::StackRule>& rules = query.stack.rules;
  return std::find(rules.begin(), rules.end(), spec::StackRule::kAlikeHosts) != rules.end();
}

// Devices of each host that ranks go to, so that hosts are alike on those that there are.
std::optional<int64_t> alikeHost(const Query& query, const Group& group, int64_t host) {
  const int64_t devices = query.pins.gpus.value_or(query.cluster.numDevices);
  return plan::alikeOfHost(group.tp * group.pp * group.cp * group.dp, group.tp, host, devices);
}

}  // namespace

int64_t hostOf(const Query& query, const Group& group) {
  const int64_t known = query.cluster.devicesPerHost();
  if (!group.fillsAlike && !mustBeAlike(query)) return known;
  const int64_t whole = known > 0 ? known : plan::kUsualHost;
  return alikeHost(query, group, whole).value_or(whole);
}

std::vector<bool> placementsOf(const Query& query, const Group& degrees) {
  const int64_t known = query.cluster.devicesPerHost();
  if (known == 0 || mustBeAlike(query)) return {false};
  return alikeHost(query, degrees, known).value_or(known) == known ? std::vector<bool>{false}
                                                                   : std::vector<bool>{false, true};
}

}  // namespace trireme::planner
