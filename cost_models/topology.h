// Which links a group of ranks uses. Ranks are laid over the blocks of a tier in order, as runs.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ir/base/units.h"
#include "ir/plan/plan.h"
#include "ir/program/program.h"
#include "ir/spec/cluster_spec.h"

namespace trireme::cost {

// A connection as one rank sees it.
struct Link {
  Seconds latency;           // fixed cost of one send, whatever its size
  BytesPerSecond bandwidth;  // sustained, one direction
};

// One level of a group: `size` equal blocks of the level below, joined by `link`. The product of
// the sizes over all levels is the size of the group (but see levelsOf); a group of one has no
// level.
struct Level {
  int64_t size = 1;
  Link link;
  const spec::LinkTier* tier = nullptr;  // that it runs over, for measured curves; not owned
  // How the members lie in the blocks below: for measured curves.
  enum class Lie : uint8_t { kInOrder, kEven, kUneven } lie = Lie::kUneven;
};
using Levels = std::vector<Level>;  // innermost first

// Ranks base + i * inner.stride + j * outer.stride, of which i < inner.size and j < outer.size.
struct GroupDim {
  int64_t size = 1;
  int64_t stride = 1;
};
struct GroupShape {
  GroupDim inner, outer = {};
};

// The shape of every group of `kind` under the plan's rank order (plan/sharding.h), of plans
// without context parallelism.
GroupShape groupShape(program::GroupKind kind, const plan::Plan& plan);
int64_t groupSize(const GroupShape& shape);

// All ranks that run at once, how many neighbours stay together in a block: those of a
// tensor-parallel group; and how many every host has, where launchers start as many on each, 0:
// hosts are not alike, or it is not known.
struct Ranks {
  int64_t all = 1, together = 1, perHost = 0;
};
Ranks ranksOf(const plan::Plan& plan, const spec::ClusterSpec& cluster);
// On hosts of which the ranks go to so many devices (plan::Plan::devicesPerHost; 0: to all).
Ranks ranksOn(int64_t devicesPerHost, int64_t ranks, int64_t tp, const spec::ClusterSpec& cluster);

// Whether blocks of the tier are parts of a host, of clusters that say how large hosts are.
bool isPartOfHost(size_t tier, const spec::ClusterSpec& cluster);

// Ranks in a block of the tier: as many as it has devices, or as ranks.perHost says of its hosts.
// Where that leaves a block partly empty, the same in each of the blocks that are needed, if hosts,
// inner blocks and `together` divide it, else as many whole hosts in each of some more blocks, at
// least half full, if that many can be had, else whole hosts, a host more in some blocks: then in
// the smallest. Parts of hosts (bridged pairs, where the cluster has hostDevices) that the ranks of
// a host do not fill are smaller.
//
//   a rack of 72,  64 ranks: 64      128 ranks: 64 in each of two      150 ranks: 50 in each of 3
//   with hosts of 4, 1,024 ranks: 64 in each of 16, of which 15 would have held them
//                      148 ranks: 48 in two, 52 in one
//   nodes of 8, 12 ranks by 2: 6 in each of two;  by 4: 8 and 4
//               20 ranks, 5 on every host: 5 in each of four;  else 8, 8 and 4
//   pairs in nodes of 8, 10 ranks: 1 (5 in each node);  12 ranks: 2
int64_t blockOf(size_t tier, const Ranks& ranks, const spec::ClusterSpec& cluster);

// Of a plan that needs several blocks of a tier and leaves them partly empty, how it does: "64
// ranks in each of 16 blocks of nvl72 (72 devices)". Otherwise empty.
std::string partlyFilled(const plan::Plan& plan, const spec::ClusterSpec& cluster);

// How a group lies over the tiers. A tier counts where one of its blocks has all ranks or where the
// members fill its blocks evenly. Of blocks with a host more or less, and where groups end within
// blocks, it counts with the members that a block has at least, whose ports carry what the group
// sends out of it (an upper bound of the time); the product of sizes is no less than the group
// then. Where that is one the group is joined by the next tier, as if that tier's links were not
// there but for neighbours within a block, whose links are those of the level where they are
// slower. All groups of a kind communicate at once and
// each member uses its own device's link, which is what LinkTier::sustained() is.
//
//   tiers 8 and 64 devices,  2 of 8 ranks at stride 6: one block of 8      -> levels 2
//   tiers 8 and 64 devices, 16 ranks at stride 4: 2 members per block of 8 -> levels 2, 8
//   tiers 8 and 64 devices,  6 ranks at stride 1: 2 and 4 in some groups   -> levels 2, 3
//   tiers 8 and 64 devices,  5 ranks at stride 1: 1 and 4 in some groups   -> levels 5 of tier 64
//   racks of 72, hosts of 4, 148 ranks: 48 in a rack at least             -> levels 48, 4
Levels levelsOf(const GroupShape& shape, const Ranks& ranks, const spec::ClusterSpec& cluster);
// The tier of the innermost level. Requires more than one member.
const spec::LinkTier& innermostTierOf(const GroupShape& shape, const Ranks& ranks,
                                      const spec::ClusterSpec& cluster);

// The link of the outermost tier that any transfer between neighbouring stages crosses or, where
// others cross an inner tier alone that is slower, no faster than that; with virtual stages the
// last stage neighbours the first. Of the pipeline that a block cuts off only the ranks of one
// stage send to the next block (with virtual stages those of two): where they are fewer than its
// devices they share its ports alone, each up to one port. Pipelines are of all ranks or, with
// replicas outermost, of one replica's. Requires pp > 1.
Link stageLink(const plan::Plan& plan, const spec::ClusterSpec& cluster);
// The same of two stages alone.
Link stageLink(int64_t from, int64_t to, const plan::Plan& plan, const spec::ClusterSpec& cluster);
// Of every stage and the next, of the last one and the first.
std::vector<Link> stageLinks(const plan::Plan& plan, const spec::ClusterSpec& cluster);

// The slowest link of a ring through the members of a group in the order of their ranks, `stride`
// apart. Of a block that it leaves so many ranks send to the next, one of each ring that lies side
// by side, and share its ports alone. Requires more than one member.
Link ringLink(const Levels& levels, int64_t stride, const spec::ClusterSpec& cluster);

// Whether messages between any two stages take a faster link with the stages of a replica next to
// each other than with the replicas of a stage, with one chunk per stage or with several. The
// plan's own order and chunks do not matter. Requires pp > 1.
bool stagesAreNearerInside(const plan::Plan& plan, const spec::ClusterSpec& cluster);

// Whether a tier's links are slower or later than those of a tier around it, so that replicas may
// reduce faster further apart.
bool hasSlowInside(const spec::ClusterSpec& cluster);

}  // namespace trireme::cost
