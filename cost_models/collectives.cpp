#include "cost_models/collectives.h"

#include <algorithm>
#include <cmath>

#include "ir/base/status.h"

namespace trireme::cost {
namespace {

// Every rank sends one n-th of the tensor to its neighbour, n - 1 times.
Seconds onePassTime(Bytes payload, int64_t n, const Link& link) {
  TRIREME_CHECK(n >= 1);
  const Seconds chunk = (payload / link.bandwidth) / static_cast<double>(n);
  return (link.latency + chunk) * static_cast<double>(n - 1);
}

// Of the hops of one ring through all members.
Seconds latencyOf(const Levels& levels) {
  Seconds total;
  double blocks = 1;  // of the level
  for (size_t k = levels.size(); k-- > 0;) {
    total += levels[k].link.latency * (static_cast<double>(levels[k].size - 1) * blocks);
    blocks *= static_cast<double>(levels[k].size);
  }
  return total;
}

// Of the busiest link.
Seconds paceOf(Bytes payload, const Levels& levels) {
  Seconds slowest;
  double members = 1;
  for (const Level& level : levels) {
    slowest = std::max(slowest, payload / (level.link.bandwidth * members));
    members *= static_cast<double>(level.size);
  }
  return slowest * ((members - 1) / members);
}

Seconds onePassTime(Bytes payload, const Levels& levels) {
  return paceOf(payload, levels) + latencyOf(levels);
}

// Null: none for as many members, or they lie in another way.
const spec::CollectiveCurve* curveOf(spec::CollectiveKind kind, const Levels& levels) {
  const Level& outermost = levels.back();
  if (outermost.tier == nullptr) return nullptr;
  int64_t members = 1;
  for (const Level& level : levels) members *= level.size;
  const auto liesAs = [&](const spec::CollectiveCurve& curve) {
    if (curve.perBlock == 0) return outermost.lie == Level::Lie::kInOrder;
    return outermost.lie == Level::Lie::kEven && curve.perBlock == members / outermost.size;
  };
  for (const spec::CollectiveCurve& curve : outermost.tier->curves)
    if (curve.kind == kind && curve.group == members && liesAs(curve)) return &curve;
  return nullptr;
}

// Passes over the tensor: what bus bandwidth counts (nccl-tests, PERFORMANCE.md).
double passesOf(spec::CollectiveKind kind) {
  return kind == spec::CollectiveKind::kAllReduce ? 2 : 1;
}

Seconds timeAt(const spec::CollectivePoint& point, const spec::CollectiveCurve& curve) {
  const double n = static_cast<double>(curve.group);
  return point.bytes * (passesOf(curve.kind) * (n - 1) / n) / point.busBandwidth;
}

// Of so many bytes more than the last point has. A curve that has levelled off keeps its bus
// bandwidth. Before, much of the time is latency, which is paid once: they take what they take
// between the last two points, but no less than on the links, which alone tell behind one point.
Seconds timeBeyond(const spec::CollectiveCurve& curve, Bytes more, const Levels& levels) {
  constexpr double kLevel = 1.05;  // for twice the bytes: what is measured varies by as much
  const std::vector<spec::CollectivePoint>& points = curve.points;
  const spec::CollectivePoint& last = points.back();
  const Seconds time = timeAt(last, curve), most = time * (more / last.bytes);
  const Seconds onLinks = paceOf(more, levels) * passesOf(curve.kind);
  if (points.size() < 2) return std::min(onLinks, most);
  const spec::CollectivePoint& before = points[points.size() - 2];
  const double doublings = std::log2(last.bytes / before.bytes);
  if (last.busBandwidth <= before.busBandwidth * std::pow(kLevel, doublings)) return most;
  const Seconds goingOn = (time - timeAt(before, curve)) * (more / (last.bytes - before.bytes));
  return std::min(std::max(goingOn, onLinks), most);
}

Seconds interpolated(const spec::CollectiveCurve& curve, Bytes payload, Seconds latency,
                     const Levels& levels) {
  const std::vector<spec::CollectivePoint>& points = curve.points;
  const auto next = std::find_if(points.begin(), points.end(),
                                 [&](const auto& point) { return point.bytes >= payload; });
  if (next == points.end())
    return timeAt(points.back(), curve) + timeBeyond(curve, payload - points.back().bytes, levels);
  const Seconds above = timeAt(*next, curve);
  if (next == points.begin()) {
    const Seconds least = std::min(latency, above);
    return least + (above - least) * (payload / next->bytes);
  }
  const Seconds below = timeAt(*(next - 1), curve);
  const double place =
      std::log(payload / (next - 1)->bytes) / std::log(next->bytes / (next - 1)->bytes);
  return below * std::pow(above / below, place);
}

}  // namespace

Seconds ringReduceScatterTime(Bytes payload, int64_t n, const Link& link) {
  return onePassTime(payload, n, link);
}

Seconds ringAllGatherTime(Bytes payload, int64_t n, const Link& link) {
  return onePassTime(payload, n, link);
}

Seconds ringAllReduceTime(Bytes payload, int64_t n, const Link& link) {
  return ringReduceScatterTime(payload, n, link) + ringAllGatherTime(payload, n, link);
}

Seconds reduceScatterTime(Bytes payload, const Levels& levels) {
  return onePassTime(payload, levels);
}

Seconds allGatherTime(Bytes payload, const Levels& levels) { return onePassTime(payload, levels); }

Seconds allReduceTime(Bytes payload, const Levels& levels) {
  return reduceScatterTime(payload, levels) + allGatherTime(payload, levels);
}

Seconds collectiveTime(spec::CollectiveKind kind, Bytes payload, const Levels& levels) {
  using spec::CollectiveKind;
  if (levels.empty()) return {};
  const Seconds latency = latencyOf(levels) * passesOf(kind);
  if (const spec::CollectiveCurve* curve = curveOf(kind, levels)) {
    const Seconds measured = interpolated(*curve, payload, latency, levels);
    // Measured alone; in a step others share the links.
    return curve->perBlock == 0 ? measured
                                : std::max(measured, paceOf(payload, levels) * passesOf(kind));
  }
  if (kind == CollectiveKind::kAllReduce) return allReduceTime(payload, levels);
  if (const spec::CollectiveCurve* curve = curveOf(CollectiveKind::kAllReduce, levels))
    return std::max(interpolated(*curve, payload, latency * 2, levels) / 2,
                    paceOf(payload, levels));
  return allGatherTime(payload, levels);
}

Seconds leastCollectiveTime(spec::CollectiveKind kind, Bytes payload, int64_t parts,
                            const Levels& levels) {
  using spec::CollectiveKind;
  if (levels.empty()) return {};
  const auto atBest = [&](const spec::CollectiveCurve& curve) {
    spec::CollectivePoint best = curve.points.front();
    for (const spec::CollectivePoint& point : curve.points)
      best.busBandwidth = std::max(best.busBandwidth, point.busBandwidth);
    const Seconds least = timeAt(best, curve) * (payload / best.bytes);
    if (payload <= curve.points.back().bytes) return least;
    return std::min(least, timeBeyond(curve, payload, levels));  // as if all were beyond
  };
  if (const spec::CollectiveCurve* curve = curveOf(kind, levels)) return atBest(*curve);
  if (const spec::CollectiveCurve* curve = curveOf(CollectiveKind::kAllReduce, levels))
    return std::max(atBest(*curve) / 2, paceOf(payload, levels));
  return collectiveTime(kind, payload, levels) +
         collectiveTime(kind, Bytes(0), levels) * static_cast<double>(parts - 1);
}

Seconds leastTensorTime(spec::CollectiveKind kind, Bytes payload, int64_t tp,
                        const spec::ClusterSpec& cluster) {
  const auto timeOn = [&](const spec::ClusterSpec& on) {
    return collectiveTime(kind, payload, levelsOf({{tp, 1}}, {tp, tp}, on));
  };
  if (tp == 1) return {};
  Seconds least = timeOn(cluster);
  if (!isPartOfHost(0, cluster)) return least;
  spec::ClusterSpec rest = cluster;
  while (isPartOfHost(0, rest)) {
    rest.tiers.erase(rest.tiers.begin());
    least = std::min(least, timeOn(rest));
  }
  return least;
}

Seconds exposedTime(Seconds time, Seconds work, double share) {
  return std::max(time * share, time - work);
}

Seconds sendTime(Bytes payload, const Link& link) {
  return link.latency + payload / link.bandwidth;
}

std::vector<Seconds> stageHops(Bytes message, const plan::Plan& plan,
                               const spec::ClusterSpec& cluster) {
  std::vector<Seconds> hops;
  for (const Link& link : stageLinks(plan, cluster)) hops.push_back(sendTime(message, link));
  if (plan.virtualStages == 1) hops.back() = hops.front();  // nobody's
  return hops;
}

}  // namespace trireme::cost
