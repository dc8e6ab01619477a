#include "tests/runtime/executor/rank_grid.h"

namespace trireme::runtime {

using program::GroupKind;

namespace {

// A number that exactly the members of one group share.
int32_t groupNumber(const program::Program& p, int32_t rank, GroupKind kind) {
  const int32_t t = rank % p.tp, d = rank / p.tp % p.dp, s = rank / p.tp / p.dp;
  switch (kind) {
    case GroupKind::kTp:
      return s * p.dp + d;
    case GroupKind::kDp:
      return s * p.tp + t;
    case GroupKind::kPp:
    case GroupKind::kEmbedding:
      return d * p.tp + t;  // of two stages, both are ends
    case GroupKind::kModel:
      return d;
    case GroupKind::kWorld:
      return 0;
  }
  return 0;
}

}  // namespace

void addRankGrid(program::Program& p) {
  const int32_t n = p.tp * p.pp * p.dp;
  for (int32_t rank = 0; rank < n; ++rank)
    p.ranks.push_back(
        {rank / p.tp / p.dp, rank % p.tp, rank / p.tp % p.dp, rank / p.tp / p.dp, {}});
  for (int kind = 0; kind < program::kNumGroupKinds; ++kind)
    for (int32_t number = 0; number < n; ++number) {
      program::Group group{static_cast<GroupKind>(kind), {}};
      for (int32_t rank = 0; rank < n; ++rank)
        if (groupNumber(p, rank, group.kind) == number) group.ranks.push_back(rank);
      if (group.ranks.empty()) continue;
      for (int32_t rank : group.ranks)
        p.ranks[static_cast<size_t>(rank)].group[static_cast<size_t>(kind)] =
            static_cast<int32_t>(p.groups.size());
      p.groups.push_back(group);
    }
}

}  // namespace trireme::runtime
