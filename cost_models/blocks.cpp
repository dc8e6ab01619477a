#include "cost_models/blocks.h"

#include <algorithm>
#include <numeric>

namespace trireme::cost {
namespace {

// Divisions are most of what a group's tiers take, and every bound asks for them.
bool isMultiple(int64_t a, int64_t of) { return of == 1 || a % of == 0; }

}  // namespace

int64_t Blocks::next() {
  const int64_t inner = unlike_ ? unlike_->unit : block_;
  const bool isLast = tier_ + 1 == cluster_.tiers.size();
  const int64_t whole = devicesOf(tier_++);
  int64_t devices = whole;
  // Of blocks inside that are partly empty there are no more than of full ones.
  if (!isLast && block_ != devicesBefore_)
    devices = std::max(devices / devicesBefore_ * block_, int64_t{1});
  devicesBefore_ = whole;
  unlike_.reset();
  const int64_t blocks = (ranks_.all + devices - 1) / devices;
  const int64_t even = ranks_.all / blocks;
  const bool isEven = ranks_.all == even * blocks && isMultiple(even, inner);
  block_ = isEven && (blocks == 1 || keepsTogether(even, whole)) ? even : 0;
  if (block_ == 0 && !isLast) block_ = alikeInMore(devices, inner);
  if (block_ == 0 && !isLast && (unlike_ = unlikeOf(devices, inner)))
    return block_ = unlike_->least;
  if (block_ == 0) block_ = devices;
  if (!isMultiple(block_, inner)) block_ = devices / inner * inner;
  return block_;
}

// Of a block of the tier, as far as ranks go to them. Parts of a host, bridged pairs say, that the
// ranks of every host do not fill are as if they were smaller: five on each have no pairs that
// begin with every host.
int64_t Blocks::devicesOf(size_t tier) const {
  const int64_t devices = cluster_.tiers[tier].devices;
  if (ranks_.perHost < host_) {
    if (devices < host_) return std::gcd(devices, ranks_.perHost);
    return devices / host_ * ranks_.perHost;
  }
  if (!isPartOfHost(tier, cluster_)) return devices;
  int64_t around = 0;  // the same for all parts, so that they nest
  for (size_t i = tier + 1; i < cluster_.tiers.size(); ++i)
    if (cluster_.tiers[i].devices <= cluster_.hostDevices) around = cluster_.tiers[i].devices;
  if (ranks_.all <= around) return devices;
  const int64_t blocks = (ranks_.all + around - 1) / around, even = ranks_.all / blocks;
  const bool isEven = ranks_.all == even * blocks && isMultiple(even, ranks_.together);
  return isEven ? std::gcd(devices, even) : devices;
}

// What stays together, and hosts.
bool Blocks::keepsTogether(int64_t even, int64_t whole) const {
  const bool hasHosts = hasPartOfHosts() && whole > ranks_.perHost;
  return isMultiple(even, ranks_.together) && (!hasHosts || isMultiple(even, ranks_.perHost));
}

// Whole hosts in each of more blocks than are needed: the most that divide the ranks and part none
// that stay together. 0: there are none, or blocks would be less than half full.
int64_t Blocks::alikeInMore(int64_t devices, int64_t inner) const {
  const int64_t host = hasPartOfHosts() ? ranks_.perHost : cluster_.devicesPerHost();
  if (host == 0) return 0;
  const int64_t unit = std::lcm(std::lcm(host, inner), ranks_.together);
  const int64_t mostBlocks = cluster_.scalable ? ranks_.all : cluster_.numDevices / devices;
  const int64_t most = std::min(devices, ranks_.all);
  for (int64_t held = most / unit * unit; held > 0 && 2 * held >= devices; held -= unit)
    if (ranks_.all % held == 0 && ranks_.all / held <= mostBlocks) return held;
  return 0;
}

// Whole hosts, as equally many as can be, in as few blocks as hold them.
std::optional<UnlikeBlocks> Blocks::unlikeOf(int64_t devices, int64_t inner) const {
  if (!hasPartOfHosts()) return std::nullopt;
  const int64_t unit = std::lcm(std::lcm(ranks_.perHost, inner), ranks_.together);
  const int64_t ofBlock = devices / unit, units = ranks_.all / unit;
  if (ofBlock == 0 || units * unit != ranks_.all) return std::nullopt;
  const int64_t count = (units + ofBlock - 1) / ofBlock;
  if (count < 2 || units % count == 0) return std::nullopt;
  return UnlikeBlocks{count, units % count, units / count * unit, unit};
}

}  // namespace trireme::cost
