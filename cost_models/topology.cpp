#include "cost_models/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "cost_models/blocks.h"
#include "ir/base/status.h"
#include "ir/plan/choices.h"
#include "ir/plan/sharding.h"

namespace trireme::cost {
namespace {

using program::GroupKind;

Link linkOf(const spec::LinkTier& tier) { return {tier.latency, tier.sustained()}; }

// Members of the dim within one block of `devices` ranks; 0: not the same in every block.
int64_t membersInside(const GroupDim& dim, int64_t devices) {
  if (dim.size == 1) return 1;
  const int64_t extent = dim.size * dim.stride;
  if (devices % extent == 0) return dim.size;
  if (devices % dim.stride == 0 && extent % devices == 0) return devices / dim.stride;
  if (dim.stride % devices == 0) return 1;
  return 0;
}

int64_t membersInside(const GroupShape& shape, int64_t devices) {
  return membersInside(shape.inner, devices) * membersInside(shape.outer, devices);
}

// Where groups end within blocks: in that with the fewest, of those that have members of a group.
// Groups begin at multiples of their extent.
int64_t leastInside(const GroupDim& dim, int64_t devices) {
  if (devices % dim.stride != 0) return 0;
  return std::gcd(dim.size * dim.stride, devices) / dim.stride;
}

int64_t leastInside(const GroupShape& shape, int64_t devices) {
  const int64_t inner = membersInside(shape.inner, devices);
  const int64_t outer = membersInside(shape.outer, devices);
  if (outer == shape.outer.size) return leastInside(shape.inner, devices) * outer;
  return inner == shape.inner.size ? inner * leastInside(shape.outer, devices) : 0;
}

// The same of blocks that are unlike: in that with the fewest, of those that have members of a
// group. Blocks end at multiples of unlike.unit.
int64_t leastInside(const GroupDim& dim, const UnlikeBlocks& unlike) {
  const int64_t extent = dim.size * dim.stride;
  if (dim.size == 1 || unlike.unit % extent == 0) return dim.size;
  if (unlike.unit % dim.stride != 0) return 0;
  int64_t least = extent, end = 0;
  for (int64_t i = 0; i < unlike.count; ++i) {
    const int64_t block = i < unlike.numLarger ? unlike.most() : unlike.least, begin = end;
    end += block;
    // Of the group that the block begins within, and of that it ends within.
    if (begin % extent != 0) least = std::min(least, std::min(extent - begin % extent, block));
    if (end % extent != 0) least = std::min(least, std::min(end % extent, block));
    if (block < extent) least = std::min(least, block);
  }
  return least / dim.stride;
}

int64_t leastInside(const GroupShape& shape, const UnlikeBlocks& unlike) {
  const int64_t inner = leastInside(shape.inner, unlike), outer = leastInside(shape.outer, unlike);
  const bool isWhole = inner == shape.inner.size || outer == shape.outer.size;
  return isWhole ? inner * outer : 0;
}

// Whether any of the ranks [first, first + count) and the rank `distance` > 0 behind it are in
// different blocks: the one nearest to the end of its block decides.
bool leavesBlock(int64_t first, int64_t count, int64_t distance, int64_t devices) {
  const int64_t last = first % devices + count - 1;
  return std::min(last, devices - 1) + distance >= devices;
}

// Whether both are in the same block: that nearest to the beginning of its block decides.
bool staysInBlock(int64_t first, int64_t count, int64_t distance, int64_t devices) {
  const int64_t place = first % devices;
  const bool hasBeginning = place == 0 || place + count > devices;
  return (hasBeginning ? 0 : place) + distance < devices;
}

// Whether a transfer from one stage to a later one is as `inBlock` says in any of the pipelines,
// which follow each other. Their places in blocks repeat.
template <typename InBlock>
bool anyPipeline(InBlock inBlock, int64_t from, int64_t to, const plan::Plan& plan,
                 int64_t devices) {
  const int64_t perStage = plan::stageStride(plan), pipeline = plan.pp * perStage;
  const int64_t all = plan.numRanks() / pipeline;
  const int64_t different = std::min(all, devices / std::gcd(devices, pipeline));
  for (int64_t i = 0; i < different; ++i)
    if (inBlock(i * pipeline + from * perStage, perStage, (to - from) * perStage, devices))
      return true;
  return false;
}

// Where blocks end: at multiples of so many ranks. Of unlike ones any host may be the last.
int64_t endsOf(size_t tier, const Ranks& ranks, const spec::ClusterSpec& cluster) {
  Blocks blocks(ranks, cluster);
  int64_t block = 0;
  for (size_t i = 0; i <= tier; ++i) block = blocks.next();
  return blocks.unlike() ? blocks.unlike()->unit : block;
}

// The outermost tier that a transfer from one stage to a later one crosses.
size_t tierBetween(int64_t from, int64_t to, const plan::Plan& plan,
                   const spec::ClusterSpec& cluster) {
  size_t tier = 0;
  while (tier + 1 < cluster.tiers.size() &&
         anyPipeline(leavesBlock, from, to, plan, endsOf(tier, ranksOf(plan, cluster), cluster)))
    ++tier;
  return tier;
}

// And that any of them crosses, of pipelines of so many ranks: a block that ends within one parts
// two neighbouring stages, and the last from the first. If the first block does not, none does.
size_t tierBetweenStages(int64_t pipeline, const Ranks& ranks, const spec::ClusterSpec& cluster) {
  size_t tier = 0;
  while (tier + 1 < cluster.tiers.size()) {
    const int64_t block = endsOf(tier, ranks, cluster);
    if (ranks.all <= block || block % pipeline == 0) break;
    ++tier;
  }
  return tier;
}

// `sending`: ranks that send from a block of the tier before. What leaves several hosts together
// leaves each by its own ports first.
Link sharedLink(size_t tier, int64_t sending, const spec::ClusterSpec& cluster) {
  Link link = linkOf(cluster.tiers[tier]);
  if (tier == 0) return link;
  const auto block = static_cast<double>(cluster.tiers[tier - 1].devices);
  const double crossing = std::min(block, static_cast<double>(sending));
  const BytesPerSecond shared = link.bandwidth * (block / crossing);
  link.bandwidth = std::max(link.bandwidth, std::min(shared, cluster.sustainedPair(tier)));
  if (tier > 1 && cluster.tiers[tier - 1].devices > cluster.devicesPerHost())
    link.bandwidth = std::min(link.bandwidth, sharedLink(tier - 1, sending, cluster).bandwidth);
  return link;
}

int64_t sendingOf(const plan::Plan& plan) {
  return plan::stageStride(plan) * (plan.virtualStages > 1 ? 2 : 1);
}

// Of transfers that cross tiers up to `outermost`, some of them an inner one alone: the slowest,
// wherever that is.
template <typename IsCrossed>
Link slowestLink(size_t outermost, IsCrossed isCrossedAlone, const plan::Plan& plan,
                 const spec::ClusterSpec& cluster) {
  Link slowest = sharedLink(outermost, sendingOf(plan), cluster);
  for (size_t tier = 0; tier < outermost; ++tier) {
    if (!isCrossedAlone(endsOf(tier, ranksOf(plan, cluster), cluster))) continue;
    const Link link = sharedLink(tier, sendingOf(plan), cluster);
    slowest.latency = std::max(slowest.latency, link.latency);
    slowest.bandwidth = std::min(slowest.bandwidth, link.bandwidth);
  }
  return slowest;
}

}  // namespace

bool isPartOfHost(size_t tier, const spec::ClusterSpec& cluster) {
  return tier + 1 < cluster.tiers.size() && cluster.tiers[tier + 1].devices <= cluster.hostDevices;
}

GroupShape groupShape(GroupKind kind, const plan::Plan& plan) {
  const int64_t t = plan.tp, d = plan.dp(), p = plan.pp;
  const int64_t toStage = plan::stageStride(plan), toReplica = plan::replicaStride(plan);
  switch (kind) {
    case GroupKind::kTp:
      return {{t, 1}};
    case GroupKind::kDp:
      return {{d, toReplica}};
    case GroupKind::kPp:
      return {{p, toStage}};
    case GroupKind::kEmbedding:
      return p == 1 ? GroupShape{{1, 1}} : GroupShape{{2, toStage * (p - 1)}};
    case GroupKind::kModel:
      if (toStage == t) return {{t * p, 1}};
      return {{t, 1}, {p, toStage}};
    case GroupKind::kWorld:
      return {{t * d * p, 1}};
  }
  return {};
}

int64_t groupSize(const GroupShape& shape) { return shape.inner.size * shape.outer.size; }

Ranks ranksOf(const plan::Plan& plan, const spec::ClusterSpec& cluster) {
  return ranksOn(plan.devicesPerHost, plan.numRanks(), plan.tp, cluster);
}

Ranks ranksOn(int64_t devicesPerHost, int64_t ranks, int64_t tp, const spec::ClusterSpec& cluster) {
  const int64_t host = cluster.devicesPerHost();
  const int64_t used = devicesPerHost > 0 && host > 0 ? std::min(devicesPerHost, host)
                                                      : std::max(devicesPerHost, host);
  const auto alike = used > 0 ? plan::ranksPerHost(ranks, tp, used) : std::optional<int64_t>();
  return {ranks, tp, alike.value_or(0)};
}

int64_t blockOf(size_t tier, const Ranks& ranks, const spec::ClusterSpec& cluster) {
  Blocks blocks(ranks, cluster);
  for (size_t i = 0; i < tier; ++i) blocks.next();
  return blocks.next();
}

std::string partlyFilled(const plan::Plan& plan, const spec::ClusterSpec& cluster) {
  const Ranks ranks = ranksOf(plan, cluster);
  Blocks blocks(ranks, cluster);
  for (size_t i = 0; i + 1 < cluster.tiers.size(); ++i) {
    const spec::LinkTier& tier = cluster.tiers[i];
    const int64_t block = blocks.next();
    if (block == 1 && isPartOfHost(i, cluster)) continue;
    if (block >= tier.devices || block >= ranks.all) continue;
    const bool isEven = !blocks.unlike();
    return fmt::format(
        "{} ranks in each of {} blocks of {} ({} devices)",
        isEven ? fmt::format("{}", block) : fmt::format("{} or {}", block, blocks.unlike()->most()),
        isEven ? ranks.all / block : blocks.unlike()->count, tier.name, tier.devices);
  }
  return "";
}

namespace {

// The levels of a group, innermost first: how many blocks of the level below each joins, and over
// which tier.
class LevelsOf {
 public:
  LevelsOf(const GroupShape& shape, const Ranks& ranks, const spec::ClusterSpec& cluster)
      : shape_(shape),
        ranks_(ranks),
        cluster_(cluster),
        blocks_(ranks, cluster),
        size_(groupSize(shape)) {
    TRIREME_CHECK(size_ >= 1);
  }

  bool isDone() const { return joined_ == size_; }
  // Of the blocks that were joined last, and the first tier of those that some neighbours are
  // joined by alone, members being spread unevenly over its blocks: up to the one that joins them
  // all.
  struct Joined {
    int64_t size = 1;
    size_t tier = 0, firstInside = 0;
    bool isUneven = false;  // some blocks have more members, and the last may have fewer blocks
  };
  // Requires that it is not done.
  Joined next() {
    const size_t first = tier_;
    size_t firstInside = cluster_.tiers.size();
    for (; tier_ < cluster_.tiers.size(); ++tier_) {
      const bool last = tier_ + 1 == cluster_.tiers.size();
      const int64_t block = blocks_.next();
      const bool hasAll = last || ranks_.all <= block;
      const int64_t inside = hasAll ? size_ : insideOf(block);
      if (inside < joined_) firstInside = std::min(firstInside, tier_);
      if (inside <= joined_ || (!hasAll && inside % joined_ != 0)) continue;
      const size_t tier = tier_++;
      isUneven_ = isUneven_ || (!hasAll && size_ % inside != 0);
      const int64_t below = std::exchange(joined_, inside);
      return {(inside + below - 1) / below, tier, std::clamp(firstInside, first, tier), isUneven_};
    }
    TRIREME_CHECK(false);
  }

 private:
  // Members that every block has; where blocks are unlike, or groups end within them, at least: 0
  // if some have no more than those that are joined already.
  int64_t insideOf(int64_t block) {
    if (const auto& unlike = blocks_.unlike()) {
      const int64_t inside = leastInside(shape_, *unlike);
      return inside == size_ ? inside : inside / joined_ * joined_;
    }
    if (const int64_t inside = membersInside(shape_, block); inside > 0) return inside;
    const int64_t inside = leastInside(shape_, block) / joined_ * joined_;
    if (inside <= joined_) return 0;
    isUneven_ = true;
    return inside;
  }

  const GroupShape& shape_;
  const Ranks& ranks_;
  const spec::ClusterSpec& cluster_;
  Blocks blocks_;
  const int64_t size_;
  int64_t joined_ = 1;
  size_t tier_ = 0;
  bool isUneven_ = false;
};

}  // namespace

Levels levelsOf(const GroupShape& shape, const Ranks& ranks, const spec::ClusterSpec& cluster) {
  Levels levels;
  LevelsOf group(shape, ranks, cluster);
  if (!group.isDone()) levels.reserve(cluster.tiers.size());
  // Neighbours of each other, in order.
  const bool isRun =
      shape.inner.stride == 1 && (shape.outer.size == 1 || shape.outer.stride == shape.inner.size);
  while (!group.isDone()) {
    const auto [size, tier, firstInside, isUneven] = group.next();
    const Level::Lie lie = isUneven              ? Level::Lie::kUneven
                           : tier == 0 || isRun  ? Level::Lie::kInOrder
                           : firstInside == tier ? Level::Lie::kEven
                                                 : Level::Lie::kUneven;
    Level level{size, linkOf(cluster.tiers[tier]), &cluster.tiers[tier], lie};
    for (size_t inside = firstInside; inside < tier; ++inside) {
      const Link link = linkOf(cluster.tiers[inside]);
      level.link.latency = std::max(level.link.latency, link.latency);
      level.link.bandwidth = std::min(level.link.bandwidth, link.bandwidth);
    }
    levels.push_back(level);
  }
  return levels;
}

const spec::LinkTier& innermostTierOf(const GroupShape& shape, const Ranks& ranks,
                                      const spec::ClusterSpec& cluster) {
  return cluster.tiers[LevelsOf(shape, ranks, cluster).next().tier];
}

Link stageLink(int64_t from, int64_t to, const plan::Plan& plan, const spec::ClusterSpec& cluster) {
  TRIREME_CHECK(!cluster.tiers.empty());
  const int64_t first = std::min(from, to), last = std::max(from, to);
  return slowestLink(
      tierBetween(first, last, plan, cluster),
      [&](int64_t block) { return anyPipeline(staysInBlock, first, last, plan, block); }, plan,
      cluster);
}

// The first pipeline begins a block, and its first two stages are in it if they have room.
Link stageLink(const plan::Plan& plan, const spec::ClusterSpec& cluster) {
  TRIREME_CHECK(!cluster.tiers.empty());
  const int64_t perStage = plan::stageStride(plan);
  return slowestLink(
      tierBetweenStages(plan.pp * perStage, ranksOf(plan, cluster), cluster),
      [&](int64_t block) { return perStage < block; }, plan, cluster);
}

std::vector<Link> stageLinks(const plan::Plan& plan, const spec::ClusterSpec& cluster) {
  const int64_t perStage = plan::stageStride(plan);
  const Ranks ranks = ranksOf(plan, cluster);
  const size_t outermost = tierBetweenStages(plan.pp * perStage, ranks, cluster);
  bool areAlike = true;  // no block of an inner tier has two stages
  for (size_t tier = 0; tier < outermost; ++tier)
    areAlike &= blockOf(tier, ranks, cluster) <= perStage;
  if (areAlike) return std::vector<Link>(static_cast<size_t>(plan.pp), stageLink(plan, cluster));
  std::vector<Link> links;
  for (int64_t stage = 0; stage < plan.pp; ++stage)
    links.push_back(stageLink(stage, (stage + 1) % plan.pp, plan, cluster));
  return links;
}

Link ringLink(const Levels& levels, int64_t stride, const spec::ClusterSpec& cluster) {
  TRIREME_CHECK(!levels.empty());
  const auto linkOfLevel = [&](const Level& level) {
    return sharedLink(static_cast<size_t>(level.tier - cluster.tiers.data()), stride, cluster);
  };
  Link slowest = linkOfLevel(levels.front());
  for (const Level& level : levels) {
    const Link link = linkOfLevel(level);
    slowest.latency = std::max(slowest.latency, link.latency);
    slowest.bandwidth = std::min(slowest.bandwidth, link.bandwidth);
  }
  return slowest;
}

namespace {

bool isFaster(const Link& a, const Link& b) {
  return a.bandwidth > b.bandwidth || a.latency < b.latency;
}

// With the stages of a replica next to each other.
bool anyHopIsFaster(plan::Plan plan, const spec::ClusterSpec& cluster) {
  if (blockOf(0, ranksOf(plan, cluster), cluster) <= plan.tp * plan.cp)
    return false;  // all leave nodes
  for (const int64_t chunks : {1, 2}) {
    plan.virtualStages = chunks;
    plan.rankOrder = plan::RankOrder::kTpCpDpPp;
    const std::vector<Link> far = stageLinks(plan, cluster);
    plan.rankOrder = plan::RankOrder::kTpCpPpDp;  // one by one: as a rule the first says it
    for (int64_t r = 0; r + (chunks == 1 ? 1 : 0) < plan.pp; ++r)
      if (isFaster(stageLink(r, (r + 1) % plan.pp, plan, cluster), far[static_cast<size_t>(r)]))
        return true;
  }
  return false;
}

}  // namespace

bool stagesAreNearerInside(const plan::Plan& plan, const spec::ClusterSpec& cluster) {
  TRIREME_CHECK(!cluster.tiers.empty());
  const Ranks ranks = ranksOf(plan, cluster);
  const int64_t inside = plan.tp * plan.cp, outside = inside * plan.dp();
  const size_t near = tierBetweenStages(plan.pp * inside, ranks, cluster);
  const size_t far = tierBetweenStages(plan.pp * outside, ranks, cluster);
  if (far == 0) return false;
  for (const int64_t chunks : {1, 2}) {
    const Link a = sharedLink(near, inside * chunks, cluster);
    const Link b = sharedLink(far, outside * chunks, cluster);
    if (isFaster(a, b)) return true;
  }
  return anyHopIsFaster(plan, cluster);
}

bool hasSlowInside(const spec::ClusterSpec& cluster) {
  for (size_t outer = 1; outer < cluster.tiers.size(); ++outer)
    if (isFaster(linkOf(cluster.tiers[outer]), linkOf(cluster.tiers[outer - 1]))) return true;
  return false;
}

}  // namespace trireme::cost
