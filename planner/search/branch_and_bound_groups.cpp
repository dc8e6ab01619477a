// How groups are opened: those of a space, what is known of them without expansions and with them.
#include <algorithm>
#include <utility>

#include "planner/search/branch_and_bound.h"
#include "planner/space/hosts.h"
#include "planner/space/own_memory.h"

namespace trireme::planner {

const Work& BranchAndBound::workOf(const Group& g) {
  const WorkKey key{g.tp,
                    g.cp,
                    g.microbatchSize,
                    g.recompute,
                    g.sequenceParallel,
                    g.overlapReductions,
                    g.splitsBackward};
  const auto [place, isNew] = work_.try_emplace(key);
  if (isNew) place->second = leastWork(query_, g);
  return place->second;
}

void BranchAndBound::openSpace(int64_t gpus) {
  mostGpus_ = gpus;
  for (const Group& group : groupsFor(query_, gpus, rejections_)) {
    if (!hasPlan(query_, group)) {
      firstPlan(query_, group, rejections_);  // says why
      continue;
    }
    frontier_.push(
        {groupBound(query_, group, workOf(group)), NodeKind::kGroup, group, nullptr, nullptr});
    ++certificate_.numGroups;
  }
  numGroupsShown_ = certificate_.numGroups;
}

Status BranchAndBound::openFewer(int64_t gpus) {
  if (isDone() || gpus - 1 <= scope_.moreThan) return {};
  for (const Group& shape : shapesFor(query_, gpus - 1))
    TRIREME_RETURN_IF_ERROR(openFewer(shape, gpus));
  return {};
}

// Bounds that take a moment go before those that need blocks, which depend on where all the ranks
// lie. Programs of Trireme's own are probed when their turn comes: it takes an expansion.
Status BranchAndBound::openFewer(const Group& shape, int64_t gpus) {
  const std::optional<Seconds> limit = cutoff();
  const int64_t mostRanks = (gpus - 1) / (shape.tp * shape.cp);
  const auto isSlow = [&](Seconds bound) { return limit && bound > *limit; };
  const Work& least = workOf(shape);
  if (isSlow(shapeBound(query_, shape, least, mostRanks))) {
    prune("fewer devices");
    return {};
  }
  BlocksByPlaces known;
  int64_t numPruned = 0;
  const std::vector<int64_t> stages = stagesOf(query_, mostRanks);
  for (const int64_t dp : replicasOf(query_, shape, mostRanks)) {
    // Few stages are too slow whatever they do.
    const auto most = std::upper_bound(stages.begin(), stages.end(), mostRanks / dp);
    const auto fewest = std::partition_point(stages.begin(), most, [&](int64_t pp) {
      return isSlow(shapeBound(query_, shape, least, dp * pp));
    });
    numPruned += fewest - stages.begin();
    for (auto pp = fewest; pp != most; ++pp) {
      Group group = shape;
      group.dp = dp;
      group.pp = *pp;
      if (!scope_.isAnswer && isUseless(group)) continue;
      const Node node{groupBound(query_, group, least), NodeKind::kGroup, group, nullptr, nullptr};
      if (isSlow(node.bound)) {
        ++numPruned;
        continue;
      }
      for (const bool fillsAlike : placementsOf(query_, group)) {
        Node placed = node;
        placed.group.fillsAlike = fillsAlike;
        if (!query_.stack.ownPrograms) TRIREME_RETURN_IF_ERROR(probe(placed, known));
        if (isSlow(placed.bound) ||
            (placed.blocks &&
             leastMemory(query_, placed.group, *placed.blocks) > query_.cluster.device.memory)) {
          ++numPruned;
        } else if (hasPlan(query_, placed.group)) {
          ++certificate_.numGroups;
          frontier_.push(std::move(placed));
        }
      }
    }
  }
  if (numPruned > 0) pruned_["fewer devices"] += numPruned;
  return {};
}

// In place, with what is known of groups whose ranks lie as its own.
Status BranchAndBound::probe(Node& node, BlocksByPlaces& known) {
  SharedBlocks& blocks = known[innerBlocks(query_, ranksOf(query_, node.group))];
  if (blocks == nullptr) {
    TRIREME_ASSIGN_OR_RETURN(blocks, costs_.blocks(planOf(query_, node.group)));
  }
  node.blocks = blocks;
  node.kind = NodeKind::kProbedGroup;
  node.bound = groupBound(query_, node.group, probedWork(query_, *blocks));
  return {};
}

bool BranchAndBound::isNews(const Degrees& degrees, Bytes least) const {
  if (!scope_.isAnswer) return false;
  // Of the degrees on all devices the answer says what the leanest plan needs, of others only if
  // nothing fits.
  const auto [tp, pp, cp, dp] = degrees;
  if (tp * pp * cp * dp == mostGpus_ && misfits_.isNews(degrees, least)) return true;
  return !found() && misfits_.mayBeLean(least);
}

Bytes BranchAndBound::reserveOf(const Group& group) {
  const auto [place, isNew] = reserves_.try_emplace(
      {degreesOf(group), group.overlapReductions, group.splitsBackward, group.fillsAlike});
  if (isNew) place->second = leastReserve(query_, group);
  return place->second;
}

// No plan of it can be the answer, or a part of it, as is known without an expansion.
bool BranchAndBound::isUseless(const Group& group) {
  if (group.tp * group.pp * group.cp * group.dp <= scope_.moreThan) return true;
  if (!query_.stack.ownPrograms) return false;
  const Bytes least = planner::unprobedMemory(query_, group, reserveOf(group));
  return least > query_.cluster.device.memory && !isNews(degreesOf(group), least);
}

// At least, without an expansion for the group: with many samples in a microbatch most need too
// much.
Result<Bytes> BranchAndBound::unprobedMemory(const Group& group) {
  const Bytes reserve = reserveOf(group);
  const Bytes least = planner::unprobedMemory(query_, group, reserve);
  if (least > query_.cluster.device.memory || group.microbatchSize == 1) return least;
  TRIREME_ASSIGN_OR_RETURN(const SharedBlocks blocks,
                           costs_.blocks(planOf(query_, sampleOf(query_, group))));
  return std::max(least, leastMemoryBySample(query_, group, *blocks, reserve));
}

// Of groups that need too much memory, those whose need the answer says, the leanest first.
Status BranchAndBound::noteLarge() {
  if (query_.slowest && !found()) return {};  // which says nothing about memory
  std::stable_sort(large_.begin(), large_.end(),
                   [](const Large& a, const Large& b) { return a.least < b.least; });
  for (Large& large : large_) {
    Node& node = large.node;
    const Degrees degrees = degreesOf(node.group);
    if ((found() && mayFit(degrees)) || !isNews(degrees, large.least)) {
      prune("group memory");
      continue;
    }
    TRIREME_ASSIGN_OR_RETURN(node.blocks, costs_.blocks(planOf(query_, node.group)));
    expandGroup(node);
  }
  return {};
}

// Costs of real layers take an expansion of programs of Trireme's own; most groups are too slow
// even with those of a plainer one.
Status BranchAndBound::liken(const Node& node) {
  if (isUseless(node.group)) {
    prune("group memory");
    return {};
  }
  if (!query_.stack.ownPrograms) return probe(node);
  TRIREME_ASSIGN_OR_RETURN(const Bytes least, unprobedMemory(node.group));
  if (least > query_.cluster.device.memory) {
    large_.push_back({least, node});
    return {};
  }
  const std::optional<Group> plain = plainerThan(query_, node.group);
  if (!plain) return probe(node);
  TRIREME_ASSIGN_OR_RETURN(const SharedBlocks blocks, costs_.blocks(planOf(query_, *plain)));
  Node likened = node;
  likened.kind = NodeKind::kLikenedGroup;
  likened.bound = std::max(node.bound, groupBound(query_, node.group, probedWork(query_, *blocks)));
  frontier_.push(std::move(likened));
  return {};
}

Status BranchAndBound::probe(const Node& node) {
  Node probed = node;
  probed.kind = NodeKind::kProbedGroup;
  TRIREME_ASSIGN_OR_RETURN(probed.blocks, costs_.blocks(planOf(query_, node.group)));
  probed.bound =
      std::max(node.bound, groupBound(query_, node.group, probedWork(query_, *probed.blocks)));
  frontier_.push(std::move(probed));
  return {};
}

}  // namespace trireme::planner
