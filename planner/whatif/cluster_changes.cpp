#include <algorithm>
#include <optional>
#include <variant>

#include "ir/spec/cluster_names.h"
#include "ir/spec/stack_names.h"
#include "planner/whatif/change_lines.h"
#include "planner/whatif/changes.h"

namespace trireme::planner {
namespace {

using spec::DeviceSpec;
using spec::LinkTier;

template <typename Owner>
struct Number {
  std::string_view name;
  std::variant<double Owner::*, int64_t Owner::*, Bytes Owner::*, BytesPerSecond Owner::*,
               Seconds Owner::*>
      member;
};

// Besides rates of products and attention, which depend on the precision and the software.
constexpr Number<DeviceSpec> kDeviceNumbers[] = {
    {"memory bandwidth", &DeviceSpec::memoryBandwidth},
    {"memory efficiency", &DeviceSpec::memoryEfficiency},
    {"memory", &DeviceSpec::memory},
    {"launch overhead", &DeviceSpec::launchOverhead},
    {"multiprocessors", &DeviceSpec::numMultiprocessors},
    {"tile delivery", &DeviceSpec::tileDelivery},
    {"depth ramp", &DeviceSpec::depthRamp},
    {"wave share", &DeviceSpec::waveShare},
    {"batched matmul efficiency", &DeviceSpec::batchedMatmulEfficiency},
    {"accumulation exposed", &DeviceSpec::accumulationExposed}};

constexpr Number<LinkTier> kTierNumbers[] = {{"bandwidth", &LinkTier::bandwidth},
                                             {"efficiency", &LinkTier::efficiency},
                                             {"oversubscription", &LinkTier::oversubscription},
                                             {"ports", &LinkTier::nics},
                                             {"pair bandwidth", &LinkTier::pairBandwidth},
                                             {"latency", &LinkTier::latency}};

template <typename Owner, size_t kCount>
void addNumbers(ChangeLines& lines, const std::string& prefix,
                const Number<Owner> (&numbers)[kCount], const Owner& before, const Owner& after) {
  for (const Number<Owner>& number : numbers)
    std::visit(
        [&](auto member) {
          lines.addRatio(prefix + std::string(number.name), before.*member, after.*member);
        },
        number.member);
}

// Share of the peak that large products of linear layers reach.
double matmulShare(const Query& query) {
  return query.cluster.device.matmulShare(spec::linearFormat(query.training));
}

void addRate(ChangeLines& lines, const std::string& name, const spec::PeakRate* before,
             const spec::PeakRate* after) {
  if (before && after) lines.addRatio(name, before->rate, after->rate);
}

void addMatmul(ChangeLines& lines, const Query& before, const Query& after) {
  const auto peakOf = [](const Query& query) {
    return query.cluster.device.peak(spec::linearFormat(query.training));
  };
  const auto widePeakOf = [](const Query& query) {
    return query.cluster.device.peak(*mathFormatOf(spec::computeDType(query.training.precision)));
  };
  const spec::PeakRate *a = peakOf(before), *b = peakOf(after);
  addRate(lines, "matmul rate", a, b);
  const double shareBefore = matmulShare(before), shareAfter = matmulShare(after);
  lines.addRatio("matmul efficiency", shareBefore, shareAfter);
  if (a && b && shareBefore != shareAfter)
    lines.addRatio("matmul rate that is reached", a->rate * shareBefore, b->rate * shareAfter);
  if (a != widePeakOf(before) || b != widePeakOf(after))
    addRate(lines, "matmul rate of head and attention", widePeakOf(before), widePeakOf(after));
}

// Of fused attention as the query's software computes it; none of unfused products.
std::optional<spec::AttentionRate> attentionOf(const Query& query) {
  const DeviceSpec& device = query.cluster.device;
  if (query.stack.ownPrograms)
    return spec::AttentionRate{{}, device.attentionEfficiency, device.attentionEfficiency};
  const spec::AttentionKind kind = query.stack.description.attention;
  if (!spec::isFlash(kind)) return std::nullopt;
  return device.attentionRate(kind);
}

void addAttention(ChangeLines& lines, const Query& before, const Query& after) {
  const std::optional<spec::AttentionRate> a = attentionOf(before), b = attentionOf(after);
  if (!a || !b) return;
  lines.addRatio("attention efficiency, forward", a->forward, b->forward);
  lines.addRatio("attention efficiency, backward", a->backward, b->backward);
}

// Measured tables are too long for a line: how many there are.
template <typename T>
void addTables(ChangeLines& lines, const std::string& name, const std::vector<T>& before,
               const std::vector<T>& after) {
  if (before == after) return;
  if (before.size() != after.size())
    return lines.add(name, static_cast<int64_t>(before.size()), static_cast<int64_t>(after.size()));
  lines.addLine(fmt::format("{} {}, with other times", name, before.size()));
}

// What a tier that one side lacks is like.
std::string describe(const LinkTier& tier) {
  return fmt::format("{} ({} devices, {})", tier.name, tier.devices,
                     spec::readableQuantity(tier.bandwidth));
}

// The last tier has all devices, as many as there may be.
bool spansAll(const spec::ClusterSpec& cluster, size_t tier) {
  return tier + 1 == cluster.tiers.size();
}

void addTier(ChangeLines& lines, const spec::ClusterSpec& before, size_t tierBefore,
             const spec::ClusterSpec& after, size_t tierAfter) {
  const LinkTier &a = before.tiers[tierBefore], &b = after.tiers[tierAfter];
  lines.add("link", a.name, b.name);
  const std::string prefix = a.name == b.name ? a.name + " " : a.name + "/" + b.name + " ";
  if (!spansAll(before, tierBefore) || !spansAll(after, tierAfter))
    lines.addRatio(prefix + "domain, devices", a.devices, b.devices);
  lines.add(prefix + "topology", spec::nameOf(spec::kTopologies, a.topology),
            spec::nameOf(spec::kTopologies, b.topology));
  addNumbers(lines, prefix, kTierNumbers, a, b);
  addTables(lines, prefix + "measured collectives", a.curves, b.curves);
}

// For every tier of `a`, innermost first, that of `b` that it is to be compared with: of the same
// name; of those without one the outermost with the outermost.
std::vector<std::optional<size_t>> tiersLike(const spec::ClusterSpec& a,
                                             const spec::ClusterSpec& b) {
  std::vector<std::optional<size_t>> like(a.tiers.size());
  std::vector<bool> isTaken(b.tiers.size(), false);
  for (size_t i = 0; i < a.tiers.size(); ++i)
    for (size_t j = 0; j < b.tiers.size(); ++j)
      if (!isTaken[j] && !like[i] && a.tiers[i].name == b.tiers[j].name) {
        like[i] = j;
        isTaken[j] = true;
      }
  size_t j = b.tiers.size();
  for (size_t i = a.tiers.size(); i-- > 0;) {
    if (like[i]) continue;
    while (j > 0 && isTaken[j - 1]) --j;
    if (j == 0) break;
    like[i] = --j;
  }
  return like;
}

void addTiers(ChangeLines& lines, const spec::ClusterSpec& a, const spec::ClusterSpec& b) {
  const std::vector<std::optional<size_t>> like = tiersLike(a, b);
  for (size_t i = 0; i < like.size(); ++i)
    if (like[i]) addTier(lines, a, i, b, *like[i]);
  for (size_t i = 0; i < like.size(); ++i)
    if (!like[i]) lines.addLine(fmt::format("link {} only before", describe(a.tiers[i])));
  for (size_t j = 0; j < b.tiers.size(); ++j)
    if (std::find(like.begin(), like.end(), std::optional(j)) == like.end())
      lines.addLine(fmt::format("link {} only after", describe(b.tiers[j])));
}

// That a file says it is a change by itself: it tells parts of hosts from racks.
void addHost(ChangeLines& lines, const spec::ClusterSpec& before, const spec::ClusterSpec& after) {
  const bool isSaidOnce = (before.hostDevices > 0) != (after.hostDevices > 0);
  const auto text = [&](const spec::ClusterSpec& cluster) {
    const int64_t host = cluster.devicesPerHost();
    if (host == 0) return std::string("not known");
    return changeText(host) + (isSaidOnce && cluster.hostDevices == 0 ? " by its links" : "");
  };
  lines.add("devices of a host", text(before), text(after));
}

}  // namespace

std::vector<std::string> clusterChanges(const Query& before, const Query& after) {
  const spec::ClusterSpec &a = before.cluster, &b = after.cluster;
  ChangeLines lines;
  lines.add("device", a.device.name, b.device.name);
  addMatmul(lines, before, after);
  addAttention(lines, before, after);
  addNumbers(lines, "", kDeviceNumbers, a.device, b.device);
  addTables(lines, "measured kernels", a.device.kernels, b.device.kernels);
  addHost(lines, a, b);
  addTiers(lines, a, b);
  return lines.take();
}

}  // namespace trireme::planner
